//! Claims that pods use are not deleted: a finalizer stays on them until the last such pod is gone.
//!
//! What always holds: before the finalizer comes off the server was asked for pods, not only the informer. A pod that has
//! no node yet does not hold a claim that is going: no agent starts a pod whose claim is.

use crate::volumes::claims;
use crate::volumes::protection::{self, Due, due};
use crate::{Change, Context, Failure, Informer, Key, Next, Queue, Reconcile, run};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};
use std::sync::Arc;

/// How many pods are asked for at a time.
const PAGE: u32 = 500;

struct Protection {
    context: Context,
    claims: Informer<PersistentVolumeClaim>,
    pods: Informer<Pod>,
    finalizer: String,
}

pub async fn run(context: Context) {
    let queue = Queue::<Key>::default();
    let finalizer = context.names.well_known("pvc-protection");
    let (claims, pods) = (context.informer::<PersistentVolumeClaim>(), context.informer::<Pod>());
    let (news, own) = (queue.clone(), finalizer.clone());
    claims.listen(move |change| {
        if !change.is_removal() && due(&**change.object(), &own).is_some() {
            news.add(change.key());
        }
    });
    claims::index(&pods);
    let news = queue.clone();
    pods.listen(move |change| {
        if let Change::Updated { old, new } = change
            && old.uid() != new.uid()
        {
            claims::keys(old).for_each(|key| news.add(key));
        }
        if change.is_removal() || lets_go(change.object()) {
            claims::keys(change.object()).for_each(|key| news.add(key));
        }
    });
    claims.synced().await;
    pods.synced().await;
    run::run(Arc::new(Protection { context, claims, pods, finalizer }), queue, 1).await;
}

/// Whether a pod may not hold its claims, or hold them no longer.
fn lets_go(pod: &Pod) -> bool {
    !has_node(pod) || claims::is_done(pod) || is_shut_down(pod)
}

fn has_node(pod: &Pod) -> bool {
    crate::pods::rank::node(pod).is_some()
}

/// Whether its agent is through with it, or nobody asks the agent.
fn is_shut_down(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() && pod.metadata.deletion_grace_period_seconds == Some(0)
}

/// Whether a pod keeps a claim from going.
fn holds(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let name = claim.meta().name.as_deref().unwrap_or("");
    let made_for = || !is_shut_down(pod) && claims::check_made_for(claim, pod).is_ok();
    has_node(pod) && claims::of(pod).any(|it| it.claim == name && (!it.ephemeral || made_for()))
}

impl Reconcile for Protection {
    type Key = Key;

    fn name(&self) -> &'static str {
        "pvc-protection"
    }

    fn queue_name(&self) -> &'static str {
        "pvcprotection"
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let Some(claim) = self.claims.get(key) else { return Ok(Next::Changes) };
        let Some(due) = due(&*claim, &self.finalizer) else { return Ok(Next::Changes) };
        if due == Due::On || !self.is_used(key, &claim).await? {
            let api = Api::namespaced(self.context.client.clone(), &key.namespace);
            protection::settle(&api, &*claim, &self.finalizer, due).await?;
        }
        Ok(Next::Changes)
    }
}

impl Protection {
    async fn is_used(&self, key: &Key, claim: &PersistentVolumeClaim) -> Result<bool, Failure> {
        if claims::users(&self.pods, key).iter().any(|pod| holds(pod, claim)) {
            return Ok(true);
        }
        let pods: Api<Pod> = Api::namespaced(self.context.client.clone(), &key.namespace);
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = pods.list(&params).await?;
            if page.items.iter().any(|pod| holds(pod, claim)) {
                return Ok(true);
            }
            let Some(token) = page.metadata.continue_.filter(|it| !it.is_empty()) else { return Ok(false) };
            params = params.continue_token(&token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn who_holds_a_claim() {
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true});
        let claim = |name: &str, owned: bool| -> PersistentVolumeClaim {
            let owners = if owned { json!([owner]) } else { json!([]) };
            let meta = json!({"name": name, "namespace": "ns", "ownerReferences": owners});
            serde_json::from_value(json!({ "metadata": meta })).unwrap()
        };
        let pod = |node: &str, leaves: Option<i64>| -> Pod {
            let gone = leaves.map(|_| "2026-01-01T00:00:00Z");
            let meta = json!({"name": "p", "namespace": "ns", "uid": "u",
                "deletionTimestamp": gone, "deletionGracePeriodSeconds": leaves});
            let volumes = json!([
                {"name": "a", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "b", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            ]);
            let spec = json!({"nodeName": node, "containers": [], "volumes": volumes});
            // it has ended, which does not matter
            let json = json!({"metadata": meta, "spec": spec, "status": {"phase": "Succeeded"}});
            serde_json::from_value(json).unwrap()
        };
        assert!(holds(&pod("n", None), &claim("c", false)));
        assert!(!holds(&pod("n", None), &claim("d", false)));
        assert!(!holds(&pod("", None), &claim("c", false)));
        assert!(holds(&pod("n", Some(0)), &claim("c", false)));
        assert!(holds(&pod("n", None), &claim("p-b", true)));
        assert!(!holds(&pod("n", None), &claim("p-b", false)));
        assert!(holds(&pod("n", Some(30)), &claim("p-b", true)));
        assert!(!holds(&pod("n", Some(0)), &claim("p-b", true)));
    }
}
