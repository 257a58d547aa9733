//! Volumes that are folders of a node, with the scheduler, and agents of the test that make real folders.

use auth::User;
use client::Client;
use controllers::registry;
use http::Method;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIStorageCapacity, StorageClass};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use names::local_volumes::{AVAILABLE, FINALIZER, PROVISIONER};
use nodeagent::filesystem::LinuxFilesystem;
use nodeagent::local_volumes::{LocalVolumeError, LocalVolumes};
use scheduler::driver;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tests::{HttpsServer, ManagedCluster, Options, ReceivedRequest, Reply, until};
use tokio::task::JoinHandle;

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const GIB: u64 = 1 << 30;

/// A node's agent, which can be switched off.
struct FolderAgent {
    server: HttpsServer,
    root: tempfile::TempDir,
    is_broken: Arc<AtomicBool>,
}

impl FolderAgent {
    async fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        let is_broken: Arc<AtomicBool> = Arc::default();
        let volumes = LocalVolumes::new(root.path(), Arc::new(LinuxFilesystem));
        let broken = is_broken.clone();
        let answer = move |request: &ReceivedRequest| {
            if broken.load(Ordering::Acquire) {
                return Reply::Text(500, "the disk is broken".to_owned());
            }
            let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
            let name = path.strip_prefix("/localVolumes/").unwrap();
            let answer = match request.method {
                Method::PUT => {
                    let size = query.strip_prefix("size=").unwrap().parse().unwrap();
                    volumes.create(name, size).map(|path| json!({ "path": path }))
                }
                Method::DELETE => volumes.remove(name).map(|()| json!({})),
                _ => panic!("{request:?}"),
            };
            match answer {
                Ok(json) => Reply::Json(json),
                Err(why @ LocalVolumeError::NoSpace { .. }) => Reply::Text(507, why.to_string()),
                Err(why) => Reply::Text(500, why.to_string()),
            }
        };
        FolderAgent { server: HttpsServer::start(answer).await, root, is_broken }
    }

    fn folder(&self, volume: &str) -> PathBuf {
        self.root.path().join("local-volumes").join(volume)
    }
}

struct Storage {
    managed: ManagedCluster,
    scheduler: JoinHandle<()>,
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.scheduler.abort();
    }
}

impl Storage {
    async fn start() -> Self {
        let controllers = [
            "local-volume-provisioner",
            "persistentvolume-binder",
            "pv-protection",
            "pvc-protection",
            "statefulset",
        ];
        let controllers = controllers.map(str::to_owned).to_vec();
        let mut options = registry::Options { controllers, ..Default::default() };
        options.persistent_volumes.sync_period = Duration::from_millis(200);
        let managed = ManagedCluster::with(Options::default(), options).await;
        let cluster = &managed.cluster;
        let user = User::named("system:kube-scheduler").authenticated();
        let transport =
            apiserver::serve::InMemory::new(cluster.server.service.clone(), user, "kube-scheduler");
        let client = Client::new(transport);
        let scheduler =
            tokio::spawn(driver::run(client, cluster.world.clone(), driver::Options::new("machine")));
        Storage { managed, scheduler }
    }

    async fn add_node(&self, name: &str, agent: &FolderAgent, available: u64) {
        let cluster = &self.managed.cluster;
        let capacity = json!({"cpu": "4", "memory": "4Gi", "pods": "10"});
        let metadata = json!({"name": name, "labels": {"kubernetes.io/hostname": format!("{name}-host")},
            "annotations": {AVAILABLE: available.to_string()}});
        cluster.create(NODES, json!({"metadata": metadata, "status": {"capacity": capacity}})).await;
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": agent.server.port()}},
        }});
        cluster.patch(&format!("{NODES}/{name}/status"), status).await.code(200);
        cluster.patch(&format!("{NODES}/{name}"), json!({"spec": {"taints": null}})).await.code(200);
    }

    async fn add_claim(&self, name: &str, size: &str, spec: Value) {
        let mut base = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "local",
            "resources": {"requests": {"storage": size}}});
        base.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        self.managed.cluster.create(CLAIMS, json!({"metadata": {"name": name}, "spec": base})).await;
    }

    async fn add_pod(&self, name: &str, claim: &str) {
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
        let spec = json!({"containers": [{"name": "c", "image": "i"}], "volumes": volumes});
        self.managed.cluster.create(PODS, json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::default_namespaced(self.managed.client())
    }

    fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.managed.client())
    }

    fn capacities(&self) -> Api<CSIStorageCapacity> {
        Api::namespaced(self.managed.client(), "kube-system")
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.managed.client())
    }

    async fn end_pod(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }

    async fn event(&self, reason: &str, part: &str) -> Event {
        let events: Api<Event> = Api::all(self.managed.client());
        let is = |event: &Event| {
            event.reason.as_deref() == Some(reason)
                && event.message.as_deref().is_some_and(|it| it.contains(part))
        };
        let all = until(&format!("{reason} {part}"), &events, |all| all.values().any(is)).await;
        all.into_values().find(is).unwrap()
    }
}

fn bound_volume(claim: &PersistentVolumeClaim) -> Option<String> {
    let is_bound = claim.status.as_ref()?.phase.as_deref() == Some("Bound");
    claim.spec.as_ref()?.volume_name.clone().filter(|_| is_bound)
}

fn node_of(pods: &BTreeMap<String, Pod>, name: &str) -> Option<String> {
    pods.get(name)?.spec.as_ref()?.node_name.clone()
}

#[tokio::test]
async fn a_stateful_set_keeps_its_data_while_pods_come_and_go() {
    let it = Storage::start().await;
    let agent = FolderAgent::start().await;
    it.add_node("n", &agent, 8 * GIB).await;
    let classes: Api<StorageClass> = Api::all(it.managed.client());
    let all = until("the class", &classes, |all| all.contains_key("local")).await;
    let default = all["local"].annotations().get("storageclass.kubernetes.io/is-default-class");
    assert_eq!(default.map(String::as_str), Some("true"));
    let template = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let set = json!({"metadata": {"name": "db"}, "spec": {"serviceName": "db", "replicas": 2,
        "podManagementPolicy": "Parallel", "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
            "containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}]}},
        "volumeClaimTemplates": [template]}});
    it.managed.cluster.create("/apis/apps/v1/namespaces/default/statefulsets", set).await;
    let bound =
        |all: &BTreeMap<String, PersistentVolumeClaim>| all.values().filter_map(bound_volume).count() == 2;
    let claims = until("two bound claims", &it.claims(), bound).await;
    let volume = bound_volume(&claims["data-db-0"]).unwrap();
    until("the pod's node", &it.pods(), |all| node_of(all, "db-0").as_deref() == Some("n")).await;
    std::fs::write(agent.folder(&volume).join("row"), "1").unwrap();
    let first = it.pods().get("db-0").await.unwrap().uid();
    it.end_pod("db-0").await;
    until("the pod anew, where its data is", &it.pods(), |all| {
        all.get("db-0").is_some_and(|pod| pod.uid() != first) && node_of(all, "db-0").as_deref() == Some("n")
    })
    .await;
    assert_eq!(bound_volume(&it.claims().get("data-db-0").await.unwrap()), Some(volume.clone()));
    assert_eq!(std::fs::read_to_string(agent.folder(&volume).join("row")).unwrap(), "1");
    let made = it.volumes().get(&volume).await.unwrap();
    assert_eq!(made.annotations()["pv.kubernetes.io/provisioned-by"], PROVISIONER);
    it.event("ProvisioningSucceeded", &format!("Successfully provisioned volume {volume}")).await;
}

#[tokio::test]
async fn folders_are_removed_or_kept_by_policy() {
    let mut it = Storage::start().await;
    let agent = FolderAgent::start().await;
    it.add_node("n", &agent, 8 * GIB).await;
    let class = json!({"metadata": {"name": "kept"}, "provisioner": PROVISIONER, "reclaimPolicy": "Retain",
        "volumeBindingMode": "WaitForFirstConsumer"});
    it.managed.cluster.create("/apis/storage.k8s.io/v1/storageclasses", class).await;
    until("capacities of both classes", &it.capacities(), |all| all.len() == 2).await;
    for (name, class) in [("gone", "local"), ("kept", "kept"), ("deleted", "local")] {
        it.add_claim(name, "1Gi", json!({ "storageClassName": class })).await;
        it.add_pod(name, name).await;
    }
    let all =
        until("bound claims", &it.claims(), |all| all.values().filter_map(bound_volume).count() == 3).await;
    let [gone, kept, deleted] = ["gone", "kept", "deleted"].map(|name| bound_volume(&all[name]).unwrap());
    for volume in [&gone, &kept, &deleted] {
        std::fs::write(agent.folder(volume).join("file"), "x").unwrap();
    }
    // a volume that a user deletes stays until its claim is gone, and then takes its folder with it
    it.volumes().delete(&deleted, &DeleteParams::default()).await.unwrap();
    agent.is_broken.store(true, Ordering::Release);
    for name in ["gone", "kept", "deleted"] {
        it.end_pod(name).await;
        it.claims().delete(name, &DeleteParams::default()).await.unwrap();
    }
    let event = it.event("VolumeFailedDelete", "the disk is broken").await;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert!(agent.folder(&gone).exists() && agent.folder(&deleted).exists());
    // also after a restart, when the agent works again
    it.managed.pause_loops().await;
    agent.is_broken.store(false, Ordering::Release);
    it.managed.restart_loops().await;
    until("the volumes' end", &it.volumes(), |all| all.keys().eq([&kept])).await;
    assert!(!agent.folder(&gone).exists() && !agent.folder(&deleted).exists());
    assert!(agent.folder(&kept).join("file").exists());
    // a retained volume is deleted by its user, and its folder stays
    it.volumes().delete(&kept, &DeleteParams::default()).await.unwrap();
    until("the volume's end", &it.volumes(), |all| all.is_empty()).await;
    assert!(agent.folder(&kept).join("file").exists());
}

#[tokio::test]
async fn a_node_without_space_is_not_chosen() {
    let it = Storage::start().await;
    let agent = FolderAgent::start().await;
    it.add_node("full", &agent, GIB / 2).await;
    let capacities = until("a capacity", &it.capacities(), |all| all.len() == 1).await;
    let capacity = capacities.into_values().next().unwrap();
    assert_eq!(capacity.capacity.map(|it| it.0).as_deref(), Some("536870912"));
    it.add_claim("c", "1Gi", json!({})).await;
    it.add_pod("p", "c").await;
    it.event("FailedScheduling", "did not have enough free storage").await;
    it.add_node("roomy", &agent, 8 * GIB).await;
    until("the pod's node", &it.pods(), |all| node_of(all, "p").as_deref() == Some("roomy")).await;
    let volume = bound_volume(&it.claims().get("c").await.unwrap()).unwrap();
    let affinity =
        it.volumes().get(&volume).await.unwrap().spec.unwrap().node_affinity.unwrap().required.unwrap();
    let host = affinity.node_selector_terms[0].match_expressions.as_ref().unwrap()[0].values.clone();
    assert_eq!(host, Some(vec!["roomy-host".to_owned()]));
    // the capacity follows the report, and goes with the node
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(it.managed.client());
    let report = json!({"metadata": {"annotations": {AVAILABLE: (3 * GIB).to_string()}}});
    nodes.patch("full", &PatchParams::default(), &Patch::Merge(report)).await.unwrap();
    until("the new capacity", &it.capacities(), |all| {
        all.values().any(|it| it.capacity.as_ref().is_some_and(|it| matches!(&*it.0, "3Gi" | "3221225472")))
    })
    .await;
    nodes.delete("full", &DeleteParams::default()).await.unwrap();
    until("one capacity", &it.capacities(), |all| all.len() == 1).await;
}

#[tokio::test]
async fn a_node_that_is_gone_takes_its_volumes_with_it() {
    let it = Storage::start().await;
    let agent = FolderAgent::start().await;
    it.add_node("n", &agent, 8 * GIB).await;
    it.add_claim("c", "1Gi", json!({})).await;
    it.add_pod("p", "c").await;
    let all = until("a bound claim", &it.claims(), |all| bound_volume(&all["c"]).is_some()).await;
    let volume = bound_volume(&all["c"]).unwrap();
    agent.is_broken.store(true, Ordering::Release);
    it.end_pod("p").await;
    it.claims().delete("c", &DeleteParams::default()).await.unwrap();
    it.event("VolumeFailedDelete", "on node \"n\" was not removed").await;
    assert!(it.volumes().get(&volume).await.unwrap().finalizers().iter().any(|it| it == FINALIZER));
    it.managed.cluster.delete(&format!("{NODES}/n")).await.code(200);
    until("the volume's end", &it.volumes(), |all| all.is_empty()).await;
}

#[tokio::test]
async fn claims_that_no_folder_can_satisfy_are_reported() {
    let it = Storage::start().await;
    let agent = FolderAgent::start().await;
    // the report is out of date: the agent has less
    it.add_node("n", &agent, 1 << 60).await;
    let classes: Api<StorageClass> = Api::all(it.managed.client());
    until("the class", &classes, |all| all.contains_key("local")).await;
    it.add_claim("huge", "512Pi", json!({})).await;
    it.add_pod("p", "huge").await;
    let event = it.event("ProvisioningFailed", "not enough space").await;
    let message = "failed to provision volume with StorageClass \"local\": not enough space";
    assert!(event.message.unwrap().starts_with(message));
    for (name, spec, why) in [
        ("block", json!({"volumeMode": "Block"}), "block volumes are not supported"),
        ("many", json!({"accessModes": ["ReadWriteMany"]}), "access mode ReadWriteMany is not supported"),
    ] {
        it.add_claim(name, "1Gi", spec).await;
        it.add_pod(name, name).await;
        let event = it.event("ProvisioningFailed", why).await;
        assert_eq!(event.involved_object.name.as_deref(), Some(name));
    }
    assert!(it.volumes().list(&Default::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn a_class_that_the_user_deleted_does_not_come_back() {
    let mut it = Storage::start().await;
    let agent = FolderAgent::start().await;
    it.add_node("n", &agent, 8 * GIB).await;
    until("a capacity", &it.capacities(), |all| all.len() == 1).await;
    let classes: Api<StorageClass> = Api::all(it.managed.client());
    classes.delete("local", &DeleteParams::default()).await.unwrap();
    until("no capacity", &it.capacities(), |all| all.is_empty()).await;
    it.managed.restart_loops().await;
    // a class of the user shows that the loop has seen the node
    let class = json!({"metadata": {"name": "mine"}, "provisioner": PROVISIONER,
        "volumeBindingMode": "WaitForFirstConsumer"});
    it.managed.cluster.create("/apis/storage.k8s.io/v1/storageclasses", class).await;
    until("a capacity", &it.capacities(), |all| all.len() == 1).await;
    let names: Vec<String> =
        classes.list(&Default::default()).await.unwrap().items.iter().map(|it| it.name_any()).collect();
    assert_eq!(names, ["mine"]);
}
