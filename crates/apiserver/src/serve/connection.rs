//! One connection: handshake, identity, requests, close.
//!
//! Invariant: the task of a connection returns in bounded time once the client stops making progress or the
//! server is cut. HTTP/2 is spoken where ALPN agreed on it and HTTP/1.1 otherwise. A client that closes its
//! sending side counts as gone.

use outbound::LogThrottle;
use std::any::Any;
use std::convert::Infallible;
use std::error::Error as _;
use std::fmt;
use std::future::{Future, pending, poll_fn, ready};
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use env::World;
use env::io::{RealInstant, sleep, timeout};
use http::{Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::server::TlsStream;

use super::activity::{Activity, TimedTransport, TrackedBody};
use super::bulk::Bulk;
use super::certificates::LOCAL_IP;
use super::connection_limit::ConnectionLimit;
use super::cork::{Release, cork};
use super::frame_limit::FrameLimit;
use super::handler::{CloseConnection, CutConnection, Handler, Peer};
use super::host;
use super::limits::Limits;
use super::quiet::quiet;
use super::stream_driver::{self, Requests, StreamDriver};
use super::tls::Tls;
use super::{Body, Phase, Shutdown};

/// More headers than any client sends; beyond it HTTP/1 answers 431.
const MAX_HEADERS: usize = 256;
/// Minimal size of HTTP/1 buffers beside the head.
const BUFFER_BYTES: usize = 64 << 10;

/// State shared by all connections of a listener.
pub(super) struct Server<H> {
    limits: Limits,
    handler: Arc<H>,
    shutdown: Shutdown,
    pub(super) connection_limit: ConnectionLimit,
    /// Clients that did not read their responses.
    overdue: LogThrottle,
    /// Clients that violate the protocol.
    violations: LogThrottle,
    /// Connections without a completed handshake.
    handshake_failures: LogThrottle,
    /// Requests that were received and have no response yet.
    pending: Arc<AtomicUsize>,
    overload: LogThrottle,
    /// Number of connections so far; numbers the next one.
    connections: AtomicU64,
    http1: http1::Builder,
    /// Sends large responses.
    pub(super) bulk: Bulk,
    world: World,
}

impl<H> Server<H> {
    pub(super) fn new(limits: Limits, handler: Arc<H>, shutdown: Shutdown, world: World) -> Self {
        let http1 = http1_of(&limits);
        let connection_limit = ConnectionLimit::new(limits.max_connections);
        Self {
            limits,
            handler,
            shutdown,
            connection_limit,
            overdue: LogThrottle::default(),
            violations: LogThrottle::default(),
            handshake_failures: LogThrottle::default(),
            pending: Arc::default(),
            overload: LogThrottle::default(),
            connections: AtomicU64::new(1),
            http1,
            bulk: Bulk::new("bulk-send"),
            world,
        }
    }

    /// The activity of a new connection.
    pub(super) fn activity(&self) -> Arc<Activity> {
        Arc::new(Activity::new(self.limits.stream_bytes_per_second))
    }
}

fn http1_of(limits: &Limits) -> http1::Builder {
    let mut http1 = http1::Builder::new();
    // hyper's own timeout would also cut connections that are idle between requests
    http1
        .header_read_timeout(None)
        .max_headers(MAX_HEADERS)
        .max_header_size(limits.max_header_bytes as usize)
        .max_buf_size(limits.max_header_bytes as usize + BUFFER_BYTES)
        .timer(TokioTimer::new());
    http1
}

fn http2_of(limits: &Limits, requests: Requests) -> http2::Builder<Requests> {
    let mut http2 = http2::Builder::new(requests);
    http2
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.max_concurrent_streams)
        .max_header_list_size(limits.max_header_bytes)
        .max_frame_size(limits.max_frame_bytes)
        .max_send_buf_size(limits.max_send_buffer_bytes)
        .initial_stream_window_size(limits.stream_window_bytes)
        .initial_connection_window_size(limits.connection_window_bytes)
        .keep_alive_interval(limits.keep_alive_interval)
        .keep_alive_timeout(limits.keep_alive_timeout);
    http2
}

/// Serves a connection to its end, or until it is upgraded. Its permit is released once its socket is closed.
pub(super) async fn serve<H: Handler>(
    server: Arc<Server<H>>,
    tls: Arc<Tls>,
    (tcp, remote): (TcpStream, SocketAddr),
    activity: Arc<Activity>,
    permit: OwnedSemaphorePermit,
) {
    let handshake = timeout(server.limits.handshake_timeout, handshake(&tls, tcp));
    let stream = tokio::select! {
        done = handshake => match done {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return server.report_handshake_failure(remote, &error),
            Err(_) => return server.report_handshake_failure(remote, &"the handshake took too long"),
        },
        () = server.shutdown.wait_for_stop() => return,
    };
    let peer = peer_of(&server, &tls, &stream, remote);
    serve_stream(server, stream, peer, activity, permit).await;
}

/// The same for the stream of a peer that is known.
pub(super) async fn serve_stream<H, S>(
    server: Arc<Server<H>>,
    stream: S,
    peer: Peer,
    activity: Arc<Activity>,
    permit: OwnedSemaphorePermit,
) where
    H: Handler,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (remote, peer) = (peer.remote, Arc::new(peer));
    let io = TimedTransport::new(stream, activity.clone(), permit, &server.limits, peer.http2);
    let service = service_fn({
        let (server, activity, peer) = (server.clone(), activity.clone(), peer.clone());
        move |request: Request<Incoming>| -> ResponseFuture {
            let refused = match peer.http2 {
                false => host::refuse(request.version(), request.headers()),
                true => None,
            };
            if let Some(refused) = refused {
                return Box::pin(ready(Ok(refused.map(|body| TrackedBody::new(body, activity.begin())))));
            }
            match Pending::enter(&server.pending, server.limits.max_pending_requests) {
                Some(pending) => Box::pin(respond(
                    server.handler.clone(),
                    request,
                    peer.clone(),
                    activity.clone(),
                    pending,
                )),
                None => {
                    if let Some(suppressed) = server.overload.now() {
                        tracing::warn!(suppressed, "too many pending requests: new ones are refused");
                    }
                    let refused = TrackedBody::new(Body::full(TOO_MANY), activity.begin());
                    Box::pin(ready(Ok(too_many(refused))))
                }
            }
        }
    });
    let ended = if peer.http2 {
        let (io, release) = cork(FrameLimit::new(io, server.world.clone()));
        let (requests, streams) = stream_driver::requests(server.bulk.clone());
        let connection = http2_of(&server.limits, requests).serve_connection(TokioIo::new(io), service);
        let http2_state = Http2State { release, streams };
        drive(&server, &activity, connection, Some(http2_state), |c| c.graceful_shutdown()).await
    } else {
        let connection = server.http1.serve_connection(TokioIo::new(io), service).with_upgrades();
        drive(&server, &activity, connection, None::<Http2State<S>>, |c| c.graceful_shutdown()).await
    };
    match ended {
        Err(error) if is_client_violation(&error) => server.report_violation(remote, &error),
        Err(error) => tracing::debug!(%remote, %error, "connection broke"),
        Ok(()) => {}
    }
}

impl<H: Handler> Server<H> {
    /// Logs and counts a connection that ends before its handshake completes.
    fn report_handshake_failure(&self, remote: SocketAddr, why: &dyn fmt::Display) {
        self.handler.count_handshake_failure();
        if let Some(suppressed) = self.handshake_failures.now() {
            tracing::info!(%remote, %why, suppressed, "TLS handshake failed");
        }
    }

    /// Logs and counts a connection that ends because of its client's behaviour.
    fn report_violation(&self, remote: SocketAddr, why: &dyn fmt::Display) {
        self.handler.count_protocol_violation();
        if let Some(suppressed) = self.violations.now() {
            tracing::warn!(%remote, %why, suppressed, "closing a connection: the client violates the protocol");
        }
    }
}

/// Whether a connection ended because of its client's behaviour rather than because the client was gone: it
/// sent invalid, excessive or too slow data.
fn is_client_violation(error: &hyper::Error) -> bool {
    let slow = |why: &io::Error| why.kind() == io::ErrorKind::TimedOut;
    let source = error.source();
    let http2 = source.and_then(|it| it.downcast_ref::<h2::Error>());
    let plain = source.and_then(|it| it.downcast_ref::<io::Error>());
    match (http2, plain) {
        (Some(why), _) => why.get_io().map_or(!why.is_remote(), slow),
        (None, Some(why)) => slow(why),
        (None, None) => error.is_parse(),
    }
}

async fn handshake(tls: &Tls, mut tcp: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    tcp.set_nodelay(true)?;
    let mut start = [0; 5];
    let peeked = tcp.peek(&mut start).await?;
    if is_plain_http(&start[..peeked]) {
        let _ = tcp.write_all(PLAIN_HTTP_ANSWER).await;
        return Err(io::Error::other("client sent an HTTP request to an HTTPS server"));
    }
    let came_to = tcp.local_addr()?.ip();
    LOCAL_IP.scope(came_to, tls.acceptor.accept(tcp)).await
}

const PLAIN_HTTP_ANSWER: &[u8] = b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Connection: close\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

fn is_plain_http(start: &[u8]) -> bool {
    const METHODS: [&[u8]; 7] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"PATCH", b"DELET", b"OPTIO"];
    METHODS.contains(&start)
}

fn peer_of<H>(server: &Server<H>, tls: &Tls, stream: &TlsStream<TcpStream>, remote: SocketAddr) -> Peer {
    let (_, session) = stream.get_ref();
    let certificate = session.peer_certificates().and_then(|chain| tls.clients.identify(chain));
    let connection = server.connections.fetch_add(1, Ordering::Relaxed);
    Peer { connection, remote, certificate, http2: session.alpn_protocol() == Some(b"h2") }
}

/// Drives the connection until it ends or must be closed.
async fn drive<H, S, C>(
    server: &Server<H>,
    activity: &Activity,
    connection: C,
    mut http2_state: Option<Http2State<S>>,
    wind_down: impl Fn(Pin<&mut C>),
) -> hyper::Result<()>
where
    H: Handler,
    S: AsyncRead + AsyncWrite + Unpin,
    C: Future<Output = hyper::Result<()>>,
{
    let mut connection = pin!(connection);
    let reason = tokio::select! {
        ended = turns(connection.as_mut(), &mut http2_state, activity) => return ended,
        reason = quiet(until_close(server, activity)) => reason,
    };
    let grace = match reason {
        CloseReason::Leaving => None,
        CloseReason::Idle(grace) => Some(grace),
        CloseReason::Cut => return Ok(()),
        CloseReason::Overdue => {
            server.handler.count_protocol_violation();
            if let Some(suppressed) = server.overdue.now() {
                tracing::warn!(
                    suppressed,
                    "closing a connection: the client did not read its response in time"
                );
            }
            return Ok(());
        }
    };
    wind_down(connection.as_mut());
    tokio::select! {
        ended = turns(connection, &mut http2_state, activity) => ended,
        () = server.shutdown.wait_for(Phase::Cut) => Ok(()),
        () = close_timeout(grace) => Ok(()),
    }
}

/// Additional state of an HTTP/2 connection.
struct Http2State<S> {
    release: Release<FrameLimit<TimedTransport<S>>>,
    streams: StreamDriver,
}

/// With more non-streaming requests than this, their responses are worth gathering.
const GATHER_ABOVE: usize = 8;

/// Drives the connection and its streams, and flushes gathered writes.
async fn turns<S, C>(
    mut connection: Pin<&mut C>,
    http2_state: &mut Option<Http2State<S>>,
    activity: &Activity,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
    C: Future<Output = hyper::Result<()>>,
{
    let Some(Http2State { release, streams }) = http2_state else { return connection.await };
    // streams first: their frames are sent in the same turn
    let streaming = AtomicUsize::new(0);
    let turn = poll_fn(|cx| {
        streams.turn(cx);
        streaming.store(streams.count(), Ordering::Relaxed);
        connection.as_mut().poll(cx)
    });
    let crowded = || activity.in_flight() > GATHER_ABOVE + streaming.load(Ordering::Relaxed);
    let broken = |error| {
        tracing::debug!(%error, "connection broke");
        Ok(())
    };
    release.after_each_turn(pin!(turn), crowded, broken).await
}

/// Why a connection must close.
enum CloseReason {
    /// Graceful: requests in flight may take as long as the shutdown allows.
    Leaving,
    /// No request is in flight; there is a short time for the closing handshake.
    Idle(Duration),
    /// The client does not read a response.
    Overdue,
    /// A handler has cut the connection.
    Cut,
}

/// Waits until the connection must close: the server stops, it got a GOAWAY, it was idle for too long,
/// it is idle under connection pressure, a response takes too long to be sent, or a handler cuts it.
async fn until_close<H>(server: &Server<H>, activity: &Activity) -> CloseReason {
    let Limits { idle_timeout, send_timeout, header_timeout, .. } = server.limits;
    let mut stopping = pin!(server.shutdown.wait_for_stop());
    let (mut looked, mut requests_before) = (RealInstant::now(), 0);
    let mut round_ends = looked + send_timeout;
    loop {
        let next_look = looked + idle_timeout;
        let crowded = tokio::select! {
            () = stopping.as_mut() => return CloseReason::Leaving,
            () = activity.leaving() => return CloseReason::Leaving,
            () = activity.cutting() => return CloseReason::Cut,
            () = server.connection_limit.pressure() => true,
            () = next_look.min(round_ends).sleep() => false,
        };
        let now = RealInstant::now();
        if now >= round_ends {
            if activity.next_round() {
                return CloseReason::Overdue;
            }
            round_ends = now + send_timeout;
        }
        // a connection without a first request counts as idle
        if crowded && activity.is_idle() {
            return CloseReason::Idle(header_timeout);
        }
        if now >= next_look {
            // idle for a whole round: nothing in flight now and nothing begun since the last check
            if activity.is_idle() && activity.started() == requests_before {
                return CloseReason::Idle(header_timeout);
            }
            (looked, requests_before) = (now, activity.started());
        }
    }
}

async fn close_timeout(limit: Option<Duration>) {
    match limit {
        Some(limit) => sleep(limit).await,
        None => pending().await,
    }
}

/// The handling of a request, boxed apart from its stream so that its memory is freed once there is a
/// response: a watch is long-lived, its request need not be.
type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response<TrackedBody>, Infallible>> + Send>>;

/// A request that was received and has no response yet. Each takes memory, so their number is bounded.
struct Pending(Arc<AtomicUsize>);

impl Pending {
    fn enter(all: &Arc<AtomicUsize>, limit: usize) -> Option<Self> {
        let before = all.fetch_add(1, Ordering::Relaxed);
        let entered = Pending(all.clone());
        (before < limit).then_some(entered)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

const TOO_MANY: &str = "Too many requests, please try again later.\n";

fn too_many(body: TrackedBody) -> Response<TrackedBody> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let headers = response.headers_mut();
    let text = header::HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, text);
    headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    response
}

async fn respond<H: Handler>(
    handler: Arc<H>,
    request: Request<Incoming>,
    peer: Arc<Peer>,
    activity: Arc<Activity>,
    _pending: Pending,
) -> Result<Response<TrackedBody>, Infallible> {
    let (in_flight, http2) = (activity.begin(), peer.http2);
    let handled = catch_panic(async { handler.handle(request, peer).await }).await;
    let mut response = handled.unwrap_or_else(|panic| {
        tracing::error!(panic = panic_text(panic.as_ref()), "a request handler panicked");
        internal_error()
    });
    if response.extensions().get::<CutConnection>().is_some() {
        activity.cut();
        // the end of the connection drops it
        return pending().await;
    }
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        activity.upgrade();
    }
    if matches!(response.body(), Body::Stream(_)) {
        stream_driver::mark_streaming();
    }
    if response.extensions_mut().remove::<CloseConnection>().is_some() {
        match http2 {
            true => activity.leave(),
            false => {
                let close = header::HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
        }
    }
    Ok(response.map(|body| TrackedBody::new(body, in_flight)))
}

/// Runs a future and turns a panic into a value. The future is not used after it panicked.
pub(crate) async fn catch_panic<F: Future>(future: F) -> Result<F::Output, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(not a text)")
}

/// The response after a panic: it hides internals.
fn internal_error() -> Response<Body> {
    const STATUS: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Internal error occurred: the request could not be completed","reason":"InternalError","details":{"causes":[{"message":"the request could not be completed"}]},"code":500}"#;
    let mut response = Response::new(Body::full(STATUS));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
