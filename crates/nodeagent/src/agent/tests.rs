use super::*;
use crate::pod::testing::{Records, TestSetup};
use crate::pod::worker::KillRequest;
use crate::resource_managers::devices::testing::PluginBehaviour;
use crate::resource_managers::testing::start;
use crate::resource_managers::topology::TopologyPolicy;
use crate::runtime::simulated::{Behaviour, SimulatedRuntime};
use crate::runtime::{ContainerChange, ContainerState, Runtime};
use api::from_json;
use client::Body;
use env::Simulated;
use futures_util::FutureExt;
use std::convert::Infallible;
use std::future::Pending;
use std::path::Path;
use std::task::{Context, Poll};

/// An API server that never answers.
#[derive(Clone)]
struct SilentServer;

impl tower_service::Service<http::Request<Body>> for SilentServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pending<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        std::future::pending()
    }
}

/// Lets tasks run, and time pass.
async fn turn(clock: &Simulated) {
    tokio::task::yield_now().await;
    clock.advance(Duration::from_millis(1));
}

fn declare(directory: &Path, name: &str, limits: &str) {
    let pod = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}"}},"spec":{{"containers":[
            {{"name":"{name}","image":"x","resources":{{"limits":{limits},"requests":{limits}}}}}]}}}}"#
    );
    // a file appears at once
    std::fs::write(directory.join(".new"), pod).unwrap();
    std::fs::rename(directory.join(".new"), directory.join(format!("{name}.json"))).unwrap();
}

fn options(
    clock: &Arc<Simulated>,
    runtime: &SimulatedRuntime,
    records: &Arc<Records>,
    manifests: &Path,
    managers: Arc<ResourceManagers>,
) -> AgentOptions {
    let node: Node = from_json(
        br#"{"metadata":{"name":"n"},"status":{"allocatable":{"cpu":"8","memory":"16Gi","pods":"9","example.com/gpu":"2"}}}"#,
    )
    .unwrap();
    let client = Client::new(SilentServer);
    AgentOptions {
        node_name: "n".to_owned(),
        world: clock.clone(),
        client: client.clone(),
        factory: InformerFactory::new(client),
        runtime: Arc::new(runtime.clone()),
        setup: Arc::new(TestSetup::default()),
        events: records.clone(),
        node: watch::channel(Arc::new(node)).1,
        host_ips: watch::channel(Vec::new()).1,
        pull_limits: PullLimits::default(),
        credential_providers: None,
        static_pods: StaticPodOptions {
            path: Some(manifests.to_owned()),
            path_interval: Duration::from_secs(3600),
            ..StaticPodOptions::default()
        },
        metrics: AgentMetrics::default(),
        sysctls: SysctlAllowlist::default(),
        managers,
        is_shutting_down: watch::channel(false).1,
        has_api: true,
        dead_containers: Default::default(),
    }
}

#[tokio::test]
async fn pods_of_files_run_once_without_an_api_server() {
    let (root_dir, manifests) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let fixture = start(root_dir.path(), TopologyPolicy::None, false);
    declare(manifests.path(), "once", r#"{"cpu":"100m"}"#);
    let clock = Simulated::new(1_000_000_000, 1);
    let world: World = clock.clone();
    let runtime = SimulatedRuntime::new(clock.clone());
    let records = Arc::new(Records::default());
    let options = options(&clock, &runtime, &records, manifests.path(), fixture.managers.clone());
    let agent = Agent::start(AgentOptions { has_api: false, ..options }).await.unwrap();
    let mut running = Box::pin(agent.run_once(&world));
    let ended = loop {
        match (&mut running).now_or_never() {
            Some(ended) => break ended,
            None => turn(&clock).await,
        }
    };
    assert_eq!(ended, Ok(()));
    // they go on without the agent
    let states: Vec<ContainerState> = runtime.container_states().into_iter().map(|it| it.2).collect();
    assert_eq!(states, [ContainerState::Running]);
}

#[tokio::test]
async fn pods_that_need_no_devices_do_not_wait_for_a_plugin_that_hangs() {
    let (root_dir, manifests) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut fixture = start(root_dir.path(), TopologyPolicy::None, false);
    let plugin = fixture.plugin("a b").await;
    let clock = Simulated::new(1_000_000_000, 1);
    let runtime = SimulatedRuntime::new(clock.clone());
    let records = Arc::new(Records::default());
    let is_shutting_down = watch::Sender::new(false);
    let managers = fixture.managers.clone();
    let agent = Agent::start(AgentOptions {
        is_shutting_down: is_shutting_down.subscribe(),
        ..options(&clock, &runtime, &records, manifests.path(), managers)
    })
    .await
    .unwrap();
    let running = || -> Vec<String> {
        let states = runtime.container_states().into_iter();
        states.filter(|it| it.2 == ContainerState::Running).map(|it| it.0).collect()
    };
    let device = r#"{"example.com/gpu":"1"}"#;
    *plugin.state.behaviour.lock() = PluginBehaviour::Hanging;
    declare(manifests.path(), "held", device);
    while plugin.state.calls.lock().allocated.is_empty() {
        turn(&clock).await;
    }
    declare(manifests.path(), "plain", r#"{"cpu":"500m"}"#);
    while running() != ["plain"] {
        turn(&clock).await;
    }
    // the pod that waits goes away, and the answer comes too late
    std::fs::remove_file(manifests.path().join("held.json")).unwrap();
    declare(manifests.path(), "refused", device);
    declare(manifests.path(), "own", r#"{"cpu":"2","memory":"1Gi"}"#);
    drop(plugin);
    while running().len() < 2 {
        turn(&clock).await;
    }
    assert_eq!(running(), ["plain", "own"]);
    let is_refused = |event: &String| {
        event.starts_with("UnexpectedAdmissionError: Allocate failed due to ")
            && event.ends_with(", which is unexpected")
    };
    while !records.events.lock().iter().any(is_refused) {
        turn(&clock).await;
    }
    let names: Vec<String> = agent.workers.active_pods().iter().map(|it| it.metadata.name.clone()).collect();
    assert!(!names.contains(&"refused-n".to_owned()) && !names.contains(&"held-n".to_owned()), "{names:?}");
    let own = agent.workers.active_pods().into_iter().find(|it| it.metadata.name == "own-n").unwrap();
    assert_eq!(fixture.shown(&own.metadata.uid, "own"), "1-2 {0} ");
    // a node that shuts down takes no more pods
    is_shutting_down.send_replace(true);
    declare(manifests.path(), "late", r#"{"cpu":"100m"}"#);
    let rejected = "NodeShutdown: Pod was rejected as the node is shutting down.";
    while !records.events.lock().iter().any(|it| it == rejected) {
        turn(&clock).await;
    }
    assert_eq!(running(), ["plain", "own"]);
}

#[tokio::test]
async fn containers_are_listed_in_intervals_while_others_end() {
    let (root_dir, manifests) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let fixture = start(root_dir.path(), TopologyPolicy::None, false);
    let clock = Simulated::new(1_000_000_000, 1);
    let runtime = SimulatedRuntime::new(clock.clone());
    let records = Arc::new(Records::default());
    let options = options(&clock, &runtime, &records, manifests.path(), fixture.managers.clone());
    let mut agent = Agent::start(AgentOptions { has_api: false, ..options }).await.unwrap();
    agent.listed.changed().await.unwrap();
    let first = *agent.listed.borrow_and_update();
    // an event each second leaves no minute without one
    for _ in 0..150 {
        runtime.announce("gone", ContainerChange::Stopped);
        for _ in 0..20 {
            tokio::task::yield_now().await;
            clock.advance(Duration::from_millis(50));
        }
    }
    let last = *agent.listed.borrow_and_update();
    assert!(
        last >= first + Duration::from_secs(120),
        "the first list was at {first:?}, the last at {last:?}"
    );
}

#[tokio::test]
async fn the_event_of_a_start_does_not_delay_the_end_of_a_pod() {
    let (root_dir, manifests) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let fixture = start(root_dir.path(), TopologyPolicy::None, false);
    declare(manifests.path(), "short", r#"{"cpu":"100m"}"#);
    let clock = Simulated::new(1_000_000_000, 1);
    let runtime = SimulatedRuntime::new(clock.clone());
    let records = Arc::new(Records::default());
    let options = options(&clock, &runtime, &records, manifests.path(), fixture.managers.clone());
    let agent = Agent::start(options).await.unwrap();
    let state = || runtime.container_states().first().map(|it| it.2);
    while state() != Some(ContainerState::Running) {
        turn(&clock).await;
    }
    for container in runtime.containers(None).await.unwrap() {
        runtime.announce(&container.id, ContainerChange::Created);
        runtime.announce(&container.id, ContainerChange::Started);
    }
    // from here on time stands still
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let uid = agent.workers.active_pods()[0].metadata.uid.clone();
    agent.workers.kill(&uid, KillRequest::default());
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_ne!(state(), Some(ContainerState::Running), "the worker waits");
}

/// The pods of a runtime with a running container, by the names of their containers.
fn running(runtime: &SimulatedRuntime) -> Vec<String> {
    let states = runtime.container_states().into_iter();
    let mut names: Vec<String> = states.filter(|it| it.2 == ContainerState::Running).map(|it| it.0).collect();
    names.sort();
    names
}

fn declare_spec(directory: &Path, name: &str, spec: &str) {
    let pod = format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}"}},"spec":{spec}}}"#);
    std::fs::write(directory.join(".new"), pod).unwrap();
    std::fs::rename(directory.join(".new"), directory.join(format!("{name}.json"))).unwrap();
}

#[tokio::test]
async fn a_critical_pod_starts_after_pods_that_make_room_for_it() {
    let (root_dir, manifests) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let fixture = start(root_dir.path(), TopologyPolicy::None, false);
    let clock = Simulated::new(1_000_000_000, 1);
    let runtime = SimulatedRuntime::new(clock.clone());
    let records = Arc::new(Records::default());
    let options = options(&clock, &runtime, &records, manifests.path(), fixture.managers.clone());
    let metrics = options.metrics.clone();
    let agent = Agent::start(options).await.unwrap();
    let spec = |name: &str, priority: i32, cpu: &str| {
        format!(
            r#"{{"priority":{priority},"terminationGracePeriodSeconds":5,"containers":[
                {{"name":"{name}","image":"x","resources":{{"requests":{{"cpu":"{cpu}"}}}}}}]}}"#
        )
    };
    // the victim takes its grace period to end
    runtime.behave("low", Behaviour { ignores_stop: true, ..Behaviour::default() });
    for (name, priority, cpu) in [("low", 1, "4"), ("middle", 2, "4")] {
        declare_spec(manifests.path(), name, &spec(name, priority, cpu));
    }
    while running(&runtime).len() < 2 {
        turn(&clock).await;
    }
    let low = agent.workers.active_pods().into_iter().find(|it| it.metadata.name == "low-n").unwrap();
    declare_spec(manifests.path(), "high", &spec("high", 2, "3"));
    let preempted = "Preempting: Preempted in order to admit critical pod";
    while !records.events.lock().iter().any(|it| it == preempted) {
        turn(&clock).await;
    }
    assert_eq!(running(&runtime), ["low", "middle"]);
    // there is no room for it beside the pod that waits
    declare_spec(manifests.path(), "late", &spec("late", 0, "2"));
    while running(&runtime) != ["high", "middle"] {
        assert!(!running(&runtime).contains(&"high".to_owned()), "the pods run together");
        turn(&clock).await;
    }
    let status = agent.statuses.status(&low.metadata.uid).unwrap();
    let shown = (&*status.phase, &*status.reason, &*status.message);
    assert_eq!(shown, ("Failed", "Preempting", "Preempted in order to admit critical pod"));
    assert!(metrics.registry().text().contains("kubelet_preemptions{preemption_signal=\"cpu\"} 1"));
    let is_refused = |event: &String| event.starts_with("UnexpectedAdmissionError: ");
    while !records.events.lock().iter().any(is_refused) {
        turn(&clock).await;
    }
    assert_eq!(running(&runtime), ["high", "middle"]);
}

#[tokio::test]
async fn a_static_pod_starts_after_the_one_that_it_replaces() {
    let (root_dir, manifests) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let fixture = start(root_dir.path(), TopologyPolicy::None, false);
    let clock = Simulated::new(1_000_000_000, 1);
    let runtime = SimulatedRuntime::new(clock.clone());
    let records = Arc::new(Records::default());
    let options = options(&clock, &runtime, &records, manifests.path(), fixture.managers.clone());
    let _agent = Agent::start(options).await.unwrap();
    // neither the port nor the CPUs are there twice
    let spec = |container: &str| {
        format!(
            r#"{{"terminationGracePeriodSeconds":5,"containers":[{{"name":"{container}","image":"x",
                "ports":[{{"containerPort":80,"hostPort":80}}],"resources":{{"requests":{{"cpu":"5"}}}}}}]}}"#
        )
    };
    runtime.behave("old", Behaviour { ignores_stop: true, ..Behaviour::default() });
    declare_spec(manifests.path(), "web", &spec("old"));
    while running(&runtime) != ["old"] {
        turn(&clock).await;
    }
    declare_spec(manifests.path(), "web", &spec("new"));
    while running(&runtime) != ["new"] {
        assert!(running(&runtime).len() < 2, "the pods run together");
        turn(&clock).await;
    }
    // a pod of another name takes the port over
    std::fs::remove_file(manifests.path().join("web.json")).unwrap();
    declare_spec(manifests.path(), "next", &spec("next"));
    while running(&runtime) != ["next"] {
        turn(&clock).await;
    }
    let is_rejected = |event: &String| event.starts_with("NodePorts") || event.starts_with("OutOf");
    assert!(!records.events.lock().iter().any(is_rejected), "{:?}", records.events.lock());
}

#[tokio::test]
async fn a_static_pod_with_its_own_uid_follows_its_manifest() {
    let (root_dir, manifests) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let fixture = start(root_dir.path(), TopologyPolicy::None, false);
    let clock = Simulated::new(1_000_000_000, 1);
    let runtime = SimulatedRuntime::new(clock.clone());
    let records = Arc::new(Records::default());
    let options = options(&clock, &runtime, &records, manifests.path(), fixture.managers.clone());
    let agent = Agent::start(options).await.unwrap();
    let declare = |image: &str| {
        let pod = format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"own","uid":"own-uid"}},
                "spec":{{"containers":[{{"name":"c","image":"{image}"}}]}}}}"#
        );
        std::fs::write(manifests.path().join(".new"), pod).unwrap();
        std::fs::rename(manifests.path().join(".new"), manifests.path().join("own.json")).unwrap();
    };
    declare("first");
    let is_running = |attempt: u32| {
        let states = runtime.container_states();
        states.iter().any(|it| (it.1, it.2) == (attempt, ContainerState::Running))
    };
    while !is_running(0) {
        turn(&clock).await;
    }
    declare("second:1");
    while !is_running(1) {
        turn(&clock).await;
    }
    assert_eq!(agent.workers.pod("own-uid").unwrap().spec.containers[0].image, "second:1");
}
