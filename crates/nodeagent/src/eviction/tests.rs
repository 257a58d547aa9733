use super::machine::MachineObserver;
use super::thresholds::ThresholdConfig;
use super::{Evictor, EvictorOptions, UsageMeter};
use crate::filesystem::testing::FakeFilesystem;
use crate::node::conditions::Pressures;
use crate::objects::testing::FixedObjects;
use crate::pod::testing::{TestNode, pod, pod_of};
use crate::stats::AgentMetrics;
use crate::volumes::VolumeManager;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const LIMITED: &str = r#"{"restartPolicy":"Always",
    "containers":[{"name":"a","image":"x","resources":{"limits":{"ephemeral-storage":"64Ki"}}}]}"#;
const FREE: &str = r#"{"restartPolicy":"Always","containers":[{"name":"a","image":"x"}]}"#;

fn evictor(node: &TestNode, dir: &Path, pressures: Arc<Mutex<Pressures>>) -> Evictor {
    Evictor::new(evictor_options(node, dir, pressures))
}

fn evictor_options(node: &TestNode, dir: &Path, pressures: Arc<Mutex<Pressures>>) -> EvictorOptions {
    let objects = Arc::new(FixedObjects::default());
    let volumes = VolumeManager::new(dir, Arc::new(FakeFilesystem::default()), objects, node.clock.clone());
    let hard = BTreeMap::from([("memory.available".to_owned(), "100Ki".to_owned())]);
    let runtime = Arc::new(node.runtime.clone());
    EvictorOptions {
        memory_cgroup: None,
        meter: UsageMeter {
            runtime: runtime.clone(),
            volumes,
            log_dir: dir.join("logs"),
            processes: Box::new(|_| 0),
        },
        runtime,
        world: node.clock.clone(),
        workers: node.workers.clone(),
        events: node.records.clone(),
        node_events: Arc::new(|_| {}),
        limits_storage: true,
        machine: MachineObserver { proc: dir.to_owned(), root_dir: dir.to_owned(), pods: None },
        thresholds: ThresholdConfig { hard, ..ThresholdConfig::default() }.thresholds(),
        transition_period: Duration::from_secs(300),
        kept_images: Vec::new(),
        metrics: AgentMetrics::default(),
        max_grace: 0,
        marks_disruptions: true,
        report: Box::new(move |it| *pressures.lock() = it),
    }
}

fn set_free_memory(dir: &Path, kilobytes: u64) {
    std::fs::write(dir.join("meminfo"), format!("MemTotal: 1000 kB\nMemFree: {kilobytes} kB\n")).unwrap();
}

async fn until_evicted(node: &TestNode, message: &str) {
    node.until("the end", |node| node.is_finished("u")).await;
    let status = node.status("u");
    assert_eq!((&*status.phase, &*status.reason, &*status.message), ("Failed", "Evicted", message));
    let event = format!("Evicted: {message}");
    assert_eq!(node.records.events.lock().iter().filter(|it| **it == event).count(), 1);
}

#[tokio::test]
async fn a_pod_above_its_limit_is_evicted_once() {
    let (node, dir) = (TestNode::new().await, tempfile::tempdir().unwrap());
    let pod = pod(LIMITED);
    let mut evictor = evictor(&node, dir.path(), Arc::default());
    node.workers.set(pod.clone());
    node.until("running", |node| node.status("u").phase == "Running").await;
    evictor.check().await;
    assert!(!node.is_finished("u"));
    let meta = &pod.metadata;
    let logs = dir.path().join(format!("logs/{}_{}_{}/a", meta.namespace, meta.name, meta.uid));
    std::fs::create_dir_all(&logs).unwrap();
    std::fs::write(logs.join("0.log"), vec![1; 100_000]).unwrap();
    evictor.check().await;
    evictor.check().await;
    until_evicted(&node, "Pod ephemeral local storage usage exceeds the total limit of containers 64Ki. ")
        .await;
}

#[tokio::test]
async fn a_node_without_memory_evicts_a_pod() {
    let (node, dir) = (TestNode::new().await, tempfile::tempdir().unwrap());
    let pressures: Arc<Mutex<Pressures>> = Arc::default();
    let mut evictor = evictor(&node, dir.path(), pressures.clone());
    node.workers.set(pod(FREE));
    node.until("running", |node| node.status("u").phase == "Running").await;
    set_free_memory(dir.path(), 500);
    evictor.check().await;
    assert!(!pressures.lock().has_memory_pressure);
    set_free_memory(dir.path(), 50);
    evictor.check().await;
    assert!(pressures.lock().has_memory_pressure && !pressures.lock().has_disk_pressure);
    let message = "The node was low on resource: memory. Threshold quantity: 100Ki, available: 50Ki. ";
    until_evicted(&node, message).await;
    set_free_memory(dir.path(), 500);
    node.clock.advance(Duration::from_secs(300));
    evictor.check().await;
    assert!(!pressures.lock().has_memory_pressure);
}

#[tokio::test]
async fn limits_of_storage_do_not_count_without_its_isolation() {
    let (node, dir) = (TestNode::new().await, tempfile::tempdir().unwrap());
    let pod = pod(LIMITED);
    let options = evictor_options(&node, dir.path(), Arc::default());
    let mut evictor = Evictor::new(EvictorOptions { limits_storage: false, ..options });
    node.workers.set(pod.clone());
    node.until("running", |node| node.status("u").phase == "Running").await;
    let meta = &pod.metadata;
    let logs = dir.path().join(format!("logs/{}_{}_{}/a", meta.namespace, meta.name, meta.uid));
    std::fs::create_dir_all(&logs).unwrap();
    std::fs::write(logs.join("0.log"), vec![1; 100_000]).unwrap();
    evictor.check().await;
    assert!(!node.records.events.lock().iter().any(|it| it.starts_with("Evicted")));
}

#[tokio::test]
async fn the_pod_with_the_most_processes_is_evicted() {
    let (node, dir) = (TestNode::new().await, tempfile::tempdir().unwrap());
    let mut options = evictor_options(&node, dir.path(), Arc::default());
    let hard = BTreeMap::from([("pid.available".to_owned(), "100".to_owned())]);
    options.thresholds = ThresholdConfig { hard, ..ThresholdConfig::default() }.thresholds();
    options.meter.processes = Box::new(|pod| if pod.metadata.uid == "u" { 900 } else { 10 });
    let mut evictor = Evictor::new(options);
    for uid in ["a", "u", "z"] {
        node.workers.set(pod_of(uid, FREE));
    }
    let is_running = |node: &TestNode| ["a", "u", "z"].iter().all(|it| node.status(it).phase == "Running");
    node.until("running", is_running).await;
    std::fs::create_dir_all(dir.path().join("sys/kernel")).unwrap();
    std::fs::write(dir.path().join("sys/kernel/pid_max"), "1000\n").unwrap();
    std::fs::write(dir.path().join("loadavg"), "0.1 0.2 0.3 2/950 4711\n").unwrap();
    evictor.check().await;
    until_evicted(&node, "The node was low on resource: pids. Threshold quantity: 100, available: 50. ")
        .await;
    assert!(!node.is_finished("a") && !node.is_finished("z"));
}

#[tokio::test]
async fn ended_containers_go_before_pods() {
    let (mut node, dir) = (TestNode::new().await, tempfile::tempdir().unwrap());
    let mut options = evictor_options(&node, dir.path(), Arc::default());
    // the filesystem of the test is never as empty
    let hard = BTreeMap::from([("nodefs.available".to_owned(), "99.99999%".to_owned())]);
    options.thresholds = ThresholdConfig { hard, ..ThresholdConfig::default() }.thresholds();
    let notes: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = notes.clone();
    options.node_events = Arc::new(move |it| sink.lock().push(format!("{}: {}", it.reason, it.message)));
    let mut evictor = Evictor::new(options);
    let once = r#"{"restartPolicy":"Never","containers":[{"name":"once","image":"x"}]}"#;
    node.workers.set(pod_of("once", once));
    node.workers.set(pod(FREE));
    let is_running = |node: &TestNode| ["once", "u"].iter().all(|it| node.status(it).phase == "Running");
    node.until("running", is_running).await;
    node.runtime.exit("once", 0);
    node.until("the end", |node| node.is_finished("once")).await;
    node.forget_ended();
    node.runtime.take_log();
    evictor.check().await;
    // the status of the pod stays
    assert_eq!(node.status("once").phase, "Succeeded");
    assert_eq!(node.runtime.take_log()[..2], ["remove once", "remove sandbox"]);
    assert_eq!(*notes.lock(), ["EvictionThresholdMet: Attempting to reclaim ephemeral-storage"]);
    node.until("the end", |node| node.is_finished("u")).await;
}
