//! A cluster: one API server with its own store, port and clock.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use apiserver::egress::Egress;
use apiserver::serve::{AuthorityFile, Limits, ListenConfig, TlsMaterial};
use apiserver::{
    AdvertiseOptions, Config, Deployment, Gates, Server, StartError, StoreChoice, admission, aggregation,
    audit, authentication, authorization, cors, encryption_at_rest, flowcontrol, limits, node_proxy,
    observability,
};
use env::{ManualClock, Seeded, Simulated, World};
use http::Method;
use names::Names;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::pki::authority;
use crate::request::{ApiRequest, ApiResponse, Payload};
use crate::thread_blocker::{BlockingEnv, ThreadBlocker};
use crate::transport::{Protocol, Sender, Stream, TestUser, connect};

/// The initial time of the clock, in Unix seconds.
pub const NOW: u64 = 1_700_000_000;

/// Options of a cluster.
pub struct Options {
    pub store: StoreChoice,
    /// Encryption at rest.
    pub encryption: Option<encryption_at_rest::Options>,
    pub limits: Limits,
    /// Limits of requests, start and shutdown.
    pub requests: limits::Options,
    pub event_ttl: Duration,
    pub names: Names,
    pub authentication: authentication::Options,
    /// The reloaded file of client CAs.
    pub client_authority_file: Option<PathBuf>,
    /// CAs of front proxies, in PEM.
    pub proxy_authorities: Option<String>,
    pub authorization: authorization::Options,
    pub admission: admission::Options,
    pub audit: audit::Options,
    pub fairness: flowcontrol::Options,
    pub serving: kinds::Serving,
    pub kinds: kinds::Options,
    /// The address of the server for pods. Without it the `kubernetes` service does not exist.
    pub advertise_address: Option<IpAddr>,
    pub advertise: AdvertiseOptions,
    /// Egress of outgoing calls.
    pub egress: Egress,
    /// API aggregation.
    pub aggregation: aggregation::Options,
    /// Connections to node agents.
    pub node_proxy: node_proxy::Options,
    pub gates: Gates,
    pub cors: cors::Options,
    pub cache: cache::Options,
    pub observability: observability::Options,
    /// The environment of the process.
    pub deployment: Deployment,
    /// The port to listen on; 0 is any.
    pub port: u16,
    /// The initial time of the server's clock, in Unix seconds.
    pub now: u64,
    /// Whether the server's timers go by its clock alone, which only [`Cluster::advance`] moves. Otherwise they go by
    /// real time.
    pub simulated_clock: bool,
    /// Blocks threads that create objects.
    pub thread_blocker: Option<Arc<ThreadBlocker>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            store: StoreChoice::Memory,
            encryption: None,
            limits: Limits::default(),
            requests: limits::Options::default(),
            event_ttl: Duration::from_secs(3600),
            names: Names::default(),
            authentication: authentication::Options::default(),
            client_authority_file: None,
            proxy_authorities: None,
            authorization: authorization::Options { modes: vec![auth::Mode::Rbac], ..Default::default() },
            // no controller creates the service accounts of namespaces
            admission: admission::Options {
                disable: vec!["ServiceAccount".to_owned()],
                ..admission::Options::default()
            },
            audit: audit::Options::default(),
            fairness: flowcontrol::Options::default(),
            serving: kinds::Serving::default(),
            kinds: kinds::Options::default(),
            advertise_address: None,
            advertise: AdvertiseOptions::default(),
            egress: Egress::default(),
            aggregation: aggregation::Options::default(),
            node_proxy: node_proxy::Options::default(),
            gates: Gates::default(),
            cors: cors::Options::default(),
            cache: cache::Options::default(),
            observability: observability::Options::default(),
            deployment: Deployment::default(),
            port: 0,
            now: NOW,
            simulated_clock: false,
            thread_blocker: None,
        }
    }
}

impl Options {
    /// With enabled and disabled admission plugins, and plugin configurations.
    pub fn plugins(enable: &[&str], disable: &[&str], configurations: &[(&str, Value)]) -> Self {
        let mut options = Self::default();
        let admission = &mut options.admission;
        admission.disable.retain(|name| !enable.contains(&name.as_str()));
        admission.enable.extend(enable.iter().map(|name| (*name).to_owned()));
        admission.disable.extend(disable.iter().map(|name| (*name).to_owned()));
        for (name, configuration) in configurations {
            let decoded = schema::decode::json_untyped(configuration.to_string().as_bytes()).unwrap();
            admission.configuration.insert((*name).to_owned(), decoded.value);
        }
        options
    }
}

/// A running server and its clock.
pub struct Cluster {
    pub world: Arc<dyn ManualClock>,
    pub address: SocketAddr,
    pub server: Server,
    /// One connection that the administrator's requests share.
    admin: OnceCell<Sender>,
}

impl Cluster {
    /// With everything in memory.
    pub async fn start() -> Self {
        Self::with(Options::default()).await
    }

    /// The same, without writes by the server itself.
    pub async fn quiet() -> Self {
        let mut options = Options::default();
        options.fairness.on = false;
        Self::with(options).await
    }

    /// With the objects below a directory.
    pub async fn on(directory: &Path) -> Self {
        Self::with(Options { store: StoreChoice::Directory(directory.to_owned()), ..Options::default() })
            .await
    }

    pub async fn with(options: Options) -> Self {
        Self::attempt(options).await.unwrap()
    }

    /// A server that may not be able to start.
    pub async fn attempt(options: Options) -> Result<Self, StartError> {
        let world: Arc<dyn ManualClock> = match options.simulated_clock {
            true => Simulated::new(options.now, 7),
            false => Seeded::new(options.now, 7),
        };
        Self::attempt_in(options, world).await
    }

    /// The same with a shared clock.
    pub async fn attempt_in(options: Options, world: Arc<dyn ManualClock>) -> Result<Self, StartError> {
        let served = authority().server();
        let tls = TlsMaterial {
            certificate_chain: served.certificate.into(),
            private_key: served.key.into(),
            client_authorities: Some(authority().pem().into()),
            proxy_authorities: options.proxy_authorities.map(Vec::from),
            client_authority_file: options
                .client_authority_file
                .map(|path| AuthorityFile { path, besides: Vec::new() }),
            ..TlsMaterial::default()
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, options.port));
        let env: World = match options.thread_blocker {
            None => world.clone(),
            Some(blocker) => Arc::new(BlockingEnv { blocker, world: world.clone() }),
        };
        let listen =
            ListenConfig { address, tls, limits: options.limits, share_port: false, world: env.clone() };
        let config = Config {
            store: options.store,
            encryption: options.encryption,
            listen,
            world: env,
            names: options.names,
            event_ttl: options.event_ttl,
            delete_workers: 4,
            egress: options.egress,
            authentication: options.authentication,
            authorization: options.authorization,
            admission: options.admission,
            audit: options.audit,
            fairness: options.fairness,
            serving: options.serving,
            limits: options.requests,
            cache: options.cache,
            kinds: options.kinds,
            advertise_address: options.advertise_address,
            advertise: options.advertise,
            aggregation: options.aggregation,
            node_proxy: options.node_proxy,
            gates: options.gates,
            cors: options.cors,
            observability: options.observability,
            deployment: options.deployment,
        };
        let server = Server::start(config).await?;
        Ok(Cluster { world, address: server.local_addr(), server, admin: OnceCell::new() })
    }

    /// Stops the server as SIGTERM does.
    pub async fn stop(self) {
        let Cluster { server, admin, .. } = self;
        drop(admin);
        crate::soon("the server's end", server.shutdown()).await;
    }

    /// Moves the server's clock.
    pub fn advance(&self, by: Duration) {
        self.world.advance(by);
    }

    /// The time of the server's clock, in Unix seconds.
    pub fn seconds(&self) -> i64 {
        let world: env::World = self.world.clone();
        env::unix_seconds(&world)
    }

    /// The same in the format of objects.
    pub fn time(&self) -> String {
        schema::time::format_time(self.seconds())
    }

    /// A bare TLS connection.
    pub async fn connect(&self, user: &TestUser, protocol: Protocol) -> Stream {
        connect(self.address, user, protocol).await
    }

    pub(crate) async fn admin(&self) -> Sender {
        let open = || Sender::open(self.address, &TestUser::Admin, Protocol::Http2);
        match self.admin.get_or_init(open).await {
            Sender::Http2(sender) => Sender::Http2(sender.clone()),
            Sender::Http1(_) => unreachable!("the shared connection multiplexes"),
        }
    }

    pub fn request(&self, method: Method, path: &str) -> ApiRequest<'_> {
        ApiRequest::new(self, method, path)
    }

    pub fn get(&self, path: &str) -> ApiRequest<'_> {
        self.request(Method::GET, path)
    }

    pub fn post(&self, path: &str, body: impl Into<Payload>) -> ApiRequest<'_> {
        self.request(Method::POST, path).body(body)
    }

    pub fn put(&self, path: &str, body: impl Into<Payload>) -> ApiRequest<'_> {
        self.request(Method::PUT, path).body(body)
    }

    pub fn delete(&self, path: &str) -> ApiRequest<'_> {
        self.request(Method::DELETE, path)
    }

    /// A patch; an array is a JSON patch, everything else a merge patch.
    pub fn patch(&self, path: &str, body: Value) -> ApiRequest<'_> {
        let media =
            if body.is_array() { "application/json-patch+json" } else { "application/merge-patch+json" };
        self.request(Method::PATCH, path).body(body).header("content-type", media)
    }

    /// The object or list at a path.
    pub async fn read(&self, path: &str) -> Value {
        self.get(path).await.code(200).json()
    }

    /// Creates an object in a collection.
    pub async fn create(&self, collection: &str, object: Value) -> Value {
        self.post(collection, object).await.code(201).json()
    }

    /// Creates an object that has only a name.
    pub async fn named(&self, collection: &str, name: &str) -> Value {
        self.create(collection, json!({"metadata": {"name": name}})).await
    }

    /// Creates an object with a name and labels.
    pub async fn labelled(&self, collection: &str, name: &str, labels: Value) -> Value {
        self.create(collection, json!({"metadata": {"name": name, "labels": labels}})).await
    }

    /// Checks that the server still responds.
    pub async fn answers(&self) {
        let again: ApiResponse = self.get("/readyz").protocol(Protocol::Http1).await;
        assert_eq!(again.code(200).text(), "ok");
    }
}
