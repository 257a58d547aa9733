//! Binding of claims and volumes.

use controllers::gates::Gates;
use controllers::registry;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tests::{ManagedCluster, Options, until};

const COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BY_LOOP: &str = "pv.kubernetes.io/bound-by-controller";

async fn managed() -> ManagedCluster {
    managed_by(Gates::default()).await
}

async fn managed_by(gates: Gates) -> ManagedCluster {
    let controllers = vec!["persistentvolume-binder".to_owned()];
    let mut options = registry::Options { controllers, gates, ..Default::default() };
    options.persistent_volumes.sync_period = Duration::from_millis(200);
    ManagedCluster::with(Options::default(), options).await
}

fn claims(managed: &ManagedCluster) -> Api<PersistentVolumeClaim> {
    Api::default_namespaced(managed.client())
}

fn volumes(managed: &ManagedCluster) -> Api<PersistentVolume> {
    Api::all(managed.client())
}

fn merged(mut base: Value, more: Value) -> Value {
    base.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    base
}

/// A claim of a gibibyte in the class `a`, with changes.
async fn claim(managed: &ManagedCluster, name: &str, spec: Value) {
    let base = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "a",
        "resources": {"requests": {"storage": "1Gi"}}});
    let claim = json!({"metadata": {"name": name}, "spec": merged(base, spec)});
    managed.cluster.create("/api/v1/namespaces/default/persistentvolumeclaims", claim).await;
}

/// A volume in the class `a`, with changes.
async fn volume(managed: &ManagedCluster, name: &str, size: &str, metadata: Value, spec: Value) {
    let base = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "a", "capacity": {"storage": size},
        "csi": {"driver": "d", "volumeHandle": name}});
    let metadata = merged(json!({"name": name}), metadata);
    let volume = json!({"metadata": metadata, "spec": merged(base, spec)});
    managed.cluster.create("/api/v1/persistentvolumes", volume).await;
}

async fn class(managed: &ManagedCluster, name: &str, provisioner: &str, more: Value) {
    let class = merged(json!({"metadata": {"name": name}, "provisioner": provisioner}), more);
    managed.cluster.create("/apis/storage.k8s.io/v1/storageclasses", class).await;
}

fn is(claim: &PersistentVolumeClaim, phase: &str) -> bool {
    claim.status.as_ref().and_then(|it| it.phase.as_deref()) == Some(phase)
}

fn volume_is(volume: &PersistentVolume, phase: &str) -> bool {
    volume.status.as_ref().and_then(|it| it.phase.as_deref()) == Some(phase)
}

fn named(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|it| it.volume_name.as_deref()).unwrap_or("")
}

async fn wait_for_event(managed: &ManagedCluster, reason: &str) -> Event {
    let events: Api<Event> = Api::all(managed.client());
    let is = |event: &Event| event.reason.as_deref() == Some(reason);
    let all = until(reason, &events, |all| all.values().any(is)).await;
    all.into_values().find(is).unwrap()
}

async fn bound(managed: &ManagedCluster, name: &str) -> PersistentVolumeClaim {
    let all = until(&format!("{name} to be bound"), &claims(managed), |all| {
        all.get(name).is_some_and(|it| is(it, "Bound"))
    })
    .await;
    all[name].clone()
}

#[tokio::test]
async fn claims_get_the_smallest_matching_volume() {
    let mut managed = managed().await;
    let none = || json!({});
    volume(&managed, "tiny", "500Mi", none(), none()).await;
    volume(&managed, "large", "10Gi", none(), none()).await;
    volume(&managed, "right", "2Gi", none(), none()).await;
    volume(&managed, "versatile", "1Gi", none(), json!({"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}))
        .await;
    volume(&managed, "other", "1Gi", none(), json!({"storageClassName": "b"})).await;
    volume(&managed, "device", "1Gi", none(), json!({"volumeMode": "Block"})).await;
    volume(&managed, "labelled", "9Gi", json!({"labels": {"tier": "gold"}}), none()).await;
    until("all to be there", &volumes(&managed), |all| all.values().all(|it| volume_is(it, "Available")))
        .await;
    claim(&managed, "first", json!({})).await;
    let first = bound(&managed, "first").await;
    assert_eq!(named(&first), "right");
    assert_eq!((&*first.annotations()[COMPLETED], &*first.annotations()[BY_LOOP]), ("yes", "yes"));
    let status = first.status.clone().unwrap();
    assert_eq!(status.capacity.unwrap()["storage"].0, "2Gi");
    assert_eq!(status.access_modes.unwrap(), ["ReadWriteOnce"]);
    let taken = volumes(&managed).get("right").await.unwrap();
    assert!(volume_is(&taken, "Bound") && taken.annotations()[BY_LOOP] == "yes");
    let holder = taken.spec.unwrap().claim_ref.unwrap();
    assert_eq!((holder.name.as_deref(), holder.uid), (Some("first"), first.uid()));
    managed.restart_loops().await;
    claim(&managed, "many", json!({"accessModes": ["ReadWriteMany"]})).await;
    claim(&managed, "raw", json!({"volumeMode": "Block"})).await;
    claim(&managed, "gold", json!({"selector": {"matchLabels": {"tier": "gold"}}})).await;
    claim(&managed, "slow", json!({"storageClassName": "b"})).await;
    for (name, volume) in [("many", "versatile"), ("raw", "device"), ("gold", "labelled"), ("slow", "other")]
    {
        assert_eq!(named(&bound(&managed, name).await), volume);
    }
    // one that waits is looked at when something comes that fits
    claim(&managed, "huge", json!({"resources": {"requests": {"storage": "20Gi"}}})).await;
    wait_for_event(&managed, "ProvisioningFailed").await;
    volume(&managed, "vast", "1Ti", none(), none()).await;
    assert_eq!(named(&bound(&managed, "huge").await), "vast");
}

#[tokio::test]
async fn many_claims_at_once_share_no_volume() {
    let mut managed = managed().await;
    for turn in 0..20 {
        volume(&managed, &format!("v{turn}"), "1Gi", json!({}), json!({})).await;
    }
    for turn in 0..20 {
        claim(&managed, &format!("c{turn}"), json!({})).await;
        if turn == 10 {
            managed.restart_loops().await;
        }
    }
    let all = until("all to be bound", &claims(&managed), |all| {
        all.len() == 20 && all.values().all(|it| is(it, "Bound"))
    })
    .await;
    let taken: BTreeMap<String, String> =
        all.values().map(|it| (named(it).to_owned(), it.name_any())).collect();
    assert_eq!(taken.len(), 20);
    let all =
        until("all to be taken", &volumes(&managed), |all| all.values().all(|it| volume_is(it, "Bound")))
            .await;
    for (name, volume) in all {
        assert_eq!(volume.spec.unwrap().claim_ref.unwrap().name.as_ref(), taken.get(&name));
    }
}

#[tokio::test]
async fn prebound_claims_and_volumes_are_respected() {
    let managed = managed().await;
    let aside = |name: &str| json!({"claimRef": {"namespace": "default", "name": name}});
    volume(&managed, "aside", "5Gi", json!({}), aside("expected")).await;
    volume(&managed, "small", "1Gi", json!({}), json!({})).await;
    volume(&managed, "chosen", "7Gi", json!({}), json!({})).await;
    until("all to be there", &volumes(&managed), |all| all.values().all(|it| volume_is(it, "Available")))
        .await;
    claim(&managed, "expected", json!({})).await;
    let expected = bound(&managed, "expected").await;
    assert_eq!(named(&expected), "aside");
    assert!(!volumes(&managed).get("aside").await.unwrap().annotations().contains_key(BY_LOOP));
    claim(&managed, "choosing", json!({"volumeName": "chosen"})).await;
    let choosing = bound(&managed, "choosing").await;
    assert!(!choosing.annotations().contains_key(BY_LOOP));
    // too small, and reserved for another claim
    claim(&managed, "greedy", json!({"volumeName": "small", "resources": {"requests": {"storage": "2Gi"}}}))
        .await;
    let event = wait_for_event(&managed, "VolumeMismatch").await;
    let message = "Cannot bind to requested volume \"small\": requested PV is too small";
    assert_eq!((event.message.as_deref(), event.type_.as_deref()), (Some(message), Some("Warning")));
    assert_eq!(event.source.unwrap().component.as_deref(), Some("persistentvolume-controller"));
    claim(&managed, "late", json!({"volumeName": "chosen"})).await;
    let event = wait_for_event(&managed, "FailedBinding").await;
    assert_eq!(event.message.as_deref(), Some("volume \"chosen\" already bound to a different claim."));
    // one that is named before it is there
    claim(&managed, "early", json!({"volumeName": "coming"})).await;
    volume(&managed, "coming", "1Gi", json!({}), json!({})).await;
    assert_eq!(named(&bound(&managed, "early").await), "coming");
}

#[tokio::test]
async fn released_volumes_follow_their_reclaim_policy() {
    let mut managed = managed().await;
    let created = json!({"annotations": {"pv.kubernetes.io/provisioned-by": "d"}});
    for (name, metadata, policy) in [
        ("kept", json!({}), "Retain"),
        ("made", created, "Delete"),
        ("stuck", json!({}), "Delete"),
        ("old", json!({}), "Recycle"),
    ] {
        volume(&managed, name, "1Gi", metadata, json!({"persistentVolumeReclaimPolicy": policy})).await;
        claim(&managed, name, json!({"volumeName": name})).await;
        bound(&managed, name).await;
    }
    managed.pause_loops().await;
    for name in ["kept", "made", "stuck", "old"] {
        let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        claims(&managed).patch(name, &PatchParams::default(), &bare).await.unwrap();
        claims(&managed).delete(name, &DeleteParams::default()).await.unwrap();
    }
    managed.restart_loops().await;
    let all = until("the volumes", &volumes(&managed), |all| {
        let phases = [("kept", "Released"), ("made", "Released"), ("stuck", "Failed"), ("old", "Failed")];
        phases.iter().all(|(name, phase)| volume_is(&all[*name], phase))
    })
    .await;
    let why = "error getting deleter volume plugin for volume \"stuck\": no deletable volume plugin matched";
    assert_eq!(all["stuck"].status.as_ref().unwrap().message.as_deref(), Some(why));
    assert_eq!(wait_for_event(&managed, "VolumeFailedDelete").await.message.as_deref(), Some(why));
    wait_for_event(&managed, "VolumeFailedRecycle").await;
    let of = "{operation_name=\"delete\",plugin_name=\"N/A\"} 1\n";
    managed.wait_for_metric(&format!("volume_operation_total_errors{of}")).await;
    let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    volumes(&managed).patch("made", &PatchParams::default(), &bare).await.unwrap();
    volumes(&managed).delete("made", &DeleteParams::default()).await.unwrap();
    managed.wait_for_metric(&format!("volume_operation_total_seconds_count{of}")).await;
    // a claim of the same name is another one
    claim(&managed, "kept", json!({"volumeName": "kept"})).await;
    wait_for_event(&managed, "FailedBinding").await;
    assert!(volume_is(&volumes(&managed).get("kept").await.unwrap(), "Released"));
    // until an administrator gives the volume back
    let free = Patch::Merge(json!({"spec": {"claimRef": null}}));
    volumes(&managed).patch("kept", &PatchParams::default(), &free).await.unwrap();
    assert_eq!(named(&bound(&managed, "kept").await), "kept");
}

#[tokio::test]
async fn claims_of_deleted_volumes_are_lost() {
    let managed = managed().await;
    volume(&managed, "v", "1Gi", json!({}), json!({})).await;
    claim(&managed, "c", json!({})).await;
    bound(&managed, "c").await;
    let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    volumes(&managed).patch("v", &PatchParams::default(), &bare).await.unwrap();
    volumes(&managed).delete("v", &DeleteParams::default()).await.unwrap();
    let all = until("it to be lost", &claims(&managed), |all| is(&all["c"], "Lost")).await;
    assert!(all["c"].status.as_ref().unwrap().capacity.is_none());
    let event = wait_for_event(&managed, "ClaimLost").await;
    let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
    assert_eq!(event.message.as_deref(), Some(message));
    // and found when it comes back
    volume(&managed, "v", "1Gi", json!({}), json!({})).await;
    bound(&managed, "c").await;
}

#[tokio::test]
async fn external_provisioners_create_volumes() {
    let mut managed = managed().await;
    class(&managed, "a", "example.com/p", json!({})).await;
    claim(&managed, "c", json!({})).await;
    const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
    let all =
        until("a provisioner", &claims(&managed), |all| all["c"].annotations().contains_key(PROVISIONER))
            .await;
    assert_eq!(all["c"].annotations()[PROVISIONER], "example.com/p");
    assert_eq!(all["c"].annotations()["volume.beta.kubernetes.io/storage-provisioner"], "example.com/p");
    wait_for_event(&managed, "ExternalProvisioning").await;
    managed.restart_loops().await;
    // a provisioned volume
    let holder = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "c",
        "uid": all["c"].uid()});
    let created = json!({"annotations": {"pv.kubernetes.io/provisioned-by": "example.com/p"}});
    volume(&managed, "pvc-1", "1Gi", created, json!({"claimRef": holder})).await;
    assert_eq!(named(&bound(&managed, "c").await), "pvc-1");
    claim(&managed, "e", json!({})).await;
    until("a provisioner", &claims(&managed), |all| all["e"].annotations().contains_key(PROVISIONER)).await;
    let holder = json!({"namespace": "default", "name": "e"});
    volume(&managed, "pvc-2", "1Gi", json!({}), json!({"claimRef": holder})).await;
    assert_eq!(named(&bound(&managed, "e").await), "pvc-2");
    let of = "{operation_name=\"provision\",plugin_name=\"example.com/p\"}";
    managed.wait_for_metric(&format!("volume_operation_total_seconds_count{of}")).await;
    // a failed provisioning
    class(&managed, "none", "kubernetes.io/no-provisioner", json!({})).await;
    claim(&managed, "d", json!({"storageClassName": "none"})).await;
    let why = "no volume plugin matched name: kubernetes.io/no-provisioner";
    assert_eq!(wait_for_event(&managed, "ProvisioningFailed").await.message.as_deref(), Some(why));
}

#[tokio::test]
async fn wait_for_first_consumer_claims_wait_for_their_pod() {
    let managed = managed().await;
    class(&managed, "a", "example.com/p", json!({"volumeBindingMode": "WaitForFirstConsumer"})).await;
    volume(&managed, "v", "1Gi", json!({}), json!({})).await;
    claim(&managed, "c", json!({})).await;
    wait_for_event(&managed, "WaitForFirstConsumer").await;
    let volumes_of = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    let spec = json!({"containers": [{"name": "c", "image": "i"}], "volumes": volumes_of});
    let pod = json!({"metadata": {"name": "p"}, "spec": spec});
    managed.cluster.create("/api/v1/namespaces/default/pods", pod).await;
    let event = wait_for_event(&managed, "WaitForPodScheduled").await;
    assert_eq!(event.message.as_deref(), Some("waiting for pod p to be scheduled"));
    assert!(is(&claims(&managed).get("c").await.unwrap(), "Pending"));
    // the scheduler has found a place, and asks for a volume there
    let placed = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n"}}});
    claims(&managed).patch("c", &PatchParams::default(), &Patch::Merge(placed)).await.unwrap();
    wait_for_event(&managed, "ExternalProvisioning").await;
    assert!(volume_is(&volumes(&managed).get("v").await.unwrap(), "Available"));
    // or it chooses one that is there
    claim(&managed, "d", json!({})).await;
    let chosen = json!({"spec": {"claimRef": {"namespace": "default", "name": "d"}}});
    volumes(&managed).patch("v", &PatchParams::default(), &Patch::Merge(chosen)).await.unwrap();
    assert_eq!(named(&bound(&managed, "d").await), "v");
}

#[tokio::test]
async fn a_late_default_class_is_assigned_to_claims() {
    let managed = managed().await;
    for (name, class) in [("none", json!("")), ("any", Value::Null)] {
        claim(&managed, name, json!({"storageClassName": class})).await;
    }
    wait_for_event(&managed, "FailedBinding").await;
    let marked =
        json!({"name": "usual", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}});
    class(&managed, "usual", "example.com/p", json!({"metadata": marked})).await;
    let class_of = |claim: &PersistentVolumeClaim| claim.spec.as_ref().unwrap().storage_class_name.clone();
    let all =
        until("it to be given", &claims(&managed), |all| class_of(&all["any"]).as_deref() == Some("usual"))
            .await;
    assert_eq!(class_of(&all["none"]).as_deref(), Some(""));
    wait_for_event(&managed, "ExternalProvisioning").await;
}

#[tokio::test]
async fn a_late_default_class_is_not_assigned_if_the_gate_is_off() {
    let managed = managed_by(Gates { late_default_class: false, ..Gates::default() }).await;
    claim(&managed, "any", json!({"storageClassName": null})).await;
    wait_for_event(&managed, "FailedBinding").await;
    let marked =
        json!({"name": "usual", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}});
    class(&managed, "usual", "example.com/p", json!({"metadata": marked})).await;
    claim(&managed, "new", json!({"storageClassName": null})).await;
    wait_for_event(&managed, "ExternalProvisioning").await;
    let any = claims(&managed).get("any").await.unwrap();
    assert_eq!(any.spec.unwrap().storage_class_name, None);
}

#[tokio::test]
async fn an_unused_volume_is_available_again() {
    let mut managed = managed().await;
    volume(&managed, "v", "1Gi", json!({}), json!({})).await;
    claim(&managed, "c", json!({})).await;
    let uid = bound(&managed, "c").await.uid();
    managed.pause_loops().await;
    // a crash left them behind: one chosen by the loop, one by a user, and one made for the claim
    let holder = json!({"claimRef": {"namespace": "default", "name": "c", "uid": uid}});
    let by_loop = json!({"annotations": {BY_LOOP: "yes"}});
    let created = json!({"annotations": {"pv.kubernetes.io/provisioned-by": "d"}});
    volume(&managed, "by-loop", "1Gi", by_loop, holder.clone()).await;
    volume(&managed, "by-user", "1Gi", json!({}), holder.clone()).await;
    let made_for = merged(holder, json!({"persistentVolumeReclaimPolicy": "Delete"}));
    volume(&managed, "made", "1Gi", created, made_for).await;
    managed.restart_loops().await;
    let all = until("what becomes of them", &volumes(&managed), |all| {
        volume_is(&all["by-loop"], "Available")
            && volume_is(&all["by-user"], "Available")
            && volume_is(&all["made"], "Released")
    })
    .await;
    let holder = |name: &str| all[name].spec.as_ref().unwrap().claim_ref.clone();
    assert!(holder("by-loop").is_none());
    assert_eq!(holder("by-user").unwrap().uid, None);
    assert!(volume_is(&all["v"], "Bound"));
}

#[tokio::test]
async fn expansion_is_left_to_external_resizers() {
    let managed = ManagedCluster::start(&["persistentvolume-binder", "persistentvolume-expander"]).await;
    class(&managed, "a", "example.com/p", json!({"allowVolumeExpansion": true})).await;
    volume(&managed, "v", "1Gi", json!({}), json!({})).await;
    let disk = json!({"csi": null, "gcePersistentDisk": {"pdName": "d"}, "claimRef": {"namespace": "default", "name": "old"}});
    volume(&managed, "w", "1Gi", json!({}), disk).await;
    for name in ["old", "c"] {
        claim(&managed, name, json!({})).await;
        bound(&managed, name).await;
        let larger = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
        claims(&managed).patch(name, &PatchParams::default(), &Patch::Merge(larger)).await.unwrap();
    }
    const RESIZER: &str = "volume.kubernetes.io/storage-resizer";
    let all =
        until("the resizer", &claims(&managed), |all| all["old"].annotations().contains_key(RESIZER)).await;
    assert_eq!(all["old"].annotations()[RESIZER], "pd.csi.storage.gke.io");
    let events: Api<Event> = Api::default_namespaced(managed.client());
    let waiting = "Ignoring the PVC: didn't find a plugin capable of expanding the volume; \
                   waiting for an external controller to process this PVC.";
    until("the event", &events, |all| all.values().any(|it| it.message.as_deref() == Some(waiting))).await;
    assert!(!claims(&managed).get("c").await.unwrap().annotations().contains_key(RESIZER));
}

/// A FlexVolume driver that records how volumes grow; a file makes it fail.
const FLEX_DRIVER: &str = r#"#!/bin/sh
dir=$(dirname "$0")
case "$1" in
init) echo "{\"status\":\"Success\",\"capabilities\":{\"requiresFSResize\":$(cat "$dir/resizes")}}";;
expandvolume) echo "$3 $4 $5" >> "$dir/calls"
    [ -e "$dir/fail" ] && echo '{"status":"Failure","message":"full"}' && exit 1
    echo '{"status":"Success"}';;
*) echo '{"status":"Not supported"}'; exit 1;;
esac
"#;

#[tokio::test]
async fn programs_of_flex_volume_drivers_make_volumes_larger() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("v~d");
    std::fs::create_dir(&folder).unwrap();
    let write = r#"printf %s "$1" > "$2" && chmod 755 "$2""#;
    let mut shell = std::process::Command::new("sh");
    assert!(shell.args(["-c", write, "sh", FLEX_DRIVER]).arg(folder.join("d")).status().unwrap().success());
    std::fs::write(folder.join("resizes"), "true").unwrap();
    std::fs::write(folder.join("fail"), "").unwrap();
    let controllers = ["persistentvolume-binder", "persistentvolume-expander"].map(str::to_owned).to_vec();
    let mut options = registry::Options { controllers, ..Default::default() };
    options.attach_detach.flex_directory = Some(dir.path().to_owned());
    let managed = ManagedCluster::with(Options::default(), options).await;
    class(&managed, "a", "example.com/p", json!({"allowVolumeExpansion": true})).await;
    for (name, driver) in [("own", "v/d"), ("other", "v/absent")] {
        let claim_ref = json!({"namespace": "default", "name": name});
        let spec = json!({"csi": null, "flexVolume": {"driver": driver}, "claimRef": claim_ref});
        volume(&managed, name, "1Gi", json!({}), spec).await;
        claim(&managed, name, json!({})).await;
        bound(&managed, name).await;
    }
    let grow = async |name: &str, size: &str| {
        let larger = json!({"spec": {"resources": {"requests": {"storage": size}}}});
        claims(&managed).patch(name, &PatchParams::default(), &Patch::Merge(larger)).await.unwrap();
    };
    let step = |claim: &PersistentVolumeClaim| {
        let conditions = claim.status.as_ref().and_then(|it| it.conditions.clone()).unwrap_or_default();
        conditions.into_iter().map(|it| it.type_).collect::<Vec<_>>()
    };
    let capacity = |claim: &PersistentVolumeClaim| {
        let status = claim.status.as_ref().and_then(|it| it.capacity.clone()).unwrap_or_default();
        status.get("storage").map(|it| it.0.clone())
    };
    const PREVIOUS: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";
    const RESIZER: &str = "volume.kubernetes.io/storage-resizer";
    let size_of = async |name: &str| {
        let volume = volumes(&managed).get(name).await.unwrap();
        let size = volume.spec.as_ref().unwrap().capacity.as_ref().unwrap()["storage"].0.clone();
        (size, volume.annotations().get(PREVIOUS).cloned())
    };

    // a failure is reported, and repeated
    grow("own", "2Gi").await;
    let events: Api<Event> = Api::default_namespaced(managed.client());
    let failed = "error expanding volume \"default/own\" of plugin \"v/d\": expandvolume command failed, \
                  status: Failure, reason: full";
    until("the failure", &events, |all| all.values().any(|it| it.message.as_deref() == Some(failed))).await;
    let claim = claims(&managed).get("own").await.unwrap();
    assert_eq!((step(&claim), capacity(&claim).as_deref()), (vec!["Resizing".to_owned()], Some("1Gi")));
    assert_eq!(claim.annotations()[RESIZER], "v/d");
    std::fs::remove_file(folder.join("fail")).unwrap();

    // the agent of a pod does the rest; drivers without a program here have nothing else to do
    grow("other", "2Gi").await;
    for name in ["own", "other"] {
        let is_pending =
            |all: &BTreeMap<String, PersistentVolumeClaim>| step(&all[name]) == ["FileSystemResizePending"];
        let all = until("the pending resize", &claims(&managed), is_pending).await;
        assert_eq!(capacity(&all[name]).as_deref(), Some("1Gi"));
        assert_eq!(size_of(name).await, ("2Gi".to_owned(), Some("1Gi".to_owned())));
    }
    let gibibyte = 1u64 << 30;
    let calls = std::fs::read_to_string(folder.join("calls")).unwrap();
    let expected = format!("v/d/mounts/own {} {gibibyte}", 2 * gibibyte);
    assert!(calls.lines().count() >= 2 && calls.lines().all(|it| it == expected), "{calls}");
    let status = json!({"status": {"capacity": {"storage": "2Gi"}, "conditions": []}});
    claims(&managed).patch_status("own", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    until("the annotation's end", &volumes(&managed), |all| !all["own"].annotations().contains_key(PREVIOUS))
        .await;

    // a program whose volumes have no file system of their own
    let again = r#"printf false > "$2" && sleep 0.01 && touch "$1""#;
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", again, "sh"]).args([folder.join("d"), folder.join("resizes")]);
    assert!(shell.status().unwrap().success());
    grow("own", "3Gi").await;
    until("the size", &claims(&managed), |all| {
        capacity(&all["own"]).as_deref() == Some("3Gi") && step(&all["own"]).is_empty()
    })
    .await;
    assert_eq!(size_of("own").await, ("3Gi".to_owned(), None));
    let done = "ExpandVolume succeeded for volume default/own";
    until("the event", &events, |all| all.values().any(|it| it.message.as_deref() == Some(done))).await;
}
