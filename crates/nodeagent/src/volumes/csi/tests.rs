use super::mount_error::MountError;
use super::service::Capabilities;
use super::testing::{Fault, FixedStorage, TestDriver, serve};
use super::*;
use crate::filesystem::testing::FakeFilesystem;
use crate::objects::testing::{FixedObjects, object};
use crate::volumes::csi::service::NodeClient;
use crate::volumes::{PodMounts, VolumeManager};
use api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use client::csi_translation::InTreePlugin;
use env::Simulated;
use grpc::tonic::Code;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const DRIVER: &str = "d.example.com";
/// sha256("h")
const DIGEST: &str = "aaa9402664f1a41f40ebbc52c9993eb66aeb366602958fdfaa283b71e64db123";

/// An agent with a driver; what it has made outlives it.
struct Fixture {
    dir: Arc<tempfile::TempDir>,
    filesystem: Arc<FakeFilesystem>,
    objects: Arc<FixedObjects>,
    storage: Arc<FixedStorage>,
    driver: Arc<TestDriver>,
    drivers: Arc<CsiDrivers>,
    clock: Arc<Simulated>,
    csi: Arc<CsiVolumes>,
    volumes: VolumeManager,
    in_use: Arc<Mutex<Vec<String>>>,
    woken: Arc<Mutex<Vec<String>>>,
}

impl Fixture {
    fn new() -> Self {
        let filesystem = Arc::new(FakeFilesystem::default());
        let driver = TestDriver::new(filesystem.mounts.clone());
        let storage = Arc::new(FixedStorage::default());
        set_driver(&storage, r#""attachRequired":false"#);
        let dir = Arc::new(tempfile::tempdir().unwrap());
        Self::start(dir, filesystem, Arc::default(), storage, driver)
    }

    fn start(
        dir: Arc<tempfile::TempDir>,
        filesystem: Arc<FakeFilesystem>,
        objects: Arc<FixedObjects>,
        storage: Arc<FixedStorage>,
        driver: Arc<TestDriver>,
    ) -> Self {
        let clock = Simulated::new(1_700_000_000, 1);
        let root = dir.path().join("root");
        let drivers = Arc::new(CsiDrivers::unobserved(None));
        drivers.insert(DRIVER, driver.clone());
        let csi = CsiVolumes::new(CsiOptions {
            root: root.clone(),
            node_name: "n1".to_owned(),
            plugin_name: "kubernetes.io/csi".to_owned(),
            filesystem: filesystem.clone(),
            objects: objects.clone(),
            api: storage.clone(),
            drivers: drivers.clone(),
            world: clock.clone(),
            has_controlled_attach: true,
            has_expand_secrets: false,
            has_one_pod_volumes: true,
            migrated: [InTreePlugin::AzureDisk, InTreePlugin::GcePd].into(),
        });
        let in_use: Arc<Mutex<Vec<String>>> = Arc::default();
        let receiver = in_use.clone();
        csi.on_use(move |names| *receiver.lock() = names);
        let woken: Arc<Mutex<Vec<String>>> = Arc::default();
        let receiver = woken.clone();
        csi.on_change(move |uid| receiver.lock().push(uid.to_owned()));
        let volumes = VolumeManager::new(&root, filesystem.clone(), objects.clone(), clock.clone());
        volumes.set_csi(csi.clone());
        Fixture { dir, filesystem, objects, storage, driver, drivers, clock, csi, volumes, in_use, woken }
    }

    /// Another agent on the same machine.
    fn restart(self) -> Self {
        Self::start(self.dir, self.filesystem, self.objects, self.storage, self.driver)
    }

    /// Sets the persistent volume `pv` of the claim `c`, with more fields of the spec and of the source.
    fn set_volume(&self, spec: &str, source: &str) {
        self.set_volume_of("ReadWriteOnce", spec, source);
    }

    /// The same with another access mode.
    fn set_volume_of(&self, mode: &str, spec: &str, source: &str) {
        let volume: PersistentVolume = object(&format!(
            r#"{{"metadata":{{"name":"pv"}},"spec":{{"claimRef":{{"uid":"cu"}},"accessModes":["{mode}"],
                "csi":{{"driver":"{DRIVER}","volumeHandle":"h"{source}}}{spec}}}}}"#
        ));
        let claim: PersistentVolumeClaim = object(
            r#"{"metadata":{"name":"c","namespace":"n","uid":"cu"},"spec":{"volumeName":"pv"},
                "status":{"phase":"Bound","capacity":{"storage":"1Gi"}}}"#,
        );
        self.objects.volumes.lock().insert("pv".to_owned(), volume);
        self.objects.claims.lock().insert(("n".to_owned(), "c".to_owned()), claim);
    }

    async fn mount(&self, pod: &Pod) -> Result<PodMounts, Vec<String>> {
        let mounted = self.volumes.mount_all(pod).await.map(|outcome| outcome.mounts);
        let text = |note: client::Note| format!("{}: {}", note.reason, note.message);
        mounted.map_err(|error| error.notes.into_iter().map(text).collect())
    }

    async fn fail(&self, pod: &Pod, expected: &str) {
        assert_eq!(self.mount(pod).await.unwrap_err(), [expected]);
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.dir.path().join("root").join(inside)
    }

    fn read(&self, inside: &str) -> String {
        std::fs::read_to_string(self.path(inside)).unwrap_or_default()
    }

    /// The files and directories below a path, without those of the pods themselves.
    fn list(&self) -> Vec<String> {
        let root = self.path("");
        let (mut found, mut pending) = (Vec::new(), vec![root.clone()]);
        while let Some(path) = pending.pop() {
            for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
                let inside = entry.path().strip_prefix(&root).unwrap().display().to_string();
                if entry.file_type().unwrap().is_dir() {
                    pending.push(entry.path());
                } else {
                    found.push(inside);
                }
            }
        }
        found.sort();
        found
    }

    fn mounts(&self) -> Vec<String> {
        let root = self.path("");
        let mounts = self.filesystem.mounts.lock();
        mounts.keys().map(|it| it.strip_prefix(&root).unwrap_or(it).display().to_string()).collect()
    }

    /// Asserts that neither files nor mounts are left.
    fn check_empty(&self) {
        assert_eq!((self.list(), self.mounts()), (Vec::new(), Vec::new()));
        assert_eq!(self.csi.users(), Default::default());
        assert!(self.driver.staged.lock().is_empty() && self.driver.published.lock().is_empty());
    }
}

fn set_driver(storage: &FixedStorage, spec: &str) {
    let json = format!(
        r#"{{"metadata":{{"name":"{DRIVER}"}},"spec":{{"volumeLifecycleModes":["Persistent","Ephemeral"],
            "fsGroupPolicy":"ReadWriteOnceWithFSType",{spec}}}}}"#
    );
    storage.drivers.lock().insert(DRIVER.to_owned(), object(&json));
}

/// A pod that mounts a volume.
fn pod_of(uid: &str, volume: &str) -> Pod {
    object(&format!(
        r#"{{"metadata":{{"name":"p-{uid}","namespace":"n","uid":"{uid}"}},
            "spec":{{"serviceAccountName":"sa",
                "containers":[{{"name":"c","volumeMounts":[{{"name":"v","mountPath":"/v"}}],
                    "volumeDevices":[{{"name":"b","devicePath":"/dev/b"}}]}}],
                "volumes":[{volume}]}}}}"#
    ))
}

fn claim_pod(uid: &str) -> Pod {
    pod_of(uid, r#"{"name":"v","persistentVolumeClaim":{"claimName":"c"}}"#)
}

fn block_pod(uid: &str) -> Pod {
    pod_of(uid, r#"{"name":"b","persistentVolumeClaim":{"claimName":"c"}}"#)
}

#[tokio::test]
async fn a_volume_for_one_pod_is_kept_from_a_second_one() {
    let fixture = Fixture::new();
    fixture.set_volume_of("ReadWriteOncePod", "", "");
    fixture.mount(&claim_pod("u1")).await.unwrap();
    fixture
        .fail(
            &claim_pod("u2"),
            "FailedMount: MountVolume.SetUp failed for volume \"pv\" : volume uses the ReadWriteOncePod access mode and \
             is already in use by another pod",
        )
        .await;
    // the same pod may mount it again, and another one after it
    fixture.mount(&claim_pod("u1")).await.unwrap();
    fixture.volumes.remove_pod("u1").await.unwrap();
    fixture.mount(&claim_pod("u2")).await.unwrap();
    // it stays staged for the pod that waits
    assert_eq!(fixture.driver.take_calls(), ["stage h", "publish h", "unpublish h", "publish h"]);
}

#[tokio::test]
async fn a_volume_is_staged_once_and_published_to_each_pod() {
    let fixture = Fixture::new();
    fixture.set_volume(r#","mountOptions":["noatime"]"#, r#","fsType":"ext4","volumeAttributes":{"a":"b"}"#);
    let mounts = fixture.mount(&claim_pod("u1")).await.unwrap();
    let target = "pods/u1/volumes/kubernetes.io~csi/pv/mount";
    assert_eq!(mounts["v"].host_path, fixture.path(target));
    assert!(mounts["v"].is_managed && !mounts["v"].is_readonly && !mounts["v"].is_block);
    let global = format!("plugins/kubernetes.io/csi/{DRIVER}/{DIGEST}");
    assert_eq!(fixture.mounts(), [format!("{global}/globalmount"), target.to_owned()]);
    assert_eq!(
        fixture.read(&format!("{global}/vol_data.json")),
        format!("{{\"driverName\":\"{DRIVER}\",\"volumeHandle\":\"h\"}}\n")
    );
    let attachment = VolumeId { driver: DRIVER.to_owned(), handle: "h".to_owned() }.attachment("n1");
    assert_eq!(
        fixture.read("pods/u1/volumes/kubernetes.io~csi/pv/vol_data.json"),
        format!(
            "{{\"attachmentID\":\"{attachment}\",\"driverName\":\"{DRIVER}\",\"nodeName\":\"n1\",\"specVolID\":\"pv\",\
             \"volumeHandle\":\"h\",\"volumeLifecycleMode\":\"Persistent\"}}\n"
        )
    );
    let request = fixture.driver.stage_requests.lock().remove(0);
    assert_eq!(request.staging_target_path, fixture.path(&format!("{global}/globalmount")).to_str().unwrap());
    assert_eq!(request.volume_context, [("a".to_owned(), "b".to_owned())].into());
    let capability = format!("{:?}", request.volume_capability.unwrap());
    assert!(capability.contains("ext4") && capability.contains("noatime"), "{capability}");
    fixture.mount(&claim_pod("u2")).await.unwrap();
    // mounted volumes cause no calls
    fixture.mount(&claim_pod("u1")).await.unwrap();
    assert_eq!(fixture.driver.take_calls(), ["stage h", "publish h", "publish h"]);
    fixture.volumes.unmount_all("u1").await.unwrap();
    assert_eq!(fixture.driver.take_calls(), ["unpublish h"]);
    fixture.volumes.remove_pod("u2").await.unwrap();
    assert_eq!(fixture.driver.take_calls(), ["unpublish h", "unstage h"]);
    fixture.volumes.remove_pod("u1").await.unwrap();
    fixture.check_empty();
}

#[tokio::test]
async fn a_driver_that_does_not_stage_publishes_at_once() {
    let fixture = Fixture::new();
    *fixture.driver.capabilities.lock() = Capabilities::default();
    fixture.set_volume("", "");
    fixture.mount(&claim_pod("u")).await.unwrap();
    assert_eq!(fixture.driver.publish_requests.lock()[0].staging_target_path, "");
    fixture.volumes.remove_pod("u").await.unwrap();
    assert_eq!(fixture.driver.take_calls(), ["publish h", "unpublish h"]);
    fixture.check_empty();
}

#[tokio::test]
async fn a_volume_waits_until_it_is_attached() {
    let fixture = Fixture::new();
    set_driver(&fixture.storage, r#""attachRequired":true"#);
    fixture.set_volume("", "");
    let (pod, name) = (claim_pod("u"), format!("kubernetes.io/csi/{DRIVER}^h"));
    let waits = async || assert_eq!(fixture.mount(&pod).await.unwrap_err(), Vec::<String>::new());
    waits().await;
    // the node must have said that it uses the volume
    assert_eq!(*fixture.in_use.lock(), [&*name]);
    let set_node = |status: &str| {
        let node = object(&format!(r#"{{"metadata":{{"name":"n1"}},"status":{{{status}}}}}"#));
        *fixture.storage.node.lock() = Some(Arc::new(node));
        fixture.csi.node_changed();
    };
    set_node(&format!(r#""volumesAttached":[{{"name":"{name}","devicePath":""}}]"#));
    assert_eq!(*fixture.woken.lock(), ["u"]);
    waits().await;
    set_node(&format!(
        r#""volumesInUse":["{name}"],"volumesAttached":[{{"name":"{name}","devicePath":""}}]"#
    ));
    let attachment = VolumeId { driver: DRIVER.to_owned(), handle: "h".to_owned() }.attachment("n1");
    let failed = "FailedMount: MountVolume.WaitForAttach failed for volume \"pv\" : ";
    let missing = format!(
        "{failed}volume h has GET error for volume attachment {attachment}: volumeattachments.storage.k8s.io \
         \"{attachment}\" not found"
    );
    fixture.fail(&pod, &missing).await;
    let set_attachment = |status: &str| {
        let json = format!(r#"{{"metadata":{{"name":"a"}},"status":{{{status}}}}}"#);
        fixture.storage.attachments.lock().insert(attachment.clone(), object(&json));
    };
    set_attachment(r#""attached":false"#);
    waits().await;
    set_attachment(r#""attached":false,"attachError":{"message":"no such disk"}"#);
    fixture.fail(&pod, &format!("{failed}no such disk")).await;
    set_attachment(r#""attached":true,"attachmentMetadata":{"device":"/dev/x"}"#);
    fixture.mount(&pod).await.unwrap();
    let context = [("device".to_owned(), "/dev/x".to_owned())].into();
    assert_eq!(fixture.driver.stage_requests.lock()[0].publish_context, context);
    assert_eq!(fixture.driver.publish_requests.lock()[0].publish_context, context);
    fixture.volumes.remove_pod("u").await.unwrap();
    assert!(fixture.in_use.lock().is_empty());
    fixture.check_empty();
}

#[tokio::test]
async fn a_pod_that_waits_for_an_attachment_may_end() {
    let fixture = Fixture::new();
    set_driver(&fixture.storage, r#""attachRequired":true"#);
    fixture.set_volume("", "");
    let pod = claim_pod("u");
    assert_eq!(fixture.mount(&pod).await.unwrap_err(), Vec::<String>::new());
    fixture.clock.advance(Duration::from_secs(124));
    let late = "FailedMount: Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[v]: timed out \
                waiting for the condition";
    fixture.fail(&pod, late).await;
    fixture.volumes.remove_pod("u").await.unwrap();
    assert!(fixture.in_use.lock().is_empty());
    assert_eq!(fixture.driver.take_calls(), Vec::<String>::new());
    fixture.check_empty();
}

const CODES: [(Code, &str, bool); 16] = [
    (Code::Cancelled, "Canceled", false),
    (Code::Unknown, "Unknown", true),
    (Code::InvalidArgument, "InvalidArgument", true),
    (Code::DeadlineExceeded, "DeadlineExceeded", false),
    (Code::NotFound, "NotFound", true),
    (Code::AlreadyExists, "AlreadyExists", true),
    (Code::PermissionDenied, "PermissionDenied", true),
    (Code::ResourceExhausted, "ResourceExhausted", false),
    (Code::FailedPrecondition, "FailedPrecondition", true),
    (Code::Aborted, "Aborted", false),
    (Code::OutOfRange, "OutOfRange", true),
    (Code::Unimplemented, "Unimplemented", true),
    (Code::Internal, "Internal", true),
    (Code::Unavailable, "Unavailable", false),
    (Code::DataLoss, "DataLoss", true),
    (Code::Unauthenticated, "Unauthenticated", true),
];

/// After an error that leaves it open whether the driver has done its work, the work is undone when the pod ends; after the
/// others nothing is there to undo.
#[tokio::test]
async fn errors_of_every_code_are_events_and_leave_nothing() {
    for (code, name, is_final) in CODES {
        for (method, operation) in
            [("stage", "MountVolume.MountDevice failed"), ("publish", "MountVolume.SetUp failed")]
        {
            let fixture = Fixture::new();
            fixture.set_volume("", "");
            let fault = if is_final { Fault::Fail(code) } else { Fault::DoneButFailed(code) };
            fixture.driver.set_fault(method, Some(fault));
            let expected = format!(
                "FailedMount: {operation} for volume \"pv\" : rpc error: code = {name} desc = on fire"
            );
            fixture.fail(&claim_pod("u"), &expected).await;
            let is_kept = match method {
                "stage" => !fixture.list().is_empty(),
                _ => fixture.list().iter().any(|it| it.starts_with("pods")),
            };
            assert_eq!(is_kept, !is_final, "{method} {name}");
            fixture.volumes.remove_pod("u").await.unwrap();
            fixture.check_empty();
        }
    }
}

#[tokio::test]
async fn errors_on_the_way_back_are_repeated() {
    for (code, name, _) in CODES {
        let fixture = Fixture::new();
        fixture.set_volume("", "");
        fixture.mount(&claim_pod("u")).await.unwrap();
        fixture.driver.set_fault("unpublish", Some(Fault::Fail(code)));
        let error = fixture.volumes.remove_pod("u").await.unwrap_err();
        let expected = "kubernetes.io/csi: Unmounter.TearDownAt failed: rpc error: code =";
        assert_eq!(error, format!("{expected} {name} desc = on fire"));
        assert_eq!(fixture.mounts().len(), 2, "nothing is removed while the driver has not done its part");
        fixture.driver.set_fault("unpublish", None);
        fixture.driver.set_fault("unstage", Some(Fault::Fail(code)));
        // the end of the pod does not depend on the stage
        let removed = tokio::spawn({
            let volumes = fixture.volumes.clone();
            async move { volumes.remove_pod("u").await }
        });
        while !removed.is_finished() {
            tokio::task::yield_now().await;
            fixture.clock.advance(Duration::from_millis(100));
        }
        removed.await.unwrap().unwrap();
        assert_eq!(fixture.mounts().len(), 1);
        fixture.driver.set_fault("unstage", None);
        while !fixture.mounts().is_empty() || !fixture.csi.users().is_empty() {
            tokio::task::yield_now().await;
            fixture.clock.advance(Duration::from_secs(1));
        }
        fixture.check_empty();
    }
}

#[tokio::test]
async fn a_driver_that_hangs_is_called_once() {
    let fixture = Fixture::new();
    fixture.set_volume("", "");
    fixture.driver.set_fault("stage", Some(Fault::Hang));
    let pod = claim_pod("u");
    for _ in 0..3 {
        let mount = fixture.mount(&pod);
        tokio::pin!(mount);
        let outcome = loop {
            tokio::select! {
                biased;
                outcome = &mut mount => break outcome,
                () = tokio::task::yield_now() => fixture.clock.advance(Duration::from_millis(500)),
            }
        };
        assert_eq!(outcome.unwrap_err(), Vec::<String>::new());
    }
    fixture.driver.called.subscribe().wait_for(|count| *count > 0).await.unwrap();
    assert_eq!(fixture.driver.take_calls(), ["stage h"]);
    // the pod cannot end before the call has
    let ended = fixture.volumes.remove_pod("u");
    tokio::pin!(ended);
    let ended = loop {
        tokio::select! {
            biased;
            ended = &mut ended => break ended,
            () = tokio::task::yield_now() => fixture.clock.advance(Duration::from_millis(500)),
        }
    };
    assert_eq!(ended.unwrap_err(), "a mount of the pod's volumes is under way");
}

#[tokio::test]
async fn the_outcome_of_a_slow_driver_is_not_lost() {
    let fixture = Fixture::new();
    fixture.set_volume("", "");
    let socket = fixture.dir.path().join("csi.sock");
    let server = serve(fixture.driver.clone(), &socket);
    fixture.driver.set_fault("stage", Some(Fault::Hang));
    let client = NodeClient::with_timeout(&socket, Duration::from_secs(60)).unwrap();
    fixture.drivers.insert(DRIVER, Arc::new(client));
    let pod = claim_pod("u");
    let mut called = fixture.driver.called.subscribe();
    let waiting = async {
        called.wait_for(|count| *count > 0).await.unwrap();
        fixture.clock.advance(Duration::from_secs(11));
        std::future::pending::<()>().await;
    };
    let outcome = tokio::select! {
        outcome = fixture.mount(&pod) => outcome,
        () = waiting => unreachable!(),
    };
    assert_eq!(outcome.unwrap_err(), Vec::<String>::new());
    // the driver dies: the call ends, and the pod is woken for it
    server.abort();
    while fixture.woken.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    let errors = fixture.mount(&pod).await.unwrap_err();
    let prefix = "FailedMount: MountVolume.MountDevice failed for volume \"pv\" : rpc error: code = Unavailable desc = ";
    assert!(errors[0].starts_with(prefix), "{errors:?}");
    // another one is there
    fixture.driver.set_fault("stage", None);
    let _server = serve(fixture.driver.clone(), &socket);
    fixture.mount(&pod).await.unwrap();
    fixture.volumes.remove_pod("u").await.unwrap();
    fixture.check_empty();
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_an_error_and_is_undone() {
    let fixture = Fixture::new();
    fixture.set_volume("", "");
    let socket = fixture.dir.path().join("csi.sock");
    let _server = serve(fixture.driver.clone(), &socket);
    fixture.driver.set_fault("publish", Some(Fault::Hang));
    let client = NodeClient::with_timeout(&socket, Duration::from_secs(1)).unwrap();
    fixture.drivers.insert(DRIVER, Arc::new(client));
    let expected = "FailedMount: MountVolume.SetUp failed for volume \"pv\" : rpc error: code = DeadlineExceeded desc = \
                    context deadline exceeded";
    fixture.fail(&claim_pod("u"), expected).await;
    let client = NodeClient::with_timeout(&socket, Duration::from_secs(60)).unwrap();
    fixture.drivers.insert(DRIVER, Arc::new(client));
    fixture.volumes.remove_pod("u").await.unwrap();
    assert_eq!(fixture.driver.take_calls(), ["stage h", "publish h", "unpublish h", "unstage h"]);
    fixture.check_empty();
}

#[tokio::test]
async fn a_driver_that_says_that_it_unmounted_and_did_not_loses_its_mounts() {
    let fixture = Fixture::new();
    fixture.set_volume("", "");
    fixture.mount(&claim_pod("u")).await.unwrap();
    fixture.driver.set_fault("unpublish", Some(Fault::Lie));
    fixture.driver.set_fault("unstage", Some(Fault::Lie));
    fixture.volumes.remove_pod("u").await.unwrap();
    assert_eq!((fixture.list(), fixture.mounts()), (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn a_driver_that_is_not_registered_is_an_error() {
    let fixture = Fixture::new();
    let volume = r#"{"metadata":{"name":"pv"},"spec":{"claimRef":{"uid":"cu"},"csi":{"driver":"none","volumeHandle":"h"}}}"#;
    fixture.set_volume("", "");
    fixture.objects.volumes.lock().insert("pv".to_owned(), object(volume));
    let node = object(
        r#"{"metadata":{"name":"n1"},"status":{"volumesInUse":["kubernetes.io/csi/none^h"],
            "volumesAttached":[{"name":"kubernetes.io/csi/none^h","devicePath":""}]}}"#,
    );
    *fixture.storage.node.lock() = Some(Arc::new(node));
    let attachment = VolumeId { driver: "none".to_owned(), handle: "h".to_owned() }.attachment("n1");
    fixture.storage.attachments.lock().insert(attachment, object(r#"{"status":{"attached":true}}"#));
    let why = "driver name none not found in the list of registered CSI drivers";
    let expected = format!(
        "FailedMount: MountVolume.MountDevice failed for volume \"pv\" : kubernetes.io/csi: attacher.MountDevice failed to \
         create newCsiDriverClient: {why}"
    );
    fixture.fail(&claim_pod("u"), &expected).await;
    let inline = pod_of("u", r#"{"name":"v","csi":{"driver":"none"}}"#);
    let expected = "FailedMount: MountVolume.SetUp failed for volume \"v\" : kubernetes.io/csi: mounter.SetupAt failed to \
                    check volume lifecycle mode: volume mode \"Ephemeral\" not supported by driver none (no CSIDriver object)";
    fixture.fail(&inline, expected).await;
    // a driver that has gone keeps its volumes
    let fixture = Fixture::new();
    fixture.set_volume("", "");
    fixture.mount(&claim_pod("u")).await.unwrap();
    fixture.drivers.clear();
    let error = fixture.volumes.remove_pod("u").await.unwrap_err();
    let expected = "kubernetes.io/csi: Unmounter.TearDownAt failed to get CSI client: driver name d.example.com not found in \
                    the list of registered CSI drivers";
    assert_eq!(error, expected);
    fixture.drivers.insert(DRIVER, fixture.driver.clone());
    fixture.volumes.remove_pod("u").await.unwrap();
    fixture.check_empty();
}

#[tokio::test]
async fn nodes_that_cannot_reach_a_volume_do_not_mount_it() {
    let fixture = Fixture::new();
    let affinity = r#","nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":
        [{"key":"zone","operator":"In","values":["a"]}]}]}}"#;
    fixture.set_volume(affinity, "");
    let set_zone = |zone: &str| {
        let json = format!(r#"{{"metadata":{{"name":"n1","labels":{{"zone":"{zone}"}}}}}}"#);
        *fixture.storage.node.lock() = Some(Arc::new(object(&json)));
    };
    set_zone("b");
    let expected = "FailedMount: MountVolume.NodeAffinity check failed for volume \"pv\" : no matching NodeSelectorTerms";
    fixture.fail(&claim_pod("u"), expected).await;
    set_zone("a");
    fixture.mount(&claim_pod("u")).await.unwrap();
}

#[tokio::test]
async fn secrets_reach_the_driver_at_stage_and_publish() {
    let fixture = Fixture::new();
    fixture.set_volume(
        "",
        r#","nodeStageSecretRef":{"name":"s","namespace":"x"},"nodePublishSecretRef":{"name":"p","namespace":"x"}"#,
    );
    let missing = |what: &str, operation: &str, name: &str| {
        format!(
            "FailedMount: {operation} failed for volume \"pv\" : fetching {what} x/{name} failed: kubernetes.io/csi: failed \
             to find the secret {name} in the namespace x with error: secret \"{name}\" not found"
        )
    };
    let pod = claim_pod("u");
    let errors = fixture.mount(&pod).await.unwrap_err();
    let expected = missing("NodeStageSecretRef", "MountVolume.MountDevice", "s");
    assert_eq!(errors[0].replace("secrets \"", "secret \""), expected);
    fixture.objects.secret(r#"{"metadata":{"name":"s","namespace":"x"},"data":{"k":"dmFsdWU="}}"#);
    let errors = fixture.mount(&pod).await.unwrap_err();
    let expected = missing("NodePublishSecretRef", "MountVolume.SetUp", "p");
    assert_eq!(errors[0].replace("secrets \"", "secret \""), expected);
    fixture.objects.secret(r#"{"metadata":{"name":"p","namespace":"x"},"data":{"k":"b3RoZXI="}}"#);
    fixture.mount(&pod).await.unwrap();
    assert_eq!(fixture.driver.stage_requests.lock()[0].secrets["k"], "value");
    assert_eq!(fixture.driver.publish_requests.lock()[0].secrets["k"], "other");
}

#[tokio::test]
async fn drivers_get_facts_and_tokens_of_the_pod_and_are_called_again() {
    let fixture = Fixture::new();
    set_driver(
        &fixture.storage,
        r#""attachRequired":false,"podInfoOnMount":true,"requiresRepublish":true,
            "tokenRequests":[{"audience":"gcp","expirationSeconds":3600},{"audience":""}]"#,
    );
    *fixture.objects.now.lock() = 1_700_000_000;
    let pod = pod_of(
        "u",
        r#"{"name":"v","csi":{"driver":"d.example.com","readOnly":true,"volumeAttributes":{"a":"b"}}}"#,
    );
    let mounts = fixture.mount(&pod).await.unwrap();
    assert!(mounts["v"].is_readonly && !mounts["v"].is_managed);
    let request = fixture.driver.publish_requests.lock()[0].clone();
    assert!(request.readonly && request.staging_target_path.is_empty());
    let context = &request.volume_context;
    let value = |key: &str| &*context[&format!("csi.storage.k8s.io/{key}")];
    assert_eq!(
        ["pod.name", "pod.namespace", "pod.uid", "serviceAccount.name", "ephemeral"].map(value),
        ["p-u", "n", "u", "sa", "true"]
    );
    assert_eq!(context["a"], "b");
    let tokens: serde_json::Value = serde_json::from_str(value("serviceAccount.tokens")).unwrap();
    let expected = serde_json::json!({
        "gcp": {"token": "token-1", "expirationTimestamp": "2023-11-14T23:13:20Z"},
        "": {"token": "token-2", "expirationTimestamp": "2023-11-14T23:13:20Z"}});
    assert_eq!(tokens, expected);
    // a minute later it is published again, with the same tokens
    assert_eq!(fixture.volumes.next_refresh("u"), Some(Duration::from_secs(60)));
    fixture.mount(&pod).await.unwrap();
    fixture.clock.advance(Duration::from_secs(60));
    fixture.mount(&pod).await.unwrap();
    let handle = request.volume_id.clone();
    assert_eq!(fixture.driver.take_calls(), [format!("publish {handle}"), format!("publish {handle}")]);
    // a failure then leaves the volume where it is, with an event
    fixture.driver.set_fault("publish", Some(Fault::Fail(Code::Internal)));
    fixture.clock.advance(Duration::from_secs(60));
    let outcome = fixture.volumes.mount_all(&pod).await.unwrap();
    assert_eq!(outcome.notes.len(), 1);
    assert_eq!(fixture.mounts().len(), 1);
    fixture.volumes.remove_pod("u").await.unwrap();
    fixture.check_empty();
}

#[tokio::test]
async fn inline_volumes_live_as_long_as_their_pods() {
    let fixture = Fixture::new();
    let pod = pod_of("u", r#"{"name":"v","csi":{"driver":"d.example.com","fsType":"xfs"}}"#);
    fixture.mount(&pod).await.unwrap();
    let data = fixture.read("pods/u/volumes/kubernetes.io~csi/v/vol_data.json");
    assert!(data.contains("\"volumeLifecycleMode\":\"Ephemeral\""), "{data}");
    let fixture = fixture.restart();
    assert!(fixture.in_use.lock().is_empty());
    fixture.volumes.remove_pod("u").await.unwrap();
    let calls = fixture.driver.take_calls();
    assert_eq!(
        calls.iter().map(|it| it.split(' ').next().unwrap()).collect::<Vec<_>>(),
        ["publish", "unpublish"]
    );
    fixture.check_empty();
    let only = object(&format!(
        r#"{{"metadata":{{"name":"{DRIVER}"}},"spec":{{"volumeLifecycleModes":["Persistent"]}}}}"#
    ));
    fixture.storage.drivers.lock().insert(DRIVER.to_owned(), only);
    let expected = "FailedMount: MountVolume.SetUp failed for volume \"v\" : kubernetes.io/csi: mounter.SetupAt failed to \
                    check volume lifecycle mode: volume mode \"Ephemeral\" not supported by driver d.example.com (only \
                    supports [\"Persistent\"])";
    fixture.fail(&pod, expected).await;
}

fn group_pod(group: u32) -> Pod {
    let mut pod = claim_pod("u");
    pod.spec.security_context = Some(object(&format!(r#"{{"fsGroup":{group}}}"#)));
    pod
}

#[tokio::test]
async fn files_get_the_group_of_the_pod_or_the_driver_sets_it() {
    use std::os::unix::fs::MetadataExt;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
    for (sets_group, expected) in [(false, 0o2775), (true, 0o755)] {
        let fixture = Fixture::new();
        fixture.set_volume("", r#","fsType":"ext4""#);
        fixture.driver.capabilities.lock().sets_group = sets_group;
        // the group of the process, so that the test needs no privileges
        let group = std::fs::metadata(fixture.dir.path()).unwrap().gid();
        let mounts = fixture.mount(&group_pod(group)).await.unwrap();
        assert_eq!(mode(&mounts["v"].host_path), expected);
        let stage = format!("{:?}", fixture.driver.stage_requests.lock()[0].volume_capability);
        let publish = format!("{:?}", fixture.driver.publish_requests.lock()[0].volume_capability);
        let sent = format!("volume_mount_group: \"{group}\"");
        assert_eq!([stage.contains(&sent), publish.contains(&sent)], [sets_group; 2]);
    }
}

#[tokio::test]
async fn block_volumes_are_devices() {
    let fixture = Fixture::new();
    fixture.set_volume(r#","volumeMode":"Block""#, "");
    let mounts = fixture.mount(&block_pod("u")).await.unwrap();
    let link = fixture.path("pods/u/volumeDevices/kubernetes.io~csi/pv");
    assert_eq!((&mounts["b"].host_path, mounts["b"].is_block), (&link, true));
    let devices = "plugins/kubernetes.io/csi/volumeDevices";
    assert_eq!(std::fs::read_link(&link).unwrap(), fixture.path(&format!("{devices}/publish/pv/u")));
    assert_eq!(fixture.mounts(), [format!("{devices}/pv/dev/u"), format!("{devices}/staging/pv")]);
    let data = fixture.read(&format!("{devices}/pv/data/vol_data.json"));
    assert!(data.contains("\"specVolID\":\"pv\"") && data.contains("\"nodeName\":\"n1\""), "{data}");
    // another agent finds the device and its pod
    let fixture = fixture.restart();
    assert_eq!(fixture.csi.users()["h"], ["u"]);
    fixture.mount(&block_pod("u")).await.unwrap();
    fixture.mount(&block_pod("u2")).await.unwrap();
    fixture.driver.take_calls();
    fixture.volumes.remove_pod("u").await.unwrap();
    fixture.volumes.remove_pod("u2").await.unwrap();
    assert_eq!(fixture.driver.take_calls(), ["unpublish h", "unpublish h", "unstage h"]);
    fixture.check_empty();
    fixture.driver.set_fault("stage", Some(Fault::Fail(Code::Internal)));
    let failed = |operation: &str| {
        format!(
            "FailedMapVolume: {operation} failed for volume \"pv\" : rpc error: code = Internal desc = on fire"
        )
    };
    fixture.fail(&block_pod("u"), &failed("MapVolume.SetUpDevice")).await;
    assert_eq!(fixture.list(), Vec::<String>::new());
    fixture.driver.set_fault("stage", None);
    fixture.driver.set_fault("publish", Some(Fault::Fail(Code::Internal)));
    fixture.fail(&block_pod("u"), &failed("MapVolume.MapPodDevice")).await;
    fixture.volumes.remove_pod("u").await.unwrap();
    fixture.check_empty();
}

#[tokio::test]
async fn volumes_grow_on_the_node() {
    let fixture = Fixture::new();
    fixture.set_volume(r#","capacity":{"storage":"1Gi"}"#, "");
    let pod = claim_pod("u");
    fixture.mount(&pod).await.unwrap();
    assert!(fixture.driver.expand_requests.lock().is_empty());
    // the volume has grown behind the pod
    fixture.set_volume(r#","capacity":{"storage":"2Gi"}"#, "");
    fixture.clock.advance(Duration::from_secs(60));
    fixture.driver.set_fault("expand", Some(Fault::Fail(Code::Internal)));
    let outcome = fixture.volumes.mount_all(&pod).await.unwrap();
    let text = |note: &client::Note| format!("{}: {}", note.reason, note.message);
    let expected = "VolumeResizeFailed: NodeExpandVolume.NodeExpandVolume failed for volume \"pv\" : Expander.NodeExpand \
                    failed to expand the volume : rpc error: code = Internal desc = on fire";
    assert_eq!(outcome.notes.iter().map(text).collect::<Vec<_>>(), [expected]);
    fixture.driver.set_fault("expand", None);
    fixture.clock.advance(Duration::from_secs(60));
    let outcome = fixture.volumes.mount_all(&pod).await.unwrap();
    let expected = "FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume \"pv\" n1";
    assert_eq!(outcome.notes.iter().map(text).collect::<Vec<_>>(), [expected]);
    assert_eq!(*fixture.storage.events.lock(), [expected]);
    assert_eq!(*fixture.storage.expanded.lock(), [("c".to_owned(), "2Gi".to_owned())]);
    let request = fixture.driver.expand_requests.lock().last().unwrap().clone();
    assert_eq!(request.capacity_range.unwrap().required_bytes, 2 << 30);
    assert_eq!(Path::new(&request.volume_path), fixture.path("pods/u/volumes/kubernetes.io~csi/pv/mount"));
    // a driver that cannot do it while the volume is in use is not called again
    fixture.driver.set_fault("expand", Some(Fault::Fail(Code::FailedPrecondition)));
    fixture.driver.take_calls();
    for _ in 0..3 {
        fixture.clock.advance(Duration::from_secs(60));
        fixture.mount(&pod).await.unwrap();
    }
    assert_eq!(fixture.driver.take_calls(), ["expand h"]);
}

#[tokio::test]
async fn a_volume_that_cannot_grow_when_it_is_mounted_is_not_used() {
    let fixture = Fixture::new();
    fixture.set_volume(r#","capacity":{"storage":"2Gi"}"#, "");
    fixture.driver.capabilities.lock().expands = false;
    let expected = "FailedMount: MountVolume.Setup failed while expanding volume for volume \"pv\" : Expander.NodeExpand \
                    found CSI plugin kubernetes.io/csi/d.example.com to not support node expansion";
    fixture.fail(&claim_pod("u"), expected).await;
    fixture.driver.capabilities.lock().expands = true;
    fixture.mount(&claim_pod("u")).await.unwrap();
}

#[tokio::test]
async fn drivers_report_the_usage_of_volumes() {
    let fixture = Fixture::new();
    fixture.set_volume("", "");
    fixture.mount(&claim_pod("u")).await.unwrap();
    let usage = fixture.csi.usage("u").await;
    assert_eq!(
        (usage[0].name.as_str(), usage[0].capacity, usage[0].available, usage[0].used),
        ("v", 1000, 970, 30)
    );
    assert_eq!((usage[0].inodes, usage[0].inodes_free, usage[0].inodes_used), (100, 70, 30));
    fixture.driver.set_fault("stats", Some(Fault::Lie));
    assert!(fixture.csi.usage("u").await.is_empty());
    fixture.driver.capabilities.lock().has_stats = false;
    fixture.driver.take_calls();
    assert!(fixture.csi.usage("u").await.is_empty() && fixture.driver.take_calls().is_empty());
}

#[tokio::test]
async fn another_agent_takes_volumes_from_pods_that_are_gone() {
    let fixture = Fixture::new();
    fixture.set_volume("", "");
    fixture.mount(&claim_pod("u1")).await.unwrap();
    fixture.mount(&claim_pod("u2")).await.unwrap();
    let fixture = fixture.restart();
    assert_eq!(fixture.csi.users()["h"], ["u1", "u2"]);
    assert_eq!(*fixture.in_use.lock(), [format!("kubernetes.io/csi/{DRIVER}^h")]);
    assert_eq!(fixture.volumes.reconstruct().unwrap(), ["u1", "u2"]);
    fixture.driver.take_calls();
    fixture.volumes.remove_pod("u1").await.unwrap();
    assert_eq!(fixture.driver.take_calls(), ["unpublish h"]);
    // the other one lives: its volume is staged and published again, which changes nothing
    fixture.mount(&claim_pod("u2")).await.unwrap();
    assert_eq!(fixture.driver.take_calls(), ["stage h", "publish h"]);
    fixture.volumes.remove_pod("u2").await.unwrap();
    fixture.check_empty();
}

#[tokio::test]
async fn a_staged_volume_without_pods_is_taken_from_the_node() {
    let fixture = Fixture::new();
    fixture.set_volume("", "");
    fixture.driver.set_fault("publish", Some(Fault::Fail(Code::Internal)));
    fixture.mount(&claim_pod("u")).await.unwrap_err();
    let fixture = fixture.restart();
    // an agent that ended before it wrote volume data
    std::fs::create_dir_all(fixture.path("plugins/kubernetes.io/csi/other/0000/globalmount")).unwrap();
    fixture.volumes.remove_unused().await;
    assert!(!fixture.path("plugins/kubernetes.io/csi/other/0000").exists());
    assert_eq!(fixture.driver.take_calls(), ["stage h", "publish h", "unstage h"]);
    fixture.check_empty();
}

#[tokio::test]
async fn damaged_volume_data_stops_only_what_is_mounted() {
    let fixture = Fixture::new();
    fixture.set_volume("", "");
    fixture.mount(&claim_pod("u")).await.unwrap();
    let file = fixture.path("pods/u/volumes/kubernetes.io~csi/pv/vol_data.json");
    std::fs::write(&file, "{").unwrap();
    let fixture = fixture.restart();
    let error = fixture.volumes.remove_pod("u").await.unwrap_err();
    assert!(error.contains("failed to parse volume data file"), "{error}");
    fixture.filesystem.mounts.lock().remove(&fixture.path("pods/u/volumes/kubernetes.io~csi/pv/mount"));
    fixture.volumes.remove_pod("u").await.unwrap();
    assert!(!fixture.path("pods/u").exists());
}

#[tokio::test]
async fn a_controller_must_attach() {
    let fixture = Fixture::new();
    set_driver(&fixture.storage, r#""attachRequired":true"#);
    fixture.set_volume("", "");
    let options = CsiOptions {
        root: fixture.path(""),
        node_name: "n1".to_owned(),
        plugin_name: "kubernetes.io/csi".to_owned(),
        filesystem: fixture.filesystem.clone(),
        objects: fixture.objects.clone(),
        api: fixture.storage.clone(),
        drivers: fixture.drivers.clone(),
        world: fixture.clock.clone(),
        has_controlled_attach: false,
        has_expand_secrets: false,
        has_one_pod_volumes: true,
        migrated: Default::default(),
    };
    let csi = CsiVolumes::new(options);
    let (volume, claim) = (
        fixture.objects.volumes.lock()["pv"].clone(),
        fixture.objects.claims.lock()[&("n".to_owned(), "c".to_owned())].clone(),
    );
    let volume = CsiVolume::bound("v", volume, claim, false).unwrap();
    let Err(MountError::Failed(note)) = csi.mount(&claim_pod("u"), volume).await else {
        panic!("it was attached")
    };
    assert_eq!(note.reason, "FailedAttachVolume");
    assert_eq!(
        note.message,
        "AttachVolume.Attach failed for volume \"pv\" : attaching volumes from the kubelet is not supported"
    );
}

/// Makes the driver of a plugin that attaches nothing.
fn set_migrated_driver(fixture: &Fixture, name: &str) {
    fixture.drivers.insert(name, fixture.driver.clone());
    let json = format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{{"volumeLifecycleModes":["Persistent"],"attachRequired":false}}}}"#
    );
    fixture.storage.drivers.lock().insert(name.to_owned(), object(&json));
}

#[tokio::test]
async fn volumes_of_in_tree_plugins_are_mounted_by_their_drivers() {
    let fixture = Fixture::new();
    let (google, azure) = (InTreePlugin::GcePd.driver(), InTreePlugin::AzureDisk.driver());
    set_migrated_driver(&fixture, google);
    set_migrated_driver(&fixture, azure);
    fixture.set_volume("", "");
    let volume: PersistentVolume = object(
        r#"{"metadata":{"name":"pv"},"spec":{"claimRef":{"uid":"cu"},"accessModes":["ReadWriteMany"],
            "gcePersistentDisk":{"pdName":"d","fsType":"ext4"}}}"#,
    );
    fixture.objects.volumes.lock().insert("pv".to_owned(), volume);
    fixture.mount(&claim_pod("u1")).await.unwrap();
    let handle = "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d";
    assert_eq!(fixture.driver.take_calls(), [format!("stage {handle}"), format!("publish {handle}")]);
    assert_eq!(fixture.driver.stage_requests.lock()[0].volume_context["partition"], "");

    // the name of a disk in a pod has the form of a path
    let own =
        pod_of("u2", r#"{"name":"v","azureDisk":{"diskName":"d","diskURI":"/disks/d","kind":"Managed"}}"#);
    let mounts = fixture.mount(&own).await.unwrap();
    assert_eq!(mounts["v"].host_path, fixture.path("pods/u2/volumes/kubernetes.io~csi/~disks~d/mount"));
    assert_eq!(fixture.driver.take_calls(), ["stage /disks/d", "publish /disks/d"]);
    for uid in ["u1", "u2"] {
        fixture.volumes.remove_pod(uid).await.unwrap();
    }
    fixture.check_empty();
    assert_eq!(fixture.driver.take_calls().len(), 4, "both are unpublished and unstaged");

    let shared = pod_of("u3", r#"{"name":"v","azureDisk":{"diskName":"d","diskURI":"/d","kind":"Shared"}}"#);
    let errors = fixture.mount(&shared).await.unwrap_err();
    assert!(errors.iter().all(|it| !it.contains("no volume plugin matched")), "{errors:?}");
    // a plugin without its feature gate has no driver
    fixture.mount(&pod_of("u4", r#"{"name":"v","rbd":{"monitors":["m"],"image":"i"}}"#)).await.unwrap_err();
    assert_eq!(fixture.driver.take_calls(), Vec::<String>::new());
}
