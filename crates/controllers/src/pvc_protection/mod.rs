//! Keeps claims while pods use them, by a finalizer.
//!
//! Before the finalizer is removed, pods are listed from the server, not only from the informer. A pod without a node
//! does not hold a terminating claim, because no kubelet starts a pod whose claim is terminating. So a list that is
//! newer than the claim's deletion stays valid for it, and many claims that are deleted together cost one list.

use crate::Context;
use crate::controller_ref::controller_of;
use crate::volumes::claims;
use crate::volumes::protection::{self, FinalizerChange, finalizer_change};
use api::Resource;
use api::core::v1::{PersistentVolumeClaim, Pod};
use client::{Action, Api, Change, Failure, Informer, Key, ListParams, Queue, Reconcile, run};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// The page size of pod lists.
const PAGE: u32 = 500;

struct Protection {
    context: Context,
    claims: Informer<PersistentVolumeClaim>,
    pods: Informer<Pod>,
    finalizer: String,
    /// The claims of the last pod list from the server.
    listed: Mutex<Option<PodClaims>>,
}

/// The claims that pods of a namespace use, as of a resource version.
struct PodClaims {
    namespace: String,
    version: u64,
    /// The history of the claims' informer at that time.
    history: u64,
    held: HashMap<String, Vec<Holder>>,
}

/// A pod that holds a claim: `None` if it names the claim, its uid if the claim is of its ephemeral volume.
type Holder = Option<String>;

pub async fn run(context: Context) {
    let queue = Queue::<Key>::new(&context.world);
    let finalizer = context.names.well_known("pvc-protection");
    let (claims, pods) = (context.informer::<PersistentVolumeClaim>(), context.informer::<Pod>());
    let (changed, own) = (queue.clone(), finalizer.clone());
    claims.listen(move |change| {
        if !change.is_deletion() && finalizer_change(&**change.object(), &own).is_some() {
            changed.add(change.key());
        }
    });
    claims::index(&pods);
    let changed = queue.clone();
    pods.listen(move |change| {
        if let Change::Updated { old, new } = change
            && old.uid() != new.uid()
        {
            claims::keys(old).for_each(|key| changed.add(key));
        }
        if change.is_deletion() || may_release_claims(change.object()) {
            claims::keys(change.object()).for_each(|key| changed.add(key));
        }
    });
    claims.synced().await;
    pods.synced().await;
    run::run(Arc::new(Protection { context, claims, pods, finalizer, listed: Mutex::default() }), queue, 1)
        .await;
}

/// Whether a pod may not hold its claims, or not any more.
fn may_release_claims(pod: &Pod) -> bool {
    !has_node(pod) || claims::has_released_volumes(pod) || is_shut_down(pod)
}

fn has_node(pod: &Pod) -> bool {
    !pod.spec.node_name.is_empty()
}

/// Whether a terminating pod's grace period is over.
fn is_shut_down(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() && pod.metadata.deletion_grace_period_seconds == Some(0)
}

/// The claims that a pod holds.
fn held_by(pod: &Pod) -> impl Iterator<Item = (String, Holder)> {
    let uses = claims::used_by(pod).filter(move |it| has_node(pod) && !(it.ephemeral && is_shut_down(pod)));
    uses.map(move |it| (it.claim, it.ephemeral.then(|| pod.uid().to_owned())))
}

/// Whether a holder of a claim with this name holds this very claim.
fn refers_to(holder: &Holder, claim: &PersistentVolumeClaim) -> bool {
    holder.as_ref().is_none_or(|uid| controller_of(claim).is_some_and(|it| it.uid == *uid))
}

fn holds(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    held_by(pod).any(|(name, holder)| claim.name() == name && refers_to(&holder, claim))
}

impl PodClaims {
    fn holds(&self, claim: &PersistentVolumeClaim) -> bool {
        self.held.get(claim.name()).into_iter().flatten().any(|holder| refers_to(holder, claim))
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
        let Some(change) = finalizer_change(&*claim, &self.finalizer) else { return Ok(Action::AwaitChange) };
        if change == FinalizerChange::Add || !self.is_used(key, &claim).await? {
            let claims = Api::namespaced(&self.context.client, &key.namespace);
            protection::apply(&claims, &*claim, &self.finalizer, change).await?;
        }
        Ok(Action::AwaitChange)
    }
}

impl Protection {
    async fn is_used(&self, key: &Key, claim: &PersistentVolumeClaim) -> Result<bool, Failure> {
        if claims::users(&self.pods, key).iter().any(|pod| holds(pod, claim)) {
            return Ok(true);
        }
        let claim_version = claim.resource_version().parse().unwrap_or(u64::MAX);
        let last = self.listed.lock().take().filter(|it| it.namespace == key.namespace);
        // a pod that held the claim then may be gone
        let is_valid =
            |it: &PodClaims| it.version >= claim_version && it.history == self.history() && !it.holds(claim);
        let listed = match last.filter(is_valid) {
            Some(listed) => listed,
            None => self.list(&key.namespace).await?,
        };
        let is_held = listed.holds(claim);
        *self.listed.lock() = Some(listed);
        Ok(is_held)
    }

    fn history(&self) -> u64 {
        self.claims.reached().borrow().history
    }

    async fn list(&self, namespace: &str) -> Result<PodClaims, Failure> {
        let pods: Api<Pod> = Api::namespaced(&self.context.client, namespace);
        let mut params = ListParams { limit: PAGE, ..ListParams::default() };
        let (namespace, history) = (namespace.to_owned(), self.history());
        let mut listed = PodClaims { namespace, version: 0, history, held: HashMap::new() };
        loop {
            let page = pods.list(&params).await?;
            if params.continue_token.is_empty() {
                listed.version = page.metadata.resource_version.parse().unwrap_or(0);
            }
            for (claim, holder) in page.items.iter().flat_map(held_by) {
                listed.held.entry(claim).or_default().push(holder);
            }
            if page.metadata.continue_.is_empty() {
                return Ok(listed);
            }
            params.continue_token = page.metadata.continue_;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::json;

    #[test]
    fn pods_that_hold_a_claim() {
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true});
        let claim = |name: &str, owned: bool| -> PersistentVolumeClaim {
            let owners = if owned { json!([owner]) } else { json!([]) };
            let metadata = json!({"name": name, "namespace": "ns", "ownerReferences": owners});
            object(json!({ "metadata": metadata }))
        };
        let pod = |node: &str, grace_period: Option<i64>| -> Pod {
            let deleted_at = grace_period.map(|_| "2026-01-01T00:00:00Z");
            let metadata = json!({"name": "p", "namespace": "ns", "uid": "u",
                "deletionTimestamp": deleted_at, "deletionGracePeriodSeconds": grace_period});
            let volumes = json!([
                {"name": "a", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "b", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            ]);
            let spec = json!({"nodeName": node, "containers": [], "volumes": volumes});
            // the phase does not matter
            object(json!({"metadata": metadata, "spec": spec, "status": {"phase": "Succeeded"}}))
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
