//! Tests of the queue, on a clock that they advance.

mod engine;
mod events;
mod model;
mod moves;
mod nominations;
mod updates;

use super::*;
use crate::framework::profile::Plugin;
use std::rc::Rc;
use std::time::Duration;

/// A pod as the queue sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TestPod {
    name: String,
    uid: String,
    priority: i32,
    nominated: String,
    gates: bool,
    affinity: bool,
}

type Handle = Rc<TestPod>;

impl QueuePod for Handle {
    fn namespace(&self) -> &str {
        "ns"
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn uid(&self) -> &str {
        &self.uid
    }
    fn priority(&self) -> i32 {
        self.priority
    }
    fn scheduler_name(&self) -> &str {
        "default-scheduler"
    }
    fn nominated_node_name(&self) -> &str {
        &self.nominated
    }
    fn has_scheduling_gates(&self) -> bool {
        self.gates
    }
    fn has_required_affinity(&self) -> bool {
        self.affinity
    }
}

fn plain(name: &str) -> TestPod {
    TestPod {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        priority: 0,
        nominated: String::new(),
        gates: false,
        affinity: false,
    }
}

fn pod(name: &str) -> Handle {
    Rc::new(plain(name))
}

fn with(name: &str, change: impl FnOnce(&mut TestPod)) -> Handle {
    let mut pod = plain(name);
    change(&mut pod);
    Rc::new(pod)
}

fn queue() -> SchedulingQueue<Handle> {
    let gated_profiles = ["default-scheduler".to_owned()].into();
    SchedulingQueue::new(Options { gated_profiles, ..Options::default() })
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn set(plugins: &[Plugin]) -> PluginSet {
    plugins.iter().copied().collect()
}

/// Adds a pod, tries it once at the same time, and fails it by these plugins.
fn fail(queue: &mut SchedulingQueue<Handle>, now: Duration, pod: Handle, plugins: &[Plugin]) {
    queue.add(now, pod.clone());
    let mut queued = queue.pop().unwrap();
    assert_eq!(queued.pod, pod, "another pod was active");
    queued.unschedulable_plugins = set(plugins);
    let cycle = queue.scheduling_cycle();
    queue.add_unschedulable(now, queued, cycle).unwrap();
}

fn names(queue: &mut SchedulingQueue<Handle>) -> Vec<String> {
    std::iter::from_fn(|| queue.pop()).map(|queued| queued.pod.name.clone()).collect()
}

fn pending(queue: &SchedulingQueue<Handle>) -> [usize; 4] {
    let Pending { active, backoff, unschedulable, gated } = queue.pending();
    [active, backoff, unschedulable, gated]
}
