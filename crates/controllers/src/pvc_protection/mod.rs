//! Claims that pods use are not deleted: a finalizer stays on them until the last such pod is gone.
//!
//! What always holds: before the finalizer comes off the server was asked for pods, not only the informer. A pod that has
//! no node yet does not hold a claim that is going: no agent starts a pod whose claim is. So what the server said after a
//! claim was going is as good as new for it, and many claims that go together cost one question.

use crate::Context;
use crate::controller_ref::controller_of;
use crate::volumes::claims;
use crate::volumes::protection::{self, Due, due};
use client::{Action, Change, Failure, Informer, Key, Queue, Reconcile, run};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// How many pods are asked for at a time.
const PAGE: u32 = 500;

struct Protection {
    context: Context,
    claims: Informer<PersistentVolumeClaim>,
    pods: Informer<Pod>,
    finalizer: String,
    /// What the server said last.
    asked: Mutex<Option<PodClaims>>,
}

/// The claims that pods of a namespace use, as of a resource version.
struct PodClaims {
    namespace: String,
    version: u64,
    /// In which past, where the server was given another.
    history: u64,
    held: HashMap<String, Vec<Holder>>,
}

/// Who holds a claim: whoever names it, or the pod with this uid if the claim is its own.
type Holder = Option<String>;

pub async fn run(context: Context) {
    let queue = Queue::<Key>::default();
    let finalizer = context.names.well_known("pvc-protection");
    let (claims, pods) = (context.informer::<PersistentVolumeClaim>(), context.informer::<Pod>());
    let (news, own) = (queue.clone(), finalizer.clone());
    claims.listen(move |change| {
        if !change.is_deletion() && due(&**change.object(), &own).is_some() {
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
        if change.is_deletion() || lets_go(change.object()) {
            claims::keys(change.object()).for_each(|key| news.add(key));
        }
    });
    claims.synced().await;
    pods.synced().await;
    run::run(Arc::new(Protection { context, claims, pods, finalizer, asked: Mutex::default() }), queue, 1)
        .await;
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

/// The claims that a pod keeps from going.
fn held_by(pod: &Pod) -> impl Iterator<Item = (String, Holder)> {
    let uses = claims::of(pod).filter(move |it| has_node(pod) && !(it.ephemeral && is_shut_down(pod)));
    uses.map(move |it| (it.claim, it.ephemeral.then(|| pod.uid().unwrap_or_default())))
}

/// Whether one who holds a claim of this name holds this one.
fn means(holder: &Holder, claim: &PersistentVolumeClaim) -> bool {
    holder.as_ref().is_none_or(|uid| controller_of(claim).is_some_and(|it| it.uid == *uid))
}

fn holds(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    held_by(pod).any(|(name, holder)| claim.meta().name.as_ref() == Some(&name) && means(&holder, claim))
}

impl PodClaims {
    fn holds(&self, claim: &PersistentVolumeClaim) -> bool {
        let holders = claim.meta().name.as_ref().and_then(|name| self.held.get(name));
        holders.into_iter().flatten().any(|holder| means(holder, claim))
    }
}

impl Reconcile for Protection {
    type Key = Key;

    fn name(&self) -> &'static str {
        "pvc-protection"
    }

    fn queue_name(&self) -> &'static str {
        "pvcprotection"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let Some(claim) = self.claims.get(key) else { return Ok(Action::AwaitChange) };
        let Some(due) = due(&*claim, &self.finalizer) else { return Ok(Action::AwaitChange) };
        if due == Due::On || !self.is_used(key, &claim).await? {
            let api = Api::namespaced(self.context.client.clone(), &key.namespace);
            protection::settle(&api, &*claim, &self.finalizer, due).await?;
        }
        Ok(Action::AwaitChange)
    }
}

impl Protection {
    async fn is_used(&self, key: &Key, claim: &PersistentVolumeClaim) -> Result<bool, Failure> {
        if claims::users(&self.pods, key).iter().any(|pod| holds(pod, claim)) {
            return Ok(true);
        }
        let seen = claim.resource_version().and_then(|it| it.parse().ok()).unwrap_or(u64::MAX);
        let before = self.asked.lock().take().filter(|it| it.namespace == key.namespace);
        // a pod that held the claim then may be gone by now
        let still_good =
            before.filter(|it| it.version >= seen && it.history == self.history() && !it.holds(claim));
        let asked = match still_good {
            Some(asked) => asked,
            None => self.ask(&key.namespace).await?,
        };
        let held = asked.holds(claim);
        *self.asked.lock() = Some(asked);
        Ok(held)
    }

    fn history(&self) -> u64 {
        self.claims.reached().borrow().history
    }

    async fn ask(&self, namespace: &str) -> Result<PodClaims, Failure> {
        let pods: Api<Pod> = Api::namespaced(self.context.client.clone(), namespace);
        let mut params = ListParams::default().limit(PAGE);
        let (namespace, history) = (namespace.to_owned(), self.history());
        let mut asked = PodClaims { namespace, version: 0, history, held: HashMap::new() };
        loop {
            let page = pods.list(&params).await?;
            if params.continue_token.is_none() {
                let version = page.metadata.resource_version.as_deref();
                asked.version = version.and_then(|it| it.parse().ok()).unwrap_or(0);
            }
            for (claim, holder) in page.items.iter().flat_map(held_by) {
                asked.held.entry(claim).or_default().push(holder);
            }
            let Some(token) = page.metadata.continue_.filter(|it| !it.is_empty()) else { return Ok(asked) };
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
