//! The `kube` client over the harness's own connections.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::Client;
use kube::client::Body;
use tower_service::Service;

use crate::cluster::Cluster;
use crate::transport::{Protocol, Who, connect};

impl Cluster {
    /// A client of the library that controllers use, as the administrator.
    pub async fn kube(&self, namespace: &str) -> Client {
        let stream = connect(self.address, &Who::Admin, Protocol::Http2).await;
        let builder = http2::Builder::new(TokioExecutor::new());
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Client::new(Connection(sender), namespace)
    }
}

/// What the library sends its requests through.
struct Connection(http2::SendRequest<Body>);

impl Service<Request<Body>> for Connection {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = hyper::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // the library leaves the host to its transport
        let path = request.uri().path_and_query().map_or("/", |it| it.as_str());
        *request.uri_mut() = format!("https://localhost{path}").parse().unwrap();
        let mut sender = self.0.clone();
        Box::pin(async move { sender.send_request(request).await })
    }
}
