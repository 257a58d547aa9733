use super::machine::MachineObserver;
use super::thresholds::ThresholdConfig;
use super::{Evictor, EvictorOptions};
use crate::filesystem::testing::FakeFilesystem;
use crate::node::conditions::Pressures;
use crate::objects::testing::FixedObjects;
use crate::pod::testing::{TestNode, pod};
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
    let objects = Arc::new(FixedObjects::default());
    let volumes = VolumeManager::new(dir, Arc::new(FakeFilesystem::default()), objects, node.clock.clone());
    let hard = BTreeMap::from([("memory.available".to_owned(), "100Ki".to_owned())]);
    Evictor::new(EvictorOptions {
        memory_cgroup: None,
        runtime: Arc::new(node.runtime.clone()),
        world: node.clock.clone(),
        workers: node.workers.clone(),
        volumes,
        events: node.records.clone(),
        log_dir: dir.join("logs"),
        machine: MachineObserver { proc: dir.to_owned(), root_dir: dir.to_owned(), pods: None },
        thresholds: ThresholdConfig { hard, ..ThresholdConfig::default() }.thresholds(),
        transition_period: Duration::from_secs(300),
        kept_images: Vec::new(),
        metrics: AgentMetrics::default(),
        max_grace: 0,
        marks_disruptions: true,
        report: Box::new(move |it| *pressures.lock() = it),
    })
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
    until_evicted(&node, "The node was low on resource: memory. ").await;
    set_free_memory(dir.path(), 500);
    node.clock.advance(Duration::from_secs(300));
    evictor.check().await;
    assert!(!pressures.lock().has_memory_pressure);
}
