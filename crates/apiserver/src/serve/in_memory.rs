//! In-process transport: requests and responses without a connection.
//!
//! Components in the same process use it as the transport of their client. The creator of the transport sets
//! the user, so no credentials are needed.

use super::handler::{CutConnection, NO_CONNECTION};
use crate::handle::Service;
use crate::serve::{Body, Certificate, ClientCertificate, Peer};
use auth::User;
use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{HeaderValue, USER_AGENT};
use http::{Request, Response};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A transport for one user. Cheap to clone.
#[derive(Clone)]
pub struct InMemory {
    service: Arc<Service>,
    peer: Arc<Peer>,
    agent: HeaderValue,
}

impl InMemory {
    /// `agent` is the user agent, which owns the fields that it writes.
    pub fn new(service: Arc<Service>, user: User, agent: &str) -> Self {
        let certificate = Certificate { user: Some(Ok(Arc::new(user))), proxy: None, until: i64::MAX };
        let peer = Peer {
            connection: NO_CONNECTION,
            remote: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            certificate: Some(ClientCertificate::new(certificate)),
            http2: true,
        };
        let agent = HeaderValue::from_str(agent).unwrap_or(HeaderValue::from_static("in-memory"));
        InMemory { service, peer: Arc::new(peer), agent }
    }
}

impl<B> tower_service::Service<Request<B>> for InMemory
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        request.headers_mut().entry(USER_AGENT).or_insert_with(|| self.agent.clone());
        let (service, peer) = (self.service.clone(), self.peer.clone());
        Box::pin(async move {
            let response = AssertUnwindSafe(service.respond(request, peer)).catch_unwind().await;
            let response = response.unwrap_or_else(|_| {
                let mut broken = Response::new(Body::Empty);
                *broken.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
                broken
            });
            match response.extensions().get::<CutConnection>() {
                Some(_) => Err(io::ErrorKind::ConnectionReset.into()),
                None => Ok(response),
            }
        })
    }
}
