//! Listeners, TLS, HTTP/1.1 and HTTP/2, graceful shutdown: everything between the wire and a [`Handler`].
//!
//! ```text
//! bind ─ accept ─ TLS handshake ─ identity, once ─ HTTP by ALPN ─ Handler::handle, once per request
//!                                                                          │
//!                          Body, polled as the client takes it ◄───────────┘
//! ```
//!
//! Invariants:
//! - A connection costs little before its first valid data: the handshake, the HTTP/2 preface and every
//!   request head have a deadline, and an idle connection is closed.
//! - A panic in a handler becomes a 500 of its own request; other requests of the connection go on.
//! - The client certificate is verified and read once per connection, and again after the authorities have changed,
//!   not per request.
//! - A connection counts until its socket is closed, also after an upgrade.
//! - After [`run`] returns no connection is open and no request is in flight.
//!
//! It does not inspect requests, nor decide by identity. A client certificate that does not verify is not
//! refused here: the handshake succeeds and [`Certificate`] holds the error, so that the client gets an API
//! response instead of a broken connection.

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
mod pem;
mod quiet;
mod rate_limit;
mod shutdown;
mod stream_driver;
mod stream_server;
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
pub use client_certificate::{Certificate, ClientCertificate, Verification};
pub(crate) use connection::{catch_panic, panic_text};
pub use error::ServeError;
pub(crate) use handler::NO_CONNECTION;
pub use handler::{CloseConnection, CutConnection, Handler, Peer};
pub use in_memory::InMemory;
pub use limits::Limits;
pub(crate) use rate_limit::RateLimit;
pub use shutdown::{Phase, Shutdown};
pub use stream_server::StreamServer;
pub use tls::{TlsMaterial, suites};

/// Configuration of a listener.
#[derive(Clone)]
pub struct ListenConfig {
    /// Port 0 takes any free one.
    pub address: SocketAddr,
    /// Certificates and keys.
    pub tls: TlsMaterial,
    /// Limits of clients.
    pub limits: Limits,
    /// Whether other processes may listen on the same port; connections are then spread over all.
    pub share_port: bool,
    /// The clock for certificate validity and frame limits.
    pub world: World,
}

/// A bound listener that does not accept yet: connections wait until [`run`].
pub struct BoundListener {
    listener: TcpListener,
    local: SocketAddr,
    tls: tls::Tls,
    limits: Limits,
    world: World,
}

impl BoundListener {
    /// The local address, with the actual port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The authorities for client certificates.
    pub fn authorities(&self) -> Arc<Authorities> {
        self.tls.authorities()
    }
}

/// Binds the port and reads the certificates.
pub async fn bind(listen: ListenConfig) -> Result<BoundListener, ServeError> {
    let address = listen.address;
    let tls = tls::Tls::new(&listen.tls, listen.world.clone())?;
    let refused = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => ServeError::AddressInUse(address),
        _ => ServeError::Bind { address, source },
    };
    let listener = listener(address, listen.share_port).map_err(refused)?;
    let local = listener.local_addr().map_err(refused)?;
    Ok(BoundListener { listener, local, tls, limits: listen.limits, world: listen.world })
}

fn listener(address: SocketAddr, share_port: bool) -> io::Result<TcpListener> {
    const WAITING: u32 = 1024;
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // a port is free even while old connections linger on it
    socket.set_reuseaddr(true)?;
    #[cfg(unix)]
    socket.set_reuseport(share_port)?;
    socket.bind(address)?;
    socket.listen(WAITING)
}

/// Serves until `shutdown` stops it and all requests have ended.
pub async fn run<H: Handler>(bound: BoundListener, handler: Arc<H>, shutdown: Shutdown) {
    let BoundListener { listener, local, tls, limits, world } = bound;
    let grace = limits.shutdown_grace;
    let tls = Arc::new(tls);
    let files = tls.follow_files();
    let server = Arc::new(connection::Server::new(limits, handler, shutdown.clone(), world));
    tokio::select! {
        () = files => {}
        () = accept(&listener, &server, &tls) => {}
        () = shutdown.wait_for_stop() => {}
    }
    drop(listener);
    if env::io::timeout(grace, server.connection_limit.drained()).await.is_err() {
        tracing::warn!(%local, "requests did not finish in time, closing their connections");
        shutdown.cut();
        server.connection_limit.drained().await;
    }
    tracing::debug!(%local, "listener closed");
}

async fn accept<H: Handler>(
    listener: &TcpListener,
    server: &Arc<connection::Server<H>>,
    tls: &Arc<tls::Tls>,
) {
    while let Some(permit) = server.connection_limit.enter().await {
        let accepted = accept_next(listener).await;
        let (server, tls) = (server.clone(), tls.clone());
        let activity = server.activity();
        let (bulk, load) = (server.bulk.clone(), activity.clone());
        let connection = Box::pin(connection::serve(server, tls, accepted, activity, permit));
        bulk::spawn(bulk, load, connection);
    }
}

/// The next connection. Errors concern that connection, or a shortage that passes.
async fn accept_next(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if is_connection_error(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections for now");
                // out of file descriptors: retrying at once would only spin
                env::io::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
