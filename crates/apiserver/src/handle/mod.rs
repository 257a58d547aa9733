//! From a request that may be carried out to its answer: the dispatch over paths and verbs.

pub(crate) mod answer;
mod bulk;
mod connect;
mod deprecation;
mod lists;
mod request_scope;
mod resource;
mod watch;
mod websocket;

use crate::aggregation::{self, Aggregation};
use crate::audit::{Audit, AuditContext};
use crate::authentication::Chain;
use crate::authentication::service_accounts::{CONFIGURATION_PATH, KEYS_PATH, Published};
use crate::discovery::debug;
use crate::discovery::groups::{Documents, Made};
use crate::discovery::health::{self, Health};
use crate::discovery::metrics::Metrics;
use crate::discovery::openapi::OpenApi;
use crate::discovery::version;
use crate::filters::cors::Browsers;
use crate::filters::in_flight::{self, InFlight};
use crate::filters::{self, FilterContext, Refused};
use crate::flowcontrol::{Fairness, Seat};
use crate::negotiate::{gzip, tagged};
use crate::options::gates::Gates;
use crate::options::limits;
use crate::options::observability::{self, Verbosity};
use crate::request::RequestInfo;
use crate::serve::{Body, Handler, Leave, LogThrottle, Peer, Shutdown, panic_text, unpanicked};
use crate::server::post_start_hooks::Start;
use crate::trace::Tracing;
use arc_swap::ArcSwap;
use auth::Authorizer;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use request_scope::RequestScope;
use rest::{Api, ApiError, RequestRecord, Resource, Step};
use schema::Value;
use schema::table::Release;
use std::sync::Arc;
use std::time::Duration;

/// The largest body that is taken.
pub const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// Where an operator sees what waits.
const FAIRNESS_PAGES: &str = "/debug/api_priority_and_fairness/";

/// Longer than any request lasts.
const NO_DEADLINE: Duration = Duration::from_secs(u32::MAX as u64);

/// What is taken of the body of a request that is refused.
const REFUSED_BODY_LIMIT: usize = 64 * 1024;

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
    documents: ArcSwap<Documents>,
    openapi: OpenApi,
    /// Where requests are carried out that compute for long.
    bulk: bulk::Threads,
    /// Requests that took long.
    slow: LogThrottle,
    /// Who sends spans to a collector, if anybody does.
    pub(crate) tracing: Option<Tracing>,
    /// How much is logged, where that can be changed.
    pub verbosity: Option<Verbosity>,
    /// Whether there are pages that show the inside of the server.
    pub profiling: bool,
    /// The command line of the process.
    pub command: Vec<String>,
}

/// A request with everything that is known about it.
pub(crate) struct RequestContext<'a> {
    pub asked: &'a RequestInfo,
    pub headers: &'a HeaderMap,
    pub user: Arc<auth::User>,
    pub body: Bytes,
    /// Which connection it came on.
    pub connection: u64,
    /// What is noted about it on its way.
    pub notes: Arc<RequestRecord>,
}

impl RequestContext<'_> {
    pub fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Whether a subresource can be asked for here.
pub fn serves(resource: &Resource, name: &str) -> bool {
    part_number(resource, name).is_some_and(|number| number > 0)
}

/// Which of its subresources a name is, counted from one; 0 is the resource itself.
pub(crate) fn part_number(resource: &Resource, name: &str) -> Option<usize> {
    if name.is_empty() {
        return Some(0);
    }
    let hooks = &resource.hooks;
    let own = hooks.subresources.iter().map(|one| one.name);
    let own = own.chain(hooks.actions.iter().map(|one| one.name));
    let own = own.chain(hooks.views.iter().map(|one| &*one.name));
    let own = own.chain(hooks.parts.iter().map(|one| one.name));
    let mut all = own.chain(resource::ON_NODE);
    Some(all.position(|one| one == name)? + 1)
}

impl Handler for Service {
    async fn handle(self: &Arc<Self>, request: Request<Incoming>, peer: Arc<Peer>) -> Response<Body> {
        self.respond(request, peer).await
    }

    fn unsafe_connection(&self) {
        self.metrics.handshake_errors.inc();
    }

    fn odd_connection(&self) {
        self.metrics.odd_connections.inc();
    }
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
            bulk: bulk::Threads::default(),
            slow: LogThrottle::default(),
            tracing: None,
            verbosity: observe.verbosity,
            profiling: observe.profiling,
            command: observe.command,
        }
    }

    /// Answers one request, wherever it comes from.
    pub async fn respond<B>(self: &Arc<Self>, request: Request<B>, peer: Arc<Peer>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let came = self.api.world.elapsed();
        let (mut parts, body) = request.into_parts();
        let page = self.browsers.allowed(&parts.headers);
        if let Some(mut answer) = self.browsers.preflight(&parts.method, page.as_ref()) {
            self.browsers.tell(answer.headers_mut(), page);
            return answer;
        }
        if let Some(turned_away) = self.outside_of_its_time(parts.uri.path()).await {
            return turned_away;
        }
        let mut asked = RequestInfo::parse(&parts.method, parts.uri.path(), parts.uri.query().unwrap_or(""));
        self.gates.narrow(&mut asked, &mut parts.headers);
        let underway = RequestScope::new(self, &asked, &parts, &peer, came);
        let notes = Arc::<RequestRecord>::default();
        let mut seat = Seat::default();
        let mut trail =
            self.audit.as_ref().map(|audit| AuditContext::begin(audit, &asked, &parts, &peer, &notes));
        let work = || self.answer(&underway, &parts, &peer, body, (&notes, &mut seat), trail.as_mut());
        let answered = match underway.traceparent() {
            None => unpanicked(work()).await,
            Some(parent) => Box::pin(outbound::within(parent, unpanicked(work()))).await,
        };
        let answered = match answered {
            Ok(answered) => answered,
            Err(panic) => {
                if let Some(trail) = trail {
                    trail.panicked(panic_text(&*panic)).await;
                }
                underway.broke();
                std::panic::resume_unwind(panic)
            }
        };
        let mut response = match answered {
            Ok(response) => response,
            Err(error) => {
                let user = Arc::new(auth::User::anonymous());
                let (headers, notes) = (&parts.headers, notes.clone());
                let call =
                    RequestContext { asked: &asked, headers, user, body: Bytes::new(), connection: 0, notes };
                answer::failure(&error, &call, &self.api.names)
            }
        };
        seat.answered(&mut response);
        self.browsers.tell(response.headers_mut(), page);
        answer::warn(&mut response, &notes.take_warnings());
        if let Some(trail) = trail {
            response = trail.answered(response).await;
        }
        if self.moves_on(&peer) {
            response.extensions_mut().insert(Leave);
        }
        if parts.method == Method::HEAD {
            *response.body_mut() = Body::Empty;
        }
        let response = underway.answered(&notes, response);
        match websocket::is_wanted(asked.verb, &parts, &response) {
            true => websocket::switch(&parts, &self.callers.websocket_prefix, response, &self.shutdown),
            false => response,
        }
    }

    async fn answer<B>(
        self: &Arc<Self>,
        underway: &RequestScope<'_>,
        parts: &http::request::Parts,
        peer: &Peer,
        body: B,
        (notes, seat): (&Arc<RequestRecord>, &mut Seat),
        mut trail: Option<&mut AuditContext<'_>>,
    ) -> Result<Response<Body>, ApiError>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let asked = underway.asked;
        let (callers, authorizer) = (&*self.callers, &*self.authorizer);
        let gate = FilterContext {
            callers,
            authorizer,
            names: &self.api.names,
            in_flight: &self.in_flight,
            fairness: self.fairness.as_deref(),
            api: &self.api,
            counted: &self.metrics.callers,
            came: underway.came,
        };
        let headers = &parts.headers;
        let patience = match self.patience(asked) {
            Ok(patience) => patience,
            Err(error) => {
                filters::unidentified(asked, trail.as_deref_mut());
                return Err(error);
            }
        };
        let passed = filters::pass(asked, headers, peer, &gate, notes, seat, trail.as_deref_mut()).await;
        let user = match passed {
            Ok(user) => user,
            Err(refused) => {
                take_little(headers, body).await;
                return match refused {
                    Refused::Api(error) => Err(error),
                    Refused::Impersonation(why) => Ok(failed_plainly(&parts.uri, &why.to_string())),
                    Refused::Unrecorded => Ok(failed_plainly(&parts.uri, "failed to store audit event")),
                    Refused::NoRoom => {
                        self.metrics.requests.terminated(&underway.labels(), StatusCode::TOO_MANY_REQUESTS);
                        Ok(come_back(1, "Too many requests, please try again later.\n"))
                    }
                    Refused::Undecided(why) => Ok(failed_plainly(&parts.uri, &why)),
                };
            }
        };
        let elsewhere = self.aggregation.route(&asked.path, self.gates.openapi_v3);
        // how long it lasts is then for two others to decide
        let lasts = elsewhere.is_some() && (in_flight::lasts(asked) || headers.contains_key(header::UPGRADE));
        let work = async {
            if let Some(remote) = elsewhere {
                let id = trail.map(|trail| trail.id().clone());
                let patience = (!lasts).then_some(patience);
                let incoming = aggregation::Incoming { parts, user: &user, callers, peer, id, patience };
                return Ok(Box::pin(self.aggregation.pass(&remote, &incoming, body)).await);
            }
            let body = read_body(body).await?;
            if !body.is_empty() {
                notes.reached(Step::Received, self.api.world.elapsed());
            }
            let (connection, notes) = (peer.connection, notes.clone());
            let call = RequestContext { asked, headers, user, body, connection, notes };
            match self.is_bulk(&call) {
                false => self.carry_out(&call).await,
                true => Box::pin(self.carry_out_in_bulk(call, seat, underway.traceparent())).await,
            }
        };
        let patience = if lasts { NO_DEADLINE } else { patience };
        match tokio::time::timeout(patience, work).await {
            Ok(result) => result,
            Err(_) => {
                self.metrics.requests.terminated(&underway.labels(), StatusCode::GATEWAY_TIMEOUT);
                Err(ApiError::timeout("Timeout: request did not complete within the allotted timeout"))
            }
        }
    }

    async fn carry_out(self: &Arc<Self>, call: &RequestContext<'_>) -> Result<Response<Body>, ApiError> {
        match &call.asked.target {
            Some(target) => self.resource(call, target).await,
            None => match health::parse(&call.asked.path) {
                Some((endpoint, check)) => Ok(self.how_it_is(endpoint, check, call).await),
                None => self.plain(call),
            },
        }
    }

    /// How long a request may take; clients may ask for less than what they would be given.
    fn patience(&self, asked: &RequestInfo) -> Result<Duration, ApiError> {
        let Some(text) = asked.query.get("timeout").filter(|text| !text.is_empty() && asked.verb != "watch")
        else {
            return Ok(self.limits.request_timeout);
        };
        let nanoseconds = schema::time::parse_duration(text).map_err(|why| {
            ApiError::bad_request(format!("invalid timeout specified in the request URL - {why}"))
        })?;
        let asked = u64::try_from(nanoseconds).ok().filter(|nanoseconds| *nanoseconds > 0);
        let longest = self.limits.request_timeout;
        Ok(asked.map_or(longest, Duration::from_nanos).min(longest))
    }

    /// What a request is told that comes before the server has begun, or when it is about to end: nothing, if it was
    /// worth waiting.
    async fn outside_of_its_time(&self, path: &str) -> Option<Response<Body>> {
        if self.start.is_over() && !self.shutdown.is_refusing() || health::parse(path).is_some() {
            return None;
        }
        if tokio::time::timeout(self.limits.request_timeout, self.start.over()).await.is_err() {
            return Some(come_back(1, "The apiserver is starting, please try again later.\n"));
        }
        self.shutdown.is_refusing().then(|| {
            let mut told = come_back(5, "The apiserver is shutting down, please try again later.\n");
            told.extensions_mut().insert(Leave);
            told
        })
    }

    /// Now and then a client is asked to connect anew, so that it may find another server.
    fn moves_on(&self, peer: &Peer) -> bool {
        let chance = self.limits.goaway_chance;
        // 53 bits are as many as fit
        let drawn = || (env::random_u64(&self.api.world) >> 11) as f64 / (1u64 << 53) as f64;
        chance > 0.0 && peer.http2 && drawn() < chance
    }

    async fn how_it_is(
        &self,
        endpoint: &'static str,
        check: Option<&str>,
        call: &RequestContext<'_>,
    ) -> Response<Body> {
        match self.health.answer(endpoint, check, &call.asked.query).await {
            None => not_a_page(),
            Some(report) => {
                if !report.failed.is_empty() {
                    tracing::info!(endpoint, failed = ?report.failed, "a health check failed");
                }
                text(report.code, report.text)
            }
        }
    }

    /// Paths that name no resource.
    fn plain(self: &Arc<Self>, call: &RequestContext<'_>) -> Result<Response<Body>, ApiError> {
        let path = call.asked.path.as_str();
        let trimmed = path.trim_end_matches('/');
        match trimmed {
            "/metrics" => return Ok(self.numbers(call)),
            "/metrics/slis" if self.gates.slis => return Ok(self.levels(call)),
            "/openapi/v2" => return self.openapi.v2(&self.api, &self.aggregation, call),
            CONFIGURATION_PATH | KEYS_PATH => return self.about_issuer(call, trimmed),
            _ => {}
        }
        if self.profiling
            && let Some(page) = debug::page(self, call)
        {
            return Ok(page);
        }
        if let (Some(what), Some(fairness)) = (trimmed.strip_prefix(FAIRNESS_PAGES), &self.fairness) {
            let details = call.asked.query.flag("includeRequestDetails");
            return Ok(fairness.shown(what, details).map_or_else(not_a_page, |page| text(200, page)));
        }
        if let Some(rest) = trimmed.strip_prefix("/openapi/v3").filter(|_| self.gates.openapi_v3) {
            return self.openapi.v3(&self.api, &self.aggregation, call, rest.trim_start_matches('/'));
        }
        if let Some(whole) = self.whole_discovery(call, trimmed) {
            return whole;
        }
        let document = match trimmed {
            "/version" => Some((version::json(), None)),
            "" | "/index.html" => Some((self.index(), None)),
            _ => self.documents().get(trimmed).map(|it| (it.json.clone(), Some(it.hash.clone()))),
        };
        match document {
            Some((json, hash)) => {
                // the same distinction that clients know from elsewhere
                let groups = trimmed.starts_with("/apis") && trimmed.matches('/').count() < 3;
                let head =
                    call.asked.method == Method::HEAD && (groups || matches!(trimmed, "" | "/index.html"));
                if !head && call.asked.method != Method::GET {
                    return Err(ApiError::method_not_allowed());
                }
                let names = &self.api.names;
                let manner = match trimmed {
                    "/version" => answer::ResponseFormat::of_plain(call)?.indented().unrecorded(),
                    "" | "/index.html" => answer::ResponseFormat::of_page(call).indented().unrecorded(),
                    _ => answer::ResponseFormat::of_document(call, names)?,
                };
                let response = answer::document(200, json.clone(), document_type(&json), &manner, names);
                Ok(match hash {
                    // each form is a document of its own
                    Some(hash) => tagged(response, &(hash + manner.mark()), call.headers),
                    None => response,
                })
            }
            None if trimmed.starts_with("/api/") => Err(ApiError::no_such_path()),
            // a version that a known group does not have
            None if trimmed.strip_prefix("/apis/").is_some_and(|rest| {
                rest.split_once('/').is_some_and(|(group, _)| {
                    self.documents().get(&format!("/apis/{group}")).is_some()
                        && !self.api.resources().is_custom(group)
                })
            }) =>
            {
                Err(ApiError::no_such_path())
            }
            None => Ok(not_a_page()),
        }
    }

    /// Everything that is counted.
    fn numbers(&self, call: &RequestContext<'_>) -> Response<Body> {
        numbers(self.metrics.registry.pages().map(Bytes::from), call)
    }

    /// How health checks went, or, where somebody deletes that, nothing from now on.
    fn levels(&self, call: &RequestContext<'_>) -> Response<Body> {
        if call.asked.method == Method::DELETE {
            self.health.slis.reset();
            return text(200, "metrics reset\n".to_owned());
        }
        numbers(std::iter::once(Bytes::from(self.health.slis.text())), call)
    }

    /// What verifiers of tokens elsewhere need to know.
    fn about_issuer(&self, call: &RequestContext<'_>, path: &str) -> Result<Response<Body>, ApiError> {
        let Some(issuer) = &self.issuer else { return Ok(not_a_page()) };
        if call.asked.method != Method::GET {
            return Err(ApiError::method_not_allowed());
        }
        let (json, media) = match path {
            KEYS_PATH => (issuer.keys.clone(), "application/jwk-set+json"),
            _ => (issuer.configuration.clone(), "application/json"),
        };
        let mut response = Response::new(Body::full(json));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(media));
        headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("public, max-age=3600"));
        Ok(response)
    }

    /// Discovery, made anew when the resources have changed.
    pub(crate) fn documents(&self) -> Arc<Documents> {
        let resources = self.api.resources();
        let from = (resources.generation, self.aggregation.generation());
        let current = self.documents.load_full();
        if current.from == from && resources.generation > 0 {
            return current;
        }
        let routes = self.aggregation.routes();
        let (names, address, hashes) = (&self.api.names, &*self.advertised, self.gates.storage_hash);
        let whole = self.gates.whole_discovery;
        let made = Made { resources: &resources, routes: &routes, names, address, hashes, whole };
        let made = Arc::new(Documents::new(from, &made));
        self.documents.store(made.clone());
        made
    }

    fn index(&self) -> Bytes {
        let documents = self.documents();
        let mut paths: Vec<String> = documents.paths().map(str::to_owned).collect();
        paths.extend(
            ["/apis/", "/metrics", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/version"]
                .map(str::to_owned),
        );
        paths.extend(self.gates.slis.then(|| "/metrics/slis".to_owned()));
        if self.issuer.is_some() {
            paths.extend([CONFIGURATION_PATH, KEYS_PATH].map(str::to_owned));
        }
        for endpoint in health::ENDPOINTS {
            paths.push(format!("/{endpoint}"));
            paths.extend(self.health.names(endpoint).map(|check| format!("/{endpoint}/{check}")));
        }
        paths.sort();
        paths.dedup();
        let mut out = Value::map();
        out.set(&["paths"], Value::List(paths.into_iter().map(Value::from).collect()));
        schema::encode::untyped(&out).into()
    }
}

/// What collectors read.
fn numbers(pages: impl Iterator<Item = Bytes> + Send + 'static, call: &RequestContext<'_>) -> Response<Body> {
    let mut response = match answer::ResponseFormat::accepts_gzip(call) {
        true => answer::compressed(Response::new(Body::frames(gzip(pages)))),
        false => Response::new(Body::frames(pages)),
    };
    let media = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, media);
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-cache, private"));
    response
}

/// The type of a discovery document, by the kind it names itself.
fn document_type(json: &[u8]) -> Option<&'static schema::table::Type> {
    let decoded = schema::decode::json_untyped(json).ok()?;
    answer::meta_type(decoded.value.text(&["kind"]))
}

async fn read_body<B>(body: B) -> Result<Bytes, ApiError>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let collected = Box::pin(Limited::new(body, BODY_LIMIT).collect()).await;
    collected.map(|whole| whole.to_bytes()).map_err(|why| {
        if why.downcast_ref::<LengthLimitError>().is_some() {
            ApiError::too_large(format!("Request entity too large: limit is {BODY_LIMIT}"))
        } else {
            ApiError::bad_request(format!("the body could not be read: {why}"))
        }
    })
}

/// Takes a body that nobody wants, if it is small and comes soon: a client that is still sending when the answer
/// comes may take that for a broken connection and not read why it was refused.
async fn take_little<B>(headers: &HeaderMap, body: B)
where
    B: http_body::Body<Data = Bytes> + Send,
{
    // who waits to be told to go on is better told that it need not, and most have nothing to send
    if body.is_end_stream() || headers.contains_key(header::EXPECT) {
        return;
    }
    let all = async {
        let mut body = Box::pin(body);
        let mut taken = 0;
        while taken < REFUSED_BODY_LIMIT
            && let Some(Ok(frame)) = body.frame().await
        {
            taken += frame.data_ref().map_or(0, Bytes::len);
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), all).await;
}

pub(crate) fn text(code: u16, text: String) -> Response<Body> {
    let mut response = Response::new(Body::full(text));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-cache, private"));
    response
}

/// Not now, but in so many seconds.
fn come_back(seconds: u32, why: &str) -> Response<Body> {
    let mut response = text(429, why.to_owned());
    response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from(seconds));
    response
}

/// A failure before it was clear whom to answer, safe to show in a browser.
fn failed_plainly(uri: &http::Uri, why: &str) -> Response<Body> {
    let asked = uri.path_and_query().map_or("", |it| it.as_str());
    let told = format!("Internal Server Error: {asked:?}: {why}\n");
    text(500, told.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"))
}

fn not_a_page() -> Response<Body> {
    text(404, "404 page not found\n".to_owned())
}
