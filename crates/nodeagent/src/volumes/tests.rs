use super::*;
use crate::filesystem::testing::FakeFilesystem;
use crate::objects::testing::{FixedObjects, object};
use crate::pod_facts::{MEMORY, ResourceList};
use api::Quantity;
use api::core::v1::Pod;
use env::Simulated;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

struct Fixture {
    dir: tempfile::TempDir,
    filesystem: Arc<FakeFilesystem>,
    objects: Arc<FixedObjects>,
    clock: Arc<Simulated>,
    volumes: VolumeManager,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (filesystem, objects) = (Arc::new(FakeFilesystem::default()), Arc::new(FixedObjects::default()));
        let clock = Simulated::new(1_700_000_000, 1);
        let root = dir.path().join("root");
        let volumes = VolumeManager::new(&root, filesystem.clone(), objects.clone(), clock.clone());
        volumes.set_allocatable(ResourceList::from([(MEMORY.to_owned(), Quantity::from_bytes(1 << 30))]));
        Fixture { dir, filesystem, objects, clock, volumes }
    }

    async fn mount(&self, volume: &str) -> Result<PodMounts, Vec<String>> {
        let mounted = self.volumes.mount_all(&pod(volume)).await;
        let mounted = mounted.map(|outcome| outcome.mounts);
        mounted.map_err(|error| error.notes.into_iter().map(|note| note.message).collect())
    }

    async fn fail(&self, volume: &str, expected: &str) {
        assert_eq!(self.mount(volume).await.unwrap_err(), [expected], "{volume}");
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.dir.path().join(inside)
    }

    /// The files of the volume, as `find` and `stat` show them.
    fn list(&self, plugin: &str) -> Vec<String> {
        let root = self.path(&format!("root/pods/u/volumes/{plugin}/v"));
        let mut lines = Vec::new();
        let mut pending = vec![root.clone()];
        while let Some(path) = pending.pop() {
            let data = std::fs::symlink_metadata(&path).unwrap();
            let inside = path.strip_prefix(&root).unwrap().display().to_string();
            let inside = match inside.split_once('/') {
                Some((first, rest)) if first.starts_with("..2") => format!("..TS/{rest}"),
                None if inside.starts_with("..2") => "..TS".to_owned(),
                _ => inside,
            };
            if data.is_symlink() {
                lines.push(format!("{inside} link"));
            } else {
                lines.push(format!("{inside} {:o}", data.mode() & 0o7777));
            }
            if data.is_dir() {
                pending.extend(std::fs::read_dir(&path).unwrap().map(|it| it.unwrap().path()));
            }
        }
        lines.sort();
        lines
    }
}

fn pod(volume: &str) -> Pod {
    object(&format!(
        r#"{{"metadata":{{"name":"p","namespace":"n","uid":"u","labels":{{"a":"b"}}}},
            "spec":{{"serviceAccountName":"default",
                "containers":[{{"name":"c","volumeMounts":[{{"name":"v","mountPath":"/v"}}]}}],
                "volumes":[{{"name":"v",{volume}}},{{"name":"unused","configMap":{{"name":"none"}}}}]}}}}"#
    ))
}

#[tokio::test]
async fn config_maps_become_files() {
    let fixture = Fixture::new();
    let volume = r#""configMap":{"name":"m","defaultMode":416}"#;
    fixture.fail(volume, "MountVolume.SetUp failed for volume \"v\" : configmap \"m\" not found").await;
    fixture.objects.config_map(
        r#"{"metadata":{"name":"m","namespace":"n"},"data":{"dotted.name":"x","k1":"v1\n"},"binaryData":{"b":"AP/+"}}"#,
    );
    let mounts = fixture.mount(volume).await.unwrap();
    assert_eq!(mounts["v"].host_path, fixture.path("root/pods/u/volumes/kubernetes.io~configmap/v"));
    assert!(mounts["v"].is_readonly);
    let expected = [
        " 777",
        "..TS 755",
        "..TS/b 640",
        "..TS/dotted.name 640",
        "..TS/k1 640",
        "..data link",
        "b link",
        "dotted.name link",
        "k1 link",
    ];
    assert_eq!(fixture.list("kubernetes.io~configmap"), expected);
    assert_eq!(std::fs::read(mounts["v"].host_path.join("b")).unwrap(), [0, 255, 254]);
    // a change of the object arrives with the next call
    fixture.objects.config_map(r#"{"metadata":{"name":"m","namespace":"n"},"data":{"k2":"new"}}"#);
    fixture.mount(volume).await.unwrap();
    assert_eq!(
        fixture.list("kubernetes.io~configmap"),
        [" 777", "..TS 755", "..TS/k2 640", "..data link", "k2 link"]
    );
    // an object that is gone leaves the files as they are, with an event
    fixture.objects.config_maps.lock().clear();
    let outcome = fixture.volumes.mount_all(&pod(volume)).await.unwrap();
    let message = "MountVolume.SetUp failed for volume \"v\" : configmap \"m\" not found";
    assert_eq!(outcome.notes.iter().map(|it| &*it.message).collect::<Vec<_>>(), [message]);
    assert!(outcome.mounts["v"].host_path.join("k2").exists());
    assert_eq!(fixture.volumes.next_refresh("u"), Some(Duration::from_millis(500)));
    fixture.objects.config_map(r#"{"metadata":{"name":"m","namespace":"n"},"data":{"k2":"new"}}"#);
    fixture.mount(volume).await.unwrap();
    assert_eq!(fixture.volumes.next_refresh("u"), None);
    // without announcements the files are read again in intervals
    fixture.volumes.set_resync(Duration::from_secs(60));
    fixture.clock.advance(Duration::from_secs(20));
    assert_eq!(fixture.volumes.next_refresh("u"), Some(Duration::from_secs(40)));
    fixture.volumes.remove_pod("u").await.unwrap();
    assert!(!fixture.path("root/pods/u").exists());
}

#[tokio::test]
async fn optional_sources_are_empty_directories() {
    let fixture = Fixture::new();
    fixture.mount(r#""configMap":{"name":"none","optional":true}"#).await.unwrap();
    assert_eq!(fixture.list("kubernetes.io~configmap"), [" 777", "..TS 755", "..data link"]);
}

#[tokio::test]
async fn secrets_are_in_memory() {
    let fixture = Fixture::new();
    let key = r#""secret":{"secretName":"s","items":[{"key":"zz","path":"p"}]}"#;
    fixture.fail(key, "MountVolume.SetUp failed for volume \"v\" : secret \"s\" not found").await;
    fixture.objects.secret(r#"{"metadata":{"name":"s","namespace":"n"},"data":{"a":"Yg=="}}"#);
    fixture
        .fail(key, "MountVolume.SetUp failed for volume \"v\" : references non-existent secret key: zz")
        .await;
    let mounts = fixture.mount(r#""secret":{"secretName":"s"}"#).await.unwrap();
    let path = &mounts["v"].host_path;
    assert_eq!(fixture.filesystem.mounts.lock()[path], "tmpfs Some(1073741824)");
    assert_eq!(std::fs::read_to_string(path.join("a")).unwrap(), "b");
    // again, as after a restart of the agent: the mount is there
    fixture.mount(r#""secret":{"secretName":"s"}"#).await.unwrap();
    assert_eq!(fixture.volumes.reconstruct().unwrap(), ["u"]);
    fixture.volumes.unmount_all("u").await.unwrap();
    assert!(fixture.filesystem.mounts.lock().is_empty());
}

#[tokio::test]
async fn projected_volumes_join_their_sources() {
    let fixture = Fixture::new();
    fixture.objects.config_map(r#"{"metadata":{"name":"m","namespace":"n"},"data":{"k1":"v1"}}"#);
    let volume = r#""projected":{"defaultMode":416,"sources":[
        {"configMap":{"name":"m","items":[{"key":"k1","path":"cm/k1"}]}},
        {"secret":{"name":"no","optional":true}},
        {"downwardAPI":{"items":[{"path":"labels","fieldRef":{"fieldPath":"metadata.labels"}}]}},
        {"serviceAccountToken":{"path":"tok","expirationSeconds":600}}]}"#;
    *fixture.objects.now.lock() = env::unix_seconds(&(fixture.clock.clone() as env::World));
    let mounts = fixture.mount(volume).await.unwrap();
    let read = |name: &str| std::fs::read_to_string(mounts["v"].host_path.join(name)).unwrap();
    assert_eq!(
        (read("cm/k1"), read("labels"), read("tok")),
        ("v1".into(), "a=\"b\"".into(), "token-1".into())
    );
    // the fake mount has the mode of its directory
    assert_eq!(
        fixture.list("kubernetes.io~projected")[1..5],
        ["..TS 755", "..TS/cm 755", "..TS/cm/k1 640", "..TS/labels 640"]
    );
    let due = fixture.volumes.next_refresh("u").unwrap();
    assert!(due <= Duration::from_secs(480) && due >= Duration::from_secs(469), "{due:?}");
    fixture.clock.advance(due + Duration::from_secs(1));
    *fixture.objects.now.lock() += 481;
    fixture.mount(volume).await.unwrap();
    assert_eq!(read("tok"), "token-2");
    let absent = r#""projected":{"sources":[{"configMap":{"name":"x"}},{"secret":{"name":"y"}}]}"#;
    let fixture = Fixture::new();
    let message =
        "MountVolume.SetUp failed for volume \"v\" : [configmap \"x\" not found, secret \"y\" not found]";
    fixture.fail(absent, message).await;
}

#[tokio::test]
async fn empty_directories_live_as_long_as_the_pod() {
    let fixture = Fixture::new();
    let mounts = fixture.mount(r#""emptyDir":{"sizeLimit":"64Ki"}"#).await.unwrap();
    assert_eq!(fixture.list("kubernetes.io~empty-dir"), [" 777"]);
    let path = &mounts["v"].host_path;
    std::fs::write(path.join("f"), "kept").unwrap();
    // a restart of the agent leaves modes as the pod has set them
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let root = fixture.path("root");
    let restarted =
        VolumeManager::new(&root, fixture.filesystem.clone(), fixture.objects.clone(), fixture.clock.clone());
    restarted.mount_all(&pod(r#""emptyDir":{"sizeLimit":"64Ki"}"#)).await.unwrap();
    assert_eq!(fixture.list("kubernetes.io~empty-dir")[0], " 700");
    assert!(path.join("f").exists() && !mounts["v"].is_readonly);
    let pod = pod(r#""emptyDir":{"sizeLimit":"64Ki"}"#);
    assert!(fixture.volumes.usage(&pod)["v"] < 65_536);
    std::fs::write(path.join("g"), vec![1; 100_000]).unwrap();
    assert!(fixture.volumes.usage(&pod)["v"] > 100_000);
    fixture.volumes.unmount_all("u").await.unwrap();
    assert!(!path.exists());
}

#[tokio::test]
async fn local_volumes_outlive_the_pod() {
    let fixture = Fixture::new();
    let source = fixture.path("disk");
    let claim = r#"{"metadata":{"name":"c","namespace":"n","uid":"cu"},"spec":{"volumeName":"pv"},"status":{"phase":"Bound"}}"#;
    fixture.objects.claims.lock().insert(("n".into(), "c".into()), object(claim));
    let pv = format!(
        r#"{{"metadata":{{"name":"pv"}},"spec":{{"local":{{"path":"{}"}},"claimRef":{{"uid":"cu"}}}}}}"#,
        source.display()
    );
    fixture.objects.volumes.lock().insert("pv".into(), object(&pv));
    let volume = r#""persistentVolumeClaim":{"claimName":"c"}"#;
    let message = format!(
        "MountVolume.NewMounter initialization failed for volume \"pv\" : path {source:?} does not exist"
    );
    fixture.fail(volume, &message).await;
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("f"), "").unwrap();
    let mounts = fixture.mount(volume).await.unwrap();
    let path = fixture.path("root/pods/u/volumes/kubernetes.io~local-volume/pv");
    assert_eq!(mounts["v"].host_path, path);
    assert_eq!(fixture.filesystem.mounts.lock()[&path], format!("bind {} false", source.display()));
    fixture.volumes.remove_pod("u").await.unwrap();
    assert!(source.join("f").exists() && !path.exists());
    // content where a mount should be is never removed
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("data"), "").unwrap();
    assert!(fixture.volumes.remove_pod("u").await.is_err());
    assert!(path.join("data").exists());
}

#[tokio::test]
async fn failures_are_retried_more_and_more_seldom() {
    let fixture = Fixture::new();
    let volume = r#""persistentVolumeClaim":{"claimName":"claim"}"#;
    let message = "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[v]: error processing PVC n/claim: failed to fetch PVC from API server: persistentvolumeclaims \"claim\" not found";
    fixture.fail(volume, message).await;
    let retry = async || fixture.volumes.mount_all(&pod(volume)).await.unwrap_err().retry_after;
    assert_eq!(retry().await, Duration::from_secs(1));
    assert_eq!(retry().await, Duration::from_secs(2));
    for _ in 0..10 {
        retry().await;
    }
    assert_eq!(retry().await, Duration::from_secs(122));
    let volume = r#""secret":{"secretName":"s"}"#;
    fixture.volumes.unmount_all("u").await.unwrap();
    fixture.mount(volume).await.unwrap_err();
    fixture.clock.advance(Duration::from_secs(123));
    let messages = fixture.mount(volume).await.unwrap_err();
    let late = "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[v]: timed out waiting for the condition";
    assert_eq!(messages.last().map(String::as_str), Some(late));
    let nfs = r#""nfs":{"server":"s","path":"/"}"#;
    let none = "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[v]: failed to get Plugin from volumeSpec for volume \"v\" err=no volume plugin matched";
    fixture.fail(nfs, none).await;
}

#[tokio::test]
async fn host_paths_are_used_as_they_are() {
    let fixture = Fixture::new();
    let path = fixture.path("h");
    let volume = |kind: &str| format!(r#""hostPath":{{"path":"{}","type":"{kind}"}}"#, path.display());
    let message = format!(
        "MountVolume.SetUp failed for volume \"v\" : hostPath type check failed: {} is not a directory",
        path.display()
    );
    fixture.fail(&volume("Directory"), &message).await;
    let mounts = fixture.mount(&volume("DirectoryOrCreate")).await.unwrap();
    assert_eq!((&*mounts["v"].host_path, mounts["v"].is_managed), (&*path, false));
    std::fs::write(path.join("f"), "").unwrap();
    fixture.volumes.remove_pod("u").await.unwrap();
    assert!(Path::new(&path.join("f")).exists());
}
