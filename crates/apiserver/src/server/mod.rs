//! A whole API server: store, caches, resources and listener, started and stopped as one.

mod access;
mod advertise;
mod bootstrap;
mod build_api;
mod build_service;
mod config;
pub mod encryption_at_rest;
mod error;
mod followers;
mod open_store;
pub(crate) mod post_start_hooks;
mod storage;
mod telemetry;

pub use config::{Config, Found};
pub use error::StartError;
pub use open_store::StoreChoice;

use crate::aggregation::{self, Aggregation};
use crate::apiextensions::Definitions;
use crate::authentication::{ServiceAccounts, TrustMap, service_accounts};
use crate::flowcontrol::Fairness;
use crate::handle::Service;
use crate::options::deployment::Deployment;
use crate::options::gates::Gates;
use crate::outgoing::webhook_target::Way;
use crate::reviews::Sources;
use crate::self_registration::Upkeep;
use crate::self_registration::cluster_keys::ClusterKeys;
use crate::self_registration::identity_lease::OwnLease;
use crate::self_registration::kubernetes_service::OwnService;
use crate::self_registration::storage_versions::StorageVersions;
use crate::serve::{self, Shutdown};
use access::{load_admission, load_authentication, load_authorization};
use advertise::{advertised, loopback_address};
use bootstrap::Bootstrap;
use build_api::{KindOptions, build_api};
use build_service::{ServiceParts, build_service};
use followers::Followers;
use rest::Api;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use storage::open_storage;
use telemetry::start_telemetry;
use tokio::task::{JoinHandle, JoinSet};

/// How long a stopping server tries to remove its endpoint.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A running server.
pub struct Server {
    pub service: Arc<Service>,
    address: SocketAddr,
    shutdown: Shutdown,
    serving: JoinHandle<()>,
    upkeep: JoinHandle<()>,
    /// The `kubernetes` Service, with the endpoint of this server.
    own: Option<OwnService>,
    /// Tasks that follow objects and files.
    following: JoinSet<()>,
}

impl Server {
    /// Opens the store, fills the caches, creates what every cluster has, and listens. Ready when it returns.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let telemetry = start_telemetry(&config);
        let (names, world, registry) = (config.names, config.world, telemetry.registry.clone());
        // the port before the store: a second server must fail before it touches anything
        let bound = serve::bind(config.listen).await?;
        let address = bound.local_addr();
        let trusted =
            TrustMap { authorities: bound.authorities(), front_proxy: config.identity.front_proxy.clone() };
        let accounts = &config.identity.service_accounts;
        let (tracked, cluster_keys) =
            (accounts.tracked, cluster_keys(&config.store, accounts, &trusted, &config.deployment));
        let (storage, keys) = open_storage(
            config.store,
            config.sealing,
            config.cache,
            config.limits.history,
            (&names, &world, &registry),
        )
        .await?;
        let authorization = load_authorization(config.permission, &names, &world);
        let way = Way {
            to_endpoints: config.aggregation.to_endpoints,
            own: Some(loopback_address(address)),
            egress: config.egress.clone(),
        };
        let shared = (&names, &world, &telemetry);
        let policies = config.gates.policies;
        let admission = load_admission(&config.admission, policies, &authorization, &way, shared)?;
        let advertised = advertised(address, config.reached_at, config.found.name.clone());
        let identity = load_authentication(config.identity, &advertised, shared);
        let sources = Sources {
            authorizer: authorization.authorizer.clone(),
            callers: identity.chain.clone(),
            store: storage.store.clone(),
            components: config.deployment.components.into(),
        };
        let api = Api::new(names, storage, world.clone(), admission);
        let kinds =
            KindOptions { serving: &config.serving, kinds: config.kinds, event_ttl: config.event_ttl };
        let api = build_api(api, &kinds, &sources, identity.issuer.as_ref(), &registry)?;
        // before the first request: custom resources are served from the start
        let definitions = Definitions::start(&api, way);
        identity.connect(&api);
        authorization.node.look_into(&api);
        let is_fair = config.fairness.on && config.gates.turns;
        let fairness = is_fair.then(|| Fairness::new(config.fairness, &config.limits, world, &registry));
        let service = config.reached_at.map(|ip| OwnService {
            reached_at: SocketAddr::new(ip, address.port()),
            services: config.kinds.services,
            node_port: config.found.node_port,
            keeps_addresses: config.found.keeps_addresses,
        });
        let mut upkeep = load_upkeep(service, trusted, config.found.machine, &config.gates, &api);
        let shutdown = Shutdown::new();
        let aggregation = aggregation::Options { way: config.egress.cluster, ..config.aggregation };
        let aggregation = Arc::new(Aggregation::new(api.clone(), aggregation, shutdown.clone()));
        let registered = aggregation::Follower::start(&aggregation);
        let service = Arc::new(build_service(ServiceParts {
            api: api.clone(),
            shutdown: shutdown.clone(),
            limits: config.limits,
            gates: config.gates,
            release: config.serving.release,
            delete_workers: config.delete_workers,
            advertised,
            identity: &identity,
            authorizer: authorization.authorizer,
            fairness,
            cors: config.browsers,
            audit: config.audit,
            aggregation,
            keys: &keys,
            observe: config.observe,
            telemetry,
        })?);
        let serving = tokio::spawn(serve::run(bound, service.clone(), shutdown.clone()));
        let before_ready = config.deployment.before_ready;
        let bootstrap = Bootstrap { keys: cluster_keys, before_ready, address };
        let roles = match bootstrap.run(&service, &mut upkeep, authorization.rbac, registered.as_ref()).await
        {
            Ok(roles) => roles,
            Err(why) => {
                shutdown.cut();
                let _ = serving.await;
                return Err(why);
            }
        };
        let followers = Followers { definitions, registered, keys };
        let following = followers.spawn(roles, service.access.fairness.as_ref(), &api);
        if let Err(why) = service_accounts::tracking::keep_since(&api, tracked).await {
            tracing::warn!(%why, "the start of the tracking of service account tokens could not be stored");
        }
        let own = upkeep.service;
        let upkeep = tokio::spawn(upkeep.go_on(api));
        Ok(Server { service, address, shutdown, serving, upkeep, own, following })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the server no longer listens: after a shutdown, or a fatal error.
    pub async fn ended(&self) {
        self.shutdown.reached(serve::Phase::Stopping).await;
    }

    /// Fails readiness, waits for the shutdown delay, ends watches, lets requests finish, closes the store: nothing
    /// acknowledged is lost.
    pub async fn shutdown(mut self) {
        let limits = self.service.limits.clone();
        self.shutdown.drain();
        self.upkeep.abort();
        if let Some(own) = &self.own {
            let left = tokio::time::timeout(TIMEOUT, own.leave(&self.service.api)).await;
            if !matches!(left, Ok(Ok(()))) {
                tracing::warn!("others may look for this server for a few seconds more");
            }
        }
        if !limits.shutdown_delay.is_zero() {
            tracing::info!(delay = ?limits.shutdown_delay, "no longer ready, going on for a while");
            tokio::time::sleep(limits.shutdown_delay).await;
        }
        if limits.send_retry_after {
            self.shutdown.refuse();
            let done = self.service.in_flight.wait_for_none();
            if tokio::time::timeout(limits.request_timeout, done).await.is_err() {
                tracing::warn!("requests did not finish in time");
            }
        }
        self.service.api.storage.close_watches();
        self.shutdown.stop();
        let _ = self.serving.await;
        if let Some(audit) = &self.service.access.audit {
            audit.close().await;
        }
        self.following.shutdown().await;
        self.service.api.storage.store.close().await;
    }
}

/// The keys that all servers of one etcd share; a server with a store of its own shares none.
fn cluster_keys(
    store: &StoreChoice,
    accounts: &ServiceAccounts,
    trusted: &TrustMap,
    deployment: &Deployment,
) -> Option<ClusterKeys> {
    let ephemeral = (deployment.ephemeral_signer, deployment.ephemeral_authorities);
    matches!(store, StoreChoice::Etcd(_)).then(|| ClusterKeys::new(accounts, &trusted.authorities, ephemeral))
}

/// Collects the objects that the server keeps about itself. `machine` names its identity lease.
fn load_upkeep(
    service: Option<OwnService>,
    trusted: TrustMap,
    machine: Option<String>,
    gates: &Gates,
    api: &Api,
) -> Upkeep {
    let lease = machine.filter(|_| gates.identity).map(|machine| OwnLease::new(machine, api));
    let publisher = lease.as_ref().filter(|_| gates.storage_versions);
    let versions = publisher.map(|lease| StorageVersions::new(lease.name().to_owned()));
    Upkeep { service, trusted, lease, versions }
}
