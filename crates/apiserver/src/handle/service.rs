//! The state that request handlers share.

use super::bulk_threads::Threads;
use crate::aggregation::{self, Aggregation};
use crate::audit::Audit;
use crate::authentication::Chain;
use crate::authentication::service_accounts::Published;
use crate::discovery::groups::Documents;
use crate::discovery::health::Health;
use crate::discovery::metrics::Metrics;
use crate::discovery::openapi::OpenApi;
use crate::filters::cors::Browsers;
use crate::filters::in_flight::InFlight;
use crate::flowcontrol::Fairness;
use crate::options::gates::Gates;
use crate::options::limits;
use crate::options::observability::{self, Verbosity};
use crate::serve::{LogThrottle, Shutdown};
use crate::server::post_start_hooks::Start;
use crate::trace::Tracing;
use arc_swap::ArcSwap;
use auth::Authorizer;
use rest::Api;
use schema::table::Release;
use std::sync::Arc;

/// Answers requests.
pub struct Service {
    pub api: Arc<Api>,
    pub metrics: Metrics,
    pub shutdown: Shutdown,
    pub limits: limits::Options,
    pub in_flight: Arc<InFlight>,
    pub start: Arc<Start>,
    pub(crate) health: Health,
    pub delete_workers: usize,
    /// Who can tell who is calling.
    pub callers: Arc<Chain>,
    pub authorizer: Arc<dyn Authorizer>,
    /// What others can learn about the issuer of tokens.
    pub issuer: Option<Arc<Published>>,
    /// Whose request is next, unless all may go at once.
    pub(crate) fairness: Option<Arc<Fairness>>,
    /// Who keeps the record, if anybody does.
    pub audit: Option<Arc<Audit>>,
    /// The release whose API is served.
    pub(crate) release: Release,
    /// What is switched on.
    pub(crate) gates: Gates,
    /// What browsers are told.
    pub(crate) browsers: Browsers,
    /// By which name or address, and port, clients find the server.
    pub advertised: String,
    /// Other servers that answer for parts of the API.
    pub(crate) aggregation: Arc<Aggregation>,
    pub(super) documents: ArcSwap<Documents>,
    pub(super) openapi: OpenApi,
    /// Where requests are carried out that compute for long.
    pub(super) bulk: Threads,
    /// Requests that took long.
    pub(super) slow: LogThrottle,
    /// Who sends spans to a collector, if anybody does.
    pub(crate) tracing: Option<Tracing>,
    /// How much is logged, where that can be changed.
    pub verbosity: Option<Verbosity>,
    /// Whether there are pages that show the inside of the server.
    pub profiling: bool,
    /// The command line of the process.
    pub command: Vec<String>,
}

impl Service {
    pub fn new(
        api: Arc<Api>,
        shutdown: Shutdown,
        advertised: String,
        callers: Arc<Chain>,
        authorizer: Arc<dyn Authorizer>,
        limits: limits::Options,
        observe: observability::Options,
    ) -> Self {
        let start = Arc::<Start>::default();
        let (store, world) = (api.storage.store.clone(), api.world.clone());
        let health = Health::new(store, shutdown.clone(), start.clone(), world, &limits);
        let aggregation = Aggregation::new(api.clone(), aggregation::Options::default(), shutdown.clone());
        Service {
            api,
            metrics: Metrics::new(observe.metrics),
            shutdown,
            aggregation: Arc::new(aggregation),
            in_flight: Arc::new(InFlight::new(limits.reading, limits.writing)),
            limits,
            start,
            health,
            delete_workers: 1,
            callers,
            authorizer,
            issuer: None,
            fairness: None,
            audit: None,
            release: kinds::RELEASE,
            gates: Gates::default(),
            browsers: Browsers::default(),
            advertised,
            documents: ArcSwap::default(),
            openapi: OpenApi::default(),
            bulk: Threads::default(),
            slow: LogThrottle::default(),
            tracing: None,
            verbosity: observe.verbosity,
            profiling: observe.profiling,
            command: observe.command,
        }
    }
}
