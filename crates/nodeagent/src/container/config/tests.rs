use super::*;
use crate::container::testing;
use crate::filesystem::testing::FakeFilesystem;
use crate::objects::testing::{FixedObjects, object};
use crate::resource_managers::devices::DeviceRunOptions;
use crate::runtime::{Device, Mount};
use crate::volumes::MountedVolume;
use env::Simulated;
use std::path::Path;

struct Fixture {
    dir: tempfile::TempDir,
    node: NodeFacts,
    filesystem: FakeFilesystem,
    volumes: PodMounts,
    resources: ContainerResources,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volume");
        std::fs::create_dir(&volume).unwrap();
        std::fs::write(volume.join("key"), "value").unwrap();
        std::os::unix::fs::symlink("/etc", volume.join("lnk")).unwrap();
        let node = NodeFacts {
            root_dir: dir.path().join("root"),
            log_dir: dir.path().join("log"),
            ..testing::node()
        };
        let mounted = MountedVolume::new(volume, false, true);
        let volumes = PodMounts::from([("v".to_owned(), mounted)]);
        let resources = ContainerResources::default();
        Fixture { dir, node, filesystem: FakeFilesystem::default(), volumes, resources }
    }

    async fn make(&self, container: &str) -> Result<ContainerConfig, ContainerConfigError> {
        let pod: Pod = object(&format!(
            r#"{{"metadata":{{"name":"p","namespace":"n","uid":"u"}},
                "spec":{{"enableServiceLinks":false,"terminationGracePeriodSeconds":30,"containers":[{container}]}}}}"#
        ));
        let world: World = Simulated::new(1_700_000_000, 1);
        let request = ContainerRequest {
            pod: &pod,
            container: &pod.spec.containers[0],
            restart_count: 3,
            hash: "abc",
            pod_ips: &["10.0.0.5".to_owned()],
            image_ref: "sha256:1",
            image: &ImageInfo::default(),
            target_id: None,
            volumes: &self.volumes,
            resources: &self.resources,
        };
        let objects = FixedObjects::default();
        let sources = ConfigSources {
            node: &self.node,
            objects: &objects,
            filesystem: &self.filesystem,
            world: &world,
        };
        container_config(&request, sources).await.map(|(config, _)| config)
    }

    fn path(&self, inside: &str) -> String {
        self.dir.path().join(inside).to_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn a_container_has_its_command_files_and_labels() {
    let fixture = Fixture::new();
    let config = fixture
        .make(
            r#"{"name":"c","command":["echo","$(A)","$(B)"],"args":["$(A)-$(B)","$$(A)","$(NOPE)"],
                "env":[{"name":"A","value":"a"},{"name":"B","value":"b c"}],
                "terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File",
                "ports":[{"containerPort":80}],"lifecycle":{"preStop":{"exec":{"command":["x"]}}},
                "volumeMounts":[{"name":"v","mountPath":"/v","readOnly":true,"mountPropagation":"HostToContainer"}]}"#,
        )
        .await
        .unwrap();
    assert_eq!(config.command, ["echo", "a", "b c"]);
    assert_eq!(config.args, ["a-b c", "$(A)", "$(NOPE)"]);
    assert_eq!((&*config.image, &*config.log_path, config.attempt), ("sha256:1", "c/3.log", 3));
    assert!(Path::new(&fixture.path("log/n_p_u/c")).is_dir());
    assert_eq!(config.labels[CONTAINER_NAME], "c");
    assert_eq!(config.annotations[CONTAINER_RESTART_COUNT], "3");
    assert_eq!(config.annotations[CONTAINER_PRE_STOP_HANDLER], r#"{"exec":{"command":["x"]}}"#);
    let paths: Vec<_> = config.mounts.iter().map(|it| &*it.container_path).collect();
    assert_eq!(paths, ["/v", "/etc/hosts", "/dev/termination-log"]);
    assert!(config.mounts[0].is_readonly);
    assert_eq!(config.mounts[0].propagation, crate::runtime::Propagation::HostToContainer);
    let hosts = std::fs::read_to_string(fixture.path("root/pods/u/etc-hosts")).unwrap();
    assert!(hosts.ends_with("fe00::2\tip6-allrouters\n10.0.0.5\tp\n"), "{hosts}");
    assert!(config.mounts[2].host_path.starts_with(&fixture.path("root/pods/u/containers/c/")));
    assert!(Path::new(&config.mounts[2].host_path).is_file());
}

#[tokio::test]
async fn paths_inside_volumes_are_mounted_first() {
    let fixture = Fixture::new();
    let mount = |sub_path: &str| {
        format!(
            r#"{{"name":"c","env":[{{"name":"X","value":"../.."}},{{"name":"K","value":"key"}}],
                "volumeMounts":[{{"name":"v","mountPath":"/etc/hosts",{sub_path}}}]}}"#
        )
    };
    let target = fixture.path("root/pods/u/volume-subpaths/v/c/0");
    let check = async |sub_path: &str, source: &str| {
        let config = fixture.make(&mount(sub_path)).await.unwrap();
        assert_eq!(config.mounts.len(), 1);
        assert_eq!(config.mounts[0].host_path, target);
        let mounts = fixture.filesystem.mounts.lock();
        assert_eq!(mounts[Path::new(&target)], format!("bind {}", fixture.path(source)));
    };
    check(r#""subPath":"key""#, "volume/key").await;
    check(r#""subPath":"a/b""#, "volume/a/b").await;
    check(r#""subPathExpr":"$(K)""#, "volume/key").await;
    let check = async |sub_path: &str, expected: &str| {
        assert_eq!(fixture.make(&mount(sub_path)).await.unwrap_err().message, expected);
    };
    check(r#""subPath":"lnk""#, "failed to prepare subPath for volumeMount \"v\" of container \"c\"").await;
    check(
        r#""subPath":"lnk/new""#,
        "failed to create subPath directory for volumeMount \"v\" of container \"c\"",
    )
    .await;
    check(r#""subPathExpr":"$(X)""#, "unable to provision SubPath `../..`: must not contain '..'").await;
    check(r#""subPathExpr":"$(NOPE)/x""#, "missing value for NOPE").await;
    check(r#""subPath":"/x""#, "error SubPath `/x` must not be an absolute path").await;
    let absent = r#"{"name":"c","volumeMounts":[{"name":"w","mountPath":"/w"}]}"#;
    let message = "cannot find volume \"w\" to mount into container \"c\"";
    assert_eq!(fixture.make(absent).await.unwrap_err().message, message);
}

#[tokio::test]
async fn containers_see_the_devices_cpus_and_memory_that_are_theirs() {
    let mut fixture = Fixture::new();
    let device =
        Device { container_path: "/dev/x".into(), host_path: "/dev/x0".into(), permissions: "rw".into() };
    let mount = Mount { container_path: "/lib/x".into(), host_path: "/opt/x".into(), ..Mount::default() };
    fixture.resources = ContainerResources {
        devices: DeviceRunOptions {
            envs: vec![("X".to_owned(), "0".to_owned()), ("A".to_owned(), "device".to_owned())],
            mounts: vec![mount.clone()],
            devices: vec![device.clone()],
            annotations: BTreeMap::from([
                ("x".to_owned(), "y".to_owned()),
                (CONTAINER_HASH.to_owned(), "z".to_owned()),
            ]),
        },
        cpus: "2-3".to_owned(),
        memory_nodes: "0,1".to_owned(),
    };
    let made = fixture.make(r#"{"name":"c","args":["$(X)$(A)"],"env":[{"name":"A","value":"own"}]}"#).await;
    let config = made.unwrap();
    assert_eq!(config.devices, [device]);
    assert_eq!(config.mounts.first(), Some(&mount));
    let names: Vec<&str> = config.envs.iter().map(|(name, _)| &**name).collect();
    assert_eq!(&names[..2], ["X", "A"]);
    // the container's own variable comes later, and counts
    assert_eq!(config.args, ["0own"]);
    assert_eq!((&*config.annotations["x"], &*config.annotations[CONTAINER_HASH]), ("y", "abc"));
    let resources = &config.linux.resources;
    assert_eq!((&*resources.cpuset_cpus, &*resources.cpuset_mems), ("2-3", "0,1"));
}
