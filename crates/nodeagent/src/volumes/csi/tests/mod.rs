//! The volumes of an agent with a driver of tests.

mod faults;
mod growth;
mod migration;
mod mounts;
mod requests;
mod restarts;

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
        csi.waiters.on_use(move |names| *receiver.lock() = names);
        csi.publish_use();
        let woken: Arc<Mutex<Vec<String>>> = Arc::default();
        let receiver = woken.clone();
        csi.waiters.on_change(move |uid| receiver.lock().push(uid.to_owned()));
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
