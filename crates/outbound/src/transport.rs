//! A tower service that sends requests to one server, for clients that build their own requests, such as the API
//! client.
//!
//! Invariants: requests go only to the target's server, with its credentials; connections are shared, and
//! keep-alive pings detect a dead one, even on a stream that only receives.

use crate::cork::Cork;
use crate::metrics::CallOutcome;
use crate::trace::{OpenSpan, SpanKind, Tracer};
use crate::trace_context::TRACEPARENT;
use crate::{CallError, ClientMetrics, Credentials, InvalidTarget, Target, broken, tls};
use bytes::Bytes;
use env::io::RealInstant;
use http::header::{AUTHORIZATION, HeaderValue, USER_AGENT};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Response, StatusCode, Uri};
use hyper::body::{Body, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_service::Service;

/// The keep-alive interval and timeout of an idle connection.
const SILENCE: Duration = Duration::from_secs(30);
const ANSWER: Duration = Duration::from_secs(15);

/// See the module. Cheap to clone.
pub struct Transport<B> {
    client: Client<CorkedConnector, B>,
    to: Arc<ServerAddress>,
    counted: Option<Arc<ClientMetrics>>,
    tracer: Option<Arc<Tracer>>,
}

/// Connections whose small writes are gathered.
#[derive(Clone)]
struct CorkedConnector(tls::Connector);

impl Service<Uri> for CorkedConnector {
    type Response = Cork<<tls::Connector as Service<Uri>>::Response>;
    type Error = <tls::Connector as Service<Uri>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let connecting = self.0.call(server);
        Box::pin(async move { Ok(Cork::of_version_2(connecting.await?)) })
    }
}

struct ServerAddress {
    scheme: Scheme,
    authority: Authority,
    /// The base path, without a slash at the end.
    below: String,
    credentials: Credentials,
    agent: HeaderValue,
}

impl<B> Clone for Transport<B> {
    fn clone(&self) -> Self {
        Transport {
            client: self.client.clone(),
            to: self.to.clone(),
            counted: self.counted.clone(),
            tracer: self.tracer.clone(),
        }
    }
}

impl<B: Body<Data = Bytes> + Send + 'static> Transport<B> {
    /// `agent` is the user agent.
    pub fn new(target: &Target, agent: &str) -> Result<Self, InvalidTarget> {
        let bad = || InvalidTarget::Url(target.url.clone());
        // upstream's kubeconfigs may name only a host
        let url =
            if target.url.contains("://") { target.url.clone() } else { format!("https://{}", target.url) };
        let parts = url.parse::<Uri>().map_err(|_| bad())?.into_parts();
        let scheme = parts.scheme.filter(|it| [Scheme::HTTP, Scheme::HTTPS].contains(it)).ok_or_else(bad)?;
        let authority = parts.authority.ok_or_else(bad)?;
        let below =
            parts.path_and_query.map_or(String::new(), |it| it.path().trim_end_matches('/').to_owned());
        let agent = HeaderValue::from_str(agent).unwrap_or(HeaderValue::from_static("pintle"));
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(90))
            .http2_keep_alive_interval(SILENCE)
            .http2_keep_alive_timeout(ANSWER)
            .http2_adaptive_window(true)
            .build(CorkedConnector(tls::connector(target)?));
        let credentials = target.credentials.clone();
        let to = Arc::new(ServerAddress { scheme, authority, below, credentials, agent });
        Ok(Transport { client, to, counted: None, tracer: None })
    }

    /// Records the metrics of its calls.
    #[must_use]
    pub fn counted_in(self, counted: Arc<ClientMetrics>) -> Self {
        Transport { counted: Some(counted), ..self }
    }

    /// Makes a span of each call that is sampled.
    #[must_use]
    pub fn traced_by(self, tracer: Option<Arc<Tracer>>) -> Self {
        Transport { tracer, ..self }
    }
}

impl<B> Transport<B> {
    /// Records how long a call waited for the rate limiter.
    pub fn waited(&self, method: &Method, waited: Duration) {
        if let Some(counted) = &self.counted {
            counted.waited(self.to.authority.as_str(), method, waited);
        }
    }
}

impl ServerAddress {
    fn uri(&self, request_uri: &Uri) -> Result<Uri, CallError> {
        let path = request_uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let path = format!("{}{path}", self.below);
        let uri = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path.as_str())
            .build();
        uri.map_err(|_| CallError::Url(path))
    }
}

impl<B> Service<Request<B>> for Transport<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Incoming>;
    type Error = CallError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, CallError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let Transport { client, to, counted, tracer } = self.clone();
        Box::pin(async move {
            *request.uri_mut() = to.uri(request.uri())?;
            let headers = request.headers_mut();
            headers.entry(USER_AGENT).or_insert_with(|| to.agent.clone());
            if !headers.contains_key(AUTHORIZATION)
                && let Some(value) = to.credentials.header().await?
            {
                headers.insert(AUTHORIZATION, value);
            }
            let span = tracer.and_then(|tracer| CallSpan::begin(tracer, &mut request));
            let (method, began) = (request.method().clone(), RealInstant::now());
            let sent = request.body().size_hint().exact();
            let answer = client.request(request).await;
            if let Some(counted) = counted {
                let (answered, took) = (answer.as_ref().ok(), began.elapsed());
                let received = answered.and_then(|answer| answer.body().size_hint().exact());
                let status = answered.map(Response::status);
                counted.record(to.authority.as_str(), &method, &CallOutcome { status, took, sent, received });
            }
            if let Some(span) = span {
                span.end(answer.as_ref().ok().map(Response::status));
            }
            answer.map_err(|why| broken(&why))
        })
    }
}

/// The span of a call.
struct CallSpan {
    tracer: Arc<Tracer>,
    open: OpenSpan,
    method: Method,
    url: String,
}

impl CallSpan {
    /// Starts a span, if the call is sampled, and hands it on to the server.
    fn begin<B>(tracer: Arc<Tracer>, request: &mut Request<B>) -> Option<Self> {
        let open = tracer.begin_call()?;
        request.headers_mut().insert(TRACEPARENT, open.context.header()?);
        Some(CallSpan { tracer, open, method: request.method().clone(), url: request.uri().to_string() })
    }

    fn end(self, status: Option<StatusCode>) {
        let CallSpan { tracer, open, method, url } = self;
        let mut attributes = vec![("http.method", method.as_str().into()), ("http.url", url.as_str().into())];
        if let Some(status) = status {
            attributes.push(("http.status_code", i64::from(status.as_u16()).into()));
        }
        let failed = status.is_none_or(|it| it.as_u16() >= 400);
        tracer.end(open, format!("HTTP {method}"), SpanKind::Client, attributes, failed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Empty;

    #[test]
    fn requests_go_below_the_target() {
        let check = |url: &str, request_uri: &str, expected: &str| {
            let target = Target { url: url.to_owned(), ..Target::default() };
            let transport = Transport::<Empty<Bytes>>::new(&target, "test").unwrap();
            assert_eq!(transport.to.uri(&request_uri.parse().unwrap()).unwrap().to_string(), expected);
        };
        check("https://h:1", "/api?x=1", "https://h:1/api?x=1");
        check("http://h/below/", "/api", "http://h/below/api");
        check("h:7", "/api", "https://h:7/api");
        let target = Target { url: "ftp://h".to_owned(), ..Target::default() };
        assert!(Transport::<Empty<Bytes>>::new(&target, "test").is_err());
    }
}
