//! The agent: joins sources, admission, workers, mirrors, and the writer of statuses.
//!
//! | module | what it is |
//! |---|---|
//! | `dispatcher` | hands pods of the sources to admission and to their workers |
//! | `run_once` | runs the pods of the sources once |

mod dispatcher;
mod run_once;

use crate::admission::sysctls::SysctlAllowlist;
use crate::images::{CredentialProviders, Images, PullLimits};
use crate::pod::actions::MachineActions;
use crate::pod::dead_containers::DeadContainerPolicy;
use crate::pod::events::PodEvents;
use crate::pod::garbage::Collector;
use crate::pod::observer::Observer;
use crate::pod::setup::PodSetup;
use crate::pod::worker::WorkerContext;
use crate::pod::workers::PodWorkers;
use crate::probes::worker::Prober;
use crate::resource_managers::{AdmissionQueue, PodSource, ResourceManagers};
use crate::runtime::{RuntimeError, SharedRuntime};
use crate::sources::files::FileSource;
use crate::sources::mirrors::Mirrors;
use crate::sources::url::UrlSource;
use crate::sources::{PodChange, api_pods};
use crate::stats::AgentMetrics;
use crate::status::writer::StatusWriter;
use api::core::v1::{Node, Pod, PodStatus};
use client::{Client, Informer, InformerFactory};
use dispatcher::Dispatcher;
use env::World;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

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
            metrics: options.metrics.clone(),
            is_shutting_down: options.is_shutting_down,
            queue,
            waiting: HashMap::new(),
            rejected: HashMap::new(),
            preemptions: Default::default(),
            successors: Vec::new(),
            leaving: HashSet::new(),
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

#[cfg(test)]
mod tests;
