use crate::filesystem::testing::FakeFilesystem;
use crate::objects::testing::{FixedObjects, object};
use crate::volumes::VolumeManager;
use api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use env::Simulated;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

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
const ATTACHER: &str = "#!/bin/sh\necho '{\"status\":\"Success\"}'\n";
const BROKEN: &str = r#"#!/bin/sh
[ "$1" = init ] && echo '{"status":"Success","Capabilities":{"attach":false}}' && exit
echo '{"status":"Failure","message":"no disk"}'; exit 1
"#;

struct Fixture {
    dir: tempfile::TempDir,
    objects: Arc<FixedObjects>,
    volumes: VolumeManager,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let objects: Arc<FixedObjects> = Arc::default();
        let filesystem = Arc::new(FakeFilesystem::default());
        let world = Simulated::new(1_700_000_000, 1);
        let volumes = VolumeManager::new(&dir.path().join("root"), filesystem, objects.clone(), world);
        volumes.set_flex_directory(&dir.path().join("exec"));
        Fixture { dir, objects, volumes }
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
    assert_eq!(
        error("v/attacher").await,
        format!("{failed}FlexVolume driver \"v/attacher\" attaches volumes, which is not supported")
    );
    assert_eq!(
        error("v/broken").await,
        format!("{failed}mount command failed, status: Failure, reason: no disk")
    );
    for absent in ["v/absent", "..", "../exec", "v/.."] {
        let message = error(absent).await;
        assert!(message.ends_with("err=no volume plugin matched"), "{absent}: {message}");
    }
}
