//! Protection of claims in use, and claims of ephemeral volumes.

use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tests::{ManagedCluster, until};

const WITHIN: &str = "/api/v1/namespaces/default";
const FINALIZER: &str = "kubernetes.io/pvc-protection";

fn claims(managed: &ManagedCluster) -> Api<PersistentVolumeClaim> {
    Api::default_namespaced(managed.client())
}

fn spec() -> Value {
    json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}})
}

async fn claim(managed: &ManagedCluster, name: &str) -> Value {
    let claim = json!({"metadata": {"name": name}, "spec": spec()});
    managed.cluster.create(&format!("{WITHIN}/persistentvolumeclaims"), claim).await
}

async fn pod(managed: &ManagedCluster, name: &str, node: Option<&str>, volume: Value) {
    let mut volume = volume;
    volume["name"] = "v".into();
    let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "i"}], "volumes": [volume]});
    managed
        .cluster
        .create(&format!("{WITHIN}/pods"), json!({"metadata": {"name": name}, "spec": spec}))
        .await;
}

#[tokio::test]
async fn a_claim_in_use_is_protected() {
    let mut managed = ManagedCluster::start(&["pvc-protection"]).await;
    for name in ["used", "unused", "planned"] {
        claim(&managed, name).await;
    }
    let source = |name: &str| json!({"persistentVolumeClaim": {"claimName": name}});
    pod(&managed, "p", Some("n"), source("used")).await;
    pod(&managed, "q", None, source("planned")).await;
    // one from before there was anything that put it on
    let bare = json!({"metadata": {"finalizers": null}});
    claims(&managed).patch("unused", &PatchParams::default(), &Patch::Merge(bare)).await.unwrap();
    let protected = |claim: &PersistentVolumeClaim| claim.finalizers().iter().any(|it| it == FINALIZER);
    until("it to be put on", &claims(&managed), |all| protected(&all["unused"])).await;
    for name in ["used", "unused", "planned"] {
        claims(&managed).delete(name, &DeleteParams::default()).await.unwrap();
    }
    let left = until("the unused to go", &claims(&managed), |all| all.len() == 1).await;
    assert!(protected(&left["used"]));
    managed.restart_loops().await;
    let pods: Api<Pod> = Api::default_namespaced(managed.client());
    // a pod that has ended is still there
    let ended = json!({"status": {"phase": "Succeeded"}});
    pods.patch_status("p", &PatchParams::default(), &Patch::Merge(ended)).await.unwrap();
    claim(&managed, "another").await;
    claims(&managed).delete("another", &DeleteParams::default()).await.unwrap();
    let left = until("another to go", &claims(&managed), |all| !all.contains_key("another")).await;
    assert!(protected(&left["used"]));
    pods.delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    until("the used to go", &claims(&managed), |all| all.is_empty()).await;
}

#[tokio::test]
async fn of_many_deleted_claims_those_in_use_stay() {
    let mut managed = ManagedCluster::start(&["pvc-protection"]).await;
    managed.pause_loops().await;
    for turn in 0..20 {
        claim(&managed, &format!("c{turn}")).await;
    }
    let source = |name: &str| json!({"persistentVolumeClaim": {"claimName": name}});
    pod(&managed, "p", Some("n"), source("c7")).await;
    for turn in 0..20 {
        claims(&managed).delete(&format!("c{turn}"), &DeleteParams::default()).await.unwrap();
    }
    managed.restart_loops().await;
    until("the others to go", &claims(&managed), |all| all.keys().eq(["c7"])).await;
    // the last check reads from the server, not from the cache
    let pods: Api<Pod> = Api::default_namespaced(managed.client());
    pods.delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    until("the last to go", &claims(&managed), |all| all.is_empty()).await;
}

#[tokio::test]
async fn a_bound_volume_is_protected() {
    let managed = ManagedCluster::start(&["pv-protection"]).await;
    let volumes: Api<PersistentVolume> = Api::all(managed.client());
    for name in ["bound", "free"] {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/tmp/x"}});
        let volume = json!({"metadata": {"name": name}, "spec": spec});
        managed.cluster.create("/api/v1/persistentvolumes", volume).await;
    }
    let phase = |phase: &str| Patch::Merge(json!({"status": {"phase": phase}}));
    volumes.patch_status("bound", &PatchParams::default(), &phase("Bound")).await.unwrap();
    for name in ["bound", "free"] {
        volumes.delete(name, &DeleteParams::default()).await.unwrap();
    }
    let left = until("the free one to go", &volumes, |all| all.len() == 1).await;
    assert!(left["bound"].metadata.deletion_timestamp.is_some());
    volumes.patch_status("bound", &PatchParams::default(), &phase("Released")).await.unwrap();
    until("the other to go", &volumes, |all| all.is_empty()).await;
}

#[tokio::test]
async fn ephemeral_volumes_get_claims() {
    let mut managed = ManagedCluster::start(&["ephemeral-volume", "pvc-protection"]).await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": spec()});
    let source = || json!({"ephemeral": {"volumeClaimTemplate": template}});
    pod(&managed, "p", None, source()).await;
    let all = until("the claim", &claims(&managed), |all| all.contains_key("p-v")).await;
    let pods: Api<Pod> = Api::default_namespaced(managed.client());
    let owner = &all["p-v"].owner_references()[0];
    assert_eq!((&owner.uid, owner.controller), (&pods.get("p").await.unwrap().uid().unwrap(), Some(true)));
    assert_eq!(all["p-v"].labels()["a"], "b");
    // one that goes too early comes again, also after a restart
    managed.restart_loops().await;
    let first = all["p-v"].uid();
    claims(&managed).delete("p-v", &DeleteParams::default()).await.unwrap();
    until("another", &claims(&managed), |all| all.get("p-v").is_some_and(|it| it.uid() != first)).await;
    // a foreign claim is left alone, and the pod gets an event
    claim(&managed, "q-v").await;
    pod(&managed, "q", None, source()).await;
    let events: Api<Event> = Api::default_namespaced(managed.client());
    let reported = until("the conflict", &events, |all| !all.is_empty()).await;
    let event = reported.values().next().unwrap();
    assert_eq!((event.reason.as_deref(), event.type_.as_deref()), (Some("FailedBinding"), Some("Warning")));
    let message = "ephemeral volume v: PVC default/q-v was not created for pod default/q (pod is not owner)";
    assert_eq!(event.message.as_deref(), Some(message));
    assert_eq!(event.source.as_ref().unwrap().component.as_deref(), Some("ephemeral_volume"));
    assert!(claims(&managed).get("q-v").await.unwrap().owner_references().is_empty());
}
