//! Handles API requests: filters, then the dispatch over paths and verbs.

pub(crate) mod answer;
mod bulk;
mod bulk_threads;
mod connect;
mod deprecation;
mod lists;
mod nonresource;
mod place;
pub(crate) mod plain_text;
mod request_context;
mod request_scope;
mod resource;
mod service;
mod subresources;
mod watch;
mod websocket;

pub(crate) use request_context::RequestContext;
pub use service::Service;
pub(crate) use service::{AccessControl, DebugPages, Discovery};
pub(crate) use subresources::{part_number, serves};

use crate::aggregation;
use crate::audit::AuditContext;
use crate::discovery::health;
use crate::filters::{self, FilterContext, Refused, in_flight};
use crate::flowcontrol::Seat;
use crate::request::RequestInfo;
use crate::serve::{Body, Handler, Leave, Peer, panic_text, unpanicked};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use plain_text::{internal_error, too_many_requests};
use request_scope::RequestScope;
use rest::{ApiError, RequestRecord, Step};
use std::sync::Arc;
use std::time::Duration;

/// The largest request body that is accepted.
pub const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// Longer than any request lasts.
const NO_DEADLINE: Duration = Duration::from_secs(u32::MAX as u64);

/// How much is read of the body of a rejected request.
const REFUSED_BODY_LIMIT: usize = 64 * 1024;

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
    /// Answers one request, wherever it comes from.
    pub async fn respond<B>(self: &Arc<Self>, request: Request<B>, peer: Arc<Peer>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let came = self.api.world.elapsed();
        let (mut parts, body) = request.into_parts();
        let page = self.access.cors.allowed(&parts.headers);
        if let Some(mut answer) = self.access.cors.preflight(&parts.method, page.as_ref()) {
            self.access.cors.tell(answer.headers_mut(), page);
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
            self.access.audit.as_ref().map(|audit| AuditContext::begin(audit, &asked, &parts, &peer, &notes));
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
        self.access.cors.tell(response.headers_mut(), page);
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
            true => {
                websocket::switch(&parts, &self.access.callers.websocket_prefix, response, &self.shutdown)
            }
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
        let (callers, authorizer) = (&*self.access.callers, &*self.access.authorizer);
        let gate = FilterContext {
            callers,
            authorizer,
            names: &self.api.names,
            in_flight: &self.in_flight,
            fairness: self.access.fairness.as_deref(),
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
                    Refused::Impersonation(why) => Ok(internal_error(&parts.uri, &why.to_string())),
                    Refused::Unrecorded => Ok(internal_error(&parts.uri, "failed to store audit event")),
                    Refused::NoRoom => {
                        self.metrics.requests.terminated(&underway.labels(), StatusCode::TOO_MANY_REQUESTS);
                        Ok(too_many_requests(1, "Too many requests, please try again later.\n"))
                    }
                    Refused::Undecided(why) => Ok(internal_error(&parts.uri, &why)),
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
            return Some(too_many_requests(1, "The apiserver is starting, please try again later.\n"));
        }
        self.shutdown.is_refusing().then(|| {
            let mut told = too_many_requests(5, "The apiserver is shutting down, please try again later.\n");
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
