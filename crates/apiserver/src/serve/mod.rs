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
mod error;
mod frame_limit;
mod handler;
mod host;
mod in_memory;
mod limits;
mod log_throttle;
mod pem;
mod quiet;
mod rate_limit;
mod shutdown;
mod stream_driver;
mod tls;

#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use env::World;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

pub use authorities::{Authorities, AuthorityFile};
pub use body::Body;
pub use bulk::Bulk;
pub use certificates::Pair;
pub use client_certificate::{Certificate, ClientCertificate, Verified};
pub(crate) use connection::{panic_text, unpanicked};
pub use error::ServeError;
pub use handler::{Handler, Leave, Peer};
pub use in_memory::InMemory;
pub use limits::Limits;
pub use log_throttle::LogThrottle;
pub use shutdown::{Phase, Shutdown};
pub use tls::{TlsMaterial, suites};

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
