//! A whole API server: store, caches, resources and listener, started and stopped as one.

use crate::admission::{self, BadPlugins};
use crate::aggregation::{self, Aggregation};
use crate::apiextensions::Definitions;
use crate::audit::{self, Audit, BadAudit};
use crate::authentication::{self, Identity, TrustMap, service_accounts};
use crate::authorization::node::Node;
use crate::authorization::roles::{self, Follower};
use crate::authorization::{self};
use crate::cluster_keys::{ClusterKeys, Failure, ForeignKeys};
use crate::cors::{self, Browsers};
use crate::deployment::{BeforeReady, Deployment};
use crate::discovery::metrics::about_component;
use crate::egress::Egress;
use crate::encryption_at_rest;
use crate::flowcontrol::{self, Fairness};
use crate::gates::Gates;
use crate::handle::Service;
use crate::identity_lease::OwnLease;
use crate::kubernetes_service::OwnService;
use crate::limits;
use crate::loopback;
use crate::observability;
use crate::open_store::{self, StoreChoice};
use crate::reviews::{self, Sources};
use crate::self_registration::Upkeep;
use crate::serve::{self, Listen, ServeError, Shutdown};
use crate::start::Hook;
use crate::storage_versions::StorageVersions;
use crate::trace::Tracing;
use crate::webhook_target::Way;
use auth::Rbac;
use encryption::DecryptError;
use env::World;
use names::Names;
use rest::storage::Unreadable;
use rest::{Api, ApiError, Storage};
use schema::Value;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use store::StoreError;
use tokio::task::{JoinHandle, JoinSet};

/// How to run an API server.
pub struct Config {
    pub store: StoreChoice,
    /// Who encrypts what is kept there, if anybody does.
    pub sealing: Option<encryption_at_rest::Options>,
    pub listen: Listen,
    pub world: World,
    pub names: Names,
    /// How long events are kept.
    pub event_ttl: Duration,
    /// How many objects of a collection are deleted at a time.
    pub delete_workers: usize,
    pub identity: authentication::Options,
    pub permission: authorization::Options,
    pub admission: admission::Options,
    pub fairness: flowcontrol::Options,
    pub audit: audit::Options,
    /// Which kinds are served.
    pub serving: kinds::Serving,
    /// How many requests, for how long, and how the server begins and ends.
    pub limits: limits::Options,
    /// How much history is kept for watches and paged lists.
    pub cache: cache::Options,
    /// What the operator decided about the built-in kinds.
    pub kinds: kinds::Options,
    /// The address by which pods reach the server. Without one there is no service for it.
    pub reached_at: Option<IpAddr>,
    pub found: Found,
    /// Which way calls take.
    pub egress: Egress,
    /// How requests are passed on to other servers.
    pub aggregation: aggregation::Options,
    pub gates: Gates,
    pub browsers: cors::Options,
    /// What an operator gets to see.
    pub observe: observability::Options,
    /// What the process around it gives it.
    pub deployment: Deployment,
}

/// How clients and pods find the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The name by which clients find it, with a port or without; its address if there is none.
    pub name: Option<String>,
    /// The port on nodes at which its own service is found; 0 is none.
    pub node_port: u16,
    /// Whether the addresses behind its own service are kept right.
    pub keeps_addresses: bool,
    /// The machine it runs on, which names the lease by which it says that it is there. Without one there is none.
    pub machine: Option<String>,
}

impl Default for Found {
    fn default() -> Self {
        Found { name: None, node_port: 0, keeps_addresses: true, machine: None }
    }
}

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Plugins(#[from] BadPlugins),
    #[error(transparent)]
    Audit(#[from] BadAudit),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error(transparent)]
    Decrypt(#[from] DecryptError),
    #[error(transparent)]
    ForeignKeys(#[from] ForeignKeys),
    /// What the process does before the server is ready.
    #[error("{0}")]
    BeforeReady(String),
    #[error("{name:?}, which every cluster has, could not be made: {why}")]
    System { name: String, why: ApiError },
}

/// How long a server that stops tries to tell the others.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A running server.
pub struct Server {
    pub service: Arc<Service>,
    address: SocketAddr,
    shutdown: Shutdown,
    serving: JoinHandle<()>,
    upkeep: JoinHandle<()>,
    /// How others find it.
    own: Option<OwnService>,
    /// What is derived from objects and follows them.
    following: JoinSet<()>,
}

impl Server {
    /// Opens the store, fills the caches, makes what must exist, and listens. Ready when it returns.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        // the port first: a second server must fail before it touches anything
        let registry = config.observe.metrics.clone();
        config.egress.begin(&registry, &config.world);
        let traced = config.observe.tracing.clone().map(|configuration| {
            let instance = rest::metadata::new_uid(&config.world);
            let way = config.egress.control_plane.clone();
            Tracing::start(configuration, way, instance, config.world.clone(), &registry)
        });
        let calls = outbound::ClientMetrics::new(&registry);
        let callers = [
            config.permission.webhook.as_ref().map(|it| &it.caller),
            config.identity.token_webhook.as_ref().map(|it| &it.caller),
            config.identity.oidc.as_ref().map(|it| &it.caller),
        ];
        callers.into_iter().flatten().for_each(|caller| caller.measure(&calls));
        let bound = serve::bind(config.listen).await?;
        let address = bound.local_addr();
        let trusted =
            TrustMap { authorities: bound.authorities(), front_proxy: config.identity.front_proxy.clone() };
        let deployment = config.deployment;
        let ephemeral = (deployment.ephemeral_signer, deployment.ephemeral_authorities);
        let keys = matches!(config.store, StoreChoice::Etcd(_))
            .then(|| ClusterKeys::new(&config.identity.service_accounts, &trusted.authorities, ephemeral));
        let sealing = config.sealing.as_ref();
        let rename = config.store.renames();
        let keyring = sealing
            .and_then(|it| encryption_at_rest::keyring(it, &config.names, &config.world, &registry, rename));
        let kept = open_store::open(config.store, config.limits.history, &config.world).await?;
        let (store, recovered) =
            encryption_at_rest::over(kept, keyring.clone(), &config.names, &config.world).await?;
        // what the store has forgotten the caches need not remember
        let cache = cache::Options { retention: config.limits.history, ..config.cache };
        let storage = Storage::new(store, recovered, cache, config.world.clone())?;
        let rbac = Arc::new(Rbac::new(&config.names));
        let node = Arc::new(Node::new(&config.names));
        let authorizer =
            authorization::authorizer(config.permission, &rbac, &node, &config.names, &config.world);
        let way = Way {
            to_endpoints: config.aggregation.to_endpoints,
            own: Some(from_here(address)),
            egress: config.egress.clone(),
        };
        let parts = admission::Parts {
            names: config.names.clone(),
            world: config.world.clone(),
            pod_security: admission::pod_security::Counters::new(&registry),
            answers: admission::Answers::new(&registry, &config.world),
            rbac: rbac.clone(),
            authorizer: authorizer.clone(),
            tolerated: config.admission.tolerated,
            webhooks: admission::webhooks::Counters::new(&registry),
            calls: calls.clone(),
            way: way.clone(),
            policies: config.gates.policies,
            policy_counters: admission::policy_metrics::Counters::new(&registry),
        };
        let admission = admission::chain(&config.admission, &parts)?;
        // who listens everywhere is found where pods find it
        let found_at = match config.reached_at {
            Some(ip) if address.ip().is_unspecified() => SocketAddr::new(ip, address.port()),
            _ => address,
        };
        let found_at = match config.found.name {
            None => found_at.to_string(),
            Some(name) if has_port(&name) => name,
            Some(name) => format!("{name}:{}", address.port()),
        };
        let tracked = config.identity.service_accounts.tracked;
        let identity = Identity::new(config.identity, &config.names, &config.world, &found_at);
        let callers = identity.chain.clone();
        callers.measure(&registry);
        let sources = Sources {
            authorizer: authorizer.clone(),
            callers: callers.clone(),
            store: storage.store.clone(),
            components: deployment.components.into(),
        };
        let (names, world) = (config.names.clone(), config.world.clone());
        let mut api = Api::new(config.names, storage, config.world, admission);
        api.opened = config.serving.gates.clone();
        api.closed = config.serving.closed.clone();
        api.measure(&registry);
        let api = Arc::new(api);
        for (kind, mut hooks) in kinds::builtin_serving(config.kinds, &config.serving) {
            if kind.expires {
                hooks.lifetime_seconds = Some(config.event_ttl.as_secs() as i64);
            }
            hooks.uncollected |= config.kinds.uncollected;
            hooks.answer = reviews::of(&kind, &sources);
            // what is never kept was never in a form that cannot tell
            hooks.keeps_empty_lists |= hooks.answer.is_some();
            hooks.parts.extend(identity.issuer.as_ref().and_then(|it| service_accounts::part(&kind, it)));
            let stored = kinds::stored(&kind).unwrap_or_else(|| kind.clone());
            api.register_as(kind, stored, hooks)?;
        }
        // before the first request: what was defined is served from the start
        let definitions = Definitions::start(&api, way);
        identity.connect(&api);
        node.look_into(&api);
        let takes_turns = config.fairness.on && config.gates.turns;
        let fairness =
            takes_turns.then(|| Fairness::new(config.fairness, &config.limits, world.clone(), &registry));
        let own = config.reached_at.map(|ip| OwnService {
            reached_at: SocketAddr::new(ip, address.port()),
            services: config.kinds.services,
            node_port: config.found.node_port,
            keeps_addresses: config.found.keeps_addresses,
        });
        let machine = config.found.machine.filter(|_| config.gates.identity);
        let lease = machine.map(|machine| OwnLease::new(machine, &api));
        let tells = lease.as_ref().filter(|_| config.gates.storage_versions);
        let versions = tells.map(|lease| StorageVersions::new(lease.name().to_owned()));
        let mut upkeep = Upkeep { service: own, trusted, lease, versions };
        let shutdown = Shutdown::new();
        let aggregation = aggregation::Options { way: config.egress.cluster, ..config.aggregation };
        let aggregation = Arc::new(Aggregation::new(api.clone(), aggregation, shutdown.clone()));
        let registered = aggregation::Follower::start(&aggregation);
        let (ending, limits) = (shutdown.clone(), config.limits);
        let mut service =
            Service::new(api.clone(), ending, found_at, callers, authorizer, limits, config.observe);
        let keys_again = config.sealing.and_then(|it| it.again);
        if let Some(keyring) = &keyring {
            service.health.look_at_keys(keyring, keys_again.is_some());
        }
        aggregation.measure(&registry);
        service.aggregation = aggregation;
        service.issuer = identity.published;
        service.delete_workers = config.delete_workers.max(1);
        if fairness.is_some() {
            // turns are taken, so nobody is turned away for the number alone
            service.in_flight = Arc::default();
        }
        service.fairness = fairness;
        service.tracing = traced;
        service.browsers = Browsers::new(config.browsers);
        service.metrics.tell_of_lookups(&identity.lookups);
        if let Some(accounts) = &identity.accounts {
            service.metrics.tell_of_tokens(&accounts.uses);
        }
        about_component(&service.metrics.registry, &config.gates);
        if !config.gates.field_validation {
            service.metrics.requests.check_nothing();
        }
        let recorded = if config.gates.record { config.audit } else { audit::Options::default() };
        service.release = config.serving.release;
        service.gates = config.gates;
        service.audit = Audit::start(recorded, &names, &world, &service.metrics.audit, &calls)?;
        service.metrics.tell_of(&api, &service.in_flight);
        let service = Arc::new(service);
        let serving = tokio::spawn(serve::run(bound, service.clone(), shutdown.clone()));
        let mut following = JoinSet::new();
        let before = Before { keys, ready: deployment.before_ready, address };
        match begin(&api, &service, &mut upkeep, rbac, registered.as_ref(), before).await {
            Ok(follower) => drop(following.spawn(follower.follow())),
            Err(why) => {
                shutdown.cut();
                let _ = serving.await;
                return Err(why);
            }
        }
        if let Err(why) = service_accounts::tracking::keep_since(&api, tracked).await {
            tracing::warn!(%why, "it cannot be said since when uses of tokens are noted");
        }
        if let (Some(again), Some(keyring)) = (keys_again, keyring) {
            following.spawn(async move { again.run(&keyring).await });
        }
        if let Some(definitions) = definitions {
            following.spawn(definitions.follow());
        }
        if let Some(registered) = registered {
            following.spawn(registered.follow());
        }
        if let Some(fairness) = &service.fairness {
            following.spawn(fairness.clone().follow(api.clone()));
        }
        let upkeep = tokio::spawn(upkeep.go_on(api));
        Ok(Server { service, address, shutdown, serving, upkeep, own, following })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the server no longer listens, which it does only when told to stop or when it breaks.
    pub async fn ended(&self) {
        self.shutdown.reached(serve::Phase::Stopping).await;
    }

    /// Fails readiness, goes on for as long as was asked for, ends watches, lets requests finish, closes the store:
    /// nothing acknowledged is lost.
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
        if let Some(audit) = &self.service.audit {
            audit.close().await;
        }
        self.following.shutdown().await;
        self.service.api.storage.store.close().await;
    }
}

/// Makes what every cluster has, while requests that need it wait.
async fn begin(
    api: &Arc<Api>,
    service: &Service,
    upkeep: &mut Upkeep,
    rbac: Arc<Rbac>,
    registered: Option<&aggregation::Follower>,
    before: Before,
) -> Result<Follower, StartError> {
    let start = &service.start;
    make_namespaces(api).await?;
    if let Some(keys) = before.keys {
        keys.publish(api).await.map_err(|failure| match failure {
            Failure::Foreign(keys) => keys.into(),
            Failure::Api(why) => StartError::System { name: "cluster-keys".to_owned(), why },
        })?;
    }
    make_priority_classes(api).await?;
    start.finish(Hook::PriorityClasses);
    roles::ensure(api, &service.gates.opened(&api.opened)).await?;
    let follower = Follower::start(api, rbac);
    start.finish(Hook::Roles);
    if let Some(fairness) = &service.fairness {
        fairness.begin(api).await;
    }
    start.finish(Hook::Fairness);
    if let Some(registered) = registered {
        registered.begin().await;
    }
    start.finish(Hook::Registration);
    upkeep.begin(api).await;
    if let Some(ready) = before.ready {
        ready(before.address).map_err(StartError::BeforeReady)?;
    }
    start.finish(Hook::Bootstrap);
    Ok(follower)
}

/// What is done before the first request, besides what every cluster has.
struct Before {
    /// The keys that servers of one store share, where several can be.
    keys: Option<ClusterKeys>,
    ready: Option<BeforeReady>,
    address: SocketAddr,
}

/// Where the server finds itself when it listens at an address.
fn from_here(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Whether a name ends in a port; the colons of a bare IPv6 address are no such end.
fn has_port(name: &str) -> bool {
    let behind = name.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']'));
    behind.is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

async fn make_namespaces(api: &Arc<Api>) -> Result<(), StartError> {
    let names = &api.names;
    let namespaces = [
        names.system_namespace(),
        names.public_namespace(),
        names.node_lease_namespace(),
        names::DEFAULT_NAMESPACE.to_owned(),
    ];
    for name in namespaces {
        let mut namespace = Value::map();
        namespace.set(&["metadata", "name"], name);
        make_missing(api, "v1", "namespaces", namespace).await?;
    }
    Ok(())
}

async fn make_priority_classes(api: &Arc<Api>) -> Result<(), StartError> {
    let scheduling = format!("{}/v1", api.names.group("scheduling"));
    for class in kinds::priorityclass::system_classes() {
        make_missing(api, &scheduling, "priorityclasses", class).await?;
    }
    Ok(())
}

async fn make_missing(api: &Api, group_version: &str, plural: &str, object: Value) -> Result<(), StartError> {
    let resources = api.resources();
    let Some(resource) = resources.get(group_version, plural) else { return Ok(()) };
    let name = object.text(&["metadata", "name"]);
    if resource.collection.cache.get("", name).is_some() {
        return Ok(());
    }
    let place = loopback::Place { resource, namespace: "", name: "", subresource: "" };
    let made = loopback::write(api, place, &object).await.map(drop);
    loopback::or_another_did(made).map_err(|why| StartError::System { name: name.to_owned(), why })
}
