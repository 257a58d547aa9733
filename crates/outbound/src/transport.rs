//! A tower service that sends requests to one server, for clients that build their own requests, such as the API
//! client.
//!
//! Invariants: requests go only to the target's server, with its credentials; connections are shared, and
//! keep-alive pings detect a dead one, even on a stream that only receives.

use crate::cork::Cork;
use crate::http2::{Http2Connection, Http2Error, Http2Settings, ReadyConnection, ResponseBody};
use crate::metrics::CallOutcome;
use crate::trace::{OpenSpan, SpanKind, Tracer};
use crate::trace_context::TRACEPARENT;
use crate::{CallError, ClientMetrics, Credentials, InvalidTarget, Target, broken, chain, tls};
use bytes::Bytes;
use env::io::RealInstant;
use http::header::{AUTHORIZATION, HeaderValue, USER_AGENT};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Response, StatusCode, Uri};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::Connection;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::error::Error as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Mutex;
use tower_service::Service;

/// The keep-alive interval and timeout of an idle connection.
const SILENCE: Duration = Duration::from_secs(30);
const ANSWER: Duration = Duration::from_secs(15);
/// The flow-control windows of one stream and of the connection. A stream that is not read leaves room for the others.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// See the module. Cheap to clone.
pub struct Transport<B> {
    connections: Arc<Connections<B>>,
    to: Arc<ServerAddress>,
    counted: Option<Arc<ClientMetrics>>,
    tracer: Option<Arc<Tracer>>,
}

/// The connections to a server: one of HTTP/2 for all requests, or a pool of HTTP/1.1.
struct Connections<B> {
    connector: tls::Connector,
    http2: Mutex<Option<Http2Connection>>,
    /// For a server that does not negotiate HTTP/2.
    pool: Client<tls::Connector, B>,
    is_pooled: AtomicBool,
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
            connections: self.connections.clone(),
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
        let connector = tls::connector(target)?;
        let pool = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(90))
            .build(connector.clone());
        // without TLS there is no negotiation
        let is_pooled = AtomicBool::new(scheme == Scheme::HTTP);
        let connections = Arc::new(Connections { connector, http2: Mutex::default(), pool, is_pooled });
        let credentials = target.credentials.clone();
        let to = Arc::new(ServerAddress { scheme, authority, below, credentials, agent });
        Ok(Transport { connections, to, counted: None, tracer: None })
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

impl<B> Connections<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    async fn send(&self, request: Request<B>) -> Result<Response<TransportBody>, CallError> {
        if !self.is_pooled.load(Ordering::Relaxed)
            && let Some(connection) = self.ready(request.uri()).await?
        {
            let response = connection.send(request).await.map_err(lost)?;
            return Ok(response.map(TransportBody::Http2));
        }
        let response = self.pool.request(request).await.map_err(|why| match why.source() {
            // the pool adds only that it could not connect
            Some(cause) if why.is_connect() => broken(cause),
            _ => broken(&why),
        })?;
        Ok(response.map(TransportBody::Http1))
    }

    /// A connection that takes a request, or none if the server does not negotiate HTTP/2.
    async fn ready(&self, server: &Uri) -> Result<Option<ReadyConnection>, CallError> {
        // one that is there may have been left by the server since the last request
        let current = self.http2.lock().await.as_ref().filter(|it| !it.is_closed()).cloned();
        if let Some(current) = current
            && let Ok(ready) = current.ready().await
        {
            return Ok(Some(ready));
        }
        let mut shared = self.http2.lock().await;
        // another caller may have connected meanwhile
        if let Some(current) = shared.as_ref().filter(|it| !it.is_closed())
            && let Ok(ready) = current.ready().await
        {
            return Ok(Some(ready));
        }
        *shared = None;
        let stream = Service::call(&mut self.connector.clone(), server.clone()).await;
        let stream = stream.map_err(|why| broken(&*why))?;
        if !stream.connected().is_negotiated_h2() {
            self.is_pooled.store(true, Ordering::Relaxed);
            return Ok(None);
        }
        let settings = Http2Settings {
            pings: Some((SILENCE, ANSWER)),
            stream_window: STREAM_WINDOW,
            connection_window: CONNECTION_WINDOW,
        };
        let made = Http2Connection::handshake(TokioIo::new(Cork::new(stream)), &settings).await;
        let made = made.map_err(|why| CallError::Connection(chain(&why)))?;
        let ready = made.ready().await.map_err(lost)?;
        *shared = Some(made);
        Ok(Some(ready))
    }
}

fn lost(failed: Http2Error) -> CallError {
    let why = chain(&failed.cause);
    if failed.is_unsent { CallError::Connection(why) } else { CallError::Lost(why) }
}

/// The body of a response.
pub enum TransportBody {
    Http1(Incoming),
    Http2(ResponseBody),
}

impl Body for TransportBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            TransportBody::Http1(body) => {
                Pin::new(body).poll_frame(context).map(|it| it.map(|frame| frame.map_err(Into::into)))
            }
            TransportBody::Http2(body) => {
                Pin::new(body).poll_frame(context).map(|it| it.map(|frame| frame.map_err(Into::into)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            TransportBody::Http1(body) => body.is_end_stream(),
            TransportBody::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            TransportBody::Http1(body) => body.size_hint(),
            TransportBody::Http2(body) => body.size_hint(),
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
    type Response = Response<TransportBody>;
    type Error = CallError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<TransportBody>, CallError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let Transport { connections, to, counted, tracer } = self.clone();
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
            let answer = connections.send(request).await;
            if let Some(counted) = counted {
                let (answered, took) = (answer.as_ref().ok(), began.elapsed());
                let received = answered.and_then(|answer| answer.body().size_hint().exact());
                let status = answered.map(Response::status);
                counted.record(to.authority.as_str(), &method, &CallOutcome { status, took, sent, received });
            }
            if let Some(span) = span {
                span.end(answer.as_ref().ok().map(Response::status));
            }
            answer
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
