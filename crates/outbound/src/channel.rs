//! The transport of gRPC clients: one HTTP/2 connection for many calls and streams.
//!
//! Invariants: keep-alive pings detect a dead connection, even on a stream that only receives (unless they are off). An
//! error tells whether the server may have received the request. Nothing is retried; after a lost connection the next
//! call makes another.

use crate::cork::Cork;
use crate::endpoint::Endpoint;
use crate::http2::{Http2Connection, Http2Error, Http2Settings, ResponseBody};
use crate::request_body::RequestBody;
use crate::{Dialer, InvalidTarget, Target, chain, dial_error, tls};
use env::io::timeout;
use grpc::tonic::{self, Code, Status};
use http::header::{HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, Uri};
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tokio::task::AbortHandle;
use tower_service::Service;

/// The keep-alive interval of an idle connection, and the timeout of a ping.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// The timeout of a connection attempt: shorter than calls, so that a server that cannot be reached is distinguished
/// from one that does not respond.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The same for channels that are used occasionally or through proxies.
const LONG_CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// The flow-control windows of one stream and of the connection. A stream that is not read leaves room for the
/// others.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RpcError {
    /// The server certainly did not receive the request.
    #[error("{0}")]
    Unsent(String),
    /// The connection was lost: the server may have received the request.
    #[error("{0}")]
    Lost(String),
    #[error("no response within {0:?}")]
    Timeout(Duration),
    #[error("the response is larger than the client's limit")]
    TooLarge,
    /// The server returned this gRPC status.
    #[error("rpc error: code = {} desc = {message}", code_name(*code))]
    Refused { code: Code, message: String },
}

impl From<Status> for RpcError {
    fn from(status: Status) -> Self {
        let source = std::error::Error::source(&status);
        if let Some(failure) = source.and_then(|it| it.downcast_ref::<TransportError>()) {
            return match failure {
                TransportError::Unsent(why) => RpcError::Unsent(why.clone()),
                TransportError::Lost(why) => RpcError::Lost(why.clone()),
            };
        }
        if let Some(failure) = source {
            return RpcError::Lost(chain(failure));
        }
        let message = status.message().to_owned();
        match status.code() {
            // the decoder's refusal; no server sends this text
            Code::OutOfRange if message.starts_with("Error, decoded message length too large") => {
                RpcError::TooLarge
            }
            code => RpcError::Refused { code, message },
        }
    }
}

/// The name of a gRPC status code, as Go programs write it.
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

/// Why the transport failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TransportError {
    /// The request certainly was not sent.
    #[error("{0}")]
    Unsent(String),
    /// The request may have been sent.
    #[error("{0}")]
    Lost(String),
}

/// See the module. Cheap to clone; clones share the connection.
#[derive(Clone)]
pub struct Channel {
    shared: Arc<Shared>,
}

struct Shared {
    address: ServerAddress,
    authority: Authority,
    scheme: Scheme,
    /// Headers of every call.
    metadata: HeaderMap,
    connection: Mutex<Option<Http2Connection>>,
    /// Whether idle connections are pinged.
    pings: bool,
    connect_timeout: Duration,
    /// The connection's task, for a channel that is used once.
    once: Option<OnceLock<AbortHandle>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.once.iter().filter_map(OnceLock::get).for_each(AbortHandle::abort);
    }
}

enum ServerAddress {
    Network(Box<tls::Connector>),
    Socket(PathBuf),
}

impl Channel {
    /// A channel to the server at an `http`, `https` or `unix` URL. Every call carries the `metadata`.
    pub fn new(target: &Target, metadata: &[(&'static str, &'static str)]) -> Result<Self, InvalidTarget> {
        let mut shared = Shared::new(target)?;
        for (name, value) in metadata {
            shared.metadata.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        Ok(shared.into())
    }

    /// A channel to an endpoint without TLS, for occasional calls: idle connections are not pinged.
    pub fn plain(endpoint: &Endpoint, dialer: Dialer) -> Result<Self, InvalidTarget> {
        let mut shared = match endpoint {
            Endpoint::Unix(path) => Shared::socket(path.clone()),
            Endpoint::Tcp(host) => {
                Shared::new(&Target { url: format!("http://{host}"), way: dialer, ..Target::default() })?
            }
        };
        (shared.pings, shared.connect_timeout) = (false, LONG_CONNECT_TIMEOUT);
        Ok(shared.into())
    }

    /// A channel for one stream, whose connection ends with the channel. Idle connections are not pinged: some
    /// proxies reject pings.
    pub(crate) fn once(target: &Target) -> Result<Self, InvalidTarget> {
        let mut shared = Shared::new(target)?;
        (shared.pings, shared.connect_timeout) = (false, LONG_CONNECT_TIMEOUT);
        shared.once = Some(OnceLock::new());
        Ok(shared.into())
    }

    /// Awaits a call of a client over this channel, at most for `time`.
    pub async fn within<T>(
        &self,
        time: Duration,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, RpcError> {
        match timeout(time, call).await {
            Ok(response) => Ok(response?.into_inner()),
            Err(_) => {
                if !self.shared.pings {
                    // no ping will detect that the connection is dead: drop it
                    *self.shared.connection.lock().await = None;
                }
                Err(RpcError::Timeout(time))
            }
        }
    }
}

impl From<Shared> for Channel {
    fn from(shared: Shared) -> Self {
        Channel { shared: Arc::new(shared) }
    }
}

impl Service<Request<tonic::body::Body>> for Channel {
    type Response = Response<ResponseBody>;
    type Error = TransportError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, TransportError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let shared = self.shared.clone();
        Box::pin(async move { shared.send(request).await })
    }
}

impl Shared {
    fn new(target: &Target) -> Result<Self, InvalidTarget> {
        let bad = || InvalidTarget::Url(target.url.clone());
        if let Some(path) = target.url.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() { Err(bad()) } else { Ok(Self::socket(path.into())) };
        }
        let parts = target.url.parse::<Uri>().map_err(|_| bad())?.into_parts();
        let scheme = parts.scheme.filter(|it| [Scheme::HTTP, Scheme::HTTPS].contains(it)).ok_or_else(bad)?;
        let address = ServerAddress::Network(Box::new(tls::connector_for(target, tls::Purpose::Calls)?));
        Ok(Self::at(address, parts.authority.ok_or_else(bad)?, scheme))
    }

    fn socket(path: PathBuf) -> Self {
        Self::at(ServerAddress::Socket(path), Authority::from_static("localhost"), Scheme::HTTP)
    }

    fn at(address: ServerAddress, authority: Authority, scheme: Scheme) -> Self {
        let mut metadata = HeaderMap::new();
        metadata.insert(USER_AGENT, HeaderValue::from_static(concat!("pintle/", env!("CARGO_PKG_VERSION"))));
        Shared {
            address,
            authority,
            scheme,
            metadata,
            connection: Mutex::new(None),
            pings: true,
            connect_timeout: CONNECT_TIMEOUT,
            once: None,
        }
    }

    fn uri(&self, path: PathAndQuery) -> Result<Uri, TransportError> {
        let uri = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        uri.path_and_query(path).build().map_err(unsent)
    }

    async fn send(
        &self,
        mut request: Request<tonic::body::Body>,
    ) -> Result<Response<ResponseBody>, TransportError> {
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = self.uri(path.unwrap_or_else(|| PathAndQuery::from_static("/")))?;
        for (name, value) in &self.metadata {
            request.headers_mut().insert(name, value.clone());
        }
        let time = self.connect_timeout;
        let late = |_| TransportError::Unsent(format!("no connection within {time:?}"));
        let failed = |failed: Http2Error| {
            let why = chain(&failed.cause);
            if failed.is_unsent { TransportError::Unsent(why) } else { TransportError::Lost(why) }
        };
        let connection = timeout(time, self.connect()).await.map_err(late)??;
        let ready = connection.ready().await.map_err(failed)?;
        ready.send(request.map(RequestBody::new)).await.map_err(failed)
    }

    async fn connect(&self) -> Result<Http2Connection, TransportError> {
        let mut current = self.connection.lock().await;
        if let Some(connection) = current.as_ref().filter(|it| !it.is_closed()) {
            return Ok(connection.clone());
        }
        *current = None;
        let connection = match &self.address {
            ServerAddress::Socket(path) => {
                let stream = UnixStream::connect(path).await;
                let stream = stream.map_err(|why| unsent(dial_error::of_socket(&why, path)))?;
                self.handshake(TokioIo::new(stream)).await?
            }
            ServerAddress::Network(connector) => {
                let uri = self.uri(PathAndQuery::from_static("/"))?;
                let stream = Service::call(&mut connector.clone(), uri).await;
                let authority = self.authority.as_str();
                let stream = stream.map_err(|why| unsent(dial_error::of_server(&*why, authority)))?;
                self.handshake(stream).await?
            }
        };
        Ok(current.insert(connection).clone())
    }

    async fn handshake<S>(&self, stream: S) -> Result<Http2Connection, TransportError>
    where
        S: Read + Write + Unpin + Send + 'static,
    {
        let settings = Http2Settings {
            pings: self.pings.then_some((KEEP_ALIVE, KEEP_ALIVE)),
            stream_window: STREAM_WINDOW,
            connection_window: CONNECTION_WINDOW,
        };
        let made = Http2Connection::handshake(TokioIo::new(Cork::new(stream)), &settings).await;
        let connection = made.map_err(|why| TransportError::Unsent(chain(&why)))?;
        if let Some(once) = &self.once {
            let _ = once.set(connection.driver());
        }
        Ok(connection)
    }
}

fn unsent(why: impl std::fmt::Display) -> TransportError {
    TransportError::Unsent(why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read() {
        let channel = |url: &str| {
            Channel::new(&Target { url: url.to_owned(), ..Target::default() }, &[("a", "b")]).is_ok()
        };
        for good in ["http://h:1", "https://[::1]:2379", "unix:///run/x", "unix:x", "unix://localhost:1"] {
            assert!(channel(good), "{good}");
        }
        for bad in ["", "h:1", "ftp://h", "unix:", "unix://", "http://"] {
            assert!(!channel(bad), "{bad}");
        }
    }

    #[test]
    fn statuses_tell_whether_the_server_may_have_received_the_request() {
        let of = |failure: TransportError| RpcError::from(Status::from_error(Box::new(failure)));
        assert_eq!(of(TransportError::Unsent("a".to_owned())), RpcError::Unsent("a".to_owned()));
        assert_eq!(of(TransportError::Lost("b".to_owned())), RpcError::Lost("b".to_owned()));
        let other = Status::from_error(Box::new(std::io::Error::other("c")));
        assert_eq!(RpcError::from(other), RpcError::Lost("c".to_owned()));
        let refused = RpcError::from(Status::unavailable("not now"));
        assert_eq!(refused.to_string(), "rpc error: code = Unavailable desc = not now");
    }

    #[tokio::test]
    async fn absent_servers_are_named_as_go_names_them() {
        let failure = async |url: &str| {
            let channel = Channel::new(&Target { url: url.to_owned(), ..Target::default() }, &[]).unwrap();
            let response = channel.shared.send(Request::new(tonic::body::Body::empty())).await;
            response.map(drop).unwrap_err().to_string()
        };
        for (url, expected) in [
            ("unix:///no/such.sock", "dial unix /no/such.sock: connect: no such file or directory"),
            ("unix:///dev/null", "dial unix /dev/null: connect: connection refused"),
            ("http://127.0.0.1:1", "dial tcp 127.0.0.1:1: connect: connection refused"),
        ] {
            let expected = format!("connection error: desc = \"transport: Error while dialing {expected}\"");
            assert_eq!(failure(url).await, expected);
        }
    }

    #[test]
    fn endpoints_are_read() {
        for (text, expected) in [
            ("localhost:4317", Ok(Endpoint::Tcp("localhost:4317".to_owned()))),
            ("dns:///a.example:1", Ok(Endpoint::Tcp("a.example:1".to_owned()))),
            ("dns://8.8.8.8/a.example:1", Ok(Endpoint::Tcp("a.example:1".to_owned()))),
            ("[::1]:4317", Ok(Endpoint::Tcp("[::1]:4317".to_owned()))),
            ("unix:///run/x", Ok(Endpoint::Unix("/run/x".into()))),
            ("unix:x", Ok(Endpoint::Unix("x".into()))),
            ("unix:///@x", Ok(Endpoint::Unix("\0x".into()))),
            ("http://a:1", Err(())),
            ("localhost", Err(())),
            (":1", Err(())),
            ("unix:", Err(())),
        ] {
            assert_eq!(text.parse::<Endpoint>().map_err(drop), expected, "{text}");
        }
    }
}
