//! Lives of pods on a simulated runtime.

use super::testing::{TestNode, deleted, pod, pod_of};
use crate::runtime::ContainerState;
use crate::runtime::simulated::{Behaviour, CallLimit};
use api::core::v1::Pod;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const RUNS: &str = r#"{"restartPolicy":"Always","containers":[{"name":"a","image":"x"}]}"#;

fn ends(seconds: u64, exit_code: i32) -> Behaviour {
    Behaviour { runs_for: Some(Duration::from_secs(seconds)), exit_code, ..Behaviour::default() }
}

fn ready(node: &TestNode) -> bool {
    node.status("u").conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True")
}

#[tokio::test]
async fn a_pod_runs_and_ends() {
    let node = TestNode::new().await;
    let pod = pod(RUNS);
    node.workers.set(pod.clone());
    node.until("ready", ready).await;
    assert_eq!(node.runtime.take_log(), ["run sandbox", "create a", "start a"]);
    let status = node.status("u");
    assert_eq!((&*status.phase, &*status.pod_ip, &*status.host_ip), ("Running", "10.0.0.2", "10.1.1.1"));
    assert_eq!(status.container_statuses[0].container_id, "simulated://c0002");
    node.workers.set(deleted(&pod, 5));
    node.until("the end", |node| node.is_finished("u")).await;
    assert_eq!(node.runtime.take_log(), ["stop a", "stop sandbox"]);
    let ended = node.status("u").container_statuses[0].state.terminated.clone().unwrap();
    assert_eq!((ended.exit_code, &*ended.reason), (0, "Completed"));
    let events = node.records.events.lock().clone();
    assert_eq!(
        events,
        [
            "a Pulled: Container image \"x\" already present on machine",
            "a Created: Created container a",
            "a Started: Started container a",
            "a Killing: Stopping container a"
        ]
    );
}

#[tokio::test]
async fn a_pod_whose_containers_have_started_needs_no_further_step() {
    let node = TestNode::new().await;
    let pod = pod(RUNS);
    node.workers.set(pod.clone());
    node.until("ready", ready).await;
    node.workers.set(deleted(&pod, 5));
    node.until("the end", |node| node.is_finished("u")).await;
    assert_eq!(node.setup.prepare_requests.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_worker_whose_agent_stops_before_its_first_container_ends() {
    let node = TestNode::new().await;
    node.end_observer().await;
    node.workers.set(pod(RUNS));
    let (setup, workers) = (node.setup.clone(), Arc::downgrade(&node.workers));
    drop(node);
    assert!(workers.upgrade().is_none());
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!(setup.sandbox_requests.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn an_image_that_is_removed_after_the_runtime_has_shown_it_is_pulled() {
    let node = TestNode::new().await;
    node.workers.set(pod_of("first", RUNS));
    let is_running = |node: &TestNode, uid: &str| node.status(uid).phase == "Running";
    node.until("the first pod", |node| is_running(node, "first")).await;
    node.runtime.remove_from_registry("x:latest");
    node.workers.set(pod_of("second", RUNS));
    node.until("the pull", |node| node.runtime.take_log().iter().any(|it| it == "pull x:latest")).await;
    let is_failure = |it: &String| it.contains("Failed: Error: image");
    assert!(!node.records.events.lock().iter().any(is_failure), "the image is looked for again before");
}

#[tokio::test]
async fn a_condition_of_others_changes_the_status_of_a_pod_that_waits_for_it() {
    let node = TestNode::new().await;
    let spec = r#"{"restartPolicy":"Always","readinessGates":[{"conditionType":"gate"}],
        "containers":[{"name":"a","image":"x"}]}"#;
    let mut pod = Pod::clone(&pod(spec));
    node.workers.set(Arc::new(pod.clone()));
    node.until("running", |node| node.status("u").phase == "Running").await;
    // the agent's own write
    pod.status = node.status("u");
    node.workers.set(Arc::new(pod.clone()));
    let gate = r#"{"type":"gate","status":"True"}"#;
    pod.status.conditions.push(api::from_json(gate.as_bytes()).unwrap());
    assert!(!ready(&node));
    node.workers.set(Arc::new(pod));
    node.until("ready", ready).await;
}

#[tokio::test]
async fn readiness_that_another_writer_has_changed_is_written_again() {
    let node = TestNode::new().await;
    let mut pod = Pod::clone(&pod(RUNS));
    node.workers.set(Arc::new(pod.clone()));
    node.until("ready", ready).await;
    // while the node seemed to be lost
    pod.status = node.status("u");
    let lost = pod.status.conditions.iter_mut().find(|it| it.type_ == "Ready").unwrap();
    lost.status = "False".to_owned();
    lost.last_transition_time = lost.last_transition_time.map(|it| api::Time(it.0 + 60));
    node.records.statuses.lock().clear();
    node.workers.set(Arc::new(pod));
    node.until("the agent's status again", |node| node.records.statuses.lock().contains_key("u")).await;
    assert!(ready(&node));
}

#[tokio::test]
async fn a_container_that_crashes_restarts_with_growing_delays() {
    let node = TestNode::new().await;
    node.runtime.behave("a", ends(1, 3));
    node.workers.set(pod(RUNS));
    let waits =
        |node: &TestNode| node.status("u").container_statuses.first().and_then(|it| it.state.waiting.clone());
    for (restarts, delay) in [(1, "10s"), (2, "20s"), (3, "40s")] {
        node.until("back-off", |node| {
            let message = format!("back-off {delay} restarting failed container=a pod=p_n(u)");
            waits(node).is_some_and(|it| it.reason == "CrashLoopBackOff" && it.message == message)
        })
        .await;
        let status = &node.status("u").container_statuses[0];
        assert_eq!(status.restart_count, restarts);
        assert_eq!(status.last_state.terminated.as_ref().unwrap().exit_code, 3);
        assert_eq!(node.status("u").phase, "Running");
    }
    // one ended run is kept
    assert!(node.runtime.container_states().len() <= 2);
}

#[tokio::test]
async fn init_containers_run_in_order_before_the_others() {
    let node = TestNode::new().await;
    for name in ["i", "j"] {
        node.runtime.behave(name, ends(1, 0));
    }
    node.workers.set(pod(
        r#"{"restartPolicy":"Never","initContainers":[{"name":"i","image":"x"},{"name":"j","image":"x"}],"containers":[{"name":"a","image":"x"}]}"#,
    ));
    node.until("ready", ready).await;
    let log = node.runtime.take_log();
    assert_eq!(log, ["run sandbox", "create i", "start i", "create j", "start j", "create a", "start a"]);
}

#[tokio::test]
async fn a_pod_that_completes_is_succeeded_without_processes() {
    let node = TestNode::new().await;
    node.runtime.behave("a", ends(1, 0));
    node.workers.set(pod(r#"{"restartPolicy":"Never","containers":[{"name":"a","image":"x"}]}"#));
    node.until("the end", |node| node.is_finished("u")).await;
    // the worker sees no version of the pod with its own statuses
    assert_eq!(*node.records.phases.lock(), ["Pending", "Running", "Succeeded"]);
    assert_eq!(node.runtime.sandbox_count(), (0, 1));
    assert_eq!(node.status("u").pod_ip, "10.0.0.2");
}

#[tokio::test]
async fn a_deadline_ends_a_pod() {
    let node = TestNode::new().await;
    node.workers.set(pod(
        r#"{"restartPolicy":"Never","activeDeadlineSeconds":5,"terminationGracePeriodSeconds":1,"containers":[{"name":"a","image":"x"}]}"#,
    ));
    node.until("the end", |node| node.is_finished("u")).await;
    let status = node.status("u");
    assert_eq!((&*status.phase, &*status.reason), ("Failed", "DeadlineExceeded"));
    assert_eq!(status.message, "Pod was active on the node longer than the specified deadline");
}

#[tokio::test]
async fn a_failed_liveness_probe_restarts_the_container() {
    let node = TestNode::new().await;
    node.workers.set(pod(
        r#"{"restartPolicy":"Always","containers":[{"name":"a","image":"x",
            "livenessProbe":{"exec":{"command":["exit 1"]},"periodSeconds":1,"failureThreshold":2,"timeoutSeconds":1}}]}"#,
    ));
    node.until("restart", |node| {
        node.status("u")
            .container_statuses
            .first()
            .is_some_and(|it| it.restart_count == 1 && it.state.running.is_some())
    })
    .await;
    let events = node.records.events.lock().clone();
    assert!(
        events.contains(&"a Killing: Container a failed liveness probe, will be restarted".to_owned()),
        "{events:?}"
    );
    assert!(events.iter().filter(|it| it.starts_with("a Unhealthy: Liveness probe failed: ")).count() >= 2);
}

#[tokio::test]
async fn a_pull_that_fails_backs_off() {
    let node = TestNode::new().await;
    node.runtime.remove_from_registry("x:latest");
    node.workers.set(pod(RUNS));
    let reason = |node: &TestNode| {
        let status = node.status("u");
        status.container_statuses.first().and_then(|it| it.state.waiting.clone()).unwrap_or_default().reason
    };
    node.until("ErrImagePull", |node| reason(node) == "ErrImagePull").await;
    node.until("ImagePullBackOff", |node| reason(node) == "ImagePullBackOff").await;
    node.until("the second pull", |node| {
        node.records.events.lock().iter().filter(|it| it.starts_with("a Pulling:")).count() == 2
    })
    .await;
    assert_eq!(node.status("u").phase, "Pending");
}

#[tokio::test]
async fn a_deletion_interrupts_nothing_half_and_a_shorter_grace_counts() {
    let node = TestNode::new().await;
    node.runtime.behave("a", Behaviour { ignores_stop: true, ..Behaviour::default() });
    let pod = pod(RUNS);
    node.workers.set(pod.clone());
    node.until("ready", ready).await;
    node.workers.set(deleted(&pod, 100_000));
    node.until("the signal", |node| node.records.events.lock().iter().any(|it| it.starts_with("a Killing")))
        .await;
    node.workers.set(deleted(&pod, 3));
    node.until("the end", |node| node.is_finished("u")).await;
    let ended = node.status("u").container_statuses[0].state.terminated.clone().unwrap();
    assert_eq!(ended.exit_code, 137);
}

/// The agent is killed at each call that changes state and started again: the pod runs once, ends once.
#[tokio::test]
async fn an_agent_that_is_killed_at_any_action_finishes_the_life_of_a_pod() {
    let spec = r#"{"restartPolicy":"Always","initContainers":[{"name":"i","image":"x"}],"containers":[{"name":"a","image":"x"},{"name":"b","image":"x"}]}"#;
    for limit in 1..20 {
        let mut node = TestNode::with_limit(Some(CallLimit::new(limit))).await;
        node.runtime.behave("i", ends(1, 0));
        let pod = pod(spec);
        node.workers.set(pod.clone());
        node = run_until(node, pod.clone(), ready).await;
        let running = |node: &TestNode, name: &str| {
            let states = node.runtime.container_states();
            states.iter().filter(|it| it.0 == name && it.2 == ContainerState::Running).count()
        };
        assert_eq!((running(&node, "a"), running(&node, "b")), (1, 1), "limit {limit}");
        assert_eq!(node.runtime.sandbox_count().0, 1, "limit {limit}");
        let gone = deleted(&pod, 2);
        node.workers.set(gone.clone());
        node = run_until(node, gone, |node| node.is_finished("u")).await;
        assert_eq!((running(&node, "a"), running(&node, "b")), (0, 0), "limit {limit}");
        assert_eq!(node.runtime.sandbox_count().0, 0, "limit {limit}");
    }
}

/// Runs until a condition holds; an agent that reaches its limit is replaced by another.
async fn run_until(
    mut node: TestNode,
    pod: std::sync::Arc<api::core::v1::Pod>,
    mut condition: impl FnMut(&TestNode) -> bool,
) -> TestNode {
    let is_killed = tokio::select! {
        () = node.killed() => true,
        () = node.until("the condition", &mut condition) => false,
    };
    if is_killed {
        node = node.restart().await;
        node.workers.set(pod);
        node.until("the condition after a restart", condition).await;
    }
    node
}
