//! A server of one's own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use apiserver::egress::Egress;
use apiserver::serve::{AuthorityFile, Limits, Listen, TlsMaterial};
use apiserver::{
    Config, Deployment, Found, Gates, Server, StartError, StoreChoice, admission, aggregation, audit,
    authentication, authorization, cors, encryption_at_rest, flowcontrol, limits, observability,
};
use env::{Simulated, World};
use http::Method;
use names::Names;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::ask::{Answer, Ask, Payload};
use crate::hold::{Hold, Holding};
use crate::pki::authority;
use crate::transport::{Protocol, Sender, Stream, Who, connect};

/// When the tests play, in Unix seconds.
pub const NOW: u64 = 1_700_000_000;

/// What a test may want otherwise.
pub struct Options {
    pub store: StoreChoice,
    /// Who encrypts what is kept, if anybody does.
    pub sealing: Option<encryption_at_rest::Options>,
    pub limits: Limits,
    /// What requests may take, and how the server begins and ends.
    pub requests: limits::Options,
    pub event_ttl: Duration,
    pub names: Names,
    pub identity: authentication::Options,
    /// The file with the authorities for clients, if they are to be read again when it changes.
    pub client_authority_file: Option<PathBuf>,
    /// Who vouches for proxies that say who is calling, in PEM.
    pub proxy_authorities: Option<String>,
    pub permission: authorization::Options,
    pub admission: admission::Options,
    pub audit: audit::Options,
    pub fairness: flowcontrol::Options,
    pub serving: kinds::Serving,
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
    pub cache: cache::Options,
    pub observe: observability::Options,
    /// What the process around the server gives it.
    pub deployment: Deployment,
    /// The port to listen on; 0 is any.
    pub port: u16,
    /// When the server's clock starts, in Unix seconds.
    pub now: u64,
    /// Holds up work that needs randomness, where a test wants that.
    pub hold: Option<Arc<Hold>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            store: StoreChoice::Memory,
            sealing: None,
            limits: Limits::default(),
            requests: limits::Options::default(),
            event_ttl: Duration::from_secs(3600),
            names: Names::default(),
            identity: authentication::Options::default(),
            client_authority_file: None,
            proxy_authorities: None,
            permission: authorization::Options { modes: vec![auth::Mode::Rbac], ..Default::default() },
            // nobody makes the accounts of namespaces here
            admission: admission::Options {
                disable: vec!["ServiceAccount".to_owned()],
                ..admission::Options::default()
            },
            audit: audit::Options::default(),
            fairness: flowcontrol::Options::default(),
            serving: kinds::Serving::default(),
            kinds: kinds::Options::default(),
            reached_at: None,
            found: Found::default(),
            egress: Egress::default(),
            aggregation: aggregation::Options::default(),
            gates: Gates::default(),
            browsers: cors::Options::default(),
            cache: cache::Options::default(),
            observe: observability::Options::default(),
            deployment: Deployment::default(),
            port: 0,
            now: NOW,
            hold: None,
        }
    }
}

impl Options {
    /// With admission plugins switched on and off, and with what plugins are told.
    pub fn plugins(enable: &[&str], disable: &[&str], told: &[(&str, Value)]) -> Self {
        let mut options = Self::default();
        let admission = &mut options.admission;
        admission.disable.retain(|name| !enable.contains(&name.as_str()));
        admission.enable.extend(enable.iter().map(|name| (*name).to_owned()));
        admission.disable.extend(disable.iter().map(|name| (*name).to_owned()));
        for (name, told) in told {
            let told = schema::decode::json_untyped(told.to_string().as_bytes()).unwrap();
            admission.configuration.insert((*name).to_owned(), told.value);
        }
        options
    }
}

/// A running server and its clock.
pub struct Cluster {
    pub world: Arc<Simulated>,
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

    /// The same, and the server writes nothing by itself once it runs.
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
        let world = Simulated::new(options.now, 7);
        Self::attempt_in(options, world).await
    }

    /// The same with a clock that others have too.
    pub async fn attempt_in(options: Options, world: Arc<Simulated>) -> Result<Self, StartError> {
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
        let ambient: World = match options.hold {
            None => world.clone(),
            Some(hold) => Arc::new(Holding { hold, world: world.clone() }),
        };
        let listen =
            Listen { address, tls, limits: options.limits, share_port: false, world: ambient.clone() };
        let config = Config {
            store: options.store,
            sealing: options.sealing,
            listen,
            world: ambient,
            names: options.names,
            event_ttl: options.event_ttl,
            delete_workers: 4,
            egress: options.egress,
            identity: options.identity,
            permission: options.permission,
            admission: options.admission,
            audit: options.audit,
            fairness: options.fairness,
            serving: options.serving,
            limits: options.requests,
            cache: options.cache,
            kinds: options.kinds,
            reached_at: options.reached_at,
            found: options.found,
            aggregation: options.aggregation,
            gates: options.gates,
            browsers: options.browsers,
            observe: options.observe,
            deployment: options.deployment,
        };
        let server = Server::start(config).await?;
        Ok(Cluster { world, address: server.local_addr(), server, admin: OnceCell::new() })
    }

    /// Ends the server as SIGTERM would.
    pub async fn stop(self) {
        let Cluster { server, admin, .. } = self;
        drop(admin);
        crate::soon("the server's end", server.shutdown()).await;
    }

    /// Moves the server's clock.
    pub fn advance(&self, by: Duration) {
        self.world.advance(by);
    }

    /// What the server's clock shows, in Unix seconds.
    pub fn seconds(&self) -> i64 {
        let world: env::World = self.world.clone();
        env::unix_seconds(&world)
    }

    /// The same as objects have it.
    pub fn time(&self) -> String {
        schema::time::format_time(self.seconds())
    }

    /// A bare connection, to speak anything over.
    pub async fn connect(&self, who: &Who, protocol: Protocol) -> Stream {
        connect(self.address, who, protocol).await
    }

    pub(crate) async fn admin(&self) -> Sender {
        let open = || Sender::open(self.address, &Who::Admin, Protocol::Http2);
        match self.admin.get_or_init(open).await {
            Sender::Http2(sender) => Sender::Http2(sender.clone()),
            Sender::Http1(_) => unreachable!("the shared connection multiplexes"),
        }
    }

    pub fn ask(&self, method: Method, path: &str) -> Ask<'_> {
        Ask::new(self, method, path)
    }

    pub fn get(&self, path: &str) -> Ask<'_> {
        self.ask(Method::GET, path)
    }

    pub fn post(&self, path: &str, body: impl Into<Payload>) -> Ask<'_> {
        self.ask(Method::POST, path).body(body)
    }

    pub fn put(&self, path: &str, body: impl Into<Payload>) -> Ask<'_> {
        self.ask(Method::PUT, path).body(body)
    }

    pub fn delete(&self, path: &str) -> Ask<'_> {
        self.ask(Method::DELETE, path)
    }

    /// A patch; an array is a JSON patch, everything else a merge patch.
    pub fn patch(&self, path: &str, body: Value) -> Ask<'_> {
        let media =
            if body.is_array() { "application/json-patch+json" } else { "application/merge-patch+json" };
        self.ask(Method::PATCH, path).body(body).header("content-type", media)
    }

    /// The object or list at a path.
    pub async fn read(&self, path: &str) -> Value {
        self.get(path).await.code(200).json()
    }

    /// Makes an object in a collection.
    pub async fn create(&self, collection: &str, object: Value) -> Value {
        self.post(collection, object).await.code(201).json()
    }

    /// Makes an object that has nothing but a name.
    pub async fn named(&self, collection: &str, name: &str) -> Value {
        self.create(collection, json!({"metadata": {"name": name}})).await
    }

    /// Makes an object with a name and labels.
    pub async fn labelled(&self, collection: &str, name: &str, labels: Value) -> Value {
        self.create(collection, json!({"metadata": {"name": name, "labels": labels}})).await
    }

    /// Whether the server still answers, after whatever was done to it.
    pub async fn answers(&self) {
        let again: Answer = self.get("/readyz").protocol(Protocol::Http1).await;
        assert_eq!(again.code(200).text(), "ok");
    }
}
