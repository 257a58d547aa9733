//! Hands pods of the sources to admission and to their workers.

use crate::admission::sysctls::SysctlAllowlist;
use crate::admission::{AdmissionNode, Rejection, admit};
use crate::pod::events::PodEvents;
use crate::pod::spec::is_terminal_phase;
use crate::pod::worker::StatusSink;
use crate::pod::workers::PodWorkers;
use crate::pod_facts::{is_mirror, is_static};
use crate::resource_managers::admission_queue::Outcome;
use crate::resource_managers::{AdmissionQueue, AllocationError, ResourceManagers};
use crate::sources::PodChange;
use crate::sources::mirrors::Mirrors;
use crate::status::writer::StatusWriter;
use api::Time;
use api::core::v1::{Node, Pod, PodStatus};
use client::EventType;
use env::World;
use names::node::CONFIG_MIRROR;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// The time between the forced deletion of a pod and its end.
const FORCED_DELAY: Duration = Duration::from_secs(1);

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
    pub is_shutting_down: watch::Receiver<bool>,
    pub queue: AdmissionQueue,
    /// Pods that wait for their resources.
    pub waiting: HashMap<String, Arc<Pod>>,
    pub rejected: HashMap<String, PodStatus>,
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
                }
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
                self.cancel_allocation(uid);
                let current = self.workers.pod(uid).filter(|it| !is_static(it));
                if current.is_some_and(|it| it.metadata.deletion_timestamp.is_none()) {
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
        if let Some(waiting) = self.waiting.get_mut(&uid) {
            if !is_over {
                *waiting = pod;
                return;
            }
            self.cancel_allocation(&uid);
        }
        let was_running = self.workers.was_running(&uid);
        let is_new = !self.workers.contains(&uid) && !was_running;
        let is_needed = !is_over && (is_new || was_running) && self.managers.is_needed(&pod);
        if is_needed && was_running {
            self.managers.restore(&pod);
        }
        if is_needed && is_new && self.sysctls.check(&pod).is_ok() {
            self.managers.hold(&pod);
            self.waiting.insert(uid, pod.clone());
            self.queue.push(pod);
        } else if is_new && !is_over {
            self.admit(pod);
        } else {
            self.workers.set(pod);
        }
    }

    /// Hands a new pod to a worker if the node can run it.
    fn admit(&mut self, pod: Arc<Pod>) {
        if *self.is_shutting_down.borrow() {
            let message = "Pod was rejected as the node is shutting down.".to_owned();
            self.reject(pod, Rejection { reason: "NodeShutdown".to_owned(), message });
            return;
        }
        let mut node = AdmissionNode::from(&**self.node.borrow());
        self.managers.devices.raise_allocatable(&pod.metadata.uid, &mut node.allocatable);
        let others = self.workers.active_pods();
        match admit(&pod, &node, &self.sysctls, &others) {
            Ok(()) => self.workers.set(pod),
            Err(rejection) => self.reject(pod, rejection),
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
        self.managers.settle(uid);
        if !self.workers.contains(uid) {
            self.managers.release_stale();
        }
    }

    /// A pod that waits for its resources is gone.
    fn cancel_allocation(&mut self, uid: &str) {
        if self.waiting.remove(uid).is_some() {
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
