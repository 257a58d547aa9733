//! The claims that a pod uses.

use crate::controller_ref;
use api::Resource;
use api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use client::{Informer, Key};
use std::sync::Arc;

const BY_CLAIM: &str = "volumes/claim";

/// A volume of a pod that is a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimUse<'p> {
    /// The volume's name in the pod.
    pub volume: &'p str,
    pub claim: String,
    /// The claim is created for the pod, and the pod must be its controller.
    pub ephemeral: bool,
}

/// The name of the claim of an ephemeral volume.
pub fn ephemeral_name(pod: &Pod, volume: &Volume) -> String {
    format!("{}-{}", pod.name(), volume.name)
}

/// The claims that a pod uses, in the order of its volumes.
pub fn used_by(pod: &Pod) -> impl Iterator<Item = ClaimUse<'_>> {
    pod.spec.volumes.iter().filter_map(move |volume| {
        let (claim, ephemeral) = match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(source), _) => (source.claim_name.clone(), false),
            (None, Some(_)) => (ephemeral_name(pod, volume), true),
            (None, None) => return None,
        };
        Some(ClaimUse { volume: &volume.name, claim, ephemeral })
    })
}

/// The keys of the claims that a pod uses.
pub fn keys(pod: &Pod) -> impl Iterator<Item = Key> {
    used_by(pod).map(|it| Key::new(pod.namespace(), it.claim))
}

/// Adds the index of pods by claim.
pub fn index(pods: &Informer<Pod>) {
    pods.index(BY_CLAIM, |pod| keys(pod).map(|it| it.to_string()).collect());
}

/// The pods that name a claim, or have an ephemeral volume whose claim has this name.
pub fn users(pods: &Informer<Pod>, claim: &Key) -> Vec<Arc<Pod>> {
    pods.by(BY_CLAIM, &claim.to_string())
}

/// Checks that a claim is the one of a pod's ephemeral volume.
pub fn check_made_for(claim: &PersistentVolumeClaim, pod: &Pod) -> Result<(), String> {
    if claim.namespace() == pod.namespace() && controller_ref::is_controlled_by(claim, pod) {
        return Ok(());
    }
    Err(format!("PVC {} was not created for pod {} (pod is not owner)", Key::of(claim), Key::of(pod)))
}

/// Whether no container of a pod uses its volumes any more.
pub fn has_released_volumes(pod: &Pod) -> bool {
    let all_stopped = || {
        let mut states = pod.status.container_statuses.iter().map(|it| &it.state);
        states.all(|it| it.terminated.is_some() || it.waiting.is_some())
    };
    crate::pods::state::is_finished(pod) || pod.metadata.deletion_timestamp.is_some() && all_stopped()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::{Value, json};

    fn pod(volumes: Value) -> Pod {
        object(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"containers": [], "volumes": volumes}
        }))
    }

    #[test]
    fn claims_are_named_or_created() {
        let pod = pod(json!([
            {"name": "none", "emptyDir": {}},
            {"name": "named", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        ]));
        let found: Vec<_> = used_by(&pod).map(|it| (it.volume, it.claim, it.ephemeral)).collect();
        assert_eq!(found, [("named", "c".to_owned(), false), ("own", "p-own".to_owned(), true)]);
        assert_eq!(keys(&pod).next(), Some(Key::new("ns", "c")));
    }

    #[test]
    fn a_claim_of_an_ephemeral_volume_is_the_pods_own() {
        let pod = pod(json!([]));
        let of = |uid: &str| {
            let owner =
                json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true});
            let metadata = json!({"name": "p-own", "namespace": "ns", "ownerReferences": [owner]});
            check_made_for(&object(json!({ "metadata": metadata })), &pod)
        };
        assert_eq!(of("u"), Ok(()));
        assert_eq!(of("v").unwrap_err(), "PVC ns/p-own was not created for pod ns/p (pod is not owner)");
    }

    #[test]
    fn pods_that_have_released_their_volumes() {
        let of = |phase: &str, is_terminating: bool, states: Value| {
            let statuses: Vec<_> = states.as_array().unwrap().iter().map(|state| {
                json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state})
            }).collect();
            let deleted_at = is_terminating.then_some("2026-01-01T00:00:00Z");
            has_released_volumes(&object(json!({
                "metadata": {"deletionTimestamp": deleted_at},
                "status": {"phase": phase, "containerStatuses": statuses}
            })))
        };
        assert!(of("Failed", false, json!([{"running": {}}])) && of("Succeeded", false, json!([])));
        assert!(!of("Running", false, json!([{"terminated": {"exitCode": 0}}])));
        assert!(of("Running", true, json!([{"terminated": {"exitCode": 0}}, {"waiting": {}}])));
        assert!(!of("Running", true, json!([{"terminated": {"exitCode": 0}}, {"running": {}}])));
        assert!(of("Pending", true, json!([])));
    }
}
