//! Volumes of a real driver: csi-driver-host-path, whose program `PINTLE_CSI_HOSTPATH` names. It mounts, and so takes root.

use super::testing::FixedStorage;
use super::*;
use crate::filesystem::{Filesystem, LinuxFilesystem};
use crate::objects::testing::{FixedObjects, object};
use crate::plugin_watcher::{PluginHandler, RegisteredPlugin};
use crate::volumes::VolumeManager;
use api::core::v1::Pod;
use env::Simulated;
use grpc::csi::controller_client::ControllerClient;
use grpc::csi::volume_capability::access_mode::Mode;
use grpc::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use grpc::csi::{CapacityRange, CreateVolumeRequest, DeleteVolumeRequest, VolumeCapability};
use outbound::{Channel, Dialer, Endpoint, RpcError};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const DRIVER: &str = "hostpath.csi.k8s.io";
const SIZE: i64 = 16 << 20;

/// The driver's process, and all that it and an agent have mounted.
struct Machine {
    dir: tempfile::TempDir,
    driver: Child,
    channel: Channel,
    objects: Arc<FixedObjects>,
    storage: Arc<FixedStorage>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        for point in LinuxFilesystem.mount_points(self.dir.path()).into_iter().flatten().rev() {
            let _ = LinuxFilesystem.unmount(&point);
        }
    }
}

fn start_driver(program: &Path, dir: &Path) -> Child {
    let log = std::fs::File::create(dir.join("driver.log")).unwrap();
    Command::new(program)
        .arg(format!("--endpoint=unix://{}", dir.join("csi.sock").display()))
        .arg(format!("--statedir={}", dir.join("state").display()))
        .args(["--nodeid=n1", "--v=5", "--logtostderr"])
        .arg(format!("--drivername={DRIVER}"))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

impl Machine {
    async fn new(program: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("state")).unwrap();
        let driver = start_driver(program, dir.path());
        let socket = dir.path().join("csi.sock");
        let channel = Channel::plain(&Endpoint::Unix(socket.clone()), Dialer::default()).unwrap();
        let storage = FixedStorage::default();
        let json = format!(
            r#"{{"metadata":{{"name":"{DRIVER}"}},"spec":{{"attachRequired":false,"podInfoOnMount":true,
                "volumeLifecycleModes":["Persistent","Ephemeral"],"fsGroupPolicy":"File"}}}}"#
        );
        storage.drivers.lock().insert(DRIVER.to_owned(), object(&json));
        // the driver is there when its socket is
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            tokio::task::yield_now().await;
        }
        Machine { dir, driver, channel, objects: Arc::default(), storage: Arc::new(storage) }
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.dir.path().join(inside)
    }

    /// An agent that has just started, with the registered driver.
    async fn agent(&self) -> (VolumeManager, Arc<CsiVolumes>) {
        let clock = Simulated::new(1_700_000_000, 1);
        let drivers = Arc::new(CsiDrivers::unobserved(None));
        let plugin = RegisteredPlugin {
            name: DRIVER.to_owned(),
            endpoint: self.path("csi.sock"),
            versions: vec!["1.0.0".to_owned()],
            socket: self.path("reg.sock"),
        };
        drivers.validate(&plugin).unwrap();
        drivers.register(&plugin).await.unwrap();
        let csi = CsiVolumes::new(CsiOptions {
            root: self.path("root"),
            node_name: "n1".to_owned(),
            plugin_name: "kubernetes.io/csi".to_owned(),
            filesystem: Arc::new(LinuxFilesystem),
            objects: self.objects.clone(),
            api: self.storage.clone(),
            drivers,
            world: clock.clone(),
            has_controlled_attach: true,
            has_expand_secrets: false,
            has_one_pod_volumes: true,
            migrated: Default::default(),
        });
        let volumes =
            VolumeManager::new(&self.path("root"), Arc::new(LinuxFilesystem), self.objects.clone(), clock);
        volumes.set_csi(csi.clone());
        (volumes, csi)
    }

    /// Makes a volume with a claim of the same name.
    async fn make_volume(&self, name: &str, is_block: bool) -> Result<(), RpcError> {
        let access_type = match is_block {
            true => AccessType::Block(BlockVolume {}),
            false => AccessType::Mount(MountVolume::default()),
        };
        let capability = VolumeCapability {
            access_type: Some(access_type),
            access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        };
        let request = CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(CapacityRange { required_bytes: SIZE, limit_bytes: 0 }),
            volume_capabilities: vec![capability],
        };
        let mut client = ControllerClient::new(self.channel.clone());
        let made = self.channel.within(Duration::from_secs(60), client.create_volume(request)).await?;
        let handle = made.volume.unwrap().volume_id;
        let mode = if is_block { "Block" } else { "Filesystem" };
        self.set_objects(name, mode, &handle, SIZE);
        Ok(())
    }

    /// Deletes all volumes, and with them the loop devices of the driver.
    async fn delete_volumes(&self) {
        let volumes: Vec<_> = self.objects.volumes.lock().values().cloned().collect();
        for volume in volumes {
            let volume_id = volume.spec.csi.unwrap().volume_handle;
            let mut client = ControllerClient::new(self.channel.clone());
            let deleted = client.delete_volume(DeleteVolumeRequest { volume_id });
            self.channel.within(Duration::from_secs(60), deleted).await.unwrap();
        }
    }

    fn set_objects(&self, name: &str, mode: &str, handle: &str, size: i64) {
        let volume = format!(
            r#"{{"metadata":{{"name":"pv-{name}"}},"spec":{{"claimRef":{{"uid":"{name}"}},"volumeMode":"{mode}",
                "accessModes":["ReadWriteOnce"],"capacity":{{"storage":"{size}"}},
                "csi":{{"driver":"{DRIVER}","volumeHandle":"{handle}"}}}}}}"#
        );
        self.objects.volumes.lock().insert(format!("pv-{name}"), object(&volume));
        let claim = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"n","uid":"{name}"}},"spec":{{"volumeName":"pv-{name}"}},
                "status":{{"phase":"Bound","capacity":{{"storage":"{SIZE}"}}}}}}"#
        );
        self.objects.claims.lock().insert(("n".to_owned(), name.to_owned()), object(&claim));
    }
}

fn pod(uid: &str, has_device: bool) -> Pod {
    let device = match has_device {
        true => r#",{"name":"b","persistentVolumeClaim":{"claimName":"device"}}"#,
        false => "",
    };
    object(&format!(
        r#"{{"metadata":{{"name":"{uid}","namespace":"n","uid":"{uid}"}},"spec":{{"securityContext":{{"fsGroup":4321}},
            "containers":[{{"name":"c","volumeMounts":[{{"name":"v","mountPath":"/v"}},{{"name":"i","mountPath":"/i"}}],
                "volumeDevices":[{{"name":"b","devicePath":"/dev/b"}}]}}],
            "volumes":[{{"name":"v","persistentVolumeClaim":{{"claimName":"claim"}}}},
                {{"name":"i","csi":{{"driver":"{DRIVER}"}}}}{device}]}}}}"#
    ))
}

#[tokio::test]
async fn volumes_of_a_real_driver_hold_data_over_pods_and_agents() {
    use std::os::unix::fs::MetadataExt;
    let Ok(program) = std::env::var("PINTLE_CSI_HOSTPATH") else {
        return testdata::skip("PINTLE_CSI_HOSTPATH names no program of csi-driver-host-path");
    };
    let machine = Machine::new(Path::new(&program)).await;
    let (volumes, csi) = machine.agent().await;
    machine.make_volume("claim", false).await.unwrap();
    // the driver needs a loop device for a block volume
    let has_device = match machine.make_volume("device", true).await {
        Ok(()) => true,
        Err(why) => {
            testdata::skip(&format!("block volumes: {why}"));
            false
        }
    };
    let mounts = volumes.mount_all(&pod("u1", has_device)).await.unwrap().mounts;
    let data = mounts["v"].host_path.join("data");
    std::fs::write(&data, "kept").unwrap();
    std::fs::write(mounts["i"].host_path.join("data"), "lost").unwrap();
    assert!(LinuxFilesystem.is_mount_point(&mounts["v"].host_path).unwrap());
    assert_eq!(std::fs::metadata(&mounts["v"].host_path).unwrap().gid(), 4321);
    // another pod of the node sees the same volume, and an inline volume of its own
    let others = volumes.mount_all(&pod("u2", has_device)).await.unwrap().mounts;
    assert_eq!(std::fs::read_to_string(others["v"].host_path.join("data")).unwrap(), "kept");
    assert!(!others["i"].host_path.join("data").exists());
    if has_device {
        use std::os::unix::fs::FileTypeExt;
        let device = std::fs::metadata(&mounts["b"].host_path).unwrap();
        assert!(mounts["b"].is_block && device.file_type().is_block_device());
        std::fs::write(&mounts["b"].host_path, "on the device").unwrap();
    }
    let usage = csi.usage("u1").await;
    let of_claim = usage.iter().find(|it| it.name == "v").unwrap();
    assert!(of_claim.capacity > 0 && of_claim.inodes > 0, "{usage:?}");
    // the agent is killed, and another one finds the volumes
    drop((volumes, csi));
    let (volumes, csi) = machine.agent().await;
    assert!(csi.users().values().any(|it| *it == ["u1", "u2"]), "{:?}", csi.users());
    volumes.remove_pod("u1").await.unwrap();
    assert_eq!(std::fs::read_to_string(others["v"].host_path.join("data")).unwrap(), "kept");
    // the volume grows while a pod has it
    let handle = machine.objects.volumes.lock()["pv-claim"].spec.csi.as_ref().unwrap().volume_handle.clone();
    machine.set_objects("claim", "Filesystem", &handle, 2 * SIZE);
    let outcome = volumes.mount_all(&pod("u2", has_device)).await.unwrap();
    let reasons: Vec<&str> = outcome.notes.iter().map(|it| it.reason).collect();
    assert_eq!(reasons, ["FileSystemResizeSuccessful"]);
    volumes.remove_pod("u2").await.unwrap();
    assert_eq!(LinuxFilesystem.mount_points(&machine.path("root")).unwrap(), Vec::<PathBuf>::new());
    assert_eq!(std::fs::read_dir(machine.path("root/pods")).unwrap().count(), 0);
    assert_eq!(csi.users(), Default::default());
    // a pod of later finds the data
    machine.set_objects("claim", "Filesystem", &handle, SIZE);
    let mounts = volumes.mount_all(&pod("u3", has_device)).await.unwrap().mounts;
    assert_eq!(std::fs::read_to_string(mounts["v"].host_path.join("data")).unwrap(), "kept");
    if has_device {
        let content = std::fs::read(&mounts["b"].host_path).unwrap();
        assert!(content.starts_with(b"on the device"));
    }
    volumes.remove_pod("u3").await.unwrap();
    assert_eq!(LinuxFilesystem.mount_points(&machine.path("root")).unwrap(), Vec::<PathBuf>::new());
    machine.delete_volumes().await;
}
