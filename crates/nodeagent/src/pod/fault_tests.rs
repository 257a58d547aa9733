//! Pods while the runtime, the disk or the agent fails.

use super::testing::{TestNode, deleted, pod, pod_of, settle};
use crate::runtime::ContainerState;
use crate::runtime::simulated::{Behaviour, CallLimit, Fault};
use std::sync::atomic::Ordering;
use std::time::Duration;

const RUNS: &str = r#"{"restartPolicy":"Always","containers":[{"name":"a","image":"x"}]}"#;

fn is_ready(node: &TestNode, uid: &str) -> bool {
    node.status(uid).conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True")
}

fn restarts(node: &TestNode) -> i32 {
    node.status("u").container_statuses.first().map_or(0, |it| it.restart_count)
}

/// Lets simulated time pass.
async fn pass(node: &TestNode, time: Duration) {
    for _ in 0..time.as_millis() / 500 {
        settle().await;
        node.clock.advance(Duration::from_millis(500));
    }
    settle().await;
}

#[tokio::test]
async fn a_sandbox_without_configuration_is_tried_again_in_intervals() {
    let node = TestNode::new().await;
    *node.setup.sandbox_error.lock() = Some("no such class".to_owned());
    node.workers.set(pod(RUNS));
    pass(&node, Duration::from_secs(60)).await;
    let requests = node.setup.sandbox_requests.load(Ordering::Relaxed);
    assert!((4..=8).contains(&requests), "{requests} attempts in a minute");
    let event = "FailedCreatePodSandBox: Failed to create pod sandbox: no such class";
    assert!(node.records.events.lock().iter().any(|it| it == event));
    *node.setup.sandbox_error.lock() = None;
    node.until("ready", |node| is_ready(node, "u")).await;
}

#[tokio::test]
async fn a_container_restarts_while_its_runtime_class_cannot_be_read() {
    let node = TestNode::new().await;
    node.runtime.behave("a", Behaviour { runs_for: Some(Duration::from_secs(5)), ..Behaviour::default() });
    node.workers.set(pod(RUNS));
    node.until("running", |node| node.status("u").phase == "Running").await;
    *node.setup.handler_error.lock() = Some("connection refused".to_owned());
    node.until("the restart", |node| restarts(node) > 0).await;
    let events = node.records.events.lock().clone();
    assert!(!events.iter().any(|it| it.contains("FailedCreatePodSandBox")), "{events:?}");
    // a new sandbox needs the handler
    node.workers.set(pod_of("v", RUNS));
    let event = "FailedCreatePodSandBox: Failed to create pod sandbox: connection refused";
    node.until("the event", |node| node.records.events.lock().iter().any(|it| it == event)).await;
}

#[tokio::test]
async fn a_runtime_that_hangs_leaves_containers_alone() {
    let node = TestNode::new().await;
    node.workers.set(pod(RUNS));
    node.until("ready", |node| is_ready(node, "u")).await;
    node.runtime.take_log();
    node.runtime.set_fault(Fault::Hung);
    // a change of the spec wakes the worker, whose calls hang
    node.workers.relist("u");
    pass(&node, Duration::from_secs(400)).await;
    node.runtime.set_fault(Fault::None);
    pass(&node, Duration::from_secs(30)).await;
    assert_eq!(node.runtime.take_log(), Vec::<String>::new());
    assert!(is_ready(&node, "u") && restarts(&node) == 0);
    node.runtime.exit("a", 1);
    node.until("the restart", |node| restarts(node) == 1).await;
}

#[tokio::test]
async fn a_runtime_that_restarts_shows_what_ended_meanwhile() {
    let node = TestNode::new().await;
    node.workers.set(pod(RUNS));
    node.until("ready", |node| is_ready(node, "u")).await;
    node.runtime.set_fault(Fault::Stopped);
    node.runtime.exit("a", 1);
    pass(&node, Duration::from_secs(60)).await;
    assert_eq!(restarts(&node), 0);
    node.runtime.set_fault(Fault::None);
    node.until("the restart", |node| restarts(node) == 1 && is_ready(node, "u")).await;
}

#[tokio::test]
async fn a_deletion_during_a_fault_is_carried_out_after_it() {
    let node = TestNode::new().await;
    let pod = pod(RUNS);
    node.workers.set(pod.clone());
    node.until("ready", |node| is_ready(node, "u")).await;
    node.runtime.set_fault(Fault::Stopped);
    node.workers.set(deleted(&pod, 5));
    pass(&node, Duration::from_secs(60)).await;
    assert!(!node.is_finished("u"));
    node.runtime.set_fault(Fault::None);
    node.until("the end", |node| node.is_finished("u")).await;
    assert_eq!(node.runtime.sandbox_count().0, 0);
    assert!(node.setup.prepared.lock().is_empty());
}

#[tokio::test]
async fn a_full_disk_delays_a_pod() {
    let node = TestNode::new().await;
    *node.setup.prepare_error.lock() = Some("no space left on device".to_owned());
    node.workers.set(pod(RUNS));
    pass(&node, Duration::from_secs(45)).await;
    let events = node.records.events.lock().clone();
    let failed = events.iter().filter(|it| *it == "FailedMount: no space left on device").count();
    assert!((3..=6).contains(&failed), "{failed} attempts in 45 s");
    assert_eq!(node.status("u").phase, "Pending");
    *node.setup.prepare_error.lock() = None;
    node.until("ready", |node| is_ready(node, "u")).await;
}

/// The agent is killed at each call that changes state; meanwhile the pod is deleted, too. The next agent ends it.
#[tokio::test]
async fn a_pod_that_is_gone_when_the_agent_comes_back_is_ended() {
    for limit in 1..6 {
        let mut node = TestNode::with_limit(Some(CallLimit::new(limit))).await;
        node.workers.set(pod(RUNS));
        tokio::select! {
            () = node.killed() => {}
            () = node.until("ready", |node| is_ready(node, "u")) => {}
        }
        node = node.restart().await;
        node.workers.end_orphans();
        node.until("the end of the sandbox", |node| node.runtime.sandbox_count().0 == 0).await;
        settle().await;
        node.forget_ended();
        node.collect().await;
        assert_eq!(node.runtime.sandbox_count(), (0, 0), "limit {limit}");
        assert!(node.runtime.container_states().is_empty(), "limit {limit}");
        assert!(node.setup.prepared.lock().is_empty(), "limit {limit}");
    }
}

#[tokio::test]
async fn an_agent_that_restarts_touches_no_running_container() {
    let mut node = TestNode::new().await;
    let pods: Vec<_> = (0..20).map(|at| pod_of(&format!("u{at}"), RUNS)).collect();
    pods.iter().for_each(|it| node.workers.set(it.clone()));
    node.until("all ready", |node| pods.iter().all(|it| is_ready(node, &it.metadata.uid))).await;
    node.runtime.take_log();
    let before = node.runtime.container_states();
    node = node.restart().await;
    pods.iter().for_each(|it| node.workers.set(it.clone()));
    pass(&node, Duration::from_secs(120)).await;
    assert_eq!(node.runtime.take_log(), Vec::<String>::new());
    assert_eq!(node.runtime.container_states(), before);
}

#[tokio::test]
async fn thousands_of_pods_leave_nothing() {
    let mut node = TestNode::new().await;
    node.runtime
        .behave("short", Behaviour { runs_for: Some(Duration::from_secs(1)), ..Behaviour::default() });
    let short = r#"{"restartPolicy":"Never","containers":[{"name":"short","image":"x"}]}"#;
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    for round in 0..20 {
        let pods: Vec<_> = (0..100)
            .map(|at| pod_of(&format!("{round}-{at}"), if at % 2 == 0 { RUNS } else { short }))
            .collect();
        pods.iter().for_each(|it| node.workers.set(it.clone()));
        let runs = |node: &TestNode, at: usize| {
            let uid = &pods[at].metadata.uid;
            if at.is_multiple_of(2) { is_ready(node, uid) } else { node.is_finished(uid) }
        };
        node.until("all run or have ended", |node| (0..100).all(|at| runs(node, at))).await;
        pods.iter().for_each(|it| node.workers.set(deleted(it, 1)));
        node.until("all have ended", |node| pods.iter().all(|it| node.is_finished(&it.metadata.uid))).await;
        for pod in &pods {
            node.workers.remove(&pod.metadata.uid);
        }
        settle().await;
        node.forget_ended();
        node.collect().await;
    }
    settle().await;
    assert_eq!(node.runtime.sandbox_count(), (0, 0));
    assert!(node.runtime.container_states().iter().all(|it| it.2 != ContainerState::Running));
    assert!(node.runtime.container_states().is_empty());
    assert!(node.setup.prepared.lock().is_empty() && node.workers.pods().is_empty());
    let left = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert!(left <= tasks, "{left} tasks are left of {tasks}");
}
