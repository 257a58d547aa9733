//! Outbound clients: HTTP, gRPC, webhooks and the reverse proxy.
//!
//! Invariants: a call ends within its timeout, a response is read no further than its limit, and the server has
//! presented a certificate that the target accepts (unless the operator configured `insecure`). A response of any
//! status is a response: the caller interprets it. Connections are pooled and shared.
//!
//! An [`HttpClient`] does not retry: only the caller knows whether that is safe. A [`Webhook`] does, because its
//! requests are idempotent. A [`TtlCache`] keeps responses, and a [`SingleFlight`] merges concurrent equal
//! requests. A [`Channel`] is the transport of gRPC clients. A [`ReverseProxy`] forwards requests of other clients. All of them connect through their target's [`Dialer`].

mod any_certificate;
mod channel;
mod client_certificate;
mod client_identity;
mod cork;
mod dial_error;
mod egress;
mod endpoint;
mod error;
mod http2;
mod kubeconfig;
mod log_throttle;
mod metrics;
mod pem;
mod request_body;
mod reverse_proxy;
mod server_authorities;
mod server_verifier;
mod single_flight;
mod target;
mod tls;
pub mod trace;
mod trace_context;
mod transport;
mod ttl_cache;
mod webhook;

pub use channel::{Channel, RpcError, TransportError, code_name};
pub use client_identity::ClientIdentity;
pub use dial_error::io_text;
pub use egress::{DialMetrics, Dialer, InProcessServers, Protocol, Proxy};
pub use endpoint::Endpoint;
pub use error::{CallError, InvalidTarget};
pub use http2::ResponseBody;
pub use kubeconfig::{ClientCredentials, KubeconfigError, Users};
pub use log_throttle::LogThrottle;
pub use metrics::ClientMetrics;
pub use reverse_proxy::ReverseProxy;
pub use single_flight::SingleFlight;
pub use target::{Credentials, Target};
pub use tls::config as tls_config;
pub use trace_context::{TRACEPARENT, within};
pub use transport::{Transport, TransportBody};
pub use ttl_cache::{Key, TtlCache};
pub use webhook::{Backoff, Version, Webhook, WebhookError};

use bytes::Bytes;
use env::io::RealInstant;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use metrics::CallOutcome;
use std::io::ErrorKind;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The timeout of a call and the largest response body.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub time: Duration,
    pub answer: usize,
}

impl Limits {
    /// For webhooks, whose responses are short.
    pub const REVIEW: Limits = Limits { time: Duration::from_secs(30), answer: 1024 * 1024 };
}

impl Default for Limits {
    fn default() -> Self {
        Limits { time: Duration::from_secs(30), answer: 3 * 1024 * 1024 }
    }
}

/// A response of any status.
#[derive(Debug)]
pub struct HttpResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// An HTTP client for one server.
pub struct HttpClient {
    client: Client<tls::Connector, Full<Bytes>>,
    base: String,
    credentials: Credentials,
    limits: Limits,
    counted: OnceLock<Arc<ClientMetrics>>,
}

impl HttpClient {
    /// Records the metrics of its calls from now on.
    pub fn measure(&self, counted: &Arc<ClientMetrics>) {
        self.counted.get_or_init(|| counted.clone());
    }

    pub fn new(target: &Target, limits: Limits) -> Result<Self, InvalidTarget> {
        let url: Uri = target.url.parse().map_err(|_| InvalidTarget::Url(target.url.clone()))?;
        if url.host().is_none() || !matches!(url.scheme_str(), Some("http" | "https")) {
            return Err(InvalidTarget::Url(target.url.clone()));
        }
        let connector = tls::connector(target)?;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(90))
            .build(connector);
        let base = target.url.trim_end_matches('/').to_owned();
        let (credentials, counted) = (target.credentials.clone(), OnceLock::new());
        Ok(HttpClient { client, base, credentials, limits, counted })
    }

    /// Gets a path below the target's URL, which may be empty.
    pub async fn get(&self, path: &str) -> Result<HttpResponse, CallError> {
        self.call(Method::GET, path, Bytes::new()).await
    }

    /// Posts JSON to a path below the target's URL, which may be empty.
    pub async fn post(&self, path: &str, json: Bytes) -> Result<HttpResponse, CallError> {
        self.call(Method::POST, path, json).await
    }

    /// Gets any URL. The server there is verified like the target, but receives only these credentials.
    pub async fn fetch(&self, url: &str, credentials: &Credentials) -> Result<HttpResponse, CallError> {
        self.send(Method::GET, url.to_owned(), Bytes::new(), credentials, &HeaderMap::new()).await
    }

    /// Gets any URL with these headers, which replace the usual ones. The server there is verified like the target, and
    /// receives no credentials.
    pub async fn fetch_with(&self, url: &str, headers: &HeaderMap) -> Result<HttpResponse, CallError> {
        self.send(Method::GET, url.to_owned(), Bytes::new(), &Credentials::None, headers).await
    }

    async fn call(&self, method: Method, path: &str, body: Bytes) -> Result<HttpResponse, CallError> {
        let url = format!("{}{path}", self.base);
        self.send(method, url, body, &self.credentials, &HeaderMap::new()).await
    }

    async fn send(
        &self,
        method: Method,
        url: String,
        body: Bytes,
        credentials: &Credentials,
        others: &HeaderMap,
    ) -> Result<HttpResponse, CallError> {
        let sent = body.len() as u64;
        let mut request = Request::new(Full::new(body.clone()));
        *request.uri_mut() = url.parse().map_err(|_| CallError::Url(url.clone()))?;
        *request.method_mut() = method;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("pintle/", env!("CARGO_PKG_VERSION"))));
        if !body.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(value) = credentials.header().await? {
            headers.insert(AUTHORIZATION, value);
        }
        if let Some(value) = trace_context::parent() {
            headers.insert(TRACEPARENT, value);
        }
        for name in others.keys() {
            headers.remove(name);
            for value in others.get_all(name) {
                headers.append(name, value.clone());
            }
        }
        let (method, began) = (request.method().clone(), RealInstant::now());
        // only the target's own host becomes a label: a host from a fetched document is not bounded
        let host = request.uri().authority().filter(|_| url.starts_with(&self.base)).cloned();
        let outcome = match env::io::timeout(self.limits.time, self.answered(request)).await {
            Ok(answered) => answered,
            Err(_) => Err(CallError::Timeout(self.limits.time)),
        };
        if let Some(counted) = self.counted.get() {
            let host = host.as_ref().map_or("other", |host| host.as_str());
            let call = CallOutcome {
                status: outcome.as_ref().ok().map(|answer| answer.status),
                took: began.elapsed(),
                sent: Some(sent),
                received: outcome.as_ref().ok().map(|answer| answer.body.len() as u64),
            };
            counted.record(host, &method, &call);
        }
        outcome
    }

    async fn answered(&self, request: Request<Full<Bytes>>) -> Result<HttpResponse, CallError> {
        let answer = self.client.request(request).await.map_err(|why| broken(&why))?;
        let (parts, body) = answer.into_parts();
        let limit = self.limits.answer;
        let whole = Limited::new(body, limit).collect().await.map_err(|why| {
            match why.downcast_ref::<LengthLimitError>() {
                Some(_) => CallError::TooLarge(limit),
                None => broken(&*why),
            }
        })?;
        Ok(HttpResponse { status: parts.status, headers: parts.headers, body: whole.to_bytes() })
    }
}

/// Classifies a failure: no connection, or a lost one.
fn broken(error: &(dyn std::error::Error + 'static)) -> CallError {
    let lost = std::iter::successors(Some(error), |error| error.source()).any(|cause| {
        if let Some(why) = cause.downcast_ref::<std::io::Error>() {
            return matches!(why.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
        }
        let spoken = cause.downcast_ref::<hyper::Error>();
        spoken.is_some_and(|why| why.is_incomplete_message() || why.is_canceled() || why.is_closed())
    });
    if lost { CallError::Lost(chain(error)) } else { CallError::Connection(chain(error)) }
}

/// An error with its causes, each named once.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut message: Vec<String> = Vec::new();
    for cause in causes {
        let text = cause.to_string();
        if !message.iter().any(|before| before.contains(&text)) {
            message.push(text);
        }
    }
    message.join(": ")
}

#[cfg(test)]
mod tests;
