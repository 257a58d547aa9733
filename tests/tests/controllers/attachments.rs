//! Attachment of CSI volumes to the nodes whose pods use them.

use controllers::registry;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::Api;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tests::{ManagedCluster, Options, until};

const WITHIN: &str = "/api/v1/namespaces/default";
/// The finalizer of a driver on its attachments.
const DRIVER: &str = "external-attacher/d-example-com";

async fn managed() -> ManagedCluster {
    managed_with(None).await
}

async fn managed_with(flex_directory: Option<PathBuf>) -> ManagedCluster {
    let controllers = ["attachdetach", "persistentvolume-binder"].map(str::to_owned).into();
    let mut options = registry::Options { controllers, ..Default::default() };
    options.persistent_volumes.sync_period = Duration::from_millis(200);
    options.attach_detach.flex_directory = flex_directory;
    ManagedCluster::with(Options::default(), options).await
}

fn attachments(managed: &ManagedCluster) -> Api<VolumeAttachment> {
    Api::all(managed.client())
}

fn nodes(managed: &ManagedCluster) -> Api<Node> {
    Api::all(managed.client())
}

async fn node(managed: &ManagedCluster, name: &str) {
    let annotations = json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"});
    let node = json!({"metadata": {"name": name, "annotations": annotations}});
    managed.cluster.create("/api/v1/nodes", node).await;
    ready(managed, name, "True").await;
}

async fn ready(managed: &ManagedCluster, name: &str, ready: &str) {
    status(managed, name, json!({"conditions": [{"type": "Ready", "status": ready}]})).await;
}

async fn status(managed: &ManagedCluster, name: &str, status: Value) {
    let patch = Patch::Merge(json!({ "status": status }));
    nodes(managed).patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// A volume that one claim has, both of this name.
async fn volume(managed: &ManagedCluster, name: &str, driver: &str, modes: Value) {
    bound_volume(managed, name, modes, "csi", json!({"driver": driver, "volumeHandle": name})).await;
}

async fn bound_volume(managed: &ManagedCluster, name: &str, modes: Value, plugin: &str, source: Value) {
    let spec = json!({"accessModes": modes, "storageClassName": "", "capacity": {"storage": "1Gi"},
        plugin: source, "claimRef": {"namespace": "default", "name": name}});
    managed
        .cluster
        .create("/api/v1/persistentvolumes", json!({"metadata": {"name": name}, "spec": spec}))
        .await;
    let spec = json!({"accessModes": modes, "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}}});
    let claim = json!({"metadata": {"name": name}, "spec": spec});
    managed.cluster.create(&format!("{WITHIN}/persistentvolumeclaims"), claim).await;
}

async fn pod(managed: &ManagedCluster, name: &str, node: &str, claims: &[&str]) {
    let volumes: Vec<_> = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "i"}], "volumes": volumes});
    managed
        .cluster
        .create(&format!("{WITHIN}/pods"), json!({"metadata": {"name": name}, "spec": spec}))
        .await;
}

async fn remove(managed: &ManagedCluster, name: &str) {
    let pods: Api<Pod> = Api::default_namespaced(managed.client());
    pods.delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
}

/// The attachment of a volume to a node, once it is there.
async fn attachment(managed: &ManagedCluster, volume: &str, node: &str) -> VolumeAttachment {
    let is = |it: &VolumeAttachment| {
        it.spec.node_name == node && it.spec.source.persistent_volume_name.as_deref() == Some(volume)
    };
    let all = until(&format!("{volume} at {node}"), &attachments(managed), |all| all.values().any(is)).await;
    all.into_values().find(is).unwrap()
}

/// The action of a driver on an attachment.
async fn drive(managed: &ManagedCluster, name: &str) {
    let held = Patch::Merge(json!({"metadata": {"finalizers": [DRIVER]}}));
    attachments(managed).patch(name, &PatchParams::default(), &held).await.unwrap();
    let done = Patch::Merge(json!({"status": {"attached": true}}));
    attachments(managed).patch_status(name, &PatchParams::default(), &done).await.unwrap();
}

async fn undo(managed: &ManagedCluster, name: &str) {
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    attachments(managed).patch(name, &PatchParams::default(), &free).await.unwrap();
}

fn attached_volumes(node: &Node) -> Vec<&str> {
    let volumes = node.status.iter().flat_map(|it| it.volumes_attached.iter().flatten());
    volumes.map(|it| it.name.as_str()).collect()
}

async fn wait_for_volumes(managed: &ManagedCluster, name: &str, expected: &[&str]) {
    until(&format!("volumes of {name}: {expected:?}"), &nodes(managed), |all| {
        attached_volumes(&all[name]) == expected
    })
    .await;
}

async fn event(managed: &ManagedCluster, reason: &str) -> Event {
    let events: Api<Event> = Api::default_namespaced(managed.client());
    let is = |event: &Event| event.reason.as_deref() == Some(reason);
    let all = until(reason, &events, |all| all.values().any(is)).await;
    all.into_values().find(is).unwrap()
}

const V: &str = "kubernetes.io/csi/d.example.com^v";

#[tokio::test]
async fn volumes_are_attached_and_detached_with_pods() {
    let mut managed = managed().await;
    node(&managed, "n").await;
    volume(&managed, "v", "d.example.com", json!(["ReadWriteOnce"])).await;
    // a driver that has nothing to attach
    let driver = json!({"metadata": {"name": "flat.example.com"}, "spec": {"attachRequired": false}});
    managed.cluster.create("/apis/storage.k8s.io/v1/csidrivers", driver).await;
    volume(&managed, "flat", "flat.example.com", json!(["ReadWriteOnce"])).await;
    pod(&managed, "p", "n", &["flat", "v"]).await;
    let created = attachment(&managed, "v", "n").await;
    // sha256 of "vd.example.comn"
    assert_eq!(created.name_any(), "csi-a7d88920a2be0f95a4d54f51d2706fa83653b1d46797d279c0eb3ad57beeaba0");
    assert_eq!(created.spec.attacher, "d.example.com");
    drive(&managed, &created.name_any()).await;
    wait_for_volumes(&managed, "n", &[V]).await;
    let counted = |operation: &str| {
        let labels = format!("migrated=\"false\",operation_name=\"{operation}\",status=\"success\"");
        format!("duration_seconds_count{{{labels},volume_plugin=\"kubernetes.io/csi:d.example.com\"}} 1\n")
    };
    managed.wait_for_metric(&counted("volume_attach")).await;
    let event = event(&managed, "SuccessfulAttachVolume").await;
    assert_eq!(event.message.as_deref(), Some("AttachVolume.Attach succeeded for volume \"v\" "));
    assert_eq!(event.source.unwrap().component.as_deref(), Some("attachdetach-controller"));
    assert_eq!(attachments(&managed).list(&Default::default()).await.unwrap().items.len(), 1);
    // its agent uses it for a while longer than its pod is there
    status(&managed, "n", json!({"volumesInUse": [V]})).await;
    managed.restart_loops().await;
    remove(&managed, "p").await;
    pod(&managed, "q", "n", &[]).await;
    node(&managed, "m").await;
    volume(&managed, "w", "d.example.com", json!(["ReadWriteOnce"])).await;
    pod(&managed, "r", "m", &["w"]).await;
    attachment(&managed, "w", "m").await;
    assert!(attachment(&managed, "v", "n").await.metadata.deletion_timestamp.is_none());
    status(&managed, "n", json!({"volumesInUse": null})).await;
    wait_for_volumes(&managed, "n", &[]).await;
    until("it to go", &attachments(&managed), |all| {
        all[&created.name_any()].metadata.deletion_timestamp.is_some()
    })
    .await;
    // wanted again while it goes: it comes again when it is gone
    pod(&managed, "s", "n", &["v"]).await;
    undo(&managed, &created.name_any()).await;
    let again = until("another", &attachments(&managed), |all| {
        all.get(&created.name_any()).is_some_and(|it| it.uid() != created.uid())
    })
    .await;
    assert_eq!(again.len(), 2);
    managed.wait_for_metric(&counted("volume_detach")).await;
}

#[tokio::test]
async fn a_single_node_volume_is_attached_to_one_node() {
    let mut managed = managed().await;
    node(&managed, "n").await;
    node(&managed, "m").await;
    volume(&managed, "v", "d.example.com", json!(["ReadWriteOnce"])).await;
    volume(&managed, "shared", "d.example.com", json!(["ReadWriteMany"])).await;
    pod(&managed, "p", "n", &["v", "shared"]).await;
    let first = attachment(&managed, "v", "n").await;
    attachment(&managed, "shared", "n").await;
    pod(&managed, "q", "m", &["v", "shared"]).await;
    attachment(&managed, "shared", "m").await;
    let refused = event(&managed, "FailedAttachVolume").await;
    let message = "Multi-Attach error for volume \"v\" Volume is already used by pod(s) p";
    assert_eq!((refused.message.as_deref(), refused.type_.as_deref()), (Some(message), Some("Warning")));
    managed.restart_loops().await;
    drive(&managed, &first.name_any()).await;
    remove(&managed, "p").await;
    until("it to go", &attachments(&managed), |all| {
        all[&first.name_any()].metadata.deletion_timestamp.is_some()
    })
    .await;
    undo(&managed, &first.name_any()).await;
    let second = attachment(&managed, "v", "m").await;
    let failed = json!({"attached": false, "attachError": {"message": "no room"}});
    let failed = Patch::Merge(json!({ "status": failed }));
    attachments(&managed).patch_status(&second.name_any(), &PatchParams::default(), &failed).await.unwrap();
    let events: Api<Event> = Api::default_namespaced(managed.client());
    let message = "AttachVolume.Attach failed for volume \"v\" : no room";
    until("the failure", &events, |all| all.values().any(|it| it.message.as_deref() == Some(message))).await;
}

#[tokio::test]
async fn volumes_of_silent_nodes_are_detached_after_a_timeout() {
    let managed = managed().await;
    for (name, volume_name) in [("silent", "v"), ("broken", "w"), ("gone", "x")] {
        node(&managed, name).await;
        volume(&managed, volume_name, "d.example.com", json!(["ReadWriteOnce"])).await;
        pod(&managed, name, name, &[volume_name]).await;
        let created = attachment(&managed, volume_name, name).await;
        drive(&managed, &created.name_any()).await;
        let called = format!("kubernetes.io/csi/d.example.com^{volume_name}");
        wait_for_volumes(&managed, name, &[&called]).await;
        status(&managed, name, json!({"volumesInUse": [called]})).await;
        ready(&managed, name, "Unknown").await;
        remove(&managed, name).await;
    }
    let leaves = |volume: &'static str| {
        let attachments = attachments(&managed);
        async move {
            until(&format!("{volume} to go"), &attachments, |all| {
                all.values().any(|it| {
                    it.spec.source.persistent_volume_name.as_deref() == Some(volume)
                        && it.metadata.deletion_timestamp.is_some()
                })
            })
            .await
        }
    };
    nodes(&managed).delete("gone", &DeleteParams::default()).await.unwrap();
    leaves("x").await;
    let taint = json!({"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"});
    let patch = Patch::Merge(json!({"spec": {"taints": [taint]}}));
    nodes(&managed).patch("broken", &PatchParams::default(), &patch).await.unwrap();
    let all = leaves("w").await;
    let silent = all.values().find(|it| it.spec.node_name == "silent").unwrap();
    assert!(silent.metadata.deletion_timestamp.is_none());
    managed.cluster.advance(Duration::from_secs(361));
    ready(&managed, "silent", "False").await;
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"a": "b"}}}));
    nodes(&managed).patch("silent", &PatchParams::default(), &patch).await.unwrap();
    leaves("v").await;
    wait_for_volumes(&managed, "silent", &[]).await;
}

#[tokio::test]
async fn in_tree_volumes_are_attached_by_the_drivers_of_their_plugins() {
    let managed = managed().await;
    node(&managed, "n").await;
    let disk = json!({"accessModes": ["ReadWriteMany"], "storageClassName": "", "capacity": {"storage": "1Gi"},
        "gcePersistentDisk": {"pdName": "d"}, "claimRef": {"namespace": "default", "name": "v"}});
    managed
        .cluster
        .create("/api/v1/persistentvolumes", json!({"metadata": {"name": "v"}, "spec": disk}))
        .await;
    let claim = json!({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}}}});
    managed.cluster.create(&format!("{WITHIN}/persistentvolumeclaims"), claim).await;
    let volumes = json!([{"name": "own", "awsElasticBlockStore": {"volumeID": "aws://z/vol-1"}},
        {"name": "bound", "persistentVolumeClaim": {"claimName": "v"}}]);
    let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}], "volumes": volumes});
    managed.cluster.create(&format!("{WITHIN}/pods"), json!({"metadata": {"name": "p"}, "spec": spec})).await;
    // the node relies on the driver of one plugin, then of both
    let plugins = |plugins: &str| json!({"metadata": {"name": "n", "annotations": {"storage.alpha.kubernetes.io/migrated-plugins": plugins}}, "spec": {"drivers": []}});
    managed.cluster.create("/apis/storage.k8s.io/v1/csinodes", plugins("kubernetes.io/gce-pd")).await;
    let bound = attachment(&managed, "v", "n").await;
    assert_eq!(bound.spec.attacher, "pd.csi.storage.gke.io");
    assert_eq!(attachments(&managed).list(&Default::default()).await.unwrap().items.len(), 1);
    let both = plugins("kubernetes.io/aws-ebs,kubernetes.io/gce-pd");
    let merge = "application/merge-patch+json";
    managed.cluster.patch("/apis/storage.k8s.io/v1/csinodes/n", both).content_type(merge).await.code(200);
    let is_own = |it: &VolumeAttachment| it.spec.attacher == "ebs.csi.aws.com";
    let all = until("the disk of the pod", &attachments(&managed), |all| all.values().any(is_own)).await;
    let own = all.values().find(|it| is_own(it)).unwrap();
    let inline = own.spec.source.inline_volume_spec.as_ref().unwrap();
    assert_eq!(inline.csi.as_ref().unwrap().volume_handle, "vol-1");
    assert_eq!(
        (inline.access_modes.as_deref(), &own.spec.source.persistent_volume_name),
        (Some(&["ReadWriteOnce".to_owned()][..]), &None)
    );
    for attachment in [&bound.name_any(), &own.name_any()] {
        drive(&managed, attachment).await;
    }
    let names =
        ["ebs.csi.aws.com^vol-1", "pd.csi.storage.gke.io^projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"];
    let mut names: Vec<String> = names.iter().map(|it| format!("kubernetes.io/csi/{it}")).collect();
    names.sort();
    until("the volumes of the node", &nodes(&managed), |all| {
        let mut found = attached_volumes(&all["n"]);
        found.sort_unstable();
        found == names
    })
    .await;
    managed.wait_for_metric("migrated=\"true\",operation_name=\"volume_attach\",status=\"success\"").await;
    remove(&managed, "p").await;
    wait_for_volumes(&managed, "n", &[]).await;
    until("both to go", &attachments(&managed), |all| {
        all.values().all(|it| it.metadata.deletion_timestamp.is_some())
    })
    .await;
}

/// A FlexVolume driver that records what it attaches and detaches.
const FLEX_DRIVER: &str = r#"#!/bin/sh
case "$1" in
init) echo '{"status":"Success"}';;
attach) echo "attach $3" >> "$(dirname "$0")/calls"; echo '{"status":"Success","device":"/dev/disk"}';;
detach) echo "detach $2 $3" >> "$(dirname "$0")/calls"; echo '{"status":"Success"}';;
*) echo '{"status":"Not supported"}'; exit 1;;
esac
"#;

#[tokio::test]
async fn programs_of_flex_volume_drivers_attach_and_detach() {
    const FLEX: &str = "v/d/v";
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("v~d/d");
    std::fs::create_dir(dir.path().join("v~d")).unwrap();
    let write = r#"printf %s "$1" > "$2" && chmod 755 "$2""#;
    let written = Command::new("sh").args(["-c", write, "sh", FLEX_DRIVER]).arg(&program).status();
    assert!(written.unwrap().success());
    let mut managed = managed_with(Some(dir.path().to_owned())).await;
    node(&managed, "n").await;
    node(&managed, "m").await;
    bound_volume(&managed, "v", json!(["ReadWriteOnce"]), "flexVolume", json!({"driver": "v/d"})).await;
    pod(&managed, "p", "n", &["v"]).await;
    wait_for_volumes(&managed, "n", &[FLEX]).await;
    let found = nodes(&managed).get("n").await.unwrap().status.unwrap().volumes_attached.unwrap();
    assert_eq!(found[0].device_path, "/dev/disk");
    managed.wait_for_metric("actual_state_of_world\"} 1\n").await;
    let attached = event(&managed, "SuccessfulAttachVolume").await;
    assert_eq!(attached.message.as_deref(), Some("AttachVolume.Attach succeeded for volume \"v\" "));
    status(&managed, "n", json!({"volumesInUse": [FLEX]})).await;
    // a second node gets it when the first has released it, also from a manager that has not attached it
    managed.restart_loops().await;
    pod(&managed, "q", "m", &["v"]).await;
    let refused = event(&managed, "FailedAttachVolume").await;
    let message = "Multi-Attach error for volume \"v\" Volume is already used by pod(s) p";
    assert_eq!(refused.message.as_deref(), Some(message));
    remove(&managed, "p").await;
    status(&managed, "n", json!({"volumesInUse": null})).await;
    wait_for_volumes(&managed, "m", &[FLEX]).await;
    wait_for_volumes(&managed, "n", &[]).await;
    assert!(attachments(&managed).list(&Default::default()).await.unwrap().items.is_empty());
    let calls = std::fs::read_to_string(dir.path().join("v~d/calls")).unwrap();
    assert_eq!(calls.lines().collect::<Vec<_>>(), ["attach n", "detach v n", "attach m"]);
}
