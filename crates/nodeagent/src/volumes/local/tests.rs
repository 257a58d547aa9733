use super::LocalVolumes;
use crate::filesystem::testing::{FakeFilesystem, LoopDevice};
use crate::objects::testing::{FixedObjects, object};
use crate::volumes::mounts::UsageSource;
use crate::volumes::{MountedVolume, VolumeManager};
use api::core::v1::Pod;
use env::Simulated;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MOUNTS: &str = "plugins/kubernetes.io/local-volume/mounts/pv";

struct Fixture {
    dir: tempfile::TempDir,
    filesystem: Arc<FakeFilesystem>,
    objects: Arc<FixedObjects>,
    volumes: VolumeManager,
}

impl Fixture {
    fn new() -> Self {
        let (filesystem, objects) = (Arc::default(), Arc::default());
        Fixture::start(tempfile::tempdir().unwrap(), filesystem, objects)
    }

    fn start(dir: tempfile::TempDir, filesystem: Arc<FakeFilesystem>, objects: Arc<FixedObjects>) -> Self {
        let clock = Simulated::new(1_700_000_000, 1);
        let volumes =
            VolumeManager::new(&dir.path().join("root"), filesystem.clone(), objects.clone(), clock);
        Fixture { dir, filesystem, objects, volumes }
    }

    /// Another agent on the same machine.
    fn restarted(self) -> Self {
        Fixture::start(self.dir, self.filesystem, self.objects)
    }

    /// Sets the persistent volume `pv` of the claim `c`.
    fn set_volume(&self, spec: &str) {
        let claim = r#"{"metadata":{"name":"c","namespace":"n","uid":"cu"},"spec":{"volumeName":"pv"},"status":{"phase":"Bound"}}"#;
        self.objects.claims.lock().insert(("n".to_owned(), "c".to_owned()), object(claim));
        let volume = format!(r#"{{"metadata":{{"name":"pv"}},"spec":{{{spec},"claimRef":{{"uid":"cu"}}}}}}"#);
        self.objects.volumes.lock().insert("pv".to_owned(), object(&volume));
    }

    async fn mount(&self, pod: &Pod) -> Result<MountedVolume, Vec<String>> {
        let text = |note: client::Note| format!("{}: {}", note.reason, note.message);
        match self.volumes.mount_all(pod).await {
            Ok(outcome) => Ok(outcome.mounts["v"].clone()),
            Err(error) => Err(error.notes.into_iter().map(text).collect()),
        }
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.dir.path().join("root").join(inside)
    }

    /// The mounts with paths below the agent's directory.
    fn mounts(&self) -> Vec<String> {
        let root = format!("{}/", self.path("").display());
        let root = root.replace("//", "/");
        let mounts = self.filesystem.mounts.lock();
        mounts.iter().map(|(path, what)| format!("{} {what}", path.display()).replace(&root, "")).collect()
    }
}

fn pod_with(uid: &str, container: &str, claim: &str) -> Pod {
    object(&format!(
        r#"{{"metadata":{{"name":"p","namespace":"n","uid":"{uid}"}},"spec":{{
            "containers":[{{"name":"c",{container}}}],
            "volumes":[{{"name":"v","persistentVolumeClaim":{{"claimName":"c"{claim}}}}}]}}}}"#
    ))
}

fn pod(uid: &str) -> Pod {
    pod_with(uid, r#""volumeMounts":[{"name":"v","mountPath":"/v"}]"#, "")
}

fn block_pod(uid: &str) -> Pod {
    pod_with(uid, r#""volumeDevices":[{"name":"v","devicePath":"/dev/v"}]"#, "")
}

#[tokio::test]
async fn a_persistent_volume_is_refused_on_a_node_that_its_affinity_does_not_name() {
    let fixture = Fixture::new();
    let source = fixture.path("disk");
    std::fs::create_dir_all(&source).unwrap();
    let affinity = r#""nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"In","values":["n1"]}]}]}}"#;
    let set_node = |name: &str| {
        let node =
            format!(r#"{{"metadata":{{"name":"{name}","labels":{{"kubernetes.io/hostname":"{name}"}}}}}}"#);
        *fixture.objects.node.lock() = Arc::new(object(&node));
    };
    let why = "NodeAffinity check failed for volume \"pv\" : no matching NodeSelectorTerms";
    for kind in ["local", "hostPath"] {
        fixture.set_volume(&format!(r#""{kind}":{{"path":"{}"}},{affinity}"#, source.display()));
        set_node("n2");
        let refused = fixture.mount(&pod("u")).await.unwrap_err();
        assert_eq!(refused, [format!("FailedMount: MountVolume.{why}")], "{kind}");
        assert_eq!(fixture.mounts(), Vec::<String>::new());
        set_node("n1");
        fixture.mount(&pod("u")).await.unwrap();
        fixture.volumes.remove_pod("u").await.unwrap();
    }
    set_node("n2");
    fixture.set_volume(&format!(r#""volumeMode":"Block","local":{{"path":"/dev/x"}},{affinity}"#));
    let refused = fixture.mount(&block_pod("u")).await.unwrap_err();
    assert_eq!(refused, [format!("FailedMount: MapVolume.{why}")]);
}

/// A block device of this machine, which the test only names.
fn any_device() -> Option<PathBuf> {
    let is_device =
        |path: &PathBuf| std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_block_device());
    std::fs::read_dir("/dev").ok()?.flatten().map(|it| it.path()).find(is_device)
}

#[tokio::test]
async fn a_local_block_volume_is_a_device_of_each_pod() {
    let fixture = Fixture::new();
    let Some(device) = any_device() else { return testdata::skip("there are no block devices") };
    let by_id = fixture.dir.path().join("by-id");
    std::os::unix::fs::symlink(&device, &by_id).unwrap();
    let set_volume = |path: &Path| {
        fixture.set_volume(&format!(r#""volumeMode":"Block","local":{{"path":"{}"}}"#, path.display()));
    };
    let absent = fixture.dir.path().join("absent");
    set_volume(&absent);
    let why = format!(
        "FailedMapVolume: MapVolume.EvalHostSymlinks failed for volume \"pv\" : lstat {}: no such file or directory",
        absent.display()
    );
    assert_eq!(fixture.mount(&block_pod("u1")).await.unwrap_err(), [why]);
    set_volume(fixture.dir.path());
    let why = format!(
        "FailedMapVolume: MapVolume.MapBlockVolume failed for volume \"pv\" : {} is not a block device",
        fixture.dir.path().display()
    );
    assert_eq!(fixture.mount(&block_pod("u1")).await.unwrap_err(), [why]);
    set_volume(&by_id);
    let mounted = fixture.mount(&block_pod("u1")).await.unwrap();
    let link = fixture.path("pods/u1/volumeDevices/kubernetes.io~local-volume/pv");
    assert!(mounted.is_block && !mounted.is_readonly);
    assert_eq!((&mounted.host_path, &std::fs::read_link(&link).unwrap()), (&link, &device));
    let map = |uid: &str| {
        let device = device.display();
        format!("plugins/kubernetes.io~local-volume/volumeDevices/pv/{uid} bind {device} false")
    };
    assert_eq!(fixture.mounts(), [map("u1")]);
    fixture.mount(&block_pod("u2")).await.unwrap();
    assert_eq!(fixture.mounts(), [map("u1"), map("u2")]);
    // after a restart of the agent
    let fixture = fixture.restarted();
    fixture.mount(&block_pod("u1")).await.unwrap();
    assert_eq!(fixture.mounts(), [map("u1"), map("u2")]);
    fixture.volumes.remove_pod("u1").await.unwrap();
    assert_eq!(fixture.mounts(), [map("u2")]);
    fixture.volumes.remove_pod("u2").await.unwrap();
    assert_eq!(fixture.mounts(), Vec::<String>::new());
    assert!(!fixture.path("plugins/kubernetes.io~local-volume/volumeDevices/pv").exists());
    assert!(!fixture.path("pods/u1").exists() && !fixture.path("pods/u2").exists());
}

#[tokio::test]
async fn a_local_volume_on_a_device_gets_a_filesystem_once() {
    let fixture = Fixture::new();
    let device = match LoopDevice::new(&fixture.dir.path().join("disk")) {
        Ok(device) => device,
        Err(why) => return testdata::skip(&why),
    };
    let set_volume = |more: &str| fixture.set_volume(&format!(r#""local":{{"path":"{}"{more}}}"#, device.0));
    let failed = |kind: &str, why: &str| {
        let target = fixture.path(MOUNTS);
        format!(
            "FailedMount: MountVolume.MountDevice failed for volume \"pv\" : local: failed to mount device {} at {} \
             (fstype: {kind}), error {why}",
            device.0,
            target.display()
        )
    };
    set_volume("");
    let readonly = pod_with("u1", r#""volumeMounts":[{"name":"v","mountPath":"/v"}]"#, r#","readOnly":true"#);
    let why = failed("ext4", "cannot mount unformatted disk read only");
    assert_eq!(fixture.mount(&readonly).await.unwrap_err(), [why]);
    assert!(!fixture.path(MOUNTS).exists());
    assert!(!fixture.path("pods/u1/volumes/kubernetes.io~local-volume/pv").exists());
    set_volume(r#","fsType":"no/type""#);
    let why = failed("no/type", "\"no/type\" is no type of a filesystem");
    assert_eq!(fixture.mount(&pod("u1")).await.unwrap_err(), [why]);
    set_volume("");
    let mounted = fixture.mount(&pod("u1")).await.unwrap();
    let path = fixture.path("pods/u1/volumes/kubernetes.io~local-volume/pv");
    assert_eq!((&mounted.host_path, mounted.usage), (&path, UsageSource::Filesystem));
    let global = format!("{MOUNTS} ext4 {} false", device.0);
    let bound = |uid: &str| format!("pods/{uid}/volumes/kubernetes.io~local-volume/pv bind {MOUNTS} false");
    assert_eq!(fixture.mounts(), [global.clone(), bound("u1")]);
    let mut probe = std::process::Command::new("blkid");
    probe.args(["-p", "-s", "TYPE", "-o", "value", &device.0]);
    assert_eq!(String::from_utf8(probe.output().unwrap().stdout).unwrap(), "ext4\n");
    fixture.mount(&pod("u2")).await.unwrap();
    assert_eq!(fixture.mounts(), [global.clone(), bound("u1"), bound("u2")]);
    // another agent finds what is there
    let fixture = fixture.restarted();
    fixture.mount(&pod("u1")).await.unwrap();
    fixture.volumes.remove_pod("u1").await.unwrap();
    assert_eq!(fixture.mounts(), [global, bound("u2")]);
    fixture.volumes.remove_pod("u2").await.unwrap();
    assert_eq!(fixture.mounts(), Vec::<String>::new());
    assert!(!fixture.path(MOUNTS).exists());
}

#[tokio::test]
async fn a_local_volume_is_a_directory_or_a_device() {
    let fixture = Fixture::new();
    let file = fixture.dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    fixture.set_volume(&format!(r#""local":{{"path":"{}"}}"#, file.display()));
    let why = "FailedMount: MountVolume.NewMounter initialization failed for volume \"pv\" : only directory and block device are supported";
    assert_eq!(fixture.mount(&pod("u")).await.unwrap_err(), [why]);
}

#[tokio::test]
async fn leftovers_of_an_agent_are_removed_when_no_pod_uses_them() {
    let dir = tempfile::tempdir().unwrap();
    let filesystem = Arc::new(FakeFilesystem::default());
    let local = LocalVolumes::new(dir.path(), filesystem.clone());
    let mount = dir.path().join(MOUNTS);
    let of_pod = dir.path().join("pods/u/volumes/kubernetes.io~local-volume/pv");
    std::fs::create_dir_all(&mount).unwrap();
    std::fs::create_dir_all(&of_pod).unwrap();
    filesystem.mounts.lock().insert(mount.clone(), "ext4".to_owned());
    local.remove_unused().await;
    assert!(mount.exists());
    std::fs::remove_dir(&of_pod).unwrap();
    local.remove_unused().await;
    assert!(!mount.exists() && filesystem.mounts.lock().is_empty());
    assert!(local.locks.lock().is_empty());
}
