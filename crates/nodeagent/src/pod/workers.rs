//! The workers of all pods of a node.
//!
//! A pod has a worker from its admission until it is removed from its source and has ended. Pods that the runtime still
//! has and that no source knows get a worker that ends them.

use super::observation::PodObservation;
use super::worker::{KillRequest, Message, Worker, WorkerContext};
use crate::runtime::{ContainerState, RuntimeError, labels};
use api::core::v1::Pod;
use names::node;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

struct Handle {
    pod: Arc<Pod>,
    inbox: mpsc::UnboundedSender<Message>,
    kill: watch::Sender<Option<KillRequest>>,
    /// Whether no source has the pod any more.
    is_removed: bool,
    is_finished: bool,
}

/// See the module.
pub struct PodWorkers {
    context: Arc<WorkerContext>,
    handles: Mutex<BTreeMap<String, Handle>>,
    /// Pods of the runtime that have no worker yet.
    unclaimed: Mutex<BTreeMap<String, PodObservation>>,
    /// Changes with the end of each pod.
    ends: watch::Sender<()>,
}

impl PodWorkers {
    /// Reads the pods that the runtime has.
    pub async fn new(context: Arc<WorkerContext>) -> Result<Self, RuntimeError> {
        let mut unclaimed: BTreeMap<String, PodObservation> = BTreeMap::new();
        let runtime = &context.runtime;
        for info in runtime.sandboxes(None).await? {
            let Some(uid) = labels::pod_uid(&info.labels) else { continue };
            let status = match runtime.sandbox_status(&info.id).await {
                Err(why) if why.is_not_found() => continue,
                status => status?,
            };
            unclaimed.entry(uid.to_owned()).or_default().set_sandbox(status);
        }
        for info in runtime.containers(None).await? {
            let Some(uid) = labels::pod_uid(&info.labels) else { continue };
            let status = match runtime.container_status(&info.id).await {
                Err(why) if why.is_not_found() => continue,
                status => status?,
            };
            unclaimed.entry(uid.to_owned()).or_default().set_container(status);
        }
        Ok(PodWorkers {
            context,
            handles: Mutex::default(),
            unclaimed: Mutex::new(unclaimed),
            ends: watch::Sender::new(()),
        })
    }

    pub fn contains(&self, uid: &str) -> bool {
        self.handles.lock().contains_key(uid)
    }

    /// Whether the runtime had the pod when the agent started: it was admitted before.
    pub fn was_running(&self, uid: &str) -> bool {
        self.unclaimed.lock().contains_key(uid)
    }

    /// Starts the worker of a pod, or gives it another version of the pod.
    pub fn set(&self, pod: Arc<Pod>) {
        let uid = pod.metadata.uid.clone();
        let mut handles = self.handles.lock();
        if let Some(handle) = handles.get_mut(&uid) {
            handle.pod = pod.clone();
            handle.is_removed = false;
            let is_deleted = pod.metadata.deletion_timestamp.is_some();
            let _ = handle.inbox.send(Message::Update(pod));
            if is_deleted {
                // a request interrupts the step that the worker is in
                handle.kill.send_if_modified(|it| {
                    let is_new = it.is_none();
                    it.get_or_insert_default();
                    is_new
                });
            }
            return;
        }
        let observed = self.unclaimed.lock().remove(&uid).unwrap_or_default();
        let request = pod.metadata.deletion_timestamp.map(|_| KillRequest::default());
        handles.insert(uid, self.spawn(pod, observed, request));
    }

    fn spawn(&self, pod: Arc<Pod>, observed: PodObservation, request: Option<KillRequest>) -> Handle {
        let (inbox, messages) = mpsc::unbounded_channel();
        let (kill, requests) = watch::channel(request);
        Worker::spawn(self.context.clone(), pod.clone(), observed, requests, messages);
        Handle { pod, inbox, kill, is_removed: false, is_finished: false }
    }

    /// Ends a pod.
    pub fn kill(&self, uid: &str, request: KillRequest) {
        if let Some(handle) = self.handles.lock().get(uid) {
            handle.kill.send_replace(Some(request));
        }
    }

    /// Takes a pod out of its source: it ends, and its worker with it. Says whether the worker is gone already.
    pub fn remove(&self, uid: &str) -> bool {
        let mut handles = self.handles.lock();
        let Some(handle) = handles.get_mut(uid) else { return true };
        if handle.is_finished {
            handles.remove(uid);
            return true;
        }
        handle.is_removed = true;
        handle.kill.send_if_modified(|it| {
            it.get_or_insert_default();
            true
        });
        false
    }

    /// A worker has ended its pod. Says whether the pod is gone from its source, too.
    pub fn finish(&self, uid: &str) -> bool {
        let mut handles = self.handles.lock();
        let Some(handle) = handles.get_mut(uid) else { return true };
        handle.is_finished = true;
        self.ends.send_replace(());
        let is_gone = handle.is_removed;
        if is_gone {
            handles.remove(uid);
        }
        is_gone
    }

    /// Whether a pod has no worker, or one that has ended it.
    pub fn is_finished(&self, uid: &str) -> bool {
        self.handles.lock().get(uid).is_none_or(|it| it.is_finished)
    }

    /// Waits until pods have ended.
    pub async fn wait_until_finished(&self, uids: &[&str]) {
        let is_over = || uids.iter().all(|uid| self.is_finished(uid));
        // the sender lives as long as the workers
        let _ = self.ends.subscribe().wait_for(|()| is_over()).await;
    }

    /// Ends the pods of the runtime that no source has. Called once all sources have been read.
    pub fn end_orphans(&self) {
        let orphans = std::mem::take(&mut *self.unclaimed.lock());
        for (uid, observed) in orphans {
            if !observed.is_active() {
                continue;
            }
            let pod = Arc::new(orphan(&uid, &observed));
            tracing::info!(pod = %crate::pod_facts::description(&pod), "ending a pod that no source has");
            let mut handle = self.spawn(pod, observed, Some(KillRequest::default()));
            handle.is_removed = true;
            self.handles.lock().insert(uid, handle);
        }
    }

    /// Removes what the runtime has of pods that have ended or that no source has: containers and sandboxes that do not
    /// run. Their statuses stay.
    pub async fn remove_ended(&self) -> Result<(), RuntimeError> {
        let runtime = &self.context.runtime;
        let is_over = |of: &BTreeMap<String, String>| {
            labels::pod_uid(of).is_some_and(|uid| self.is_finished(uid) && !self.was_running(uid))
        };
        for info in runtime.containers(None).await? {
            let is_ended = matches!(info.state, ContainerState::Created | ContainerState::Exited);
            if !is_ended || !is_over(&info.labels) {
                continue;
            }
            let status = runtime.container_status(&info.id).await;
            runtime.remove_container(&info.id).await?;
            let pod = labels::pod_uid(&info.labels).and_then(|uid| self.pod(uid));
            if let (Some(pod), Ok(status)) = (pod, status) {
                self.context.setup.container_removed(&pod, &status);
            }
        }
        for info in runtime.sandboxes(None).await?.into_iter().filter(labels::is_pod_sandbox) {
            if !info.is_ready && is_over(&info.labels) {
                runtime.remove_sandbox(&info.id).await?;
            }
        }
        Ok(())
    }

    /// The pods with a worker.
    pub fn pods(&self) -> Vec<Arc<Pod>> {
        self.handles.lock().values().filter(|it| !it.is_removed).map(|it| it.pod.clone()).collect()
    }

    /// The pods whose containers may run: they hold resources and ports.
    pub fn active_pods(&self) -> Vec<Arc<Pod>> {
        self.handles.lock().values().filter(|it| !it.is_finished).map(|it| it.pod.clone()).collect()
    }

    /// The active pods that a source has.
    pub fn kept_pods(&self) -> Vec<Arc<Pod>> {
        let handles = self.handles.lock();
        let kept = handles.values().filter(|it| !it.is_finished && !it.is_removed);
        kept.map(|it| it.pod.clone()).collect()
    }

    pub fn pod(&self, uid: &str) -> Option<Arc<Pod>> {
        self.handles.lock().get(uid).map(|it| it.pod.clone())
    }

    /// The end of a container.
    pub fn container_ended(&self, uid: &str, container: String) {
        self.send(uid, Message::Exit(container));
    }

    /// Sandboxes or containers of a pod have changed.
    pub fn relist(&self, uid: &str) {
        self.send(uid, Message::Relist);
    }

    /// A list shows the state of a sandbox or container of a pod, or that it is gone.
    pub fn listed(&self, uid: &str, id: &str, state: Option<ContainerState>) {
        self.send(uid, Message::Listed { id: id.to_owned(), state });
    }

    /// Objects that a pod refers to have changed.
    pub fn refresh(&self, uid: &str) {
        self.send(uid, Message::Refresh);
    }

    fn send(&self, uid: &str, message: Message) {
        if let Some(handle) = self.handles.lock().get(uid).filter(|it| !it.is_finished) {
            let _ = handle.inbox.send(message);
        }
    }
}

/// A pod as far as the labels of its sandboxes and containers show it.
fn orphan(uid: &str, observed: &PodObservation) -> Pod {
    let sandbox = observed.sandboxes.iter().map(|it| (&it.info.labels, &it.info.annotations));
    let container = observed.containers.iter().map(|it| (&it.labels, &it.annotations));
    let empty = BTreeMap::new();
    let (labels, annotations) = container.chain(sandbox).next().unwrap_or((&empty, &empty));
    let label = |name: &str| labels.get(name).cloned().unwrap_or_default();
    let grace = |name: &str| annotations.get(name).and_then(|it| it.parse().ok());
    let mut pod = Pod::default();
    (pod.metadata.name, pod.metadata.namespace) = (label(node::POD_NAME), label(node::POD_NAMESPACE));
    pod.metadata.uid = uid.to_owned();
    pod.metadata.deletion_grace_period_seconds = grace(node::POD_DELETION_GRACE_PERIOD);
    pod.spec.termination_grace_period_seconds = grace(node::POD_TERMINATION_GRACE_PERIOD);
    pod.spec.restart_policy = "Never".to_owned();
    pod
}
