//! Which claims a pod uses.

use crate::controller_ref;
use client::{Informer, Key};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use kube::ResourceExt;
use std::sync::Arc;

const BY_CLAIM: &str = "volumes/claim";

/// A volume of a pod that is a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use<'p> {
    /// What the pod calls it.
    pub volume: &'p str,
    pub claim: String,
    /// The claim is made for the pod, and must be its own.
    pub ephemeral: bool,
}

/// What the claim of an ephemeral volume is called.
pub fn ephemeral_name(pod: &Pod, volume: &Volume) -> String {
    format!("{}-{}", pod.name_any(), volume.name)
}

/// The claims that a pod uses, in the order of its volumes.
pub fn of(pod: &Pod) -> impl Iterator<Item = Use<'_>> {
    pod.spec.iter().flat_map(|it| it.volumes.iter().flatten()).filter_map(move |volume| {
        let (claim, ephemeral) = match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(source), _) => (source.claim_name.clone(), false),
            (None, Some(_)) => (ephemeral_name(pod, volume), true),
            (None, None) => return None,
        };
        Some(Use { volume: &volume.name, claim, ephemeral })
    })
}

/// The keys of these claims.
pub fn keys(pod: &Pod) -> impl Iterator<Item = Key> {
    let namespace = pod.namespace().unwrap_or_default();
    of(pod).map(move |it| Key::new(namespace.clone(), it.claim))
}

/// Pods are found by their claims from now on.
pub fn index(pods: &Informer<Pod>) {
    pods.index(BY_CLAIM, |pod| keys(pod).map(|it| it.to_string()).collect());
}

/// The pods that use a claim, as far as names tell.
pub fn users(pods: &Informer<Pod>, claim: &Key) -> Vec<Arc<Pod>> {
    pods.by(BY_CLAIM, &claim.to_string())
}

/// Why a claim is not the one of a pod's ephemeral volume.
pub fn check_made_for(claim: &PersistentVolumeClaim, pod: &Pod) -> Result<(), String> {
    if claim.namespace() == pod.namespace() && controller_ref::is_controlled_by(claim, pod) {
        return Ok(());
    }
    Err(format!("PVC {} was not created for pod {} (pod is not owner)", Key::of(claim), Key::of(pod)))
}

/// Whether none of a pod's containers will use its volumes any more.
pub fn is_done(pod: &Pod) -> bool {
    let statuses = || pod.status.iter().flat_map(|it| it.container_statuses.iter().flatten());
    let stopped = || {
        statuses().all(|it| {
            it.state.as_ref().is_some_and(|state| state.terminated.is_some() || state.waiting.is_some())
        })
    };
    crate::pods::state::is_finished(pod) || pod.metadata.deletion_timestamp.is_some() && stopped()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(volumes: Value) -> Pod {
        let json = json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"containers": [], "volumes": volumes}
        });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn claims_are_named_or_made() {
        let pod = pod(json!([
            {"name": "none", "emptyDir": {}},
            {"name": "named", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        ]));
        let found: Vec<_> = of(&pod).map(|it| (it.volume, it.claim, it.ephemeral)).collect();
        assert_eq!(found, [("named", "c".to_owned(), false), ("own", "p-own".to_owned(), true)]);
        assert_eq!(keys(&pod).next(), Some(Key::new("ns", "c")));
    }

    #[test]
    fn a_claim_of_an_ephemeral_volume_is_the_pods_own() {
        let pod = pod(json!([]));
        let of = |uid: &str| {
            let owner =
                json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true});
            let meta = json!({"name": "p-own", "namespace": "ns", "ownerReferences": [owner]});
            check_made_for(&serde_json::from_value(json!({ "metadata": meta })).unwrap(), &pod)
        };
        assert_eq!(of("u"), Ok(()));
        assert_eq!(of("v").unwrap_err(), "PVC ns/p-own was not created for pod ns/p (pod is not owner)");
    }

    #[test]
    fn pods_that_are_done() {
        let of = |phase: &str, leaves: bool, states: Value| {
            let statuses: Vec<_> = states.as_array().unwrap().iter().map(|state| {
                json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state})
            }).collect();
            let leaves = leaves.then_some("2026-01-01T00:00:00Z");
            let json = json!({
                "metadata": {"deletionTimestamp": leaves},
                "status": {"phase": phase, "containerStatuses": statuses}
            });
            is_done(&serde_json::from_value(json).unwrap())
        };
        assert!(of("Failed", false, json!([{"running": {}}])) && of("Succeeded", false, json!([])));
        assert!(!of("Running", false, json!([{"terminated": {"exitCode": 0}}])));
        assert!(of("Running", true, json!([{"terminated": {"exitCode": 0}}, {"waiting": {}}])));
        assert!(!of("Running", true, json!([{"terminated": {"exitCode": 0}}, {"running": {}}])));
        assert!(of("Pending", true, json!([])));
    }
}
