//! Pods that do not bear a taint of their node against all pods are removed: at once, or when the time has passed for
//! which they do.
//!
//! What always holds: the time counts from when the taint was added, or the pod came to the node, whichever is later.
//! A taint that does not say when it was added counts from when it was first seen. A loop that begins removes nobody
//! for an old taint before nodes had time to be heard of. When a taint goes before the time has passed the pod stays.

use super::options::Options;
use super::taints;
use super::task::{AT_ONCE, Task, each_pod};
use crate::Context;
use crate::nodes;
use crate::pods::tolerate::{NO_EXECUTE, tolerating};
use crate::pods::{rank, remove, state};
use client::events::{Note, Recorder};
use client::{Action, Change, Failure, Informer, Key, Queue, Reconcile, run};
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Notify;

/// Who says that pods are removed.
const WRITER: &str = "TaintManager";
const COMPONENT: &str = "taint-controller";

/// When the loop started, and how long it waits for nodes.
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

/// What becomes of a pod on a node with these taints; `since` is when this was asked first.
fn eviction(pod: &Pod, taints: &[&Taint], since: SystemTime, began: Startup) -> Eviction {
    let tolerations = pod.spec.as_ref().and_then(|it| it.tolerations.as_deref()).unwrap_or_default();
    let mut goes: Option<SystemTime> = None;
    for taint in taints {
        let at = match tolerating(tolerations, taint).map(|it| it.toleration_seconds) {
            Some(None) => continue,
            None => since,
            Some(Some(seconds)) => {
                let borne = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
                let added = taint.time_added.as_ref().map_or(since, time);
                let from = added.max(came(pod)).min(since);
                let due = later(from, borne);
                if from < began.at { due.max(later(began.at, borne.min(began.grace))) } else { due }
            }
        };
        goes = Some(goes.map_or(at, |other| other.min(at)));
    }
    goes.map_or(Eviction::Never, Eviction::At)
}

fn time(time: &Time) -> SystemTime {
    time.0.into()
}

/// A time beyond all times is as good as never.
fn later(from: SystemTime, by: Duration) -> SystemTime {
    const AGES: Duration = Duration::from_secs(100 * 365 * 86_400);
    from + by.min(AGES)
}

/// When a pod came to its node.
fn came(pod: &Pod) -> SystemTime {
    let placed = state::condition(pod, "PodScheduled").filter(|it| it.status == "True");
    let placed = placed.and_then(|it| it.last_transition_time.as_ref());
    placed.or(pod.metadata.creation_timestamp.as_ref()).map_or(SystemTime::UNIX_EPOCH, time)
}

/// The taints of a node against all pods.
fn against_all(node: &Node) -> Vec<&Taint> {
    taints::taints(node).iter().filter(|it| it.effect == NO_EXECUTE).collect()
}

/// What of a pod decides about its fate.
fn seen(pod: &Pod) -> impl PartialEq + '_ {
    let spec = pod.spec.as_ref().map(|it| (&it.node_name, &it.tolerations));
    (spec, &pod.metadata.uid)
}

/// Pods whose time runs.
#[derive(Default)]
struct Running {
    by_pod: HashMap<Key, Run>,
    by_time: BTreeSet<(SystemTime, Key)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    uid: Option<String>,
    since: SystemTime,
    until: SystemTime,
}

impl Running {
    fn set(&mut self, key: &Key, run: Run) {
        self.end(key);
        self.by_time.insert((run.until, key.clone()));
        self.by_pod.insert(key.clone(), run);
    }

    fn end(&mut self, key: &Key) -> Option<Run> {
        let run = self.by_pod.remove(key)?;
        self.by_time.remove(&(run.until, key.clone()));
        Some(run)
    }

    /// Those whose time has passed; they are asked about again.
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
    running: Mutex<Running>,
    news: Notify,
    began: Startup,
    period: Duration,
}

impl Evictor {
    /// Hears of taints and of pods that may not bear them.
    pub fn listen(
        context: &Context,
        nodes: &Informer<Node>,
        pods: &Informer<Pod>,
        options: &Options,
    ) -> Arc<Self> {
        let this = Arc::new(Evictor {
            events: Recorder::new(context.client.clone(), context.world.clone(), COMPONENT),
            context: context.clone(),
            pods: pods.clone(),
            nodes: nodes.clone(),
            queue: Queue::default(),
            running: Mutex::default(),
            news: Notify::new(),
            began: Startup { at: context.world.now(), grace: options.grace_period },
            period: options.period.max(Duration::from_millis(1)),
        });
        let news = this.queue.clone();
        nodes.listen(move |change| {
            let (old, new) = match change {
                Change::Added(node) => (Vec::new(), against_all(node)),
                Change::Updated { old, new } => (against_all(old), against_all(new)),
                Change::Deleted(node) => (against_all(node), Vec::new()),
            };
            if old != new {
                news.add(Task::Node(change.object().name_any()));
            }
        });
        let (news, known) = (this.queue.clone(), nodes.clone());
        pods.listen(move |change| {
            let is_tainted = |pod: &Pod| {
                let node = rank::node(pod).and_then(|it| known.get(&nodes::key(it)));
                node.is_some_and(|it| !against_all(&it).is_empty())
            };
            let asks = match change {
                Change::Updated { old, new } if seen(old) == seen(new) => false,
                _ => is_tainted(change.object()),
            };
            if asks {
                news.add(Task::Pod(change.key()));
            }
        });
        this
    }

    pub async fn run(self: Arc<Self>) {
        let queue = self.queue.clone();
        tokio::join!(run::run(self.clone(), queue, AT_ONCE), self.tick());
    }

    /// Asks again about pods whose time has passed. Never sleeps for long: clocks may be set.
    async fn tick(&self) {
        loop {
            let now = self.context.world.now();
            let (due, next) = {
                let running = self.running.lock();
                (running.due(now), running.next())
            };
            due.into_iter().for_each(|key| self.queue.add(Task::Pod(key)));
            match next {
                None => self.news.notified().await,
                Some(next) => {
                    let left = next.duration_since(now).unwrap_or_default();
                    // those whose time has passed are being looked at
                    let pause = if left.is_zero() { self.period } else { left.min(self.period) };
                    tokio::select! {
                        () = self.news.notified() => {}
                        () = tokio::time::sleep(pause) => {}
                    }
                }
            }
        }
    }

    fn tell(&self, pod: &Pod, key: &Key, what: &str) {
        self.events.note(pod, Note::normal("TaintManagerEviction", format!("{what} Pod {key}")));
    }

    /// What becomes of a pod now, as far as this loop has to do with it.
    fn judge(&self, pod: &Pod, since: SystemTime) -> Eviction {
        let node = rank::node(pod).and_then(|it| self.nodes.get(&nodes::key(it)));
        match node {
            Some(node) => eviction(pod, &against_all(&node), since, self.began),
            None => Eviction::Never,
        }
    }

    async fn pod(&self, key: &Key) -> Result<(), Failure> {
        let pod = self.pods.get(key).filter(|it| it.metadata.deletion_timestamp.is_none());
        let Some(pod) = pod else {
            self.running.lock().end(key);
            return Ok(());
        };
        let now = self.context.world.now();
        let run = self.running.lock().by_pod.get(key).filter(|it| it.uid == pod.uid()).cloned();
        let since = run.as_ref().map_or(now, |it| it.since);
        match self.judge(&pod, since) {
            Eviction::Never => {
                self.running.lock().end(key);
                if run.is_some() {
                    self.tell(&pod, key, "Cancelling deletion of");
                }
            }
            Eviction::At(until) if until > now => {
                self.running.lock().set(key, Run { uid: pod.uid(), since, until });
                self.news.notify_one();
            }
            Eviction::At(_) => {
                self.evict(&pod, key).await?;
                self.running.lock().end(key);
            }
        }
        Ok(())
    }

    async fn evict(&self, pod: &Pod, key: &Key) -> Result<(), Failure> {
        self.tell(pod, key, "Marking for deletion");
        let client = &self.context.client;
        if self.context.gates.disruption_conditions {
            let condition = json!({
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByTaintManager",
                "message": "Taint manager: deleting due to NoExecute taint",
                "lastTransitionTime": self.context.time(),
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
            Task::Pod(key) => self.pod(key).await?,
        }
        Ok(Action::AwaitChange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn stamp(seconds: u64) -> String {
        k8s_openapi::chrono::DateTime::<k8s_openapi::chrono::Utc>::from(at(seconds)).to_rfc3339()
    }

    fn taint(key: &str, added: Option<u64>) -> Taint {
        let taint = json!({"key": key, "effect": "NoExecute", "timeAdded": added.map(stamp)});
        serde_json::from_value(taint).unwrap()
    }

    fn bears(key: &str, seconds: Option<i64>) -> Value {
        json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds})
    }

    fn pod(created: u64, placed: Option<u64>, tolerations: &[Value]) -> Pod {
        let conditions: Vec<_> = placed
            .iter()
            .map(|it| json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(*it)}))
            .collect();
        let pod = json!({
            "metadata": {"name": "p", "creationTimestamp": stamp(created)},
            "spec": {"containers": [], "nodeName": "n", "tolerations": tolerations},
            "status": {"conditions": conditions}
        });
        serde_json::from_value(pod).unwrap()
    }

    const BEGAN: Startup = Startup { at: SystemTime::UNIX_EPOCH, grace: Duration::from_secs(40) };

    /// When a pod goes that is asked about at 1000 for the first time.
    fn goes(pod: &Pod, taints: &[Taint], began: Startup) -> Option<u64> {
        match eviction(pod, &taints.iter().collect::<Vec<_>>(), at(1000), began) {
            Eviction::Never => None,
            Eviction::At(when) => Some(when.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()),
        }
    }

    #[test]
    fn pods_go_when_they_do_not_bear_a_taint_any_longer() {
        let (a, b) = (taint("a", Some(990)), taint("b", None));
        let of = |tolerations: &[Value], taints: &[&Taint]| {
            let taints: Vec<_> = taints.iter().map(|it| (*it).clone()).collect();
            goes(&pod(100, Some(110), tolerations), &taints, BEGAN)
        };
        assert_eq!(of(&[], &[]), None);
        assert_eq!(of(&[], &[&a]), Some(1000));
        assert_eq!(of(&[bears("a", None)], &[&a]), None);
        assert_eq!(of(&[bears("a", None)], &[&a, &b]), Some(1000));
        // from when it was added; where it does not say, from now
        assert_eq!(of(&[bears("a", Some(300))], &[&a]), Some(1290));
        assert_eq!(of(&[bears("b", Some(300))], &[&b]), Some(1300));
        // each taint has its time
        assert_eq!(of(&[bears("a", Some(300)), bears("b", Some(100))], &[&a, &b]), Some(1100));
        assert_eq!(of(&[bears("a", Some(300)), bears("b", None)], &[&a, &b]), Some(1290));
        // the first toleration that is about it counts
        assert_eq!(of(&[bears("a", Some(5)), bears("a", None)], &[&a]), Some(995));
        assert_eq!(of(&[bears("a", Some(-5))], &[&a]), Some(990));
        assert!(of(&[bears("a", Some(i64::MAX))], &[&a]).is_some());
    }

    #[test]
    fn times_count_from_when_the_pod_came() {
        let of = |created, placed, added| {
            goes(&pod(created, placed, &[bears("a", Some(300))]), &[taint("a", Some(added))], BEGAN)
        };
        assert_eq!(of(100, Some(110), 500), Some(800));
        assert_eq!(of(100, Some(600), 500), Some(900));
        assert_eq!(of(700, None, 500), Some(1000));
        // clocks that do not agree
        assert_eq!(of(100, None, 9000), Some(1300));
        assert_eq!(of(9000, None, 500), Some(1300));
    }

    #[test]
    fn a_loop_that_begins_waits_for_nodes() {
        let began = Startup { at: at(1000), ..BEGAN };
        let of = |seconds, added| {
            goes(&pod(100, None, &[bears("a", Some(seconds))]), &[taint("a", Some(added))], began)
        };
        assert_eq!(of(300, 500), Some(1040));
        assert_eq!(of(300, 990), Some(1290));
        assert_eq!(of(10, 500), Some(1010));
        assert_eq!(of(0, 500), Some(1000));
        assert_eq!(of(30, 1000), Some(1030));
    }

    #[test]
    fn running_times() {
        let mut running = Running::default();
        let run = |until| Run { uid: None, since: at(0), until: at(until) };
        let (a, b) = (Key::new("ns", "a"), Key::new("ns", "b"));
        running.set(&a, run(10));
        running.set(&b, run(20));
        running.set(&a, run(30));
        assert_eq!((running.next(), running.due(at(20))), (Some(at(20)), vec![b.clone()]));
        assert_eq!(running.end(&b), Some(run(20)));
        assert_eq!((running.end(&b), running.next()), (None, Some(at(30))));
    }
}
