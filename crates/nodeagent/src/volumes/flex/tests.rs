use super::{FlexOptions, FlexVolumes};
use crate::filesystem::Filesystem;
use crate::filesystem::testing::FakeFilesystem;
use crate::objects::testing::{FixedObjects, object};
use crate::volumes::csi::testing::FixedStorage;
use crate::volumes::mounts::UsageSource;
use crate::volumes::{MountedVolume, VolumeManager};
use api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use env::Simulated;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Puts the options into the volume, and takes them away.
const DRIVER: &str = r#"#!/bin/sh
echo "$1" >> "$(dirname "$0")/calls"
case "$1" in
init) echo '{"status":"Success","capabilities":{"attach":false}}';;
mount) printf %s "$3" > "$2/options"; echo '{"status":"Success"}';;
unmount) rm -f "$2/options"; echo '{"status":"Success"}';;
*) echo '{"status":"Not supported"}'; exit 1;;
esac
"#;
/// Attaches, and tells nothing of how.
const ATTACHER: &str = "#!/bin/sh\necho '{\"status\":\"Success\"}'\n";
/// Attaches, and records its calls. Without the file `full` it leaves mounts to the agent.
const DISK: &str = r#"#!/bin/sh
dir=$(dirname "$0")
case "$1" in
init) echo '{"status":"Success","capabilities":{"supportsMetrics":true,"selinuxRelabel":false}}'; exit;;
attach) echo "attach $3" >> "$dir/calls"; echo '{"status":"Success","device":"/dev/own"}'; exit;;
waitforattach) echo "waitforattach $2" >> "$dir/calls"; echo '{"status":"Success","device":"/dev/waited"}'; exit;;
mountdevice) echo "mountdevice $(basename "$2") $3" >> "$dir/calls";;
unmountdevice) echo "unmountdevice $(basename "$2")" >> "$dir/calls";;
detach) echo "detach $2 $3" >> "$dir/calls";;
mount|unmount) echo "$1" >> "$dir/calls";;
esac
[ "$1" = getvolumename ] || [ "$1" = detach ] || [ -e "$dir/full" ] && echo '{"status":"Success"}' && exit
echo '{"status":"Not supported"}'; exit 1
"#;
const BROKEN: &str = r#"#!/bin/sh
[ "$1" = init ] && echo '{"status":"Success","Capabilities":{"attach":false}}' && exit
echo '{"status":"Failure","message":"no disk"}'; exit 1
"#;

struct Fixture {
    dir: tempfile::TempDir,
    objects: Arc<FixedObjects>,
    storage: Arc<FixedStorage>,
    filesystem: Arc<FakeFilesystem>,
    volumes: VolumeManager,
    flex: Arc<FlexVolumes>,
    clock: Arc<Simulated>,
}

impl Fixture {
    fn new() -> Self {
        Fixture::attaching(true)
    }

    fn attaching(has_controlled_attach: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (objects, storage) = (Arc::default(), Arc::default());
        Fixture::start(dir, objects, storage, Arc::default(), has_controlled_attach)
    }

    fn start(
        dir: tempfile::TempDir,
        objects: Arc<FixedObjects>,
        storage: Arc<FixedStorage>,
        filesystem: Arc<FakeFilesystem>,
        has_controlled_attach: bool,
    ) -> Self {
        let root = dir.path().join("root");
        let clock = Simulated::new(1_700_000_000, 1);
        let flex = Arc::new(FlexVolumes::new(FlexOptions {
            directory: dir.path().join("exec"),
            root: root.clone(),
            node_name: "n1".to_owned(),
            filesystem: filesystem.clone(),
            objects: objects.clone(),
            api: storage.clone(),
            has_controlled_attach,
        }));
        let volumes = VolumeManager::new(&root, filesystem.clone(), objects.clone(), clock.clone());
        volumes.set_flex(flex.clone());
        Fixture { dir, objects, storage, filesystem, volumes, flex, clock }
    }

    /// Another agent on the same machine.
    fn restarted(self, has_controlled_attach: bool) -> Self {
        Fixture::start(self.dir, self.objects, self.storage, self.filesystem, has_controlled_attach)
    }

    fn set_node(&self, in_use: &str, attached: &str) {
        let node: Node = object(&format!(
            r#"{{"metadata":{{"name":"n1"}},"status":{{"volumesInUse":[{in_use}],"volumesAttached":[{attached}]}}}}"#
        ));
        *self.storage.node.lock() = Some(Arc::new(node));
    }

    /// The volumes that the agent reports in use.
    fn in_use(&self) -> Vec<String> {
        self.flex.table.lock().devices.keys().cloned().collect()
    }

    /// Writes a program. Another process does it: this one may start programs of other tests meanwhile, and a program that
    /// is open for writing cannot be started.
    fn install(&self, name: &str, program: &str) {
        let path = self.dir.path().join("exec").join(format!("v~{name}"));
        std::fs::create_dir_all(&path).unwrap();
        let write = r#"printf %s "$1" > "$2" && chmod 755 "$2""#;
        let written = Command::new("sh").args(["-c", write, "sh", program]).arg(path.join(name)).status();
        assert!(written.unwrap().success());
    }

    async fn mount(&self, pod: &Pod) -> Result<PathBuf, String> {
        let mounted = self.volumes.mount_all(pod).await;
        mounted.map(|it| it.mounts["v"].host_path.clone()).map_err(|error| error.notes[0].message.to_string())
    }

    fn calls(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("exec/v~d/calls")).unwrap_or_default().replace('\n', " ")
    }

    /// The calls since the last time.
    fn new_calls(&self) -> String {
        let calls = self.calls().trim_end().to_owned();
        let _ = std::fs::remove_file(self.dir.path().join("exec/v~d/calls"));
        calls
    }
}

fn pod(uid: &str, volume: &str) -> Pod {
    object(&format!(
        r#"{{"metadata":{{"name":"p","namespace":"n","uid":"{uid}"}},"spec":{{"serviceAccountName":"sa",
            "containers":[{{"name":"c","volumeMounts":[{{"name":"v","mountPath":"/v"}}]}}],
            "volumes":[{{"name":"v",{volume}}}]}}}}"#
    ))
}

#[tokio::test]
async fn programs_mount_and_unmount() {
    let fixture = Fixture::new();
    fixture.install("d", DRIVER);
    let secret: Secret =
        object(r#"{"metadata":{"name":"s","namespace":"n"},"type":"v/d","data":{"key":"YWJj"}}"#);
    fixture.objects.secrets.lock().insert(("n".to_owned(), "s".to_owned()), secret.clone());
    let own = r#""flexVolume":{"driver":"v/d","fsType":"ext4","readOnly":true,"secretRef":{"name":"s"},"options":{"a":"b"}}"#;
    let path = fixture.mount(&pod("u", own)).await.unwrap();
    assert_eq!(path, fixture.dir.path().join("root/pods/u/volumes/v~d/v"));
    let options: Value =
        serde_json::from_str(&std::fs::read_to_string(path.join("options")).unwrap()).unwrap();
    let expected = serde_json::json!({
        "a": "b",
        "kubernetes.io/fsType": "ext4",
        "kubernetes.io/pod.name": "p",
        "kubernetes.io/pod.namespace": "n",
        "kubernetes.io/pod.uid": "u",
        "kubernetes.io/pvOrVolumeName": "v",
        "kubernetes.io/readwrite": "ro",
        "kubernetes.io/secret/key": "YWJj",
        "kubernetes.io/serviceAccount.name": "sa",
    });
    assert_eq!(options, expected);
    // a volume that is there causes no call
    fixture.mount(&pod("u", own)).await.unwrap();
    assert_eq!(fixture.calls(), "init mount ");
    fixture.volumes.unmount_all("u").await.unwrap();
    assert_eq!(fixture.calls(), "init mount unmount ");
    assert!(!fixture.dir.path().join("root/pods/u/volumes").exists());

    let other = Secret { type_: "Opaque".to_owned(), ..secret };
    fixture.objects.secrets.lock().insert(("n".to_owned(), "s".to_owned()), other);
    assert_eq!(
        fixture.mount(&pod("w", own)).await.unwrap_err(),
        "MountVolume.SetUp failed for volume \"v\" : couldn't get secret n/s err: cannot get secret of type v/d"
    );
}

#[tokio::test]
async fn persistent_volumes_have_programs_too() {
    let fixture = Fixture::new();
    fixture.install("d", DRIVER);
    let volume: PersistentVolume = object(
        r#"{"metadata":{"name":"pv"},"spec":{"claimRef":{"uid":"cu"},"flexVolume":{"driver":"v/d"}}}"#,
    );
    let claim: PersistentVolumeClaim = object(
        r#"{"metadata":{"name":"c","namespace":"n","uid":"cu"},"spec":{"volumeName":"pv"},"status":{"phase":"Bound"}}"#,
    );
    fixture.objects.volumes.lock().insert("pv".to_owned(), volume);
    fixture.objects.claims.lock().insert(("n".to_owned(), "c".to_owned()), claim);
    let path = fixture.mount(&pod("u", r#""persistentVolumeClaim":{"claimName":"c"}"#)).await.unwrap();
    assert_eq!(path, fixture.dir.path().join("root/pods/u/volumes/v~d/pv"));
    let options = std::fs::read_to_string(path.join("options")).unwrap();
    assert!(options.contains(r#""kubernetes.io/readwrite":"rw""#), "{options}");
    // data that the program leaves is not deleted with the pod
    std::fs::write(path.join("data"), "x").unwrap();
    fixture.volumes.unmount_all("u").await.unwrap_err();
    assert!(path.join("data").exists());
}

#[tokio::test]
async fn programs_that_cannot_mount_are_reported() {
    let fixture = Fixture::new();
    fixture.install("attacher", ATTACHER);
    fixture.install("broken", BROKEN);
    let error = async |driver: &str| {
        fixture.mount(&pod("u", &format!(r#""flexVolume":{{"driver":"{driver}"}}"#))).await.unwrap_err()
    };
    let failed = "MountVolume.SetUp failed for volume \"v\" : ";
    // no controller says that the volume is attached
    let waiting = fixture.volumes.mount_all(&pod("u", r#""flexVolume":{"driver":"v/attacher"}"#)).await;
    assert_eq!(waiting.unwrap_err().notes, []);
    assert_eq!(
        error("v/broken").await,
        format!("{failed}mount command failed, status: Failure, reason: no disk")
    );
    for absent in ["v/absent", "..", "../exec", "v/.."] {
        let message = error(absent).await;
        assert!(message.ends_with("err=no volume plugin matched"), "{absent}: {message}");
    }
}

const DISK_VOLUME: &str = r#""flexVolume":{"driver":"v/d","fsType":"ext4"}"#;

impl Fixture {
    async fn mounted(&self, uid: &str) -> MountedVolume {
        self.volumes.mount_all(&pod(uid, DISK_VOLUME)).await.unwrap().mounts["v"].clone()
    }

    fn set_full(&self) {
        std::fs::write(self.dir.path().join("exec/v~d/full"), "").unwrap();
    }
}

#[tokio::test]
async fn a_volume_that_a_controller_attaches_is_awaited() {
    let fixture = Fixture::new();
    fixture.install("d", DISK);
    fixture.set_full();
    let waits =
        async || fixture.volumes.mount_all(&pod("a", DISK_VOLUME)).await.unwrap_err().notes.is_empty();
    assert!(waits().await);
    assert_eq!(fixture.in_use(), ["v/d/v"]);
    // attached, but the node does not say yet that it is in use: it may be detached again
    let attached = r#"{"name":"v/d/v","devicePath":"/dev/disk"}"#;
    fixture.set_node("", attached);
    assert!(waits().await);
    assert_eq!(fixture.new_calls(), "");
    fixture.set_node(r#""v/d/v""#, attached);
    let mounted = fixture.mounted("a").await;
    assert_eq!(fixture.new_calls(), "waitforattach /dev/disk mountdevice v /dev/waited mount");
    assert_eq!((mounted.usage, mounted.is_managed), (UsageSource::Filesystem, false));
    // the device is there for the second pod
    fixture.mounted("b").await;
    assert_eq!(fixture.new_calls(), "mount");
    let device = fixture.dir.path().join("root/plugins/kubernetes.io/flexvolume/v/d/mounts/v");
    fixture.filesystem.bind(fixture.dir.path(), &device, false).unwrap();
    fixture.volumes.unmount_all("a").await.unwrap();
    assert_eq!(fixture.new_calls(), "unmount");
    // a later agent knows the device and the pod that uses it
    let fixture = fixture.restarted(true);
    assert_eq!(fixture.in_use(), ["v/d/v"]);
    fixture.volumes.remove_unused().await;
    assert_eq!(fixture.new_calls(), "");
    fixture.volumes.unmount_all("b").await.unwrap();
    assert_eq!(fixture.new_calls(), "unmount unmountdevice v");
    assert_eq!(fixture.in_use(), [""; 0]);
    assert!(!device.exists());
}

#[tokio::test]
async fn the_agent_attaches_where_no_controller_does() {
    let fixture = Fixture::attaching(false);
    fixture.install("d", DISK);
    fixture.set_full();
    fixture.mounted("a").await;
    let mounted = "attach n1 waitforattach /dev/own mountdevice v /dev/waited mount";
    assert_eq!(fixture.new_calls(), mounted);
    let fixture = fixture.restarted(false);
    fixture.volumes.unmount_all("a").await.unwrap();
    assert_eq!(fixture.new_calls(), "unmount detach v n1");
    fixture.mounted("a").await;
    assert_eq!(fixture.new_calls(), mounted);
}

#[tokio::test]
async fn a_program_that_leaves_mounts_to_the_agent_gets_them() {
    let fixture = Fixture::attaching(false);
    fixture.install("d", DISK);
    // the device does not exist: it is not formatted, and the pod gets no empty directory in its place
    let error = fixture.volumes.mount_all(&pod("a", DISK_VOLUME)).await.unwrap_err();
    assert!(
        error.notes[0].message.starts_with("MountVolume.MountDevice failed for volume \"v\" : "),
        "{error:?}"
    );
    let device = fixture.dir.path().join("root/plugins/kubernetes.io/flexvolume/v/d/mounts/v");
    fixture.filesystem.mount_device("/dev/waited".as_ref(), &device, "ext4", false).unwrap();
    let path = fixture.mounted("a").await.host_path;
    let mounts = fixture.filesystem.mounts.lock().clone();
    assert_eq!(mounts[&path], format!("bind {} false", device.display()));
    fixture.volumes.unmount_all("a").await.unwrap();
    assert!(fixture.filesystem.mounts.lock().is_empty() && !device.exists());
}

/// Attaches nothing, and records how file systems grow; a file makes it fail.
const GROWING: &str = r#"#!/bin/sh
dir=$(dirname "$0")
case "$1" in
init) echo '{"status":"Success","capabilities":{"attach":false}}';;
expandfs) echo "expandfs [$3] $(basename "$4") $5 $6" >> "$dir/calls"
    [ -e "$dir/fail" ] && echo '{"status":"Failure","message":"busy"}' && exit 1
    echo '{"status":"Success"}';;
mount) echo mount >> "$dir/calls"; echo '{"status":"Success"}';;
*) echo '{"status":"Not supported"}'; exit 1;;
esac
"#;

impl Fixture {
    /// A claim of this size, with a persistent volume of another.
    fn set_sizes(&self, claim: &str, volume: &str) {
        let volume: PersistentVolume = object(&format!(
            r#"{{"metadata":{{"name":"pv"}},"spec":{{"capacity":{{"storage":"{volume}"}},"claimRef":{{"uid":"cu"}},
                "flexVolume":{{"driver":"v/d"}}}}}}"#
        ));
        let claim: PersistentVolumeClaim = object(&format!(
            r#"{{"metadata":{{"name":"c","namespace":"n","uid":"cu"}},"spec":{{"volumeName":"pv"}},
                "status":{{"phase":"Bound","capacity":{{"storage":"{claim}"}}}}}}"#
        ));
        self.objects.volumes.lock().insert("pv".to_owned(), volume);
        self.objects.claims.lock().insert(("n".to_owned(), "c".to_owned()), claim);
    }
}

#[tokio::test]
async fn programs_grow_file_systems_of_claims() {
    let fixture = Fixture::new();
    fixture.install("d", GROWING);
    let claimed = pod("u", r#""persistentVolumeClaim":{"claimName":"c"}"#);
    // before the pod has its volume
    fixture.set_sizes("1", "2");
    let fail = fixture.dir.path().join("exec/v~d/fail");
    std::fs::write(&fail, "").unwrap();
    assert_eq!(
        fixture.mount(&claimed).await.unwrap_err(),
        "MountVolume.Setup failed while expanding volume for volume \"pv\" : expandfs command failed, status: Failure, \
         reason: busy"
    );
    std::fs::remove_file(&fail).unwrap();
    assert_eq!(fixture.new_calls(), "mount expandfs [] pv 2 1");
    let outcome = fixture.volumes.mount_all(&claimed).await.unwrap();
    let grown = "MountVolume.NodeExpandVolume succeeded for volume \"pv\" n1";
    assert_eq!(outcome.notes[0].message, grown);
    assert_eq!(*fixture.storage.expanded.lock(), [("c".to_owned(), "2".to_owned())]);
    assert_eq!(fixture.new_calls(), "mount expandfs [] pv 2 1");
    // while the pod has it: after a time, and without another mount
    fixture.set_sizes("2", "5");
    fixture.mount(&claimed).await.unwrap();
    assert_eq!(fixture.new_calls(), "");
    fixture.clock.advance(Duration::from_secs(61));
    std::fs::write(&fail, "").unwrap();
    let outcome = fixture.volumes.mount_all(&claimed).await.unwrap();
    let failed = "NodeExpandVolume.NodeExpandVolume failed for volume \"pv\" : expandfs command failed, status: Failure, \
                  reason: busy";
    assert_eq!((outcome.notes[0].reason, &*outcome.notes[0].message), ("VolumeResizeFailed", failed));
    std::fs::remove_file(&fail).unwrap();
    fixture.clock.advance(Duration::from_secs(61));
    fixture.mount(&claimed).await.unwrap();
    assert_eq!(fixture.new_calls(), "expandfs [] pv 5 2 expandfs [] pv 5 2");
    assert_eq!(fixture.storage.expanded.lock().len(), 2);
    // one that may only be read does not grow, which is said once
    let readonly = pod("w", r#""persistentVolumeClaim":{"claimName":"c","readOnly":true}"#);
    for expected in [1, 0] {
        assert_eq!(fixture.volumes.mount_all(&readonly).await.unwrap().notes.len(), expected);
        fixture.clock.advance(Duration::from_secs(61));
    }
    assert_eq!(fixture.new_calls(), "mount");
}
