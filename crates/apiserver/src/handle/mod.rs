//! Handles API requests: filters, then the dispatch over paths and verbs.

mod bulk;
mod bulk_threads;
mod clock;
mod clusters;
mod connect;
mod deprecation;
mod fault_stage;
mod faults;
mod lists;
mod nonresource;
pub(crate) mod plain_text;
pub(crate) mod request_context;
mod request_scope;
mod resource;
mod resource_path;
pub(crate) mod responses;
mod service;
mod snapshot;
pub(crate) mod subresources;
mod watch;
mod websocket;

pub use service::Service;
pub(crate) use service::{AccessControl, DebugPages, Discovery};

use crate::aggregation;
use crate::audit::AuditContext;
use crate::discovery::health;
use crate::filters::{self, FilterContext, Refusal, in_flight};
use crate::flowcontrol::Seat;
use crate::request::RequestInfo;
use crate::serve::{Body, CloseConnection, Handler, Peer, catch_panic, panic_text};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use parking_lot::Mutex;
use plain_text::{internal_error, too_many_requests};
use request_context::{RequestContext, RequestStream};
use request_scope::RequestScope;
use rest::{ApiError, RequestRecord, Step};
use std::sync::Arc;
use std::time::Duration;
use subresources::on_node;

/// The largest request body that is accepted.
pub const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// A deadline beyond every request.
const NO_DEADLINE: Duration = Duration::from_secs(u32::MAX as u64);

/// How much is read of the body of a rejected request.
const REFUSED_BODY_LIMIT: usize = 64 * 1024;

impl Handler for Service {
    async fn handle(self: &Arc<Self>, request: Request<Incoming>, peer: Arc<Peer>) -> Response<Body> {
        self.respond(request, peer).await
    }

    fn count_handshake_failure(&self) {
        self.metrics.handshake_errors.inc();
    }

    fn count_protocol_violation(&self) {
        self.metrics.protocol_violations.inc();
    }
}

impl Service {
    /// Handles one request.
    pub async fn respond<B>(self: &Arc<Self>, request: Request<B>, peer: Arc<Peer>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if let Some(clock) = self.clock.as_ref().filter(|_| !peer.is_in_process()) {
            clock.note_event();
        }
        let received = self.api.world.elapsed();
        let (mut parts, body) = request.into_parts();
        let page = self.access.cors.allowed(&parts.headers);
        if let Some(mut preflight) = self.access.cors.preflight(&parts.method, page.as_ref()) {
            self.access.cors.add_headers(preflight.headers_mut(), page);
            return preflight;
        }
        if let Some(refusal) = self.check_phase(parts.uri.path()).await {
            return refusal;
        }
        let mut info = RequestInfo::parse(&parts.method, parts.uri.path(), parts.uri.query().unwrap_or(""));
        self.gates.narrow(&mut info, &mut parts.headers);
        let scope = RequestScope::new(self, &info, &parts, &peer, received);
        let record = Arc::<RequestRecord>::default();
        let mut seat = Seat::default();
        let mut audit =
            self.access.audit.as_ref().map(|audit| AuditContext::begin(audit, &info, &parts, &peer, &record));
        let work = || self.dispatch(&scope, &parts, &peer, body, (&record, &mut seat), audit.as_mut());
        let result = match scope.traceparent() {
            None => catch_panic(work()).await,
            Some(parent) => Box::pin(outbound::within(parent, catch_panic(work()))).await,
        };
        let result = match result {
            Ok(result) => result,
            Err(panic) => {
                if let Some(audit) = audit {
                    audit.record_panic(panic_text(&*panic)).await;
                }
                scope.record_panic();
                std::panic::resume_unwind(panic)
            }
        };
        let mut response = match result {
            Ok(response) => response,
            Err(error) => {
                let user = Arc::new(auth::User::anonymous());
                let (headers, record) = (&parts.headers, record.clone());
                let (body, stream) = (Bytes::new(), None);
                let context =
                    RequestContext { info: &info, headers, user, body, connection: 0, record, stream };
                responses::failure(&error, &context, &self.api.names)
            }
        };
        seat.complete(&mut response);
        self.access.cors.add_headers(response.headers_mut(), page);
        responses::warn(&mut response, &record.take_warnings());
        if let Some(audit) = audit {
            response = audit.complete(response).await;
        }
        if self.should_go_away(&peer) {
            response.extensions_mut().insert(CloseConnection);
        }
        if parts.method == Method::HEAD {
            *response.body_mut() = Body::Empty;
        }
        let response = scope.complete(&record, response);
        match websocket::upgraded_content(&info, &parts, &response) {
            Some(content) => {
                let token_prefix = &self.access.callers.websocket_prefix;
                websocket::switch(content, &parts, token_prefix, response, &self.shutdown)
            }
            None => response,
        }
    }

    async fn dispatch<B>(
        self: &Arc<Self>,
        scope: &RequestScope<'_>,
        parts: &http::request::Parts,
        peer: &Peer,
        body: B,
        (record, seat): (&Arc<RequestRecord>, &mut Seat),
        mut audit: Option<&mut AuditContext<'_>>,
    ) -> Result<Response<Body>, ApiError>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let info = scope.info;
        let (callers, authorizer) = (&*self.access.callers, &*self.access.authorizer);
        let filters = FilterContext {
            callers,
            authorizer,
            names: &self.api.names,
            in_flight: &self.in_flight,
            fairness: self.access.fairness.as_deref(),
            api: &self.api,
            metrics: &self.metrics.callers,
            received: scope.received,
        };
        let headers = &parts.headers;
        let timeout = match self.timeout(info) {
            Ok(timeout) => timeout,
            Err(error) => {
                filters::record_unauthenticated(info, audit.as_deref_mut());
                return Err(error);
            }
        };
        let passed = filters::pass(info, headers, peer, &filters, record, seat, audit.as_deref_mut()).await;
        let user = match passed {
            Ok(user) => user,
            Err(refused) => {
                drain_body(headers, body).await;
                return match refused {
                    Refusal::Api(error) => Err(error),
                    Refusal::Impersonation(why) => Ok(internal_error(&parts.uri, &why.to_string())),
                    Refusal::AuditFailed => Ok(internal_error(&parts.uri, "failed to store audit event")),
                    Refusal::TooManyRequests => {
                        self.metrics
                            .requests
                            .record_termination(&scope.labels(), StatusCode::TOO_MANY_REQUESTS);
                        Ok(too_many_requests(1, "Too many requests, please try again later.\n"))
                    }
                    Refusal::Undecided(why) => Ok(internal_error(&parts.uri, &why)),
                };
            }
        };
        let fault =
            self.faults.as_deref().and_then(|it| fault_stage::choose(it, (info, headers), &user, peer));
        let route = self.aggregation.route(&info.path, self.gates.openapi_v3);
        // an upgraded or long-running request has no deadline of this server
        let is_of_node = info.target.as_ref().is_some_and(|target| on_node(&target.subresource));
        let is_long_running = is_of_node && route.is_none()
            || route.is_some() && (in_flight::is_long_running(info) || headers.contains_key(header::UPGRADE))
            || self.clock.is_some() && info.path == clock::PATH;
        let work = async {
            if let Some(fault) = &fault
                && let Some(failure) = Box::pin(fault_stage::before(fault, info, &self.api.world)).await
            {
                drain_body(headers, body).await;
                return failure;
            }
            if let Some(remote) = route {
                let id = audit.map(|audit| audit.id().clone());
                let timeout = (!is_long_running).then_some(timeout);
                let incoming = aggregation::ProxyRequest { parts, user: &user, callers, peer, id, timeout };
                return Ok(Box::pin(self.aggregation.proxy(&remote, &incoming, body)).await);
            }
            let (connection, record) = (peer.connection, record.clone());
            if is_of_node {
                let body = Mutex::new(Some(body.map_err(Into::into).boxed_unsync()));
                let stream = Some(RequestStream { parts, peer, body });
                let body = Bytes::new();
                let context = RequestContext { info, headers, user, body, connection, record, stream };
                return Box::pin(self.execute(&context)).await;
            }
            let body = read_body(body).await?;
            if !body.is_empty() {
                record.reached(Step::Received, self.api.world.elapsed());
            }
            let context = RequestContext { info, headers, user, body, connection, record, stream: None };
            match self.is_bulk(&context) {
                false => self.execute(&context).await,
                true => Box::pin(self.execute_in_bulk(context, seat, scope.traceparent())).await,
            }
        };
        let timeout = if is_long_running { NO_DEADLINE } else { timeout };
        let result = match env::io::timeout(timeout, work).await {
            Ok(result) => result,
            Err(_) => {
                self.metrics.requests.record_termination(&scope.labels(), StatusCode::GATEWAY_TIMEOUT);
                Err(ApiError::timeout("Timeout: request did not complete within the allotted timeout"))
            }
        };
        match fault {
            None => result,
            Some(fault) => fault_stage::after(&fault, info, result, &self.api.world),
        }
    }

    async fn execute(self: &Arc<Self>, context: &RequestContext<'_>) -> Result<Response<Body>, ApiError> {
        match &context.info.target {
            // authorization reads through an empty first segment, and no path begins with one
            Some(target) if !context.info.path.starts_with("//") => self.resource(context, target).await,
            _ => match health::parse(&context.info.path) {
                Some((endpoint, check)) => Ok(self.health_check(endpoint, check, context).await),
                None if context.info.path == snapshot::PATH => self.store_snapshot(context).await,
                None if self.clock.is_some() && context.info.path == clock::PATH => {
                    self.move_clock(context).await
                }
                None if self.faults.is_some() && context.info.path == crate::faults::PATH => {
                    self.serve_faults(context)
                }
                None => match clusters::parse(&context.info.path).filter(|_| self.clusters.is_some()) {
                    Some(name) => Box::pin(self.serve_clusters(context, name)).await,
                    None => self.plain(context),
                },
            },
        }
    }

    /// The timeout of a request: the client's `timeout` parameter, at most the server's.
    fn timeout(&self, info: &RequestInfo) -> Result<Duration, ApiError> {
        let text = info.query.get("timeout").filter(|text| !text.is_empty());
        let Some(text) = text.filter(|_| !in_flight::is_long_running(info)) else {
            return Ok(self.limits.request_timeout);
        };
        let nanoseconds = schema::time::parse_duration(text).map_err(|why| {
            ApiError::bad_request(format!("invalid timeout specified in the request URL - {why}"))
        })?;
        let info = u64::try_from(nanoseconds).ok().filter(|nanoseconds| *nanoseconds > 0);
        let longest = self.limits.request_timeout;
        Ok(info.map_or(longest, Duration::from_nanos).min(longest))
    }

    /// The response to a request before the end of the startup or during the shutdown; `None` if it can be
    /// handled.
    async fn check_phase(&self, path: &str) -> Option<Response<Body>> {
        if self.start.is_over() && !self.shutdown.is_refusing() || health::parse(path).is_some() {
            return None;
        }
        if env::io::timeout(self.limits.request_timeout, self.start.over()).await.is_err() {
            return Some(too_many_requests(1, "The apiserver is starting, please try again later.\n"));
        }
        self.shutdown.is_refusing().then(|| {
            let mut response =
                too_many_requests(5, "The apiserver is shutting down, please try again later.\n");
            response.extensions_mut().insert(CloseConnection);
            response
        })
    }

    /// Whether to ask a client to reconnect, so that clients spread over servers.
    fn should_go_away(&self, peer: &Peer) -> bool {
        let chance = self.limits.goaway_chance;
        // the 53 bits that an `f64` holds
        let drawn = || (env::random_u64(&self.api.world) >> 11) as f64 / (1u64 << 53) as f64;
        chance > 0.0 && peer.http2 && drawn() < chance
    }
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

/// Reads the body of a refused request, if it is small and arrives soon: a client that is still sending when
/// the response arrives may take that for a broken connection and not read the response.
async fn drain_body<B>(headers: &HeaderMap, body: B)
where
    B: http_body::Body<Data = Bytes> + Send,
{
    // a client that expects 100-continue learns of the refusal at once, and most requests have no body
    if body.is_end_stream() || headers.contains_key(header::EXPECT) {
        return;
    }
    let all = async {
        let mut body = Box::pin(body);
        let mut read = 0;
        while read < REFUSED_BODY_LIMIT
            && let Some(Ok(frame)) = body.frame().await
        {
            read += frame.data_ref().map_or(0, Bytes::len);
        }
    };
    let _ = env::io::timeout(Duration::from_secs(1), all).await;
}
