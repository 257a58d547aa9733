//! The state that request handlers share.

use super::bulk_threads::Threads;
use crate::aggregation::Aggregation;
use crate::audit::Audit;
use crate::authentication::Chain;
use crate::authentication::service_accounts::DiscoveryDocuments;
use crate::discovery::groups::Documents;
use crate::discovery::health::Health;
use crate::discovery::metrics::Metrics;
use crate::discovery::openapi::OpenApi;
use crate::faults::Faults;
use crate::filters::cors::Cors;
use crate::filters::in_flight::InFlight;
use crate::flowcontrol::Fairness;
use crate::node_proxy::NodeProxy;
use crate::options::deployment::ClusterHost;
use crate::options::gates::Gates;
use crate::options::limits;
use crate::options::observability::Verbosity;
use crate::serve::Shutdown;
use crate::server::post_start_hooks::Start;
use crate::trace::Tracing;
use arc_swap::ArcSwap;
use auth::Authorizer;
use bytes::Bytes;
use outbound::LogThrottle;
use rest::Api;
use schema::table::Release;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Handles API requests: routing, filters, verbs.
pub struct Service {
    pub api: Arc<Api>,
    pub shutdown: Shutdown,
    pub(crate) start: Arc<Start>,
    pub limits: limits::Options,
    pub in_flight: Arc<InFlight>,
    pub metrics: Metrics,
    pub(crate) health: Health,
    /// Objects of a collection that are deleted in parallel.
    pub(crate) delete_workers: usize,
    /// The release whose API is served.
    pub(crate) release: Release,
    pub(crate) gates: Gates,
    pub(crate) access: AccessControl,
    /// Other servers that serve parts of the API.
    pub(crate) aggregation: Arc<Aggregation>,
    /// Forwards requests to nodes and workloads.
    pub(crate) node_proxy: NodeProxy,
    pub(crate) discovery: Discovery,
    /// Threads for requests that compute for long.
    pub(crate) bulk: Threads,
    /// Bounds the log lines of slow requests.
    pub(crate) slow: LogThrottle,
    /// Sends spans to a collector.
    pub(crate) tracing: Option<Tracing>,
    pub(crate) debug: DebugPages,
    /// The permit to take a snapshot of the store.
    pub(crate) snapshots: Arc<Semaphore>,
    /// Keys and certificates that snapshots of a cluster in memory contain, by their keys in the snapshot.
    pub(crate) cluster_files: Vec<(String, Bytes)>,
    /// The clock of the process, if users hold it.
    pub(crate) clock: Option<Arc<env::Paused>>,
    /// Starts forks of a cluster in memory.
    pub(crate) clusters: Option<Arc<dyn ClusterHost>>,
    /// Faults on request, in a cluster for tests.
    pub(crate) faults: Option<Arc<Faults>>,
}

/// The components that the filters call.
pub(crate) struct AccessControl {
    /// The authenticators.
    pub callers: Arc<Chain>,
    pub authorizer: Arc<dyn Authorizer>,
    /// API priority and fairness, unless it is off.
    pub fairness: Option<Arc<Fairness>>,
    /// Records audit events, where there is a policy.
    pub audit: Option<Arc<Audit>>,
    pub cors: Cors,
}

/// Documents that describe the API, built on demand.
pub(crate) struct Discovery {
    /// Host and port by which clients reach the server.
    pub advertised: String,
    /// OpenID discovery of the issuer of service account tokens.
    pub issuer: Option<Arc<DiscoveryDocuments>>,
    pub documents: ArcSwap<Documents>,
    pub openapi: OpenApi,
}

impl Discovery {
    pub fn new(advertised: String, issuer: Option<Arc<DiscoveryDocuments>>) -> Self {
        Discovery { advertised, issuer, documents: ArcSwap::default(), openapi: OpenApi::default() }
    }
}

/// State of the pages below `/debug`.
pub(crate) struct DebugPages {
    /// Whether the pages exist.
    pub profiling: bool,
    /// Changes the log verbosity, where that is possible.
    pub verbosity: Option<Verbosity>,
    /// The command line of the process.
    pub command: Vec<String>,
}
