//! The interface between connections and the service that handles their requests.

use super::body::Body;
use super::client_certificate::ClientCertificate;
use http::{Request, Response};
use hyper::body::Incoming;
use std::net::SocketAddr;
use std::sync::Arc;

/// Handles the requests of all connections.
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
