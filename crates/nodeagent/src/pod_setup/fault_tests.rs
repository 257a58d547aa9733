//! Pods with volumes and cgroups while the agent is killed or the disk is full.

use super::MachineSetup;
use super::runtime_classes::RuntimeClasses;
use crate::cgroups::{CgroupFiles, CgroupManager, CgroupOptions};
use crate::container::NodeFacts;
use crate::filesystem::testing::FakeFilesystem;
use crate::objects::cache::{CacheOptions, ObjectCache, Strategy};
use crate::objects::testing::{FixedObjects, object};
use crate::pod::testing::{TestNode, deleted, settle};
use crate::pod_facts::ResourceList;
use crate::resource_managers::testing::managers;
use crate::resource_managers::topology::TopologyPolicy;
use crate::runtime::simulated::CallLimit;
use crate::stats::AgentMetrics;
use crate::volumes::VolumeManager;
use crate::volumes::csi::testing::{FixedStorage, LimitedDriver, TestDriver};
use crate::volumes::csi::volume::digest;
use crate::volumes::csi::{CsiDrivers, CsiOptions, CsiVolumes};
use api::core::v1::Pod;
use client::{Body, Client};
use env::World;
use http::{Request, Response};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::watch;

const DRIVER: &str = "d.example.com";

/// A pod with a volume of each kind that the agent makes, below a path of the test.
const POD: &str = r#"{
    "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"a": "b"}},
    "spec": {
        "restartPolicy": "Always",
        "dnsPolicy": "Default",
        "enableServiceLinks": false,
        "securityContext": {"fsGroup": GROUP},
        "volumes": [
            {"name": "disk", "emptyDir": {}},
            {"name": "memory", "emptyDir": {"medium": "Memory"}},
            {"name": "map", "configMap": {"name": "m", "items": [{"key": "k", "path": "d/k"}]}},
            {"name": "secret", "secret": {"secretName": "s"}},
            {"name": "downward", "downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]}},
            {"name": "host", "hostPath": {"path": "ROOT/host", "type": "DirectoryOrCreate"}},
            {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "device", "persistentVolumeClaim": {"claimName": "b"}},
            {"name": "inline", "csi": {"driver": "d.example.com"}}],
        "containers": [{
            "name": "a", "image": "x", "terminationMessagePath": "/dev/termination-log",
            "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "64Mi"}},
            "volumeMounts": [
                {"name": "disk", "mountPath": "/disk"}, {"name": "disk", "mountPath": "/sub", "subPath": "x/y"},
                {"name": "memory", "mountPath": "/memory"}, {"name": "map", "mountPath": "/map"},
                {"name": "map", "mountPath": "/file", "subPath": "d/k"},
                {"name": "secret", "mountPath": "/secret"}, {"name": "downward", "mountPath": "/downward"},
                {"name": "token", "mountPath": "/token"}, {"name": "host", "mountPath": "/host"},
                {"name": "claim", "mountPath": "/claim"}, {"name": "inline", "mountPath": "/inline"}],
            "volumeDevices": [{"name": "device", "devicePath": "/dev/x"}]
        }]
    }}"#;

/// An API server that is away.
#[derive(Clone)]
struct NoServer;

impl tower_service::Service<Request<Body>> for NoServer {
    type Response = Response<Body>;
    type Error = std::io::Error;
    type Future = std::future::Ready<Result<Response<Body>, std::io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        std::future::ready(Err(std::io::Error::other("connection refused")))
    }
}

/// A machine in a directory: what an agent has made outlives it.
struct TestMachine {
    directory: tempfile::TempDir,
    /// Files of the resource managers.
    managers: tempfile::TempDir,
    mounts: Arc<Mutex<BTreeMap<PathBuf, String>>>,
    /// A CSI driver, and its objects.
    driver: Arc<TestDriver>,
    storage: Arc<FixedStorage>,
    objects: Arc<FixedObjects>,
}

impl TestMachine {
    fn new() -> Self {
        let objects = FixedObjects::default();
        objects.config_map(r#"{"metadata":{"name":"m","namespace":"n"},"data":{"k":"value"}}"#);
        objects.secret(r#"{"metadata":{"name":"s","namespace":"n"},"data":{"k":"dmFsdWU="}}"#);
        *objects.now.lock() = 1_000_000_000;
        for (claim, mode) in [("c", "Filesystem"), ("b", "Block")] {
            let found = format!(
                r#"{{"metadata":{{"name":"{claim}","namespace":"n","uid":"{claim}"}},"spec":{{"volumeName":"pv-{claim}"}},
                    "status":{{"phase":"Bound"}}}}"#
            );
            objects.claims.lock().insert(("n".to_owned(), claim.to_owned()), object(&found));
            let volume = format!(
                r#"{{"metadata":{{"name":"pv-{claim}"}},"spec":{{"claimRef":{{"uid":"{claim}"}},"volumeMode":"{mode}",
                    "csi":{{"driver":"{DRIVER}","volumeHandle":"h-{claim}"}}}}}}"#
            );
            objects.volumes.lock().insert(format!("pv-{claim}"), object(&volume));
        }
        let storage = FixedStorage::default();
        let driver = format!(
            r#"{{"metadata":{{"name":"{DRIVER}"}},"spec":{{"attachRequired":false,"volumeLifecycleModes":["Persistent","Ephemeral"]}}}}"#
        );
        storage.drivers.lock().insert(DRIVER.to_owned(), object(&driver));
        let directory = tempfile::tempdir().unwrap();
        for name in ["cgroup/cpu", "cgroup/memory", "cgroup/pids"] {
            std::fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        let managers = tempfile::tempdir().unwrap();
        let mounts: Arc<Mutex<BTreeMap<PathBuf, String>>> = Arc::default();
        let driver = TestDriver::new(mounts.clone());
        TestMachine {
            directory,
            managers,
            mounts,
            driver,
            storage: Arc::new(storage),
            objects: Arc::new(objects),
        }
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.directory.path().join(inside)
    }

    fn pod(&self) -> Arc<Pod> {
        use std::os::unix::fs::MetadataExt;
        // the group of the process, so that the test needs no privileges
        let group = std::fs::metadata(self.directory.path()).unwrap().gid();
        let text = POD.replace("GROUP", &group.to_string()).replace("ROOT", self.path("").to_str().unwrap());
        Arc::new(api::from_json(text.as_bytes()).unwrap())
    }

    /// The surroundings of pods as an agent makes them that has just started.
    fn setup(&self, node: &TestNode, filesystem: FakeFilesystem) -> Arc<MachineSetup> {
        let world: World = node.clock.clone();
        let cgroup_dir = self.path("cgroup");
        let filesystem = Arc::new(FakeFilesystem {
            mounts: self.mounts.clone(),
            cgroups: Some(cgroup_dir.clone()),
            ..filesystem
        });
        let drivers = CsiDrivers::unobserved(None);
        let limit = filesystem.limit.clone();
        drivers.insert(DRIVER, Arc::new(LimitedDriver { driver: self.driver.clone(), limit }));
        let csi = CsiVolumes::new(CsiOptions {
            root: self.path("root"),
            node_name: "n1".to_owned(),
            plugin_name: "kubernetes.io/csi".to_owned(),
            filesystem: filesystem.clone(),
            objects: self.objects.clone(),
            api: self.storage.clone(),
            drivers: Arc::new(drivers),
            world: world.clone(),
            has_controlled_attach: true,
            has_expand_secrets: false,
            has_one_pod_volumes: true,
            migrated: Default::default(),
        });
        let hierarchies = ["cpu", "memory", "pids"].map(|it| (it.to_owned(), cgroup_dir.join(it)));
        let options = CgroupOptions { is_per_qos: true, ..CgroupOptions::default() };
        let files = CgroupFiles::V1(BTreeMap::from(hierarchies));
        let cgroups = CgroupManager::new(files, options, None, filesystem.clone()).unwrap();
        // the start of an agent may be killed, too
        let _ = cgroups.set_up(&ResourceList::new());
        let client = Client::new(NoServer);
        let objects = ObjectCache::new(CacheOptions {
            client,
            world: world.clone(),
            strategy: Strategy::Get,
            services: None,
            node: watch::channel(Arc::default()).1,
            ttl_annotation: String::new(),
            listener: Arc::new(|_: &str| {}),
        });
        let facts = NodeFacts {
            root_dir: self.path("root"),
            log_dir: self.path("log/pods"),
            host_ip: "10.1.1.1".to_owned(),
            ..NodeFacts::default()
        };
        let volumes = VolumeManager::new(&self.path("root"), filesystem, self.objects.clone(), world.clone());
        volumes.set_csi(csi);
        let (_, host_ips) = watch::channel(vec!["10.1.1.1".to_owned()]);
        Arc::new(MachineSetup {
            runtime_classes: RuntimeClasses::new(None),
            world: world.clone(),
            facts: RwLock::new(Arc::new(facts)),
            host_ips,
            volumes,
            objects: Arc::new(objects),
            cgroups: Arc::new(cgroups),
            events: node.records.clone(),
            metrics: AgentMetrics::default(),
            managers: managers(self.managers.path(), TopologyPolicy::None, false),
            log_link_dir: self.path("log/containers"),
            has_apparmor: false,
            keeps_volumes: false,
        })
    }

    /// Starts an agent on a node.
    async fn start(&self, node: TestNode, filesystem: FakeFilesystem) -> TestNode {
        let limit = filesystem.limit.clone();
        let setup = self.setup(&node, filesystem);
        // the statuses are those of the agent that runs
        node.records.statuses.lock().clear();
        node.restart_with(setup, limit).await
    }

    /// Asserts that a pod which is ready has its volumes.
    fn check_volumes(&self, at: &str) {
        let read = |inside: &str| std::fs::read_to_string(self.path(inside)).unwrap_or_default();
        let volumes = "root/pods/u/volumes/kubernetes.io~";
        assert_eq!(read(&format!("{volumes}configmap/map/d/k")), "value", "{at}");
        assert_eq!(read(&format!("{volumes}secret/secret/k")), "value", "{at}");
        assert_eq!(read(&format!("{volumes}downward-api/downward/l")), "a=\"b\"", "{at}");
        assert!(read(&format!("{volumes}projected/token/t")).starts_with("token-"), "{at}");
        assert!(self.path(&format!("{volumes}empty-dir/disk/x/y")).is_dir(), "{at}");
        assert!(self.path("host").is_dir(), "{at}");
        assert!(read("root/pods/u/etc-hosts").contains("10.0.0.2"), "{at}");
        let limit = "cgroup/memory/kubepods/burstable/podu/memory.limit_in_bytes";
        assert_eq!(read(limit), (64 << 20).to_string(), "{at}");
        let mut mounts: Vec<String> = self.mounts.lock().keys().map(|it| self.inside(it)).collect();
        mounts.sort();
        let plugin = "root/plugins/kubernetes.io/csi";
        let expected = [
            format!("{plugin}/{DRIVER}/{}/globalmount", digest("h-c")),
            format!("{plugin}/volumeDevices/pv-b/dev/u"),
            format!("{plugin}/volumeDevices/staging/pv-b"),
            format!("{volumes}csi/inline/mount"),
            format!("{volumes}csi/pv-c/mount"),
            format!("{volumes}downward-api/downward"),
            format!("{volumes}empty-dir/memory"),
            format!("{volumes}projected/token"),
            format!("{volumes}secret/secret"),
            "root/pods/u/volume-subpaths/disk/a/1".to_owned(),
            "root/pods/u/volume-subpaths/map/a/4".to_owned(),
        ];
        assert_eq!(
            mounts.iter().map(|it| &**it).collect::<std::collections::BTreeSet<_>>(),
            expected.iter().map(|it| &**it).collect(),
            "{at}"
        );
    }

    fn inside(&self, path: &Path) -> String {
        path.strip_prefix(self.directory.path()).unwrap_or(path).display().to_string()
    }

    /// Asserts that nothing of the pod is left.
    fn check_empty(&self, at: &str) {
        assert!(self.mounts.lock().is_empty(), "{at}: {:?}", self.mounts.lock());
        assert!(self.driver.staged.lock().is_empty(), "{at}: {:?}", self.driver.staged.lock());
        assert!(self.driver.published.lock().is_empty(), "{at}: {:?}", self.driver.published.lock());
        let mut pending = vec![self.path("root"), self.path("log"), self.path("cgroup")];
        let kept = [
            "root/pods",
            "log/pods",
            "log/containers",
            "root/plugins",
            "root/plugins/kubernetes.io",
            "root/plugins/kubernetes.io/csi",
            "root/plugins/kubernetes.io/csi/d.example.com",
            "root/plugins/kubernetes.io/csi/volumeDevices",
            "root/plugins/kubernetes.io/csi/volumeDevices/publish",
            "root/plugins/kubernetes.io/csi/volumeDevices/staging",
        ];
        while let Some(path) = pending.pop() {
            for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
                let inside = self.inside(&entry.path());
                let name = entry.file_name();
                let is_left = match inside.starts_with("cgroup") {
                    true => name.to_string_lossy().starts_with("pod"),
                    false => !kept.contains(&&*inside),
                };
                assert!(!is_left, "{at}: {inside} is left");
                if entry.file_type().unwrap().is_dir() {
                    pending.push(entry.path());
                }
            }
        }
    }
}

fn is_ready(node: &TestNode) -> bool {
    node.status("u").conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True")
}

/// Ends the pod for good, and collects what it has left.
async fn remove(node: &mut TestNode) {
    node.workers.remove("u");
    for _ in 0..20_000 {
        settle().await;
        node.forget_ended();
        if !node.workers.contains("u") {
            return node.collect().await;
        }
        node.clock.advance(Duration::from_millis(50));
    }
    panic!("the pod did not end; events {:?}", node.records.events.lock());
}

/// The agent is killed at each action on files, mounts, cgroups or the runtime, from the start of a pod to the last of its
/// remains. The next one ends what the pod's life needs.
#[tokio::test]
async fn an_agent_that_is_killed_at_any_action_loses_no_volume_and_leaves_none() {
    let (mut limit, mut is_killed) = (0, true);
    while is_killed {
        limit += 1;
        let at = format!("limit {limit}");
        let machine = TestMachine::new();
        let pod = machine.pod();
        let calls = CallLimit::new(limit);
        let filesystem = FakeFilesystem { limit: Some(calls.clone()), ..FakeFilesystem::default() };
        // an agent that is killed while it starts has not seen the pod
        let started = tokio::select! {
            node = async { machine.start(TestNode::new().await, filesystem).await } => Some(node),
            () = calls.reached() => None,
        };
        is_killed = match &started {
            None => true,
            Some(node) => {
                node.workers.set(pod.clone());
                tokio::select! {
                    () = calls.reached() => true,
                    () = node.until("ready", is_ready) => calls.is_reached(),
                }
            }
        };
        let mut node = match started {
            Some(node) => node,
            None => TestNode::new().await,
        };
        if is_killed {
            node = machine.start(node, FakeFilesystem::default()).await;
            node.workers.set(pod.clone());
        }
        node.until("ready after a restart", is_ready).await;
        machine.check_volumes(&at);
        let gone = deleted(&pod, 1);
        node.workers.set(gone.clone());
        if !is_killed {
            is_killed = tokio::select! {
                () = calls.reached() => true,
                () = async {
                    node.until("the end", |node| node.is_finished("u")).await;
                    remove(&mut node).await;
                } => calls.is_reached(),
            };
            if is_killed {
                node = machine.start(node, FakeFilesystem::default()).await;
                node.workers.set(gone);
            }
        }
        if is_killed {
            remove(&mut node).await;
        }
        machine.check_empty(&at);
        assert_eq!(node.runtime.sandbox_count(), (0, 0), "{at}");
    }
    assert!(limit > 100, "only {limit} actions");
}

/// The disk is full from any action on, until an event reports it or the pod runs all the same.
#[tokio::test]
async fn a_full_disk_delays_a_pod_at_any_action() {
    let (mut actions, mut is_full) = (0, true);
    while is_full {
        let (at, machine) = (format!("{actions} actions"), TestMachine::new());
        let space = Arc::new(AtomicUsize::new(actions));
        let filesystem = FakeFilesystem { space: Some(space.clone()), ..FakeFilesystem::default() };
        let mut node = machine.start(TestNode::new().await, filesystem).await;
        node.workers.set(machine.pod());
        let has_failed = |node: &TestNode| {
            let events = node.records.events.lock();
            events.iter().any(|it| it.to_lowercase().contains("fail"))
        };
        node.until("an event", |node| has_failed(node) || is_ready(node)).await;
        is_full = space.swap(usize::MAX, Ordering::AcqRel) == 0;
        node.until("ready", is_ready).await;
        machine.check_volumes(&at);
        remove(&mut node).await;
        machine.check_empty(&at);
        actions += 1;
    }
    assert!(actions > 30, "only {actions} actions");
}
