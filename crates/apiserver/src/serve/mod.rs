//! Listeners, TLS, HTTP/1.1 and HTTP/2, graceful shutdown: everything between the wire and a [`Handler`].
//!
//! ```text
//! bind ─ accept ─ TLS handshake ─ identity, once ─ HTTP by ALPN ─ Handler::handle, once per request
//!                                                                          │
//!                          Body, polled as the client takes it ◄───────────┘
//! ```
//!
//! What always holds:
//! - A connection costs little before it has said something sensible: the handshake, the HTTP/2 preface and
//!   every request head have a deadline, and a connection without requests is closed after a while.
//! - A panic of a handler becomes a 500 on its own request; other requests of the connection go on.
//! - The client certificate is verified and read once per connection, and again after the authorities have changed,
//!   not per request.
//! - A connection counts until its socket is closed, also where it speaks something other than HTTP by then.
//! - After [`run`] returns no connection is open and no request is being answered.
//!
//! What it does not do: look at a request, or decide anything from who sent it. A client certificate that
//! does not verify is not refused here: the handshake succeeds and [`Certificate`] says what was wrong,
//! so that the caller gets an answer of the API instead of a broken connection.

mod activity;
mod authorities;
mod body;
mod bulk;
mod certificates;
mod client_certificate;
mod connection;
mod connection_limit;
mod cork;
mod frame_limit;
mod host;
mod in_memory;
mod log_throttle;
mod quiet;
mod rate_limit;
mod shutdown;
mod stream_driver;
mod tls;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use env::World;
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

pub use authorities::{Authorities, AuthorityFile};
pub use body::Body;
pub use bulk::Bulk;
pub use certificates::Pair;
pub use client_certificate::{Certificate, ClientCertificate, Verified};
pub(crate) use connection::{panic_text, unpanicked};
pub use in_memory::InMemory;
pub use log_throttle::LogThrottle;
pub use shutdown::{Phase, Shutdown};
pub use tls::{TlsMaterial, suites};

/// What answers the requests.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. Dropped when the client goes away before the answer is there.
    fn handle(
        self: &Arc<Self>,
        request: Request<Incoming>,
        peer: Arc<Peer>,
    ) -> impl Future<Output = Response<Body>> + Send;

    /// A connection ended before it was safe.
    fn unsafe_connection(&self) {}

    /// A connection ended because of what its client sent, or how slowly, or did not take.
    fn odd_connection(&self) {}
}

/// Put among an answer's extensions: its request is the last that the connection takes. Those that are being
/// answered go on to their end.
#[derive(Debug, Clone, Copy)]
pub struct Leave;

/// The other end of a connection.
#[derive(Debug)]
pub struct Peer {
    /// Tells connections apart.
    pub connection: u64,
    /// Where the connection comes from.
    pub remote: SocketAddr,
    /// The client's certificate; `None` where none was shown or none could be worth anything.
    pub certificate: Option<ClientCertificate>,
    /// Whether requests are multiplexed.
    pub http2: bool,
}

/// Where to listen, and how.
#[derive(Clone)]
pub struct Listen {
    /// Port 0 takes any free one.
    pub address: SocketAddr,
    /// Certificates and keys.
    pub tls: TlsMaterial,
    /// What clients may do.
    pub limits: Limits,
    /// Whether other processes may listen on the same port; connections are then spread over all.
    pub share_port: bool,
    /// The clock by which certificates are valid or not, and floods are told from use.
    pub world: World,
}

/// What a client may take of the server before and beside its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// From the connection to the end of the TLS handshake.
    pub handshake_timeout: Duration,
    /// For an HTTP/2 preface, and for an HTTP/1 request head from its first byte to its last.
    pub header_timeout: Duration,
    /// How long a connection without a request stays open at least; at most twice as long.
    pub idle_timeout: Duration,
    /// How long an answer with an end may take to be sent, and how long a client may take nothing of what it is sent;
    /// at least, and at most twice as long.
    pub send_timeout: Duration,
    /// How often an HTTP/2 connection is asked whether it lives.
    pub keep_alive_interval: Duration,
    /// How long it may take to say so.
    pub keep_alive_timeout: Duration,
    /// Requests at the same time on one HTTP/2 connection.
    pub max_concurrent_streams: u32,
    /// All headers of a request together.
    pub max_header_bytes: u32,
    /// What a client may send of one HTTP/2 request body before the handler has read it.
    pub stream_window_bytes: u32,
    /// The same over all requests of a connection.
    pub connection_window_bytes: u32,
    /// The largest HTTP/2 frame taken.
    pub max_frame_bytes: u32,
    /// Requests over all connections that have come and are not answered yet; those beyond are refused unseen.
    pub max_pending_requests: usize,
    /// What is held of one HTTP/2 answer before the client has taken it.
    pub max_send_buffer_bytes: usize,
    /// What a connection gets per second of answers that last, such as watches; zero is no limit.
    pub lasting_bytes_per_second: u64,
    /// Connections at the same time; more wait in the listener's queue. When a quarter of the places is left, those
    /// without a request are closed.
    pub max_connections: u32,
    /// How long requests may take to finish after the stop was asked for.
    pub shutdown_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(90),
            send_timeout: Duration::from_secs(60),
            keep_alive_interval: Duration::from_secs(30),
            keep_alive_timeout: Duration::from_secs(15),
            max_concurrent_streams: 250,
            max_header_bytes: 1 << 20,
            stream_window_bytes: 256 << 10,
            connection_window_bytes: 4 << 20,
            max_frame_bytes: 256 << 10,
            max_pending_requests: 8192,
            max_send_buffer_bytes: 1 << 20,
            lasting_bytes_per_second: 0,
            max_connections: 32_768,
            shutdown_grace: Duration::from_secs(10),
        }
    }
}

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Somebody else has the port.
    #[error("address {0} is already in use")]
    AddressInUse(SocketAddr),
    /// The address is not ours, the port is privileged, …
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
    /// Certificates or keys that cannot be used.
    #[error("{what}: {problem}")]
    Tls {
        /// Which of the inputs.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

/// A listener that holds its port but does not answer yet: connections wait until [`run`].
pub struct Bound {
    listener: TcpListener,
    local: SocketAddr,
    tls: tls::Tls,
    limits: Limits,
    world: World,
}

impl Bound {
    /// Where it listens, with the real port where any was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Whose certificates are accepted.
    pub fn authorities(&self) -> Arc<Authorities> {
        self.tls.authorities()
    }
}

/// Takes the port and reads the certificates.
pub async fn bind(listen: Listen) -> Result<Bound, ServeError> {
    let address = listen.address;
    let tls = tls::Tls::new(&listen.tls, listen.world.clone())?;
    let refused = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => ServeError::AddressInUse(address),
        _ => ServeError::Bind { address, source },
    };
    let listener = listener(address, listen.share_port).map_err(refused)?;
    let local = listener.local_addr().map_err(refused)?;
    Ok(Bound { listener, local, tls, limits: listen.limits, world: listen.world })
}

fn listener(address: SocketAddr, share_port: bool) -> io::Result<TcpListener> {
    const WAITING: u32 = 1024;
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // a port that connections of before still linger on is free
    socket.set_reuseaddr(true)?;
    #[cfg(unix)]
    socket.set_reuseport(share_port)?;
    socket.bind(address)?;
    socket.listen(WAITING)
}

/// Answers requests until `shutdown` says stop and what was going on then has ended.
pub async fn run<H: Handler>(bound: Bound, handler: Arc<H>, shutdown: Shutdown) {
    let Bound { listener, local, tls, limits, world } = bound;
    let grace = limits.shutdown_grace;
    let files = tls.follow_files();
    let server = Arc::new(connection::Server::new(tls, limits, handler, shutdown.clone(), world));
    tokio::select! {
        () = files => {}
        () = accept(&listener, &server) => {}
        () = shutdown.stopping() => {}
    }
    drop(listener);
    if tokio::time::timeout(grace, server.crowd.gone()).await.is_err() {
        tracing::warn!(%local, "requests did not finish in time, closing their connections");
        shutdown.cut();
        server.crowd.gone().await;
    }
    tracing::debug!(%local, "listener closed");
}

async fn accept<H: Handler>(listener: &TcpListener, server: &Arc<connection::Server<H>>) {
    while let Some(place) = server.crowd.enter().await {
        let (tcp, remote) = accepted(listener).await;
        let server = server.clone();
        let activity = server.activity();
        let (bulk, known) = (server.bulk.clone(), activity.clone());
        let connection = Box::pin(connection::serve(server, tcp, remote, activity, place));
        bulk::spawn(bulk, known, connection);
    }
}

/// The next connection. Errors of accepting are the connection's, or a shortage that passes.
async fn accepted(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if is_of_the_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections for now");
                // out of file descriptors: asking again at once would only spin
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

fn is_of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
