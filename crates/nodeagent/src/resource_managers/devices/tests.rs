use super::testing::{FakePlugin, ManagerFixture, PluginBehaviour, RESOURCE, devices, pod, register};
use super::*;
use crate::resource_managers::ActiveContainers;
use crate::resource_managers::topology::{NumaMask, TopologyHint};
use api::core::v1::Pod;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

async fn allocate(fixture: &ManagerFixture, pod: &Pod) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for container in pod.spec.init_containers.iter().chain(&pod.spec.containers) {
        fixture.manager.allocate(pod, container, TopologyHint::default()).await?;
        all.push(ids(fixture, pod, &container.name));
    }
    Ok(all)
}

fn ids(fixture: &ManagerFixture, pod: &Pod, container: &str) -> String {
    let own = fixture.manager.of_container(&pod.metadata.uid, container);
    own.get(RESOURCE).map(|it| it.keys().cloned().collect::<Vec<_>>().join(" ")).unwrap_or_default()
}

#[tokio::test]
async fn devices_of_a_plugin_are_resources_of_the_node() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = ManagerFixture::start(dir.path(), &[0], LONG);
    assert_eq!(fixture.counts(), (-1, -1));
    let plugin = FakePlugin::start(fixture.manager.directory(), "gpu.sock", "a b c!");
    plugin.register().await.unwrap();
    fixture.until((3, 2)).await;
    // two devices of one id are one
    plugin.state.devices.send_replace(devices("a b c d d"));
    fixture.until((4, 4)).await;
    plugin.state.devices.send_replace(Vec::new());
    fixture.until((0, 0)).await;
    assert!(fixture.manager.is_needed(&pod("p", &[], &[1])));
    let other = FakePlugin::start(fixture.manager.directory(), "other.sock", "");
    drop(other);
    let error = |it: Result<(), grpc::tonic::Status>| it.unwrap_err().message().to_owned();
    let directory = fixture.manager.directory();
    assert_eq!(
        error(register(directory, "v1", "gpu.sock", RESOURCE).await),
        "requested API version \"v1\" is not supported by kubelet. Supported version is [\"v1beta1\"]"
    );
    assert_eq!(
        error(register(directory, "v1beta1", "gpu.sock", "gpu").await),
        "the ResourceName \"gpu\" is invalid"
    );
    let why = error(register(directory, "v1beta1", "nothing.sock", "example.com/other").await);
    assert!(why.starts_with("failed to get device plugin options: rpc error: code = Unavailable"), "{why}");
}

#[tokio::test]
async fn containers_get_the_devices_that_their_plugin_prefers() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = ManagerFixture::start(dir.path(), &[0, 1], LONG);
    let plugin = FakePlugin::start(fixture.manager.directory(), "gpu.sock", "a b@0 c@1 d@1");
    plugin.state.options.lock().get_preferred_allocation_available = true;
    plugin.state.options.lock().pre_start_required = true;
    *plugin.state.preference.lock() = vec!["d".to_owned(), "nothing".to_owned()];
    plugin.register().await.unwrap();
    fixture.until((4, 4)).await;
    let first = pod("p", &[], &[2]);
    assert_eq!(allocate(&fixture, &first).await.unwrap(), ["a d"]);
    let texts = |ids: &str| ids.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(plugin.state.calls.lock().preferred, [(texts("a b c d"), Vec::new(), 2)]);
    assert_eq!(plugin.state.calls.lock().allocated, [texts("a d")]);
    // admitted again, it keeps them
    assert_eq!(allocate(&fixture, &first).await.unwrap(), ["a d"]);
    assert_eq!(plugin.state.calls.lock().allocated.len(), 1);
    let made = fixture.manager.run_options(&first, &first.spec.containers[0], TopologyHint::default()).await;
    let options = made.unwrap();
    assert_eq!(plugin.state.calls.lock().prepared, [texts("a d")]);
    assert_eq!(options.envs, [("GPUS".to_owned(), "a,d".to_owned())]);
    let paths: Vec<&str> = options.devices.iter().map(|it| &*it.container_path).collect();
    assert_eq!(paths, ["/dev/a", "/dev/d"]);
    assert_eq!((options.mounts.len(), &*options.annotations["gpus"]), (1, "2"));
    // hints lead to nodes
    let second = pod("q", &[], &[1]);
    let hint = TopologyHint::new(NumaMask::from_iter([1]), true);
    fixture.manager.allocate(&second, &second.spec.containers[0], hint).await.unwrap();
    assert_eq!(ids(&fixture, &second, "c0"), "c");
    assert_eq!(fixture.manager.of_container("q", "c0")[RESOURCE]["c"], [1]);
    let full = allocate(&fixture, &pod("r", &[], &[2])).await.unwrap_err();
    assert_eq!(
        full,
        "requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1"
    );
    let changed = allocate(&fixture, &pod("p", &[], &[1])).await.unwrap_err();
    assert_eq!(
        changed,
        "pod \"p\" container \"c0\" changed request for resource \"example.com/gpu\" from 2 to 1"
    );
    // what pods leave behind is free again
    let left: ActiveContainers = [Arc::new(second)].iter().collect();
    fixture.manager.retain(&left);
    assert_eq!(allocate(&fixture, &pod("s", &[], &[3])).await.unwrap(), ["a b d"]);
}

#[tokio::test]
async fn containers_take_over_the_devices_of_init_containers() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = ManagerFixture::start(dir.path(), &[0], LONG);
    let plugin = FakePlugin::start(fixture.manager.directory(), "gpu.sock", "a b c");
    plugin.register().await.unwrap();
    fixture.until((3, 3)).await;
    let all = allocate(&fixture, &pod("p", &[2, 1], &[1, 2])).await.unwrap();
    assert_eq!(all, ["a b", "a", "a", "b c"]);
    // a pod with devices passes admission though its plugin has gone
    let mut allocatable = crate::pod_facts::ResourceList::new();
    fixture.manager.raise_allocatable("other", &mut allocatable);
    assert!(allocatable.is_empty());
    fixture.manager.raise_allocatable("p", &mut allocatable);
    assert_eq!(allocatable[RESOURCE].whole(), 3);
}

#[tokio::test]
async fn lies_failures_and_silence_of_a_plugin_are_errors_of_the_pod() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = ManagerFixture::start(dir.path(), &[0], Duration::from_millis(200));
    let plugin = FakePlugin::start(fixture.manager.directory(), "gpu.sock", "a b");
    plugin.state.options.lock().pre_start_required = true;
    plugin.register().await.unwrap();
    fixture.until((2, 2)).await;
    let wanted = pod("p", &[], &[1]);
    for (behaviour, expected) in [
        (
            PluginBehaviour::Empty,
            "no containers return in allocation response &AllocateResponse{ContainerResponses:[]*ContainerAllocateResponse{},}",
        ),
        (PluginBehaviour::Failing, "rpc error: code = Unavailable desc = on fire"),
        (PluginBehaviour::Hanging, "rpc error: code = DeadlineExceeded desc = context deadline exceeded"),
    ] {
        *plugin.state.behaviour.lock() = behaviour;
        assert_eq!(allocate(&fixture, &wanted).await.unwrap_err(), expected);
        // a failed allocation holds no devices
        assert_eq!(ids(&fixture, &wanted, "c0"), "");
    }
    *plugin.state.behaviour.lock() = PluginBehaviour::Honest;
    assert_eq!(allocate(&fixture, &pod("q", &[], &[2])).await.unwrap(), ["a b"]);
    *plugin.state.behaviour.lock() = PluginBehaviour::Failing;
    let other = pod("q", &[], &[2]);
    let made = fixture.manager.run_options(&other, &other.spec.containers[0], TopologyHint::default()).await;
    assert_eq!(
        made.unwrap_err(),
        "device plugin PreStartContainer rpc failed with err: rpc error: code = Unavailable desc = on fire"
    );
}

#[tokio::test]
async fn devices_of_a_dead_plugin_fail_and_vanish_in_five_minutes() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = ManagerFixture::start(dir.path(), &[0], LONG);
    let plugin = FakePlugin::start(fixture.manager.directory(), "gpu.sock", "a b");
    plugin.register().await.unwrap();
    fixture.until((2, 2)).await;
    assert_eq!(allocate(&fixture, &pod("p", &[], &[1])).await.unwrap(), ["a"]);
    drop(plugin);
    fixture.until((2, 0)).await;
    let why = allocate(&fixture, &pod("q", &[], &[1])).await.unwrap_err();
    assert_eq!(
        why,
        "requested number of devices unavailable for example.com/gpu. Requested: 1, Available: 0"
    );
    // within the time, another process may take over
    fixture.clock.advance(Duration::from_secs(200));
    let plugin = FakePlugin::start(fixture.manager.directory(), "gpu.sock", "a b c");
    plugin.register().await.unwrap();
    fixture.until((3, 3)).await;
    drop(plugin);
    fixture.until((3, 0)).await;
    fixture.clock.advance(Duration::from_secs(301));
    assert_eq!(fixture.counts(), (0, 0));
    // the pod keeps what it has
    assert_eq!(allocate(&fixture, &pod("p", &[], &[1])).await.unwrap(), ["a"]);
    let text = std::fs::read_to_string(fixture.manager.directory().join(checkpoint::FILE)).unwrap();
    assert!(text.contains("\"RegisteredDevices\":{}"), "{text}");
}

#[tokio::test]
async fn the_end_of_a_replaced_plugin_does_not_touch_its_successor() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = ManagerFixture::start(dir.path(), &[0], LONG);
    let first = FakePlugin::start(fixture.manager.directory(), "one.sock", "a");
    first.register().await.unwrap();
    fixture.until((1, 1)).await;
    let second = FakePlugin::start(fixture.manager.directory(), "two.sock", "a b");
    second.register().await.unwrap();
    fixture.until((2, 2)).await;
    drop(first);
    second.state.devices.send_replace(devices("a b c"));
    fixture.until((3, 3)).await;
}

#[tokio::test]
async fn devices_of_pods_survive_a_restart_of_the_agent() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = ManagerFixture::start(dir.path(), &[0], LONG);
    assert!(fixture.manager.amounts().resets_others);
    let plugin = FakePlugin::start(fixture.manager.directory(), "gpu.sock", "a b");
    plugin.register().await.unwrap();
    fixture.until((2, 2)).await;
    let first = pod("p", &[], &[1]);
    allocate(&fixture, &first).await.unwrap();
    drop(fixture);
    let mut fixture = ManagerFixture::start(dir.path(), &[0], LONG);
    assert!(!fixture.manager.amounts().resets_others);
    // sockets are gone, so that plugins see that they must register
    let names = std::fs::read_dir(fixture.manager.directory()).unwrap().flatten();
    let names: BTreeSet<String> = names.map(|it| it.file_name().into_string().unwrap()).collect();
    assert_eq!(names, [checkpoint::FILE, "kubelet.sock"].map(str::to_owned).into());
    assert_eq!(fixture.counts(), (0, 0));
    assert_eq!(ids(&fixture, &first, "c0"), "a");
    let container = &first.spec.containers[0];
    let options = fixture.manager.run_options(&first, container, TopologyHint::default()).await.unwrap();
    assert_eq!(options.envs, [("GPUS".to_owned(), "a".to_owned())]);
    let why = allocate(&fixture, &pod("q", &[], &[1])).await.unwrap_err();
    assert!(why.ends_with("Requested: 1, Available: 0"), "{why}");
    let plugin = FakePlugin::start(fixture.manager.directory(), "gpu.sock", "a b");
    plugin.register().await.unwrap();
    fixture.until((2, 2)).await;
    assert_eq!(allocate(&fixture, &pod("q", &[], &[1])).await.unwrap(), ["b"]);
    // a damaged file is reported, and containers get devices again when they start
    drop(fixture);
    std::fs::write(dir.path().join("device-plugins").join(checkpoint::FILE), "x").unwrap();
    let mut fixture = ManagerFixture::start(dir.path(), &[0], LONG);
    let plugin = FakePlugin::start(fixture.manager.directory(), "gpu.sock", "b");
    plugin.register().await.unwrap();
    fixture.until((1, 1)).await;
    let options = fixture.manager.run_options(&first, container, TopologyHint::default()).await.unwrap();
    assert_eq!(options.envs, [("GPUS".to_owned(), "b".to_owned())]);
}
