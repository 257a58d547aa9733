//! Hands pods of the sources to admission and to their workers.
//!
//! A critical pod that finds no room waits until others have ended for it. Until then no other pod is admitted, so
//! that none takes the room. A static pod waits until the one that had its name before has ended; its room is kept.

use crate::admission::sysctls::SysctlAllowlist;
use crate::admission::{Admission, AdmissionNode, Rejection, admit, precheck, preemption};
use crate::pod::events::PodEvents;
use crate::pod::spec::is_terminal_phase;
use crate::pod::worker::StatusSink;
use crate::pod::workers::PodWorkers;
use crate::pod_facts::{description, is_mirror, is_static};
use crate::resource_managers::admission_queue::Outcome;
use crate::resource_managers::{AdmissionQueue, AllocationError, ResourceManagers};
use crate::sources::PodChange;
use crate::sources::mirrors::Mirrors;
use crate::stats::AgentMetrics;
use crate::status::writer::StatusWriter;
use api::Time;
use api::core::v1::{Node, Pod, PodStatus};
use client::EventType;
use env::World;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use names::node::CONFIG_MIRROR;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// The time between the forced deletion of a pod and its end.
const FORCED_DELAY: Duration = Duration::from_secs(1);
/// The least time that pods have to make room for another one.
const MIN_PREEMPTION: Duration = Duration::from_secs(10);

/// A critical pod that waits until others have ended.
struct Preemption {
    /// Absent if it is gone meanwhile.
    pod: Option<Arc<Pod>>,
    admission: Admission,
    /// Completes when the others have ended, or have had the time for it.
    room: BoxFuture<'static, ()>,
}

/// The preemption that is under way.
#[derive(Default)]
pub struct Preemptions {
    current: Option<Preemption>,
    /// Pods that are admitted after it, in their order.
    delayed: Vec<Arc<Pod>>,
}

impl Preemptions {
    /// The pods that wait for its end.
    fn pods(&mut self) -> impl Iterator<Item = &mut Arc<Pod>> {
        let preemptor = self.current.iter_mut().filter_map(|it| it.pod.as_mut());
        preemptor.chain(&mut self.delayed)
    }

    /// Waits for its end; `None` if there is no preemption.
    async fn finished(&mut self) -> Option<()> {
        let current = self.current.as_mut()?;
        current.room.as_mut().await;
        Some(())
    }

    fn contains(&mut self, uid: &str) -> bool {
        self.pods().any(|it| it.metadata.uid == uid)
    }

    /// Forgets a pod that is gone. Says whether it has waited.
    fn cancel(&mut self, uid: &str) -> bool {
        let has_waited = self.contains(uid);
        self.delayed.retain(|it| it.metadata.uid != uid);
        if let Some(current) = &mut self.current {
            let pod = current.pod.take();
            current.pod = pod.filter(|it| it.metadata.uid != uid);
        }
        has_waited
    }
}

/// See the module.
pub struct Dispatcher {
    pub world: World,
    pub node: watch::Receiver<Arc<Node>>,
    pub sysctls: SysctlAllowlist,
    pub events: Arc<dyn PodEvents>,
    pub workers: Arc<PodWorkers>,
    pub statuses: Arc<StatusWriter>,
    pub mirrors: Arc<Mirrors>,
    pub managers: Arc<ResourceManagers>,
    pub metrics: AgentMetrics,
    pub is_shutting_down: watch::Receiver<bool>,
    pub queue: AdmissionQueue,
    /// Pods that wait for their resources.
    pub waiting: HashMap<String, Arc<Pod>>,
    pub rejected: HashMap<String, PodStatus>,
    pub preemptions: Preemptions,
    /// Static pods that wait until another one of their name has ended, in their order.
    pub successors: Vec<Arc<Pod>>,
    /// Pods that are gone from the API and have not ended.
    pub leaving: HashSet<String>,
    /// Sources that were not read yet.
    pub unsynced: usize,
    pub is_synced: watch::Sender<bool>,
}

impl Dispatcher {
    pub async fn run(
        mut self,
        mut changes: mpsc::UnboundedReceiver<PodChange>,
        mut ends: mpsc::UnboundedReceiver<String>,
        mut outcomes: mpsc::UnboundedReceiver<Outcome>,
    ) {
        loop {
            tokio::select! {
                biased;
                Some(uid) = ends.recv() => {
                    if self.workers.finish(&uid) {
                        self.statuses.forget(&uid);
                    }
                    self.leaving.remove(&uid);
                    for pod in std::mem::take(&mut self.successors) {
                        self.set(pod);
                    }
                }
                Some(()) = self.preemptions.finished() => self.end_preemption(),
                Some((uid, allocated)) = outcomes.recv() => self.finish_allocation(&uid, allocated),
                Some(change) = changes.recv() => self.take(change),
                else => return,
            }
        }
    }

    fn take(&mut self, change: PodChange) {
        match change {
            PodChange::Set(pod) if is_mirror(&pod) => {
                self.mirrors.changed(&pod);
                if let Some(uid) = pod.metadata.annotations.get(CONFIG_MIRROR) {
                    self.statuses.renew(uid);
                }
            }
            PodChange::Set(pod) => {
                if is_static(&pod) {
                    self.mirrors.set(&pod);
                }
                self.set(pod);
            }
            PodChange::Removed(pod) if is_mirror(&pod) => self.mirrors.changed(&pod),
            PodChange::Removed(pod) => {
                let uid = &pod.metadata.uid;
                if is_static(&pod) {
                    self.mirrors.remove(&pod);
                }
                self.rejected.remove(uid);
                self.cancel(uid);
                let current = self.workers.pod(uid).filter(|it| !is_static(it));
                if current.is_some_and(|it| it.metadata.deletion_timestamp.is_none()) {
                    if !self.workers.is_finished(uid) {
                        self.leaving.insert(uid.clone());
                    }
                    self.remove_later(uid.clone());
                } else if self.workers.remove(uid) {
                    self.statuses.forget(uid);
                }
            }
            PodChange::Synced => {
                self.unsynced = self.unsynced.saturating_sub(1);
                if self.unsynced == 0 {
                    self.managers.set_synced();
                    self.workers.end_orphans();
                    self.is_synced.send_replace(true);
                }
            }
        }
    }

    /// Removes a pod that is gone from the API without notice, after a moment: a client that deletes with force and
    /// looks at once finds its containers untouched, as with upstream's agent.
    fn remove_later(&self, uid: String) {
        let (world, workers, statuses) = (self.world.clone(), self.workers.clone(), self.statuses.clone());
        tokio::spawn(async move {
            env::sleep(&world, FORCED_DELAY).await;
            if workers.remove(&uid) {
                statuses.forget(&uid);
            }
        });
    }

    fn set(&mut self, pod: Arc<Pod>) {
        let uid = pod.metadata.uid.clone();
        if let Some(status) = self.rejected.get(&uid) {
            self.statuses.set(&pod, status, true);
            return;
        }
        let is_over = is_terminal_phase(&pod.status.phase) || pod.metadata.deletion_timestamp.is_some();
        if let Some(pending) = self.pending(&uid) {
            if !is_over {
                *pending = pod;
                return;
            }
            self.cancel(&uid);
        }
        if is_static(&pod) && !self.workers.contains(&uid) && self.has_predecessor(&pod) {
            tracing::debug!(pod = %description(&pod), "a static pod waits until another one of its name has ended");
            self.successors.push(pod);
            return;
        }
        let was_running = self.workers.was_running(&uid);
        let is_new = !self.workers.contains(&uid) && !was_running;
        let is_needed = !is_over && (is_new || was_running) && self.managers.is_needed(&pod);
        if is_needed && was_running {
            self.managers.restore(&pod);
        }
        let is_passed = || {
            let node = AdmissionNode::from(&**self.node.borrow());
            precheck(&pod, &node, &self.sysctls).is_ok()
        };
        if is_needed && is_new && is_passed() {
            self.managers.hold(&pod);
            self.waiting.insert(uid, pod.clone());
            self.queue.push(pod);
        } else if is_new && !is_over {
            self.admit(pod);
        } else {
            self.workers.set(pod);
        }
    }

    /// A pod that waits for its admission.
    fn pending(&mut self, uid: &str) -> Option<&mut Arc<Pod>> {
        let mut pods = self.preemptions.pods().chain(&mut self.successors).chain(self.waiting.values_mut());
        pods.find(|it| it.metadata.uid == uid)
    }

    /// Whether another static pod has the same name and has not ended.
    fn has_predecessor(&mut self, pod: &Pod) -> bool {
        let new = &pod.metadata;
        let is_other = |other: &Pod| {
            let old = &other.metadata;
            old.uid != new.uid
                && (&old.name, &old.namespace) == (&new.name, &new.namespace)
                && is_static(other)
        };
        let mut waiting = self.preemptions.pods().chain(self.waiting.values_mut());
        waiting.any(|it| is_other(it)) || self.workers.active_pods().iter().any(|it| is_other(it))
    }

    /// The pods beside which another one is admitted. Those that are gone from their source do not count: they end, and
    /// a pod that has their ports starts as soon as they have ended.
    fn others(&self, uid: &str) -> Vec<Arc<Pod>> {
        let mut others = self.workers.kept_pods();
        others.retain(|it| !self.leaving.contains(&it.metadata.uid));
        others.extend(self.successors.iter().filter(|it| it.metadata.uid != uid).cloned());
        others
    }

    /// Hands a new pod to a worker if the node can run it.
    fn admit(&mut self, pod: Arc<Pod>) {
        if self.preemptions.current.is_some() {
            self.preemptions.delayed.push(pod);
            return;
        }
        let is_shutting_down = *self.is_shutting_down.borrow();
        if is_shutting_down {
            return self.reject(pod, shutdown());
        }
        let mut node = AdmissionNode::from(&**self.node.borrow());
        self.managers.devices.raise_allocatable(&pod.metadata.uid, &mut node.allocatable);
        let others = self.others(&pod.metadata.uid);
        match admit(&pod, &node, &self.sysctls, &others) {
            Ok(admission) if admission.victims.is_empty() => self.workers.set(pod),
            Ok(admission) => self.preempt(pod, admission),
            Err(rejection) => self.reject(pod, rejection),
        }
    }

    /// Ends other pods to make room for a critical one.
    fn preempt(&mut self, pod: Arc<Pod>, admission: Admission) {
        let mut time = MIN_PREEMPTION;
        let mut uids = Vec::new();
        for victim in &admission.victims {
            tracing::info!(pod = %description(victim), critical = %description(&pod), "a pod makes room");
            let uid = &victim.metadata.uid;
            if !self.workers.contains(uid) {
                // it waits for another one of its name
                self.successors.retain(|it| it.metadata.uid != *uid);
                let (reason, message) = (preemption::REASON.to_owned(), preemption::MESSAGE.to_owned());
                self.reject(victim.clone(), Rejection { reason, message });
                continue;
            }
            self.events.record(victim, None, EventType::Warning, preemption::REASON, preemption::MESSAGE);
            self.workers.kill(uid, preemption::kill_request());
            uids.push(uid.clone());
            let grace = u64::try_from(victim.spec.termination_grace_period_seconds.unwrap_or(0)).unwrap_or(0);
            time = time.max(Duration::from_secs(grace.saturating_add(grace / 2)));
        }
        let (world, workers) = (self.world.clone(), self.workers.clone());
        let room = async move {
            let uids: Vec<&str> = uids.iter().map(String::as_str).collect();
            let _ = env::timeout(&world, time, workers.wait_until_finished(&uids)).await;
        };
        self.preemptions.current = Some(Preemption { pod: Some(pod), admission, room: room.boxed() });
    }

    /// Starts the critical pod that has waited for room, and admits the pods behind it.
    fn end_preemption(&mut self) {
        let Some(Preemption { pod, admission, .. }) = self.preemptions.current.take() else { return };
        for victim in &admission.victims {
            if self.workers.is_finished(&victim.metadata.uid) {
                self.metrics.pod_preempted(&admission.resource);
            } else {
                let message = "Container runtime did not kill the pod within specified grace period.";
                self.events.record(victim, None, EventType::Warning, "ExceededGracePeriod", message);
            }
        }
        if let Some(pod) = pod {
            // its room is kept: it is not checked again
            let is_shutting_down = *self.is_shutting_down.borrow();
            match is_shutting_down {
                true => self.reject(pod.clone(), shutdown()),
                false => self.workers.set(pod.clone()),
            }
            self.settle(&pod.metadata.uid);
        }
        for pod in std::mem::take(&mut self.preemptions.delayed) {
            self.admit(pod.clone());
            self.settle(&pod.metadata.uid);
        }
    }

    /// A pod has its resources, or cannot have them.
    fn finish_allocation(&mut self, uid: &str, allocated: Result<(), AllocationError>) {
        if let Some(pod) = self.waiting.remove(uid) {
            match allocated {
                Ok(()) => self.admit(pod),
                Err(why) => {
                    let rejection = Rejection { reason: why.reason().to_owned(), message: why.to_string() };
                    self.reject(pod, rejection);
                }
            }
        }
        self.settle(uid);
    }

    /// The admission of a pod has ended, unless it waits for room: without a worker it needs no resources.
    fn settle(&mut self, uid: &str) {
        if self.preemptions.contains(uid) {
            return;
        }
        self.managers.settle(uid);
        if !self.workers.contains(uid) {
            self.managers.release_stale();
        }
    }

    /// A pod that waits for its admission is gone.
    fn cancel(&mut self, uid: &str) {
        self.successors.retain(|it| it.metadata.uid != uid);
        let has_waited = self.preemptions.cancel(uid);
        if self.waiting.remove(uid).is_some() || has_waited {
            self.managers.settle(uid);
        }
    }

    fn reject(&mut self, pod: Arc<Pod>, rejection: Rejection) {
        let Rejection { reason, message } = rejection;
        self.events.record(&pod, None, EventType::Warning, &reason, &message);
        let status = PodStatus {
            phase: "Failed".into(),
            message: format!("Pod was rejected: {message}"),
            reason,
            start_time: Some(Time::from(self.world.now())),
            ..PodStatus::default()
        };
        self.statuses.set(&pod, &status, true);
        self.rejected.insert(pod.metadata.uid.clone(), status);
    }
}

fn shutdown() -> Rejection {
    let message = "Pod was rejected as the node is shutting down.".to_owned();
    Rejection { reason: "NodeShutdown".to_owned(), message }
}
