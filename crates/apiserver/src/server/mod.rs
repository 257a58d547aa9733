//! A whole API server: store, caches, resources and listener, started and stopped together.

mod access;
mod advertise;
mod bootstrap;
mod build_api;
mod build_id;
mod build_service;
mod config;
pub mod encryption_at_rest;
mod error;
mod open_store;
pub(crate) mod post_start_hooks;
mod reflectors;
mod storage;
mod telemetry;

pub use config::{AdvertiseOptions, Config};
pub use error::StartError;
pub use open_store::StoreChoice;

use crate::aggregation::{self, Aggregation};
use crate::apiextensions::Definitions;
use crate::authentication::{ServiceAccounts, TrustMap, service_accounts};
use crate::flowcontrol::Fairness;
use crate::handle::Service;
use crate::node_proxy;
use crate::options::deployment::Deployment;
use crate::options::gates::Gates;
use crate::outgoing::webhook_target::ServiceRouting;
use crate::resource_metrics::Collector;
use crate::reviews::Sources;
use crate::self_registration::SelfRegistration;
use crate::self_registration::cluster_keys::ClusterKeys;
use crate::self_registration::identity_lease::IdentityLease;
use crate::self_registration::kubernetes_service::KubernetesService;
use crate::self_registration::storage_versions::StorageVersions;
use crate::serve::{self, Shutdown};
use access::{load_admission, load_authentication, load_authorization};
use advertise::{advertised, loopback_address};
use bootstrap::Bootstrap;
use build_api::{KindOptions, build_api};
use build_service::{ServiceParts, build_service};
use reflectors::Reflectors;
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
    self_registration: JoinHandle<()>,
    /// The `kubernetes` Service, with the endpoint of this server.
    own: Option<KubernetesService>,
    /// Tasks that follow objects and files.
    following: JoinSet<()>,
}

impl Server {
    /// Opens the store, fills the caches, bootstraps, and listens. Ready when it returns.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let telemetry = start_telemetry(&config);
        let (names, world, registry) = (config.names, config.world, telemetry.registry.clone());
        // bind before the store is opened: a second server must fail before it touches anything
        let bound = serve::bind(config.listen).await?;
        let address = bound.local_addr();
        let trusted = TrustMap {
            authorities: bound.authorities(),
            front_proxy: config.authentication.front_proxy.clone(),
        };
        let accounts = &config.authentication.service_accounts;
        let (tracked, cluster_keys) =
            (accounts.tracks_use, cluster_keys(&config.store, accounts, &trusted, &config.deployment));
        let (storage, keys) = open_storage(
            config.store,
            config.encryption,
            config.cache,
            config.limits.history,
            (&names, &world, &registry),
        )
        .await?;
        let authorization = load_authorization(config.authorization, &names, &world);
        let routing = ServiceRouting {
            to_endpoints: config.aggregation.to_endpoints,
            own: Some(loopback_address(address)),
            egress: config.egress.clone(),
        };
        let shared = (&names, &world, &telemetry);
        let policies = config.gates.validating_admission_policy;
        let faults = config.deployment.faults;
        let admission =
            load_admission(&config.admission, policies, &authorization, &routing, faults.clone(), shared)?;
        let advertised = advertised(address, config.advertise_address, config.advertise.name.clone());
        let identity = load_authentication(config.authentication, &advertised, shared);
        let usage = Arc::new(Collector::new(&world));
        let sources = Sources {
            authorizer: authorization.authorizer.clone(),
            callers: identity.chain.clone(),
            store: storage.store.clone(),
            components: config.deployment.components.into(),
            objects: identity.objects.clone(),
            usage: usage.clone(),
        };
        let api = Api::new(names, storage, world.clone(), admission);
        let kinds =
            KindOptions { serving: &config.serving, kinds: config.kinds, event_ttl: config.event_ttl };
        let api = build_api(api, &kinds, &sources, identity.issuer.as_ref(), &registry)?;
        // before the first request: custom resources are served from the start
        let definitions = Definitions::start(&api, routing);
        identity.connect(&api);
        authorization.node.connect(&api);
        let is_fair = config.fairness.on && config.gates.priority_and_fairness;
        let fairness = is_fair.then(|| Fairness::new(config.fairness, &config.limits, world, &registry));
        let service = config.advertise_address.map(|ip| KubernetesService {
            address: SocketAddr::new(ip, address.port()),
            services: config.kinds.services,
            node_port: config.advertise.node_port,
            reconcile_endpoints: config.advertise.reconcile_endpoints,
        });
        let mut self_registration =
            load_self_registration(service, trusted, config.advertise.hostname, &config.gates, &api);
        let shutdown = Shutdown::new();
        let node_proxy = node_proxy::Options { dialer: config.egress.cluster.clone(), ..config.node_proxy };
        let aggregation = aggregation::Options { dialer: config.egress.cluster, ..config.aggregation };
        let aggregation = Arc::new(Aggregation::new(api.clone(), aggregation, shutdown.clone()));
        let api_services = aggregation::Reflector::start(&aggregation);
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
            cors: config.cors,
            audit: config.audit,
            aggregation,
            node_proxy,
            keys: &keys,
            observability: config.observability,
            telemetry,
            cluster_files: config.deployment.cluster_files,
            clock: config.deployment.clock,
            clusters: config.deployment.clusters,
            faults,
        })?);
        usage.connect(&service);
        let serving = tokio::spawn(serve::run(bound, service.clone(), shutdown.clone()));
        let before_ready = config.deployment.before_ready;
        let bootstrap = Bootstrap { keys: cluster_keys, before_ready, address };
        let roles = match bootstrap
            .run(&service, &mut self_registration, authorization.rbac, api_services.as_ref())
            .await
        {
            Ok(roles) => roles,
            Err(why) => {
                shutdown.cut();
                let _ = serving.await;
                return Err(why);
            }
        };
        let reflectors = Reflectors { definitions, api_services, keys };
        let following = reflectors.spawn(roles, service.access.fairness.as_ref(), &api);
        if let Err(why) = service_accounts::tracking::maintain_start(&api, tracked).await {
            tracing::warn!(%why, "the start of the tracking of service account tokens could not be stored");
        }
        let own = self_registration.service;
        let self_registration = tokio::spawn(self_registration.run(api));
        Ok(Server { service, address, shutdown, serving, self_registration, own, following })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the server no longer listens: after a shutdown, or a fatal error.
    pub async fn ended(&self) {
        self.shutdown.wait_for(serve::Phase::Stopping).await;
    }

    /// Fails readiness, waits for the shutdown delay, ends watches, lets requests finish, closes the store: nothing
    /// acknowledged is lost.
    pub async fn shutdown(mut self) {
        let limits = self.service.limits.clone();
        self.shutdown.drain();
        self.self_registration.abort();
        if let Some(own) = &self.own {
            let left = env::io::timeout(TIMEOUT, own.leave(&self.service.api)).await;
            if !matches!(left, Ok(Ok(()))) {
                tracing::warn!(
                    "the endpoint of this server could not be removed: clients may try it for a few more seconds"
                );
            }
        }
        if !limits.shutdown_delay.is_zero() {
            tracing::info!(delay = ?limits.shutdown_delay, "no longer ready; serving until the shutdown delay has passed");
            env::io::sleep(limits.shutdown_delay).await;
        }
        if limits.send_retry_after {
            self.shutdown.refuse();
            let done = self.service.in_flight.wait_for_none();
            if env::io::timeout(limits.request_timeout, done).await.is_err() {
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

/// The objects by which the server registers itself. `hostname` names its identity lease.
fn load_self_registration(
    service: Option<KubernetesService>,
    trusted: TrustMap,
    hostname: Option<String>,
    gates: &Gates,
    api: &Api,
) -> SelfRegistration {
    let lease =
        hostname.filter(|_| gates.apiserver_identity).map(|hostname| IdentityLease::new(hostname, api));
    let publisher = lease.as_ref().filter(|_| gates.storage_versions);
    let versions = publisher.map(|lease| StorageVersions::new(lease.name().to_owned()));
    SelfRegistration { service, trusted, lease, versions }
}
