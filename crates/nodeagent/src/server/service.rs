//! The state that handlers share.

use super::authentication::{Authentication, AuthenticationOptions, Reviews};
use super::authorization::{Authorization, AuthorizationOptions};
use super::pod_view::PodView;
use crate::configuration::Configuration;
use crate::local_volumes::LocalVolumes;
use crate::runtime::SharedRuntime;
use crate::stats::AgentMetrics;
use bytes::Bytes;
use env::World;
use futures_util::future::BoxFuture;
use outbound::trace::Tracer;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Pages of metrics and statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsPage {
    /// `/metrics`
    Agent,
    /// `/metrics/cadvisor`
    Cadvisor,
    /// `/metrics/resource`
    Resource,
    /// `/metrics/probes`
    Probes,
    /// `/stats/summary`, as JSON
    Summary,
    /// The same with `?only_cpu_and_memory=true`
    CpuAndMemory,
}

/// What the server is made from.
pub struct ServerDeps {
    pub world: World,
    pub node_name: String,
    pub configuration: Arc<Configuration>,
    pub runtime: SharedRuntime,
    pub pods: Arc<dyn PodView>,
    /// Reviews by the API server, if there is one.
    pub reviews: Option<Arc<dyn Reviews>>,
    pub authentication: AuthenticationOptions,
    pub authorization: AuthorizationOptions,
    /// The text of a page; an error is a status 500.
    pub metrics: Arc<dyn Fn(MetricsPage) -> BoxFuture<'static, Result<Bytes, String>> + Send + Sync>,
    pub counters: AgentMetrics,
    /// Whether `/checkpoint` exists, and where the archives are written.
    pub has_checkpoints: bool,
    pub checkpoint_dir: PathBuf,
    /// The time without data after which a stream ends; zero is no limit.
    pub idle_timeout: Duration,
    /// Sets the verbosity of the log; the error says why not.
    pub set_verbosity: Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>,
    /// The arguments of the process, its name first.
    pub command_line: Vec<String>,
    /// Traces requests, if the configuration asks for it.
    pub tracer: Option<Arc<Tracer>>,
    /// The directory of `/logs/`.
    pub log_directory: PathBuf,
    /// The folders of local volumes, if the agent has them.
    pub local_volumes: Option<LocalVolumes>,
}

/// Handles requests. Cheap to clone.
#[derive(Clone)]
pub struct Service(pub Arc<Shared>);

pub struct Shared {
    pub deps: ServerDeps,
    pub authentication: Authentication,
    pub authorization: Authorization,
}

impl Service {
    pub fn new(deps: ServerDeps) -> Self {
        let authentication = Authentication::new(
            deps.authentication,
            deps.reviews.clone(),
            &deps.world,
            deps.counters.clone(),
        );
        let authorization = Authorization::new(
            deps.authorization,
            deps.reviews.clone(),
            deps.node_name.clone(),
            &deps.world,
            deps.counters.clone(),
        );
        Service(Arc::new(Shared { deps, authentication, authorization }))
    }
}

impl std::ops::Deref for Service {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}
