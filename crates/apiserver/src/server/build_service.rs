//! Builds the service that handles requests from its parts.

use super::error::StartError;
use super::storage::OpenKeys;
use super::telemetry::Telemetry;
use crate::aggregation::Aggregation;
use crate::audit::{self, Audit};
use crate::authentication::Identity;
use crate::discovery::health::Health;
use crate::discovery::metrics::{Metrics, add_component_metrics};
use crate::faults::Faults;
use crate::filters::cors::{self, Cors};
use crate::filters::in_flight::InFlight;
use crate::flowcontrol::Fairness;
use crate::handle::{AccessControl, DebugPages, Discovery, Service};
use crate::node_proxy::{self, NodeProxy};
use crate::options::deployment::ClusterHost;
use crate::options::gates::Gates;
use crate::options::{limits, observability};
use crate::serve::Shutdown;
use auth::Authorizer;
use bytes::Bytes;
use rest::Api;
use schema::table::Release;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The parts of the service.
pub(super) struct ServiceParts<'a> {
    pub api: Arc<Api>,
    pub shutdown: Shutdown,
    pub limits: limits::Options,
    pub gates: Gates,
    pub release: Release,
    pub delete_workers: usize,
    pub advertised: String,
    pub identity: &'a Identity,
    pub authorizer: Arc<dyn Authorizer>,
    pub fairness: Option<Arc<Fairness>>,
    pub cors: cors::Options,
    pub audit: audit::Options,
    pub aggregation: Arc<Aggregation>,
    pub node_proxy: node_proxy::Options,
    pub keys: &'a OpenKeys,
    pub observability: observability::Options,
    pub telemetry: Telemetry,
    pub cluster_files: Vec<(String, Bytes)>,
    pub clock: Option<Arc<env::Paused>>,
    pub clusters: Option<Arc<dyn ClusterHost>>,
    pub faults: Option<Arc<Faults>>,
}

/// Builds the service, and registers its metrics.
pub(super) fn build_service(parts: ServiceParts<'_>) -> Result<Service, StartError> {
    let ServiceParts { api, shutdown, limits, gates, identity, fairness, aggregation, telemetry, .. } = parts;
    let start = Arc::default();
    let shutdown_of_streams = shutdown.clone();
    let (store, world) = (api.storage.store.clone(), api.world.clone());
    let mut health = Health::new(store, shutdown.clone(), Arc::clone(&start), world, &limits);
    if let Some(keyring) = &parts.keys.keyring {
        health.add_keyring(keyring, parts.keys.reload.is_some());
    }
    let mut metrics = Metrics::new(telemetry.registry);
    aggregation.add_metrics(&metrics.registry);
    metrics.add_token_cache_metrics(&identity.token_cache_metrics);
    if let Some(accounts) = &identity.accounts {
        metrics.add_token_metrics(&accounts.uses);
    }
    add_component_metrics(&metrics.registry, &gates);
    if !gates.field_validation {
        metrics.requests.disable_field_validation();
    }
    let audit = if gates.auditing { parts.audit } else { audit::Options::default() };
    let audit = Audit::start(audit, &api.names, &api.world, &metrics.audit, &telemetry.calls)?;
    // with priority and fairness, no request is rejected for the number in flight alone
    let in_flight = match fairness {
        Some(_) => Arc::default(),
        None => Arc::new(InFlight::new(limits.reading, limits.writing)),
    };
    metrics.add_api_metrics(&api, &in_flight);
    let access = AccessControl {
        callers: identity.chain.clone(),
        authorizer: parts.authorizer,
        fairness,
        audit,
        cors: Cors::new(parts.cors),
    };
    let observability::Options { verbosity, profiling, command, .. } = parts.observability;
    Ok(Service {
        api,
        shutdown,
        start,
        limits,
        in_flight,
        metrics,
        health,
        delete_workers: parts.delete_workers.max(1),
        release: parts.release,
        gates,
        access,
        aggregation,
        node_proxy: NodeProxy::new(parts.node_proxy, shutdown_of_streams),
        discovery: Discovery::new(parts.advertised, identity.published.clone()),
        bulk: Default::default(),
        slow: Default::default(),
        tracing: telemetry.tracing,
        debug: DebugPages { profiling, verbosity, command },
        snapshots: Arc::new(Semaphore::new(1)),
        cluster_files: parts.cluster_files,
        clock: parts.clock,
        clusters: parts.clusters,
        faults: parts.faults,
    })
}
