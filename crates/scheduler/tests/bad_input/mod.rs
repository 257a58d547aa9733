//! Input that no scheduler should get: nodes with absurd values, pods that make a plugin panic.

use std::sync::Arc;
use std::time::Duration;

use scheduler::extender::{Candidate, Extender, Filtered};
use scheduler::framework::{Features, Profile};
use scheduler::node_info::NodeInfo;
use scheduler::pod_info::PodInfo;
use scheduler::queue::Options;
use scheduler::scheduler::{Attempt, Scheduler};
use scheduler::snapshot::Snapshot;

/// An extender that panics on pods of a certain name.
struct Panics;

impl Extender for Panics {
    fn is_interested(&self, _: &PodInfo) -> bool {
        true
    }

    fn is_ignorable(&self) -> bool {
        false
    }

    fn weight(&self) -> i64 {
        1
    }

    fn filter(&self, pod: &PodInfo, nodes: &[&NodeInfo]) -> Result<Filtered, String> {
        assert_ne!(pod.name(), "bad", "cannot filter");
        let nodes = nodes.iter().map(|node| node.name().to_owned()).collect();
        Ok(Filtered { nodes, ..Filtered::default() })
    }

    fn prioritize(&self, _: &PodInfo, _: &[&NodeInfo]) -> Result<Vec<(String, i64)>, String> {
        Ok(Vec::new())
    }

    fn supports_preemption(&self) -> bool {
        false
    }

    fn process_preemption(
        &self,
        _: &PodInfo,
        candidates: &[Candidate],
        _: &Snapshot,
    ) -> Result<Vec<Candidate>, String> {
        Ok(candidates.to_vec())
    }
}

const NOW: Duration = Duration::ZERO;

fn scheduler() -> Scheduler {
    let profiles = vec![Profile::default()];
    let options = Options::for_profiles(&profiles);
    Scheduler::new(env::Simulated::new(1, 1), profiles, Features::default(), options, 0)
}

fn set_node(scheduler: &mut Scheduler, name: &str, cpu: &str) {
    let json = format!(
        r#"{{"metadata":{{"name":"{name}"}},"status":{{"allocatable":{{"cpu":"{cpu}","pods":"10"}}}}}}"#
    );
    scheduler.set_node(NOW, Arc::new(api::from_json(json.as_bytes()).unwrap()));
}

fn add_pod(scheduler: &mut Scheduler, name: &str) {
    let json = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"d","uid":"{name}"}},
        "spec":{{"schedulerName":"default-scheduler","containers":[{{"name":"c"}}]}}}}"#
    );
    scheduler.set_pod(NOW, Arc::new(api::from_json(json.as_bytes()).unwrap()));
}

fn failure(scheduler: &mut Scheduler) -> (String, &'static str, String) {
    match scheduler.attempt(NOW) {
        Some(Attempt::Failed { pod, failure }) => {
            (pod.name().to_owned(), failure.reason(), failure.message())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pod_that_panics_a_plugin_fails_alone() {
    let mut scheduler = scheduler().with_extenders(vec![Box::new(Panics)]);
    set_node(&mut scheduler, "n", "1");
    for name in ["first", "bad", "last"] {
        add_pod(&mut scheduler, name);
    }
    assert!(matches!(scheduler.attempt(NOW), Some(Attempt::Bind { placement, .. }) if placement.node == "n"));
    let (name, reason, message) = failure(&mut scheduler);
    assert_eq!((&*name, reason), ("bad", "SchedulerError"));
    assert!(message.starts_with("a plugin panicked: ") && message.contains("cannot filter"), "{message}");
    assert!(
        matches!(scheduler.attempt(NOW), Some(Attempt::Bind { queued, .. }) if queued.pod.name() == "last")
    );
    assert_eq!(scheduler.queue().pods().map(|pod| pod.name()).collect::<Vec<_>>(), ["bad"]);
    assert_eq!(scheduler.snapshot.node("n").unwrap().pods.len(), 2);
}

#[test]
fn a_node_with_absurd_values_is_skipped() {
    let mut scheduler = scheduler();
    for cpu in ["-1", "9E"] {
        set_node(&mut scheduler, "n", cpu);
    }
    add_pod(&mut scheduler, "p");
    assert_eq!(failure(&mut scheduler).2, "no nodes available to schedule pods");
    set_node(&mut scheduler, "n", "1");
    scheduler.flush(Duration::from_secs(2));
    assert!(matches!(scheduler.attempt(Duration::from_secs(2)), Some(Attempt::Bind { .. })));
    set_node(&mut scheduler, "n", "-1");
    assert_eq!(scheduler.snapshot.node_count(), 0);
}
