//! A whole API server: store, caches, resources and listener, started and stopped as one.

use crate::admission::NamespaceLifecycle;
use crate::answers::{self, Sources};
use crate::handle::Service;
use crate::serve::{self, Listen, ServeError, Shutdown};
use crate::service_accounts::{self, BadKey, Issuer, Key, Known};
use ambient::World;
use auth::{Authorizer, Tokens, WithoutRoles};
use names::Names;
use rest::input::{Format, Input};
use rest::options::WriteOptions;
use rest::storage::Unreadable;
use rest::{Admission, Api, ApiError, Requester, Storage, Writing};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::{Recovered, Store, StoreError};
use tokio::task::JoinHandle;

/// How to run an API server.
pub struct Config {
    pub store: StoreChoice,
    pub listen: Listen,
    pub world: World,
    pub names: Names,
    /// How long events are kept.
    pub event_ttl: Duration,
    /// Bearer tokens that are known from the start.
    pub tokens: Tokens,
    /// The private key, in PEM, that signs tokens of service accounts; without one none are given out.
    pub signing_key: Option<String>,
    /// What the issuer of these tokens calls itself, when it is not as usual.
    pub issuer: Option<String>,
    /// Which kinds are served.
    pub serving: kinds::Serving,
    /// What the operator decided about the kinds.
    pub options: kinds::Options,
    /// How much history is kept for watches and paged lists.
    pub cache: cache::Options,
}

/// Where objects are kept.
pub enum StoreChoice {
    /// Nowhere: all is gone with the process.
    Memory,
    /// In a file below this directory.
    Directory(PathBuf),
}

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Key(#[from] BadKey),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("the namespace {name:?} could not be made: {why}")]
    Namespace { name: String, why: ApiError },
}

/// A running server.
pub struct Server {
    pub service: Arc<Service>,
    address: SocketAddr,
    shutdown: Shutdown,
    serving: JoinHandle<()>,
    upkeep: JoinHandle<()>,
}

impl Server {
    /// Opens the store, fills the caches, makes what must exist, and listens. Ready when it returns.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        // the port first: a second server must fail before it touches anything
        let bound = serve::bind(config.listen).await?;
        let address = bound.local_addr();
        let (store, recovered) = open_store(&config.store, &config.world)?;
        let storage = Storage::new(store, recovered, config.cache, config.world.clone())?;
        let admission: Vec<Box<dyn Admission>> = vec![Box::new(NamespaceLifecycle)];
        let authorizer: Arc<dyn Authorizer> = Arc::new(WithoutRoles::new(&config.names));
        let issued_by = config.issuer.unwrap_or_else(|| config.names.token_issuer());
        let issuer = match &config.signing_key {
            Some(pem) => Some(Arc::new(Issuer {
                key: Key::from_pem(pem.as_bytes())?,
                name: issued_by.clone(),
                claims: config.names.well_known_domain.to_string(),
            })),
            None => None,
        };
        let audiences = vec![issued_by];
        let known = Arc::new(Known {
            tokens: config.tokens,
            issuer: issuer.clone(),
            audiences: audiences.clone(),
            api: OnceLock::new(),
        });
        let sources = Sources {
            authorizer: authorizer.clone(),
            authenticator: known.clone(),
            store: storage.store.clone(),
        };
        let api = Arc::new(Api::new(config.names, storage, config.world, admission));
        for (kind, mut hooks) in kinds::builtin_serving(config.options, &config.serving) {
            if kind.expires {
                hooks.lifetime_seconds = Some(config.event_ttl.as_secs() as i64);
            }
            hooks.answer = answers::of(&kind, &sources);
            hooks.parts.extend(issuer.as_ref().and_then(|it| service_accounts::part(&kind, it, &audiences)));
            let stored = kinds::stored(&kind).unwrap_or_else(|| kind.clone());
            api.register_as(kind, stored, hooks)?;
        }
        let _ = known.api.set(Arc::downgrade(&api));
        make_system_namespaces(&api).await?;
        let shutdown = Shutdown::new();
        let service =
            Arc::new(Service::new(api.clone(), shutdown.clone(), address, known, authorizer, issuer));
        let serving = tokio::spawn(serve::run(bound, service.clone(), shutdown.clone()));
        let upkeep = tokio::spawn(async move {
            let mut every = tokio::time::interval(Duration::from_secs(10));
            loop {
                every.tick().await;
                api.storage.trim();
            }
        });
        Ok(Server { service, address, shutdown, serving, upkeep })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the server no longer listens, which it does only when told to stop or when it breaks.
    pub async fn ended(&self) {
        self.shutdown.reached(serve::Phase::Stopping).await;
    }

    /// Fails readiness, ends watches, lets requests finish, closes the store: nothing acknowledged is lost.
    pub async fn shutdown(self) {
        self.shutdown.drain();
        self.service.api.storage.close_watches();
        self.shutdown.stop();
        let _ = self.serving.await;
        self.upkeep.abort();
        self.service.api.storage.store.close().await;
    }
}

fn open_store(choice: &StoreChoice, world: &World) -> Result<(Arc<dyn Store>, Vec<Recovered>), StoreError> {
    let options = store::Options::default();
    match choice {
        StoreChoice::Memory => Ok((Arc::new(store::memory::open(&options, world.clone())), Vec::new())),
        StoreChoice::Directory(directory) => {
            let mut recovered = Vec::new();
            let engine = store::embedded::open(directory, &options, world.clone(), &mut |record| {
                recovered.push(record)
            })?;
            Ok((Arc::new(engine), recovered))
        }
    }
}

async fn make_system_namespaces(api: &Arc<Api>) -> Result<(), StartError> {
    let names = &api.names;
    let needed = [
        names.system_namespace(),
        names.public_namespace(),
        names.node_lease_namespace(),
        names::DEFAULT_NAMESPACE.to_owned(),
    ];
    let resources = api.resources();
    let Some(resource) = resources.get("v1", "namespaces") else { return Ok(()) };
    let manager = format!("{}-apiserver", names.prefix);
    for name in needed {
        if resource.collection.cache.get("", &name).is_some() {
            continue;
        }
        let options = WriteOptions::default();
        let user = Requester { name: auth::APISERVER.to_owned(), ..Requester::default() };
        let mut writing = Writing {
            resource,
            namespace: "",
            name: "",
            subresource: "",
            options: &options,
            user: &user,
            manager: &manager,
            owned: false,
            warnings: Vec::new(),
        };
        let body = format!("{{\"metadata\":{{\"name\":\"{name}\"}}}}");
        let input = Input { bytes: body.into(), format: Format::Json };
        let made = api.create(&mut writing, &input).await;
        made.map_err(|why| StartError::Namespace { name, why })?;
    }
    Ok(())
}
