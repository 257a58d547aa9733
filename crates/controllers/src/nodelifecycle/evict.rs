//! Evicts pods from nodes with `NoExecute` taints that the pods do not tolerate, at once or after `tolerationSeconds`.
//!
//! Invariants: the time counts from when the taint was added or the pod was bound to the node, whichever is later. A
//! taint without `timeAdded` counts from when it was first seen. After a start, an old taint evicts no pod before
//! nodes had time to send a heartbeat. A taint that is removed in time cancels the eviction.

use super::options::Options;
use super::task::{AT_ONCE, Task, each_pod};
use crate::Context;
use crate::nodes;
use crate::pods::tolerate::{NO_EXECUTE, tolerating};
use crate::pods::{remove, state};
use api::Resource;
use api::core::v1::{Node, Pod, Taint};
use client::events::{Note, Recorder};
use client::{Action, Change, Failure, Informer, Key, Queue, Reconcile, run};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Notify;

/// The field manager of the condition that announces an eviction.
const WRITER: &str = "TaintManager";
/// The source of events.
const COMPONENT: &str = "taint-controller";

/// When the loop started, and how long it waits for heartbeats.
#[derive(Debug, Clone, Copy)]
struct Startup {
    at: SystemTime,
    grace: Duration,
}

/// When a pod is evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Eviction {
    Never,
    At(SystemTime),
}

/// When a pod is evicted from a node with these taints; `since` is when this was first decided.
fn eviction(pod: &Pod, taints: &[&Taint], since: SystemTime, startup: Startup) -> Eviction {
    let mut earliest: Option<SystemTime> = None;
    for taint in taints {
        let at = match tolerating(&pod.spec.tolerations, taint).map(|it| it.toleration_seconds) {
            Some(None) => continue,
            None => since,
            Some(Some(seconds)) => {
                let tolerated = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
                let added = taint.time_added.map_or(since, SystemTime::from);
                let from = added.max(bound_at(pod)).min(since);
                let due = later(from, tolerated);
                if from < startup.at { due.max(later(startup.at, tolerated.min(startup.grace))) } else { due }
            }
        };
        earliest = Some(earliest.map_or(at, |other| other.min(at)));
    }
    earliest.map_or(Eviction::Never, Eviction::At)
}

/// Adds a duration, capped so that the sum can be represented.
fn later(from: SystemTime, by: Duration) -> SystemTime {
    const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);
    from + by.min(LONGEST)
}

/// When a pod was bound to its node.
fn bound_at(pod: &Pod) -> SystemTime {
    let scheduled = state::condition(pod, "PodScheduled").filter(|it| it.status == "True");
    let scheduled = scheduled.and_then(|it| it.last_transition_time);
    scheduled.or(pod.metadata.creation_timestamp).map_or(SystemTime::UNIX_EPOCH, SystemTime::from)
}

/// The taints of a node that evict pods.
fn no_execute(node: &Node) -> Vec<&Taint> {
    node.spec.taints.iter().filter(|it| it.effect == NO_EXECUTE).collect()
}

/// The fields of a pod that decide about its eviction.
fn relevant(pod: &Pod) -> impl PartialEq + '_ {
    (&pod.spec.node_name, &pod.spec.tolerations, &pod.metadata.uid)
}

/// Evictions that are scheduled for later.
#[derive(Default)]
struct Timers {
    by_pod: HashMap<Key, Timer>,
    by_time: BTreeSet<(SystemTime, Key)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Timer {
    uid: String,
    since: SystemTime,
    until: SystemTime,
}

impl Timers {
    fn set(&mut self, key: &Key, timer: Timer) {
        self.cancel(key);
        self.by_time.insert((timer.until, key.clone()));
        self.by_pod.insert(key.clone(), timer);
    }

    fn cancel(&mut self, key: &Key) -> Option<Timer> {
        let timer = self.by_pod.remove(key)?;
        self.by_time.remove(&(timer.until, key.clone()));
        Some(timer)
    }

    /// The pods whose time has passed. Their timers stay until the pods are reconciled.
    fn due(&self, now: SystemTime) -> Vec<Key> {
        self.by_time.iter().take_while(|(until, _)| *until <= now).map(|(_, key)| key.clone()).collect()
    }

    fn next(&self) -> Option<SystemTime> {
        self.by_time.first().map(|(until, _)| *until)
    }
}

pub(super) struct Evictor {
    context: Context,
    events: Recorder,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    queue: Queue<Task>,
    timers: Mutex<Timers>,
    /// A timer was set.
    timer_set: Notify,
    startup: Startup,
    period: Duration,
}

impl Evictor {
    /// Queues nodes whose taints change, and pods that may not tolerate the taints of their node.
    pub fn listen(
        context: &Context,
        nodes: &Informer<Node>,
        pods: &Informer<Pod>,
        options: &Options,
    ) -> Arc<Self> {
        let evictor = Arc::new(Evictor {
            events: Recorder::new(context.client.clone(), context.world.clone(), COMPONENT),
            context: context.clone(),
            pods: pods.clone(),
            nodes: nodes.clone(),
            queue: Queue::new(&context.world),
            timers: Mutex::default(),
            timer_set: Notify::new(),
            startup: Startup { at: context.world.now(), grace: options.grace_period },
            period: options.period.max(Duration::from_millis(1)),
        });
        let queue = evictor.queue.clone();
        nodes.listen(move |change| {
            let (old, new) = match change {
                Change::Added(node) => (Vec::new(), no_execute(node)),
                Change::Updated { old, new } => (no_execute(old), no_execute(new)),
                Change::Deleted(node) => (no_execute(node), Vec::new()),
            };
            if old != new {
                queue.add(Task::Node(change.object().name().to_owned()));
            }
        });
        let (queue, nodes) = (evictor.queue.clone(), nodes.clone());
        pods.listen(move |change| {
            let is_tainted = |pod: &Pod| {
                let node = nodes.get(&nodes::key(&pod.spec.node_name));
                node.is_some_and(|it| !no_execute(&it).is_empty())
            };
            let is_relevant = match change {
                Change::Updated { old, new } if relevant(old) == relevant(new) => false,
                _ => is_tainted(change.object()),
            };
            if is_relevant {
                queue.add(Task::Pod(change.key()));
            }
        });
        evictor
    }

    pub async fn run(self: Arc<Self>) {
        let queue = self.queue.clone();
        tokio::join!(run::run(self.clone(), queue, AT_ONCE), self.tick());
    }

    /// Queues pods whose time has passed. Sleeps for one period at most: the clock may be set.
    async fn tick(&self) {
        loop {
            let now = self.context.world.now();
            let (due, next) = {
                let timers = self.timers.lock();
                (timers.due(now), timers.next())
            };
            due.into_iter().for_each(|key| self.queue.add(Task::Pod(key)));
            match next {
                None => self.timer_set.notified().await,
                Some(next) => {
                    let left = next.duration_since(now).unwrap_or_default();
                    // pods that are due are in the queue already
                    let pause = if left.is_zero() { self.period } else { left.min(self.period) };
                    tokio::select! {
                        biased;
                        () = self.timer_set.notified() => {}
                        () = env::sleep(&self.context.world, pause) => {}
                    }
                }
            }
        }
    }

    fn record(&self, pod: &Pod, key: &Key, what: &str) {
        self.events.note(pod, Note::normal("TaintManagerEviction", format!("{what} Pod {key}")));
    }

    fn eviction(&self, pod: &Pod, since: SystemTime) -> Eviction {
        match self.nodes.get(&nodes::key(&pod.spec.node_name)) {
            Some(node) => eviction(pod, &no_execute(&node), since, self.startup),
            None => Eviction::Never,
        }
    }

    async fn reconcile_pod(&self, key: &Key) -> Result<(), Failure> {
        let pod = self.pods.get(key).filter(|it| it.metadata.deletion_timestamp.is_none());
        let Some(pod) = pod else {
            self.timers.lock().cancel(key);
            return Ok(());
        };
        let now = self.context.world.now();
        let timer = self.timers.lock().by_pod.get(key).filter(|it| it.uid == pod.uid()).cloned();
        let since = timer.as_ref().map_or(now, |it| it.since);
        match self.eviction(&pod, since) {
            Eviction::Never => {
                self.timers.lock().cancel(key);
                if timer.is_some() {
                    self.record(&pod, key, "Cancelling deletion of");
                }
            }
            Eviction::At(until) if until > now => {
                self.timers.lock().set(key, Timer { uid: pod.uid().to_owned(), since, until });
                self.timer_set.notify_one();
            }
            Eviction::At(_) => {
                self.evict(&pod, key).await?;
                self.timers.lock().cancel(key);
            }
        }
        Ok(())
    }

    async fn evict(&self, pod: &Pod, key: &Key) -> Result<(), Failure> {
        self.record(pod, key, "Marking for deletion");
        let client = &self.context.client;
        if self.context.gates.disruption_conditions {
            let condition = json!({
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByTaintManager",
                "message": "Taint manager: deleting due to NoExecute taint",
                "lastTransitionTime": self.context.time().to_string(),
            });
            if !remove::say(client, pod, WRITER, json!({"conditions": [condition]})).await? {
                return Ok(());
            }
        }
        remove::delete(client, pod, None).await
    }
}

impl Reconcile for Evictor {
    type Key = Task;

    fn name(&self) -> &'static str {
        "nodelifecycle"
    }

    fn queue_name(&self) -> &'static str {
        "noexec_taint_pod"
    }

    async fn reconcile(&self, task: &Task) -> Result<Action, Failure> {
        match task {
            Task::Node(name) => each_pod(&self.pods, name, &self.queue),
            Task::Pod(key) => self.reconcile_pod(key).await?,
        }
        Ok(Action::AwaitChange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use api::Time;
    use serde_json::Value;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn stamp(seconds: u64) -> String {
        Time::from(at(seconds)).to_string()
    }

    fn taint(key: &str, added: Option<u64>) -> Taint {
        object(json!({"key": key, "effect": "NoExecute", "timeAdded": added.map(stamp)}))
    }

    fn tolerates(key: &str, seconds: Option<i64>) -> Value {
        json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds})
    }

    fn pod(created: u64, bound: Option<u64>, tolerations: &[Value]) -> Pod {
        let conditions: Vec<_> = bound
            .iter()
            .map(|it| json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(*it)}))
            .collect();
        object(json!({
            "metadata": {"name": "p", "creationTimestamp": stamp(created)},
            "spec": {"containers": [], "nodeName": "n", "tolerations": tolerations},
            "status": {"conditions": conditions}
        }))
    }

    const STARTUP: Startup = Startup { at: SystemTime::UNIX_EPOCH, grace: Duration::from_secs(40) };

    /// When a pod is evicted that is reconciled at 1000 for the first time.
    fn evicted_at(pod: &Pod, taints: &[Taint], startup: Startup) -> Option<u64> {
        match eviction(pod, &taints.iter().collect::<Vec<_>>(), at(1000), startup) {
            Eviction::Never => None,
            Eviction::At(when) => Some(when.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()),
        }
    }

    #[test]
    fn pods_are_evicted_when_a_toleration_ends() {
        let (a, b) = (taint("a", Some(990)), taint("b", None));
        let of = |tolerations: &[Value], taints: &[&Taint]| {
            let taints: Vec<_> = taints.iter().map(|it| (*it).clone()).collect();
            evicted_at(&pod(100, Some(110), tolerations), &taints, STARTUP)
        };
        assert_eq!(of(&[], &[]), None);
        assert_eq!(of(&[], &[&a]), Some(1000));
        assert_eq!(of(&[tolerates("a", None)], &[&a]), None);
        assert_eq!(of(&[tolerates("a", None)], &[&a, &b]), Some(1000));
        // from when it was added; without that time, from now
        assert_eq!(of(&[tolerates("a", Some(300))], &[&a]), Some(1290));
        assert_eq!(of(&[tolerates("b", Some(300))], &[&b]), Some(1300));
        // each taint has its own time
        assert_eq!(of(&[tolerates("a", Some(300)), tolerates("b", Some(100))], &[&a, &b]), Some(1100));
        assert_eq!(of(&[tolerates("a", Some(300)), tolerates("b", None)], &[&a, &b]), Some(1290));
        // the first toleration that matches counts
        assert_eq!(of(&[tolerates("a", Some(5)), tolerates("a", None)], &[&a]), Some(995));
        assert_eq!(of(&[tolerates("a", Some(-5))], &[&a]), Some(990));
        assert!(of(&[tolerates("a", Some(i64::MAX))], &[&a]).is_some());
    }

    #[test]
    fn times_count_from_when_the_pod_was_bound() {
        let of = |created, bound, added| {
            evicted_at(
                &pod(created, bound, &[tolerates("a", Some(300))]),
                &[taint("a", Some(added))],
                STARTUP,
            )
        };
        assert_eq!(of(100, Some(110), 500), Some(800));
        assert_eq!(of(100, Some(600), 500), Some(900));
        assert_eq!(of(700, None, 500), Some(1000));
        // clocks differ
        assert_eq!(of(100, None, 9000), Some(1300));
        assert_eq!(of(9000, None, 500), Some(1300));
    }

    #[test]
    fn the_loop_waits_for_heartbeats_after_a_start() {
        let startup = Startup { at: at(1000), ..STARTUP };
        let of = |seconds, added| {
            evicted_at(&pod(100, None, &[tolerates("a", Some(seconds))]), &[taint("a", Some(added))], startup)
        };
        assert_eq!(of(300, 500), Some(1040));
        assert_eq!(of(300, 990), Some(1290));
        assert_eq!(of(10, 500), Some(1010));
        assert_eq!(of(0, 500), Some(1000));
        assert_eq!(of(30, 1000), Some(1030));
    }

    #[test]
    fn timers_are_set_replaced_and_cancelled() {
        let mut timers = Timers::default();
        let timer = |until| Timer { uid: String::new(), since: at(0), until: at(until) };
        let (a, b) = (Key::new("ns", "a"), Key::new("ns", "b"));
        timers.set(&a, timer(10));
        timers.set(&b, timer(20));
        timers.set(&a, timer(30));
        assert_eq!((timers.next(), timers.due(at(20))), (Some(at(20)), vec![b.clone()]));
        assert_eq!(timers.cancel(&b), Some(timer(20)));
        assert_eq!((timers.cancel(&b), timers.next()), (None, Some(at(30))));
    }
}
