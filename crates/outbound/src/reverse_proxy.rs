//! A reverse proxy: forwards requests to the addresses of one server name.
//!
//! Invariants: the server has presented a certificate for that name, at every address; bodies are streamed in both
//! directions; redirects are returned, not followed. The caller sets timeouts. Keep-alive pings detect a dead
//! connection, even on a stream that only receives.

use crate::dial_error;
use crate::tls::{self, Purpose};
use crate::{CallError, HttpResponse, InvalidTarget, Limits, Target, broken, trace_context};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::time::Duration;

/// The keep-alive interval and timeout of an idle connection.
const SILENCE: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(15);

/// See the module.
pub struct ReverseProxy<B> {
    usual: Client<tls::Connector, B>,
    /// For requests that upgrade the connection.
    upgrading: Client<tls::Connector, B>,
}

impl<B> ReverseProxy<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Uses the target's TLS settings, not its URL: each request has its own.
    pub fn new(target: &Target) -> Result<Self, InvalidTarget> {
        let usual = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(90))
            .http2_keep_alive_interval(SILENCE)
            .http2_keep_alive_timeout(TIMEOUT)
            .http2_adaptive_window(true)
            .build(tls::connector(target)?);
        let upgrading = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(0)
            .build(tls::connector_for(target, Purpose::Upgrades)?);
        Ok(ReverseProxy { usual, upgrading })
    }

    /// Forwards a request to the address in its URL.
    pub async fn pass(&self, request: Request<B>) -> Result<Response<Incoming>, CallError> {
        send(&self.usual, request).await
    }

    /// The same for a request that upgrades the connection.
    pub async fn upgrade(&self, request: Request<B>) -> Result<Response<Incoming>, CallError> {
        send(&self.upgrading, request).await
    }

    /// Forwards a request, upgrading or not; an error has the words of Go programs, which clients know.
    pub async fn forward(
        &self,
        mut request: Request<B>,
        is_upgrade: bool,
    ) -> Result<Response<Incoming>, String> {
        add_trace_parent(&mut request);
        let authority = request.uri().authority().map(|it| it.as_str().to_owned()).unwrap_or_default();
        let client = if is_upgrade { &self.upgrading } else { &self.usual };
        client.request(request).await.map_err(|why| dial_error::describe(&why, &authority))
    }

    /// Sends an own request and reads the whole response.
    pub async fn ask(&self, request: Request<B>, limits: Limits) -> Result<HttpResponse, CallError> {
        let whole = async {
            let (parts, body) = self.pass(request).await?.into_parts();
            let read = Limited::new(body, limits.answer).collect().await;
            let read = read.map_err(|why| match why.downcast_ref::<LengthLimitError>() {
                Some(_) => CallError::TooLarge(limits.answer),
                None => broken(&*why),
            })?;
            Ok(HttpResponse { status: parts.status, headers: parts.headers, body: read.to_bytes() })
        };
        env::io::timeout(limits.time, whole).await.unwrap_or(Err(CallError::Timeout(limits.time)))
    }
}

async fn send<B>(
    client: &Client<tls::Connector, B>,
    mut request: Request<B>,
) -> Result<Response<Incoming>, CallError>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    add_trace_parent(&mut request);
    client.request(request).await.map_err(|why| broken(&why))
}

fn add_trace_parent<B>(request: &mut Request<B>) {
    if let Some(value) = trace_context::parent() {
        request.headers_mut().insert(trace_context::TRACEPARENT, value);
    }
}
