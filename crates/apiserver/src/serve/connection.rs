//! The life of one connection: handshake, identity, requests, end.
//!
//! What always holds: whatever a client does ends in this file's task, which returns in bounded time once the
//! client stops making progress or the server is cut. HTTP/2 is spoken where the handshake agreed on it and
//! HTTP/1.1 otherwise. A client that closes its sending side is taken to have gone.

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
use http::{Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::server::TlsStream;

use super::activity::{Activity, Prompt, Tracked};
use super::bulk::Bulk;
use super::certificates::CAME_TO;
use super::connection_limit::Crowd;
use super::cork::{Release, cork};
use super::frame_limit::FrameLimit;
use super::handler::{Handler, Leave, Peer};
use super::host;
use super::limits::Limits;
use super::quiet::quiet;
use super::stream_driver::{self, Lasting, Requests};
use super::tls::Tls;
use super::{Body, LogThrottle, Phase, Shutdown};

/// More headers than any client sends; beyond it HTTP/1 answers 431.
const MAX_HEADERS: usize = 256;
/// The least room that HTTP/1 needs for its buffers beside the head.
const BUFFER_BYTES: usize = 64 << 10;

/// What all connections of a listener share.
pub(super) struct Server<H> {
    tls: Tls,
    limits: Limits,
    handler: Arc<H>,
    shutdown: Shutdown,
    pub(super) crowd: Crowd,
    /// Clients that did not take their answers.
    overdue: LogThrottle,
    /// Clients that ask as nobody should.
    odd: LogThrottle,
    /// Connections that never became safe.
    unsafe_ones: LogThrottle,
    /// Requests that have come and are not answered yet.
    pending: Arc<AtomicUsize>,
    swamped: LogThrottle,
    /// How many there have been.
    connections: AtomicU64,
    http1: http1::Builder,
    /// Sends large answers.
    pub(super) bulk: Bulk,
    world: World,
}

impl<H> Server<H> {
    pub(super) fn new(tls: Tls, limits: Limits, handler: Arc<H>, shutdown: Shutdown, world: World) -> Self {
        let http1 = http1_of(&limits);
        let crowd = Crowd::new(limits.max_connections);
        Self {
            tls,
            limits,
            handler,
            shutdown,
            crowd,
            overdue: LogThrottle::default(),
            odd: LogThrottle::default(),
            unsafe_ones: LogThrottle::default(),
            pending: Arc::default(),
            swamped: LogThrottle::default(),
            connections: AtomicU64::new(1),
            http1,
            bulk: Bulk::new("bulk-send"),
            world,
        }
    }

    /// What is going on in a new connection.
    pub(super) fn activity(&self) -> Arc<Activity> {
        Arc::new(Activity::new(self.limits.lasting_bytes_per_second))
    }
}

fn http1_of(limits: &Limits) -> http1::Builder {
    let mut http1 = http1::Builder::new();
    // the library's own deadline would also cut connections that merely rest between requests
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

/// Serves a connection to its end, or until it speaks something other than HTTP. Its place among all connections is
/// free once its socket is closed.
pub(super) async fn serve<H: Handler>(
    server: Arc<Server<H>>,
    tcp: TcpStream,
    remote: SocketAddr,
    activity: Arc<Activity>,
    place: OwnedSemaphorePermit,
) {
    let handshake = timeout(server.limits.handshake_timeout, handshake(&server, tcp));
    let stream = tokio::select! {
        done = handshake => match done {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return server.is_unsafe(remote, &error),
            Err(_) => return server.is_unsafe(remote, &"the handshake took too long"),
        },
        () = server.shutdown.stopping() => return,
    };
    let peer = Arc::new(peer_of(&server, &stream, remote));
    let io = Prompt::new(stream, activity.clone(), place, &server.limits, peer.http2);
    let service = service_fn({
        let (server, activity, peer) = (server.clone(), activity.clone(), peer.clone());
        move |request: Request<Incoming>| -> Answering {
            let refused = match peer.http2 {
                false => host::refuse(request.version(), request.headers()),
                true => None,
            };
            if let Some(refused) = refused {
                return Box::pin(ready(Ok(refused.map(|body| Tracked::new(body, activity.begin())))));
            }
            match Pending::enter(&server.pending, server.limits.max_pending_requests) {
                Some(pending) => {
                    Box::pin(answer(server.handler.clone(), request, peer.clone(), activity.clone(), pending))
                }
                None => {
                    if let Some(kept_back) = server.swamped.now() {
                        tracing::warn!(kept_back, "too many requests wait to be looked at: they are refused");
                    }
                    let refused = Tracked::new(Body::full(TOO_MANY), activity.begin());
                    Box::pin(ready(Ok(too_many(refused))))
                }
            }
        }
    });
    let ended = if peer.http2 {
        let (io, release) = cork(FrameLimit::new(io, server.world.clone()));
        let (requests, streams) = stream_driver::requests(server.bulk.clone());
        let connection = http2_of(&server.limits, requests).serve_connection(TokioIo::new(io), service);
        let multiplexed = Multiplexed { release, streams };
        drive(&server, &activity, connection, Some(multiplexed), |c| c.graceful_shutdown()).await
    } else {
        let connection = server.http1.serve_connection(TokioIo::new(io), service).with_upgrades();
        drive(&server, &activity, connection, None, |c| c.graceful_shutdown()).await
    };
    match ended {
        Err(error) if is_odd(&error) => server.is_odd(remote, &error),
        Err(error) => tracing::debug!(%remote, %error, "connection broke"),
        Ok(()) => {}
    }
}

impl<H: Handler> Server<H> {
    /// A connection ends before it is safe.
    fn is_unsafe(&self, remote: SocketAddr, why: &dyn fmt::Display) {
        self.handler.unsafe_connection();
        if let Some(kept_back) = self.unsafe_ones.now() {
            tracing::info!(%remote, %why, kept_back, "no TLS connection");
        }
    }

    /// A connection ends because of what its client did.
    fn is_odd(&self, remote: SocketAddr, why: &dyn fmt::Display) {
        self.handler.odd_connection();
        if let Some(kept_back) = self.odd.now() {
            tracing::warn!(%remote, %why, kept_back, "a client asks as nobody should; its connection is closed");
        }
    }
}

/// Whether a connection ended because of what its client did, rather than because the client was gone: what it sent
/// makes no sense, is too much, or comes too slowly.
fn is_odd(error: &hyper::Error) -> bool {
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

async fn handshake<H>(server: &Server<H>, mut tcp: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    tcp.set_nodelay(true)?;
    let mut start = [0; 5];
    let seen = tcp.peek(&mut start).await?;
    if is_plain_http(&start[..seen]) {
        let _ = tcp.write_all(PLAIN_HTTP_ANSWER).await;
        return Err(io::Error::other("client sent an HTTP request to an HTTPS server"));
    }
    let came_to = tcp.local_addr()?.ip();
    CAME_TO.scope(came_to, server.tls.acceptor.accept(tcp)).await
}

const PLAIN_HTTP_ANSWER: &[u8] = b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Connection: close\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

fn is_plain_http(start: &[u8]) -> bool {
    const METHODS: [&[u8]; 7] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"PATCH", b"DELET", b"OPTIO"];
    METHODS.contains(&start)
}

fn peer_of<H>(server: &Server<H>, stream: &TlsStream<TcpStream>, remote: SocketAddr) -> Peer {
    let (_, session) = stream.get_ref();
    let certificate = session.peer_certificates().and_then(|chain| server.tls.clients.identify(chain));
    let connection = server.connections.fetch_add(1, Ordering::Relaxed);
    Peer { connection, remote, certificate, http2: session.alpn_protocol() == Some(b"h2") }
}

/// Lets the connection run until it ends, and sees to it that it does when it should.
async fn drive<H, C>(
    server: &Server<H>,
    activity: &Activity,
    connection: C,
    mut multiplexed: Option<Multiplexed>,
    wind_down: impl Fn(Pin<&mut C>),
) -> hyper::Result<()>
where
    H: Handler,
    C: Future<Output = hyper::Result<()>>,
{
    let mut connection = pin!(connection);
    let unwanted = tokio::select! {
        ended = turns(connection.as_mut(), &mut multiplexed, activity) => return ended,
        unwanted = quiet(until_unwanted(server, activity)) => unwanted,
    };
    let farewell = match unwanted {
        Unwanted::Leaving => None,
        Unwanted::Idle(farewell) => Some(farewell),
        Unwanted::Overdue => {
            server.handler.odd_connection();
            if let Some(kept_back) = server.overdue.now() {
                tracing::warn!(
                    kept_back,
                    "a client did not take its answer in time; its connection is closed"
                );
            }
            return Ok(());
        }
    };
    wind_down(connection.as_mut());
    tokio::select! {
        ended = turns(connection, &mut multiplexed, activity) => ended,
        () = server.shutdown.reached(Phase::Cut) => Ok(()),
        () = farewell_over(farewell) => Ok(()),
    }
}

/// What a connection with several requests at a time has besides.
struct Multiplexed {
    release: Release<FrameLimit<Prompt<TlsStream<TcpStream>>>>,
    streams: Lasting,
}

/// With more requests than this in tasks of their own, their answers are worth gathering.
const CROWD: usize = 8;

/// Lets the connection and its streams run, and its gathered writes go.
async fn turns<C: Future<Output = hyper::Result<()>>>(
    mut connection: Pin<&mut C>,
    multiplexed: &mut Option<Multiplexed>,
    activity: &Activity,
) -> hyper::Result<()> {
    let Some(Multiplexed { release, streams }) = multiplexed else { return connection.await };
    // the streams first: what they have to say is sent in the same turn, so nobody has to wait for them
    let lasting = AtomicUsize::new(0);
    let turn = poll_fn(|cx| {
        streams.turn(cx);
        lasting.store(streams.count(), Ordering::Relaxed);
        connection.as_mut().poll(cx)
    });
    let crowded = || activity.in_flight() > CROWD + lasting.load(Ordering::Relaxed);
    let broken = |error| {
        tracing::debug!(%error, "connection broke");
        Ok(())
    };
    release.after_each_turn(pin!(turn), crowded, broken).await
}

/// Why a connection is to end.
enum Unwanted {
    /// What is under way may take as long as the end of the server lets it.
    Leaving,
    /// Nothing is under way; there is a little time to say farewell.
    Idle(Duration),
    /// An answer is not being taken.
    Overdue,
}

/// Waits until the connection is to end: the server stops, it was told to leave, nobody used it for a while, there are
/// too many and nobody uses this one, or an answer takes too long to be sent.
async fn until_unwanted<H>(server: &Server<H>, activity: &Activity) -> Unwanted {
    let Limits { idle_timeout, send_timeout, header_timeout, .. } = server.limits;
    let mut stopping = pin!(server.shutdown.stopping());
    let (mut looked, mut requests_before) = (Instant::now(), 0);
    let mut round_ends = looked + send_timeout;
    loop {
        let next_look = looked + idle_timeout;
        let crowded = tokio::select! {
            () = stopping.as_mut() => return Unwanted::Leaving,
            () = activity.leaving() => return Unwanted::Leaving,
            () = server.crowd.felt() => true,
            () = sleep_until(next_look.min(round_ends)) => false,
        };
        let now = Instant::now();
        if now >= round_ends {
            if activity.next_round() {
                return Unwanted::Overdue;
            }
            round_ends = now + send_timeout;
        }
        // whoever has asked for nothing yet is no better than one who rests
        if crowded && activity.is_idle() {
            return Unwanted::Idle(header_timeout);
        }
        if now >= next_look {
            // idle for a whole round: nothing in flight now and nothing begun since the last look
            if activity.is_idle() && activity.started() == requests_before {
                return Unwanted::Idle(header_timeout);
            }
            (looked, requests_before) = (now, activity.started());
        }
    }
}

async fn farewell_over(limit: Option<Duration>) {
    match limit {
        Some(limit) => sleep(limit).await,
        None => pending().await,
    }
}

/// What becomes of a request. It lies apart from the stream, so that it is gone once there is an answer: a watch lasts,
/// and how it was asked for need not.
type Answering = Pin<Box<dyn Future<Output = Result<Response<Tracked>, Infallible>> + Send>>;

/// A request that has come and is not answered yet. What it takes in memory is its own, so there is a bound to how many
/// there are, whoever they are from.
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

fn too_many(body: Tracked) -> Response<Tracked> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let headers = response.headers_mut();
    let text = header::HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, text);
    headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    response
}

async fn answer<H: Handler>(
    handler: Arc<H>,
    request: Request<Incoming>,
    peer: Arc<Peer>,
    activity: Arc<Activity>,
    _pending: Pending,
) -> Result<Response<Tracked>, Infallible> {
    let (in_flight, http2) = (activity.begin(), peer.http2);
    let handled = unpanicked(async { handler.handle(request, peer).await }).await;
    let mut response = handled.unwrap_or_else(|panic| {
        tracing::error!(panic = panic_text(panic.as_ref()), "a request handler panicked");
        internal_error()
    });
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        activity.upgrade();
    }
    if matches!(response.body(), Body::Stream(_)) {
        stream_driver::streaming();
    }
    if response.extensions_mut().remove::<Leave>().is_some() {
        match http2 {
            true => activity.leave(),
            false => {
                let close = header::HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
        }
    }
    Ok(response.map(|body| Tracked::new(body, in_flight)))
}

/// Runs a future whose panic is a value. Nothing of the future is used after it panicked.
pub(crate) async fn unpanicked<F: Future>(future: F) -> Result<F::Output, Box<dyn Any + Send>> {
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

/// What the client is told: that it was us, and nothing of our insides.
fn internal_error() -> Response<Body> {
    const STATUS: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Internal error occurred: the request could not be completed","reason":"InternalError","details":{"causes":[{"message":"the request could not be completed"}]},"code":500}"#;
    let mut response = Response::new(Body::full(STATUS));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
