//! The interface between connections and the service that handles their requests.

use super::body::Body;
use super::client_certificate::ClientCertificate;
use http::{Request, Response};
use hyper::body::Incoming;
use std::net::SocketAddr;
use std::sync::Arc;

/// Network connections are numbered from one.
pub(crate) const NO_CONNECTION: u64 = 0;

/// Handles the requests of all connections.
pub trait Handler: Send + Sync + 'static {
    /// Handles one request. The future is dropped when the client disconnects before the response.
    fn handle(
        self: &Arc<Self>,
        request: Request<Incoming>,
        peer: Arc<Peer>,
    ) -> impl Future<Output = Response<Body>> + Send;

    /// Counts a connection without a completed handshake.
    fn count_handshake_failure(&self) {}

    /// Counts a connection that was closed for its client's behaviour.
    fn count_protocol_violation(&self) {}
}

/// Response extension: the connection takes no request after this one. Requests in flight run to their end.
#[derive(Debug, Clone, Copy)]
pub struct CloseConnection;

/// Response extension: the connection is closed at once, and the response is not sent.
#[derive(Debug, Clone, Copy)]
pub struct CutConnection;

/// The remote end of a connection.
#[derive(Debug)]
pub struct Peer {
    /// Id of the connection.
    pub connection: u64,
    /// The remote address.
    pub remote: SocketAddr,
    /// The client's certificate; `None` without one, or without authorities to verify it.
    pub certificate: Option<ClientCertificate>,
    /// Whether requests are multiplexed.
    pub http2: bool,
}

impl Peer {
    /// Whether it is a component in the process of the server, without a connection.
    pub fn is_in_process(&self) -> bool {
        self.connection == NO_CONNECTION
    }
}
