//! The agent: joins sources, admission, workers, mirrors, and the writer of statuses.
//!
//! [`run_once`] runs the pods of the sources once.

mod run_once;

use crate::admission::sysctls::SysctlAllowlist;
use crate::admission::{AdmissionNode, Rejection, admit};
use crate::images::{CredentialProviders, Images, PullLimits};
use crate::pod::actions::MachineActions;
use crate::pod::dead_containers::DeadContainerPolicy;
use crate::pod::events::PodEvents;
use crate::pod::garbage::Collector;
use crate::pod::observer::Observer;
use crate::pod::setup::PodSetup;
use crate::pod::spec::is_terminal_phase;
use crate::pod::worker::{StatusSink, WorkerContext};
use crate::pod::workers::PodWorkers;
use crate::pod_facts::{is_mirror, is_static};
use crate::probes::worker::Prober;
use crate::resource_managers::admission_queue::Outcome;
use crate::resource_managers::{AdmissionQueue, AllocationError, PodSource, ResourceManagers};
use crate::runtime::{RuntimeError, SharedRuntime};
use crate::sources::files::FileSource;
use crate::sources::mirrors::Mirrors;
use crate::sources::url::UrlSource;
use crate::sources::{PodChange, api_pods};
use crate::stats::AgentMetrics;
use crate::status::writer::StatusWriter;
use api::Time;
use api::core::v1::{Node, Pod, PodStatus};
use client::{Client, EventType, Informer, InformerFactory};
use env::World;
use names::node::CONFIG_MIRROR;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// The time between the forced deletion of a pod and its end.
const FORCED_DELAY: Duration = Duration::from_secs(1);

/// What an agent is made from.
pub struct AgentOptions {
    pub node_name: String,
    pub world: World,
    pub client: Client,
    pub factory: InformerFactory,
    pub runtime: SharedRuntime,
    pub setup: Arc<dyn PodSetup>,
    pub events: Arc<dyn PodEvents>,
    /// The node as the agent registers it, for admission.
    pub node: watch::Receiver<Arc<Node>>,
    /// Addresses of the node.
    pub host_ips: watch::Receiver<Vec<String>>,
    pub pull_limits: PullLimits,
    pub credential_providers: Option<Arc<dyn CredentialProviders>>,
    pub static_pods: StaticPodOptions,
    pub metrics: AgentMetrics,
    /// Kernel parameters that pods may set.
    pub sysctls: SysctlAllowlist,
    pub managers: Arc<ResourceManagers>,
    /// Whether the node shuts down and takes no more pods.
    pub is_shutting_down: watch::Receiver<bool>,
    pub dead_containers: DeadContainerPolicy,
    /// Whether there is an API server; without one only static pods run.
    pub has_api: bool,
}

/// Where static pods are declared.
#[derive(Debug, Clone, Default)]
pub struct StaticPodOptions {
    /// A directory or a file.
    pub path: Option<PathBuf>,
    pub path_interval: Duration,
    pub url: Option<String>,
    pub url_headers: Vec<(String, String)>,
    pub url_interval: Duration,
}

/// A running agent. Its tasks end with it.
pub struct Agent {
    pub workers: Arc<PodWorkers>,
    pub statuses: Arc<StatusWriter>,
    pub pods: Informer<Pod>,
    /// The time of the last list of the runtime's containers, by the monotonic clock.
    pub listed: watch::Receiver<Duration>,
    /// Whether all sources have been read.
    synced: watch::Receiver<bool>,
    tasks: Vec<tokio::task::AbortHandle>,
    /// Informers end with it.
    _factory: InformerFactory,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

impl Agent {
    /// Reads what the runtime has, then runs the pods of the sources.
    pub async fn start(options: AgentOptions) -> Result<Self, RuntimeError> {
        let runtime = options.runtime.clone();
        let runtime_name = runtime.version().await?.name;
        let pods = api_pods::informer(&options.factory, &options.node_name);
        let statuses = Arc::new(StatusWriter::new(
            options.client.clone(),
            pods.clone(),
            &options.world,
            options.metrics.clone(),
        ));
        let (finished, ends) = mpsc::unbounded_channel();
        let world = options.world.clone();
        let context = WorkerContext {
            runtime: runtime.clone(),
            runtime_name,
            world: world.clone(),
            setup: options.setup.clone(),
            events: options.events.clone(),
            images: Images::new(
                runtime.clone(),
                world.clone(),
                options.pull_limits,
                options.credential_providers,
            ),
            statuses: statuses.clone(),
            prober: Prober {
                runtime: runtime.clone(),
                actions: Arc::new(MachineActions),
                world: world.clone(),
                events: options.events.clone(),
                metrics: options.metrics.clone(),
            },
            metrics: options.metrics.clone(),
            dead_containers: options.dead_containers,
            finished,
            host_ips: options.host_ips,
        };
        let workers = Arc::new(PodWorkers::new(Arc::new(context)).await?);
        let (sender, changes) = mpsc::unbounded_channel();
        let mirrors =
            Arc::new(Mirrors::new(options.client, pods.clone(), options.node.clone(), &options.world));
        let mut tasks = follow_static_pods(options.static_pods, &options.node_name, &world, &sender);
        let unsynced = tasks.len() + usize::from(options.has_api);
        if options.has_api {
            api_pods::follow(&pods, sender);
        } else if unsynced == 0 {
            let _ = sender.send(PodChange::Synced);
        }
        let is_synced = watch::Sender::new(false);
        let synced = is_synced.subscribe();
        let (queue, outcomes) = AdmissionQueue::new(options.managers.clone());
        let source = NodePods { workers: workers.clone(), statuses: statuses.clone() };
        options.managers.set_source(Arc::new(source));
        let dispatcher = Dispatcher {
            world: world.clone(),
            node: options.node,
            sysctls: options.sysctls,
            events: options.events,
            workers: workers.clone(),
            statuses: statuses.clone(),
            mirrors: mirrors.clone(),
            managers: options.managers,
            is_shutting_down: options.is_shutting_down,
            queue,
            waiting: HashMap::new(),
            rejected: HashMap::new(),
            unsynced,
            is_synced,
        };
        let collector = Collector {
            runtime: runtime.clone(),
            workers: workers.clone(),
            world: world.clone(),
            setup: options.setup,
            dead_containers: options.dead_containers,
        };
        let observer = Observer::new(runtime, world, workers.clone(), options.metrics);
        let listed = observer.listed.subscribe();
        tasks.extend([
            tokio::spawn(mirrors.run()).abort_handle(),
            tokio::spawn(statuses.clone().run()).abort_handle(),
            tokio::spawn(observer.run()).abort_handle(),
            tokio::spawn(collector.run()).abort_handle(),
            tokio::spawn(dispatcher.run(changes, ends, outcomes)).abort_handle(),
        ]);
        Ok(Agent { workers, statuses, pods, listed, synced, tasks, _factory: options.factory })
    }
}

/// The pods of the workers, for the resource managers.
struct NodePods {
    workers: Arc<PodWorkers>,
    statuses: Arc<StatusWriter>,
}

impl PodSource for NodePods {
    fn active_pods(&self) -> Vec<Arc<Pod>> {
        self.workers.active_pods()
    }

    fn pods(&self) -> Vec<Arc<Pod>> {
        self.workers.pods()
    }

    fn status(&self, uid: &str) -> Option<PodStatus> {
        self.statuses.status(uid)
    }
}

/// Starts the sources of static pods.
fn follow_static_pods(
    options: StaticPodOptions,
    node: &str,
    world: &World,
    changes: &mpsc::UnboundedSender<PodChange>,
) -> Vec<tokio::task::AbortHandle> {
    let mut tasks = Vec::new();
    if let Some(path) = options.path {
        let source =
            FileSource { path, node: node.to_owned(), interval: options.path_interval, world: world.clone() };
        tasks.push(tokio::spawn(source.run(changes.clone())).abort_handle());
    }
    if let Some(url) = options.url {
        let source = UrlSource {
            url,
            headers: options.url_headers,
            node: node.to_owned(),
            interval: options.url_interval,
            world: world.clone(),
        };
        tasks.push(tokio::spawn(source.run(changes.clone())).abort_handle());
    }
    tasks
}

/// Hands pods of the sources to admission and to their workers.
struct Dispatcher {
    world: World,
    node: watch::Receiver<Arc<Node>>,
    sysctls: SysctlAllowlist,
    events: Arc<dyn PodEvents>,
    workers: Arc<PodWorkers>,
    statuses: Arc<StatusWriter>,
    mirrors: Arc<Mirrors>,
    managers: Arc<ResourceManagers>,
    is_shutting_down: watch::Receiver<bool>,
    queue: AdmissionQueue,
    /// Pods that wait for their resources.
    waiting: HashMap<String, Arc<Pod>>,
    rejected: HashMap<String, PodStatus>,
    /// Sources that were not read yet.
    unsynced: usize,
    is_synced: watch::Sender<bool>,
}

impl Dispatcher {
    async fn run(
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

#[cfg(test)]
mod tests;
