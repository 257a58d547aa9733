//! Clients over the harness's own connections: that of `kube`, and that of the control loops.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::Client;
use tower_service::Service;

use crate::cluster::Cluster;
use crate::transport::{Protocol, TestUser, connect};

impl Cluster {
    /// A client of a library that others use, as the administrator.
    pub async fn kube(&self, namespace: &str) -> Client {
        Client::new(Connection::open(self).await, namespace)
    }

    /// A client as control loops have it, as the administrator.
    pub async fn loop_client(&self) -> client::Client {
        client::Client::new(Connection::open(self).await)
    }
}

/// A connection that sends the requests of a client.
struct Connection<B>(http2::SendRequest<B>);

impl<B> Clone for Connection<B> {
    fn clone(&self) -> Self {
        Connection(self.0.clone())
    }
}

impl<B> Connection<B>
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static,
{
    async fn open(cluster: &Cluster) -> Self {
        let stream = connect(cluster.address, &TestUser::Admin, Protocol::Http2).await;
        let builder = http2::Builder::new(TokioExecutor::new());
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Connection(sender)
    }
}

impl<B: Body + Send + 'static> Service<Request<B>> for Connection<B> {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = hyper::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // the library leaves the host to its transport
        let path = request.uri().path_and_query().map_or("/", |it| it.as_str());
        *request.uri_mut() = format!("https://localhost{path}").parse().unwrap();
        let mut sender = self.0.clone();
        Box::pin(async move { sender.send_request(request).await })
    }
}
