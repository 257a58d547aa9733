//! The manager's own port: health for everybody, metrics for who may.
//!
//! What always holds: who calls and whether they may is asked of the API server, except for paths that everybody may look
//! at and for masters. When the API server, or a file, says that clients are known by other authorities, the port is opened
//! anew with those.

use super::Told;
use crate::cli::command_line;
use crate::options::{AuthorityFiles, ConfigErrors, ControllerManager, FoundOut, ServingCertificates};
use anyhow::Context as _;
use api::core::v1::ConfigMap;
use apiserver::authentication::{self, Chain};
use apiserver::authorization;
use apiserver::discovery::debug::Inside;
use apiserver::discovery::health;
use apiserver::discovery::slis::Slis;
use apiserver::observability::Verbosity;
use apiserver::serve::{self, Body, Bound, Handler, Limits, Listen, Peer, Shutdown, TlsMaterial};
use auth::{Attributes, Authorizer, User};
use client::metrics::Metrics;
use client::transport::{self, Rate};
use client::{Api, Client};
use env::World;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use names::Names;
use outbound::Target;
use rest::options::Query;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The config map that says by which authorities clients are known.
const TRUST: &str = "extension-apiserver-authentication";
/// How often it and the operator's files are looked at, and how long it may be missing at the start.
const LOOK: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(10);

/// What the command line says about the port.
pub struct Wanted {
    /// None is served without one.
    address: Option<SocketAddr>,
    share_port: bool,
    shown: ServingCertificates,
    said: FoundOut,
    files: AuthorityFiles,
    /// Where the API server says by whom clients are known.
    lookup: Option<Target>,
    tolerant: bool,
    tokens: Option<authentication::webhook::Options>,
    permissions: Option<authorization::webhook::Options>,
    allowed: Vec<String>,
    /// Whether it is told how health checks went.
    slis: bool,
    /// Whether the inside of the process is shown.
    profiling: bool,
}

impl Wanted {
    pub fn read(asked: &ControllerManager, slis: bool, names: &Names, wrong: &mut ConfigErrors) -> Self {
        let delegation = &asked.delegation;
        let file = delegation.authentication_kubeconfig.as_deref();
        let file = file.filter(|_| !delegation.authentication_skip_lookup);
        let lookup = file.and_then(|file| {
            let read: Result<Target, _> = Target::from_kubeconfig(file as &Path);
            read.ok()
        });
        Wanted {
            address: (asked.secure_port != 0).then(|| SocketAddr::new(asked.bind_address, asked.secure_port)),
            share_port: asked.tls.permit_port_sharing,
            shown: asked.tls.read(wrong),
            said: delegation.said(wrong),
            files: delegation.files(),
            lookup,
            tolerant: delegation.authentication_tolerate_lookup_failure,
            tokens: delegation.tokens(names, wrong),
            permissions: delegation.permissions(names, wrong),
            allowed: delegation.authorization_always_allow_paths.clone(),
            slis,
            profiling: asked.numbers.profiling,
        }
    }
}

/// What runs, and is well because it does.
#[derive(Default)]
pub struct Health {
    running: Mutex<BTreeSet<&'static str>>,
    /// How checks went.
    slis: Slis,
}

impl Health {
    pub fn runs(&self, loops: impl Iterator<Item = &'static str>) {
        self.lock().extend(loops);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<&'static str>> {
        self.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The answer to a path of health, if it is one: all checks or one. All that run are well.
    fn answer(&self, path: &str, query: &str) -> Option<String> {
        let (endpoint, one) = health::parse(path)?;
        let mut checks = vec!["leaderElection"];
        checks.extend(self.lock().iter());
        match one {
            Some(one) => checks.contains(&one).then(|| "ok".to_owned()),
            None => {
                let well = checks.into_iter().map(|check| (check, true));
                Some(health::together(endpoint, well, &Query::parse(query), &self.slis).text)
            }
        }
    }
}

/// The port, open.
pub struct Port {
    open: Option<Open>,
}

struct Open {
    address: SocketAddr,
    share_port: bool,
    tls: TlsMaterial,
    /// What the operator said, as the files were when they were last read.
    said: FoundOut,
    files: AuthorityFiles,
    found: FoundOut,
    lookup: Option<Api<ConfigMap>>,
    bound: Bound,
    answers: Arc<Answers>,
    world: World,
}

impl Port {
    pub async fn open(wanted: Wanted, told: &Told, names: Names) -> anyhow::Result<Self> {
        let Told { metrics, health, world, verbosity } = told;
        let Some(address) = wanted.address else { return Ok(Port { open: None }) };
        let lookup = match &wanted.lookup {
            Some(target) => Some(trust_map(target, &names, metrics, world)?),
            None => None,
        };
        let found = match &lookup {
            None => wanted.said.clone(),
            Some(map) => match patiently(map).await {
                Ok(told) => wanted.said.clone().with(&told),
                Err(why) if wanted.tolerant => {
                    tracing::warn!(%why, "the API server does not say by whom clients are known");
                    wanted.said.clone()
                }
                Err(why) => anyhow::bail!(
                    "the API server does not say by whom clients are known: {why}; go on without with \
                     --authentication-tolerate-lookup-failure"
                ),
            },
        };
        let mut tls = TlsMaterial::default();
        if wanted.shown.everybody.is_none() {
            (tls.certificate_chain, tls.private_key) = self_signed(address)?;
        }
        let tls = wanted.shown.onto(tls);
        let answers = Arc::new(Answers {
            metrics: metrics.clone(),
            health: health.clone(),
            allowed: wanted.allowed,
            slis: wanted.slis,
            debug: wanted.profiling.then(|| Debug { command: command_line(), verbosity: verbosity.clone() }),
            tokens: wanted.tokens.map(|options| {
                Arc::new(authentication::webhook::Remote::new(options, Arc::new([]), &names, world)) as Arc<_>
            }),
            permissions: wanted
                .permissions
                .map(|options| authorization::webhook::Remote::new(options, &names, world)),
            chain: arc_swap::ArcSwapOption::empty(),
            world: world.clone(),
        });
        answers.know(&found);
        let bound = bind(address, wanted.share_port, &tls, &found, world).await?;
        let Wanted { said, files, share_port, .. } = wanted;
        let world = world.clone();
        let open = Open { address, share_port, tls, said, files, found, lookup, bound, answers, world };
        Ok(Port { open: Some(open) })
    }

    /// Serves for ever.
    pub async fn serve(self) {
        let Some(mut open) = self.open else { return std::future::pending().await };
        let mut bound = open.bound;
        loop {
            let shutdown = Shutdown::new();
            let serving = serve::run(bound, open.answers.clone(), shutdown.clone());
            tokio::pin!(serving);
            let changed = async {
                loop {
                    tokio::time::sleep(LOOK).await;
                    let said = open.said.refreshed(&open.files);
                    let found = match &open.lookup {
                        None => said.clone(),
                        Some(map) => match map.get(TRUST).await {
                            Ok(told) => said.clone().with(&told),
                            Err(_) => continue,
                        },
                    };
                    if found != open.found {
                        return (said, found);
                    }
                }
            };
            let (said, found) = tokio::select! {
                () = &mut serving => return,
                found = changed => found,
            };
            open.said = said;
            tracing::info!("clients are known by other authorities now");
            open.answers.know(&found);
            open.found = found;
            shutdown.stop();
            serving.await;
            bound = match bind(open.address, open.share_port, &open.tls, &open.found, &open.world).await {
                Ok(bound) => bound,
                Err(why) => {
                    tracing::error!(%why, "the port cannot be opened anew");
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
    found: &FoundOut,
    world: &World,
) -> anyhow::Result<Bound> {
    let mut tls = tls.clone();
    let bytes = |pem: &Option<String>| pem.clone().filter(|it| !it.trim().is_empty()).map(String::into_bytes);
    tls.client_authorities = bytes(&found.clients);
    tls.proxy_authorities = bytes(&found.proxies);
    let listen = Listen { address, tls, limits: Limits::default(), share_port, world: world.clone() };
    serve::bind(listen)
        .await
        .map_err(|why| anyhow::anyhow!("{why}: see --bind-address, --secure-port and the --tls options"))
}

fn trust_map(
    target: &Target,
    names: &Names,
    metrics: &Metrics,
    world: &World,
) -> anyhow::Result<Api<ConfigMap>> {
    let transport = transport::transport(target, &format!("{}-controller-manager", names.prefix), metrics)?;
    let client: Client = transport::client(&transport, Rate::default(), world);
    Ok(Api::namespaced(&client, &names.system_namespace()))
}

/// The map, from a server that may only just have started.
async fn patiently(map: &Api<ConfigMap>) -> Result<ConfigMap, client::Error> {
    let asking = async {
        loop {
            match map.get(TRUST).await {
                Ok(told) => return told,
                Err(why) => tracing::info!(%why, "the API server is asked again by whom clients are known"),
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    match tokio::time::timeout(TIMEOUT, asking).await {
        Ok(told) => Ok(told),
        Err(_) => map.get(TRUST).await,
    }
}

/// A certificate for as long as the process lives.
fn self_signed(address: SocketAddr) -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned(), address.ip().to_string()];
    let made = rcgen::generate_simple_self_signed(BTreeSet::from(names).into_iter().collect::<Vec<_>>())
        .context("no certificate can be made for --bind-address")?;
    Ok((made.cert.pem().into_bytes(), made.signing_key.serialize_pem().into_bytes()))
}

/// Answers what is asked at the port.
struct Answers {
    metrics: Metrics,
    health: Arc<Health>,
    /// What everybody may look at.
    allowed: Vec<String>,
    slis: bool,
    /// Where the inside of the process is shown.
    debug: Option<Debug>,
    tokens: Option<Arc<dyn auth::tokens::Authenticator>>,
    permissions: Option<authorization::webhook::Remote>,
    /// Who knows callers, as of now.
    chain: arc_swap::ArcSwapOption<Chain>,
    world: World,
}

/// What pages about the inside of the process are made from.
struct Debug {
    command: Vec<String>,
    verbosity: Verbosity,
}

impl Answers {
    /// A page about the inside of the process, if it is one.
    async fn look_inside(&self, request: Request<Incoming>) -> Result<Response<Body>, Request<Incoming>> {
        let Some(debug) = self.debug.as_ref().filter(|_| request.uri().path().starts_with("/debug/")) else {
            return Err(request);
        };
        let (parts, body) = request.into_parts();
        let Ok(body) = http_body_util::Limited::new(body, 1024).collect().await else {
            return Ok(answer(StatusCode::BAD_REQUEST, "the body is too long\n"));
        };
        let inside = Inside {
            command: &debug.command,
            verbosity: Some(&debug.verbosity),
            holdings: &|| self.metrics.waiting(),
        };
        let page = inside.page(&parts.method, parts.uri.path(), &body.to_bytes());
        Ok(page.unwrap_or_else(|| answer(StatusCode::NOT_FOUND, "404 page not found\n")))
    }

    /// Goes by what was found out from now on.
    fn know(&self, found: &FoundOut) {
        self.chain.store(Some(Arc::new(Chain {
            front_proxy: found.front_proxy(),
            websocket_prefix: String::new(),
            tokens: self.tokens.iter().cloned().collect(),
            audiences: Arc::new([]),
            anonymous: true,
            world: self.world.clone(),
            remaining: Default::default(),
        })));
    }

    fn is_for_all(&self, path: &str) -> bool {
        self.allowed.iter().any(|allowed| match allowed.strip_suffix('*') {
            Some(start) => path.starts_with(start),
            None => path.trim_start_matches('/') == allowed.trim_start_matches('/'),
        })
    }

    async fn may(&self, user: &User, verb: &str, path: &str) -> bool {
        if user.is_in(auth::MASTERS) {
            return true;
        }
        let Some(permissions) = &self.permissions else { return false };
        let asked = Attributes {
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
        permissions.authorize(&asked).get().await.is_allowed()
    }

    fn content(&self, path: &str, query: &str) -> Option<String> {
        match path {
            "/metrics" => Some(self.metrics.text()),
            "/metrics/slis" if self.slis => Some(self.health.slis.text()),
            _ => self.health.answer(path, query),
        }
    }
}

impl Handler for Answers {
    async fn handle(self: &Arc<Self>, request: Request<Incoming>, peer: Arc<Peer>) -> Response<Body> {
        let path = request.uri().path();
        if !self.is_for_all(path) {
            let notes = rest::RequestRecord::default();
            let chain = self.chain.load_full();
            let Some(chain) = chain else { return answer(StatusCode::SERVICE_UNAVAILABLE, "not ready\n") };
            let user = match chain.caller(request.headers(), &peer, &notes).await {
                Ok(user) => user,
                Err(why) => {
                    tracing::info!(%why, path, "somebody is not believed");
                    return answer(StatusCode::UNAUTHORIZED, "Unauthorized\n");
                }
            };
            let verb = request.method().as_str().to_lowercase();
            if !self.may(&user, &verb, path).await {
                let why = format!("forbidden: User {:?} cannot {verb} path {path:?}\n", user.name);
                return answer(StatusCode::FORBIDDEN, why);
            }
        }
        if self.slis && path == "/metrics/slis" && request.method() == Method::DELETE {
            self.health.slis.reset();
            return answer(StatusCode::OK, "metrics reset\n");
        }
        let request = match self.look_inside(request).await {
            Ok(page) => return page,
            Err(request) => request,
        };
        let path = request.uri().path();
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            return answer(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered\n");
        }
        match self.content(path, request.uri().query().unwrap_or_default()) {
            Some(text) => answer(StatusCode::OK, text),
            None => answer(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }
}

fn answer(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    let mut response = Response::new(Body::full(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_lists_what_runs() {
        let health = Health::default();
        assert_eq!(health.answer("/healthz", "").as_deref(), Some("ok"));
        health.runs(["job", "csrsigning"].into_iter());
        let told = health.answer("/healthz", "verbose").unwrap();
        assert_eq!(told, "[+]leaderElection ok\n[+]csrsigning ok\n[+]job ok\nhealthz check passed\n");
        let told = health.answer("/livez", "verbose&exclude=job").unwrap();
        assert_eq!(told, "[+]leaderElection ok\n[+]csrsigning ok\n[+]job excluded: ok\nlivez check passed\n");
        assert_eq!(health.answer("/readyz/job", "").as_deref(), Some("ok"));
        assert_eq!(health.answer("/readyz/other", ""), None);
        assert_eq!(health.answer("/healthzz", ""), None);
        let made = health.slis.text();
        assert!(made.contains("kubernetes_healthcheck{name=\"job\",type=\"healthz\"} 1\n"), "{made}");
        assert!(!made.contains("readyz"), "a check alone is not counted: {made}");
    }
}
