//! The HTTPS port of the controller manager and the scheduler: health checks, metrics and debug pages.
//!
//! Invariants: authentication and authorization are delegated to the API server, except for the paths of
//! `--authorization-always-allow-paths` and for `system:masters`. When the client authorities change, in the API server's
//! config map or in a file, the listener is opened again with the new ones.

use crate::host::command_line;
use crate::options::{AuthorityFiles, ClientTrust, ConfigErrors, Delegation, ServingCertificates, Tls};
use anyhow::Context as _;
use api::core::v1::ConfigMap;
use apiserver::authentication::{self, Chain};
use apiserver::authorization;
use apiserver::discovery::debug::DebugData;
use apiserver::discovery::health;
use apiserver::discovery::slis::Slis;
use apiserver::observability::Verbosity;
use apiserver::serve::{
    self, Body, BoundListener, Handler, Limits, ListenConfig, Peer, Shutdown, TlsMaterial,
};
use auth::{Attributes, Authorizer, User};
use client::metrics::Metrics;
use client::{Api, Client};
use client::{Rate, transport};
use env::World;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use names::Names;
use outbound::Target;
use rest::options::Query;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The config map in which the API server publishes its client authorities.
const TRUST_CONFIG_MAP: &str = "extension-apiserver-authentication";
/// How often the config map and the files are read again.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(10);

/// The flags of the port.
pub struct PortFlags<'a> {
    /// The name of the component without the dialect's prefix: `scheduler`.
    pub component: &'static str,
    pub bind_address: IpAddr,
    /// 0 for no port.
    pub secure_port: u16,
    pub tls: &'a Tls,
    pub delegation: &'a Delegation,
    /// Whether `/debug/` is served.
    pub profiling: bool,
}

/// The options of the port.
pub struct PortConfig {
    component: &'static str,
    /// No port is opened without an address.
    address: Option<SocketAddr>,
    share_port: bool,
    certificates: ServingCertificates,
    from_flags: ClientTrust,
    files: AuthorityFiles,
    /// The API server that publishes the client authorities.
    trust_api: Option<Target>,
    tolerates_lookup_failure: bool,
    tokens: Option<authentication::webhook::Options>,
    authorizer: Option<authorization::webhook::Options>,
    always_allow_paths: Vec<String>,
    /// Whether `/metrics/slis` is served.
    slis: bool,
    /// Whether `/debug/` is served.
    profiling: bool,
}

impl PortConfig {
    pub fn read(flags: &PortFlags<'_>, slis: bool, names: &Names, errors: &mut ConfigErrors) -> Self {
        let delegation = flags.delegation;
        let file = delegation.authentication_kubeconfig.as_deref();
        let file = file.filter(|_| !delegation.authentication_skip_lookup);
        let trust_api = file.and_then(|file| {
            let read: Result<Target, _> = Target::from_kubeconfig(file as &Path);
            read.ok()
        });
        PortConfig {
            component: flags.component,
            address: (flags.secure_port != 0).then(|| SocketAddr::new(flags.bind_address, flags.secure_port)),
            share_port: flags.tls.permit_port_sharing,
            certificates: flags.tls.read(errors),
            from_flags: delegation.client_trust(errors),
            files: delegation.files(),
            trust_api,
            tolerates_lookup_failure: delegation.authentication_tolerate_lookup_failure,
            tokens: delegation.token_reviews(names, errors),
            authorizer: delegation.access_reviews(names, errors),
            always_allow_paths: delegation.authorization_always_allow_paths.clone(),
            slis,
            profiling: flags.profiling,
        }
    }
}

/// The health of a component: every check of a running part is healthy.
pub struct Health {
    /// The check before all others.
    first: &'static str,
    running: Mutex<BTreeSet<&'static str>>,
    /// Counts of check results.
    slis: Slis,
}

impl Health {
    /// A component with one check, which is healthy while the process runs.
    pub fn new(first: &'static str) -> Self {
        Health { first, running: Mutex::default(), slis: Slis::default() }
    }

    pub fn add_running(&self, loops: impl Iterator<Item = &'static str>) {
        self.lock().extend(loops);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<&'static str>> {
        self.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The response to a health path: one check, or all.
    fn answer(&self, path: &str, query: &str) -> Option<String> {
        let (endpoint, one) = health::parse(path)?;
        let mut checks = vec![self.first];
        checks.extend(self.lock().iter());
        match one {
            Some(one) => checks.contains(&one).then(|| "ok".to_owned()),
            None => {
                let well = checks.into_iter().map(|check| (check, true));
                Some(health::respond_all(endpoint, well, &Query::parse(query), &self.slis).text)
            }
        }
    }
}

/// A page of a component besides those of every component.
pub struct Page {
    pub path: &'static str,
    pub is_json: bool,
    pub content: Arc<dyn Fn() -> String + Send + Sync>,
}

/// The parts that the work of a component and the port share.
pub struct ProcessContext {
    pub metrics: Metrics,
    pub health: Arc<Health>,
    pub pages: Arc<[Page]>,
    pub world: World,
    /// Sets the verbosity of the log.
    pub verbosity: Verbosity,
}

/// The health and metrics port of a component.
pub struct Port {
    open: Option<OpenPort>,
}

struct OpenPort {
    address: SocketAddr,
    share_port: bool,
    tls: TlsMaterial,
    /// The authorities of the flags, as the files were last read.
    from_flags: ClientTrust,
    files: AuthorityFiles,
    trust: ClientTrust,
    trust_api: Option<Api<ConfigMap>>,
    bound: BoundListener,
    handler: Arc<PortHandler>,
    world: World,
}

impl Port {
    pub async fn open(config: PortConfig, process: &ProcessContext, names: Names) -> anyhow::Result<Self> {
        let ProcessContext { metrics, health, pages, world, verbosity } = process;
        let Some(address) = config.address else { return Ok(Port { open: None }) };
        let trust_api = match &config.trust_api {
            Some(target) => Some(trust_config_map(target, config.component, &names, (metrics, world))?),
            None => None,
        };
        let trust = match &trust_api {
            None => config.from_flags.clone(),
            Some(map) => match get_with_retry(map).await {
                Ok(map) => config.from_flags.clone().merge(&map),
                Err(why) if config.tolerates_lookup_failure => {
                    tracing::warn!(%why, "cannot read the client authorities from the API server");
                    config.from_flags.clone()
                }
                Err(why) => anyhow::bail!(
                    "cannot read the client authorities from the API server: {why}; to start without them, set \
                     --authentication-tolerate-lookup-failure"
                ),
            },
        };
        let mut tls = TlsMaterial::default();
        if config.certificates.default_pair.is_none() {
            (tls.certificate_chain, tls.private_key) = self_signed(address)?;
        }
        let tls = config.certificates.apply_to(tls);
        let handler = Arc::new(PortHandler {
            metrics: metrics.clone(),
            health: health.clone(),
            pages: pages.clone(),
            always_allow_paths: config.always_allow_paths,
            slis: config.slis,
            debug: config.profiling.then(|| Debug { command: command_line(), verbosity: verbosity.clone() }),
            tokens: config.tokens.map(|options| {
                Arc::new(authentication::webhook::WebhookAuthenticator::new(
                    options,
                    Arc::new([]),
                    &names,
                    world,
                )) as Arc<_>
            }),
            authorizer: config
                .authorizer
                .map(|options| authorization::webhook::WebhookAuthorizer::new(options, &names, world)),
            chain: arc_swap::ArcSwapOption::empty(),
            world: world.clone(),
        });
        handler.set_trust(&trust);
        let bound = bind(address, config.share_port, &tls, &trust, world).await?;
        let PortConfig { from_flags, files, share_port, .. } = config;
        let world = world.clone();
        let open =
            OpenPort { address, share_port, tls, from_flags, files, trust, trust_api, bound, handler, world };
        Ok(Port { open: Some(open) })
    }

    /// Serves until the listener fails.
    pub async fn serve(self) {
        let Some(mut open) = self.open else { return std::future::pending().await };
        let mut bound = open.bound;
        loop {
            let shutdown = Shutdown::new();
            let serving = serve::run(bound, open.handler.clone(), shutdown.clone());
            tokio::pin!(serving);
            let changed = async {
                loop {
                    tokio::time::sleep(POLL_INTERVAL).await;
                    let from_flags = open.from_flags.reload(&open.files);
                    let trust = match &open.trust_api {
                        None => from_flags.clone(),
                        Some(map) => match map.get(TRUST_CONFIG_MAP).await {
                            Ok(map) => from_flags.clone().merge(&map),
                            Err(_) => continue,
                        },
                    };
                    if trust != open.trust {
                        return (from_flags, trust);
                    }
                }
            };
            let (from_flags, trust) = tokio::select! {
                () = &mut serving => return,
                trust = changed => trust,
            };
            open.from_flags = from_flags;
            tracing::info!("the client authorities changed: the port is opened again");
            open.handler.set_trust(&trust);
            open.trust = trust;
            shutdown.stop();
            serving.await;
            bound = match bind(open.address, open.share_port, &open.tls, &open.trust, &open.world).await {
                Ok(bound) => bound,
                Err(why) => {
                    tracing::error!(%why, "cannot open the port again");
                    return;
                }
            };
        }
    }
}

async fn bind(
    address: SocketAddr,
    share_port: bool,
    tls: &TlsMaterial,
    trust: &ClientTrust,
    world: &World,
) -> anyhow::Result<BoundListener> {
    let mut tls = tls.clone();
    let bytes = |pem: &Option<String>| pem.clone().filter(|it| !it.trim().is_empty()).map(String::into_bytes);
    tls.client_authorities = bytes(&trust.clients);
    tls.proxy_authorities = bytes(&trust.proxies);
    let listen = ListenConfig { address, tls, limits: Limits::default(), share_port, world: world.clone() };
    serve::bind(listen)
        .await
        .map_err(|why| anyhow::anyhow!("{why}: see --bind-address, --secure-port and the --tls options"))
}

fn trust_config_map(
    target: &Target,
    component: &str,
    names: &Names,
    (metrics, world): (&Metrics, &World),
) -> anyhow::Result<Api<ConfigMap>> {
    let transport = transport::transport(target, &format!("{}-{component}", names.prefix), metrics)?;
    let client: Client = transport::client(&transport, Rate::default(), world);
    Ok(Api::namespaced(&client, &names.system_namespace()))
}

/// Reads the config map, with retries for an API server that is still starting.
async fn get_with_retry(map: &Api<ConfigMap>) -> Result<ConfigMap, client::Error> {
    let reading = async {
        loop {
            match map.get(TRUST_CONFIG_MAP).await {
                Ok(text) => return text,
                Err(why) => tracing::info!(%why, "cannot read the client authorities yet: retrying"),
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    match tokio::time::timeout(TIMEOUT, reading).await {
        Ok(text) => Ok(text),
        Err(_) => map.get(TRUST_CONFIG_MAP).await,
    }
}

/// A self-signed certificate for the lifetime of the process.
fn self_signed(address: SocketAddr) -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned(), address.ip().to_string()];
    let made = rcgen::generate_simple_self_signed(BTreeSet::from(names).into_iter().collect::<Vec<_>>())
        .context("cannot make a certificate for --bind-address")?;
    Ok((made.cert.pem().into_bytes(), made.signing_key.serialize_pem().into_bytes()))
}

/// Handles the requests at the port.
struct PortHandler {
    metrics: Metrics,
    health: Arc<Health>,
    pages: Arc<[Page]>,
    /// Paths that need no authorization.
    always_allow_paths: Vec<String>,
    slis: bool,
    /// Present if `/debug/` is served.
    debug: Option<Debug>,
    tokens: Option<Arc<dyn auth::tokens::Authenticator>>,
    authorizer: Option<authorization::webhook::WebhookAuthorizer>,
    /// The authenticators, replaced when the client authorities change.
    chain: arc_swap::ArcSwapOption<Chain>,
    world: World,
}

/// The state that the debug pages show.
struct Debug {
    command: Vec<String>,
    verbosity: Verbosity,
}

impl PortHandler {
    /// The debug page at the path of the request; other requests are returned.
    async fn debug_page(&self, request: Request<Incoming>) -> Result<Response<Body>, Request<Incoming>> {
        let Some(debug) = self.debug.as_ref().filter(|_| request.uri().path().starts_with("/debug/")) else {
            return Err(request);
        };
        let (parts, body) = request.into_parts();
        let Ok(body) = http_body_util::Limited::new(body, 1024).collect().await else {
            return Ok(text_response(StatusCode::BAD_REQUEST, "the body is too long\n"));
        };
        let inside = DebugData {
            command: &debug.command,
            verbosity: Some(&debug.verbosity),
            memory_usage: &|| self.metrics.waiting(),
        };
        let page = inside.page(&parts.method, parts.uri.path(), &body.to_bytes());
        Ok(page.unwrap_or_else(|| text_response(StatusCode::NOT_FOUND, "404 page not found\n")))
    }

    /// Authenticates by these authorities from now on.
    fn set_trust(&self, trust: &ClientTrust) {
        self.chain.store(Some(Arc::new(Chain {
            front_proxy: trust.front_proxy(),
            websocket_prefix: String::new(),
            tokens: self.tokens.iter().cloned().collect(),
            audiences: Arc::new([]),
            anonymous: true,
            world: self.world.clone(),
            remaining: Default::default(),
        })));
    }

    fn is_always_allowed(&self, path: &str) -> bool {
        self.always_allow_paths.iter().any(|always_allow_paths| match always_allow_paths.strip_suffix('*') {
            Some(start) => path.starts_with(start),
            None => path.trim_start_matches('/') == always_allow_paths.trim_start_matches('/'),
        })
    }

    async fn is_allowed(&self, user: &User, verb: &str, path: &str) -> bool {
        if user.is_in(auth::MASTERS) {
            return true;
        }
        let Some(authorizer) = &self.authorizer else { return false };
        let attributes = Attributes {
            user,
            verb,
            api_group: "",
            version: "",
            resource: "",
            subresource: "",
            namespace: "",
            name: "",
            path,
            resource_request: false,
        };
        authorizer.authorize(&attributes).get().await.is_allowed()
    }

    fn content(&self, path: &str, query: &str) -> Option<String> {
        match path {
            "/metrics" => Some(self.metrics.text()),
            "/metrics/slis" if self.slis => Some(self.health.slis.text()),
            _ => self.health.answer(path, query),
        }
    }
}

impl Handler for PortHandler {
    async fn handle(self: &Arc<Self>, request: Request<Incoming>, peer: Arc<Peer>) -> Response<Body> {
        let path = request.uri().path();
        if !self.is_always_allowed(path) {
            let record = rest::RequestRecord::default();
            let chain = self.chain.load_full();
            let Some(chain) = chain else {
                return text_response(StatusCode::SERVICE_UNAVAILABLE, "not ready\n");
            };
            let user = match chain.authenticate(request.headers(), &peer, &record).await {
                Ok(user) => user,
                Err(why) => {
                    tracing::info!(%why, path, "authentication failed");
                    return text_response(StatusCode::UNAUTHORIZED, "Unauthorized\n");
                }
            };
            let verb = request.method().as_str().to_lowercase();
            if !self.is_allowed(&user, &verb, path).await {
                let why = format!("forbidden: User {:?} cannot {verb} path {path:?}\n", user.name);
                return text_response(StatusCode::FORBIDDEN, why);
            }
        }
        if self.slis && path == "/metrics/slis" && request.method() == Method::DELETE {
            self.health.slis.reset();
            return text_response(StatusCode::OK, "metrics reset\n");
        }
        let request = match self.debug_page(request).await {
            Ok(page) => return page,
            Err(request) => request,
        };
        let path = request.uri().path();
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            return text_response(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are allowed\n");
        }
        if let Some(page) = self.pages.iter().find(|page| page.path == path) {
            return page_response(page);
        }
        match self.content(path, request.uri().query().unwrap_or_default()) {
            Some(text) => text_response(StatusCode::OK, text),
            None => text_response(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }
}

fn page_response(page: &Page) -> Response<Body> {
    let mut response = text_response(StatusCode::OK, (page.content)());
    if page.is_json {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    response
}

fn text_response(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    let mut response = Response::new(Body::full(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_lists_the_running_controllers() {
        let health = Health::new("leaderElection");
        assert_eq!(health.answer("/healthz", "").as_deref(), Some("ok"));
        health.add_running(["job", "csrsigning"].into_iter());
        let text = health.answer("/healthz", "verbose").unwrap();
        assert_eq!(text, "[+]leaderElection ok\n[+]csrsigning ok\n[+]job ok\nhealthz check passed\n");
        let text = health.answer("/livez", "verbose&exclude=job").unwrap();
        assert_eq!(text, "[+]leaderElection ok\n[+]csrsigning ok\n[+]job excluded: ok\nlivez check passed\n");
        assert_eq!(health.answer("/readyz/job", "").as_deref(), Some("ok"));
        assert_eq!(health.answer("/readyz/other", ""), None);
        assert_eq!(health.answer("/healthzz", ""), None);
        let made = health.slis.text();
        assert!(made.contains("kubernetes_healthcheck{name=\"job\",type=\"healthz\"} 1\n"), "{made}");
        assert!(!made.contains("readyz"), "a check alone is not counted: {made}");
    }
}
