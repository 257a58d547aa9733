//! An HTTP/2 connection for gRPC calls and bidirectional streams, many at a time.
//!
//! Invariants: a call ends within its timeout; no message is read beyond its limit; keep-alive pings detect a dead
//! connection, even on a stream that only receives. An error tells whether the server may have received the
//! request. Nothing is retried.

use crate::endpoint::Endpoint;
use crate::{BadTarget, Dialer, Target, chain, tls};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TE, USER_AGENT};
use http::uri::{Authority, Scheme};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::{Mutex, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tower_service::Service;

/// The prefix of every gRPC message: a compression flag and the length.
const PREFIX: usize = 5;
/// The keep-alive interval and timeout of an idle connection.
const SILENCE: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(10);
/// The flow-control windows of one stream and of the connection. A stream that is not read leaves room for the
/// others.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Messages of a stream that may be queued for sending.
const UNSENT: usize = 16;

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
    Late(Duration),
    #[error("the response is larger than {0} bytes")]
    TooLarge(usize),
    /// The server returned this gRPC status.
    #[error("{message} (status {code})")]
    Refused { code: u16, message: String },
}

/// See the module.
pub struct Channel {
    way: ServerAddress,
    authority: Authority,
    scheme: Scheme,
    /// Headers of every call.
    metadata: HeaderMap,
    connection: Mutex<Option<SendRequest<RequestBody>>>,
    /// Whether idle connections are pinged.
    pings: bool,
    /// The connection's task, for a channel that is used once.
    once: Option<OnceLock<AbortHandle>>,
}

impl Drop for Channel {
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
    pub fn new(target: &Target, metadata: &[(&'static str, &'static str)]) -> Result<Self, BadTarget> {
        let bad = || BadTarget::Url(target.url.clone());
        let mut channel = match target.url.strip_prefix("unix:") {
            Some(path) => {
                let path = path.strip_prefix("//").unwrap_or(path);
                if path.is_empty() {
                    return Err(bad());
                }
                Self::on(
                    ServerAddress::Socket(path.into()),
                    Authority::from_static("localhost"),
                    Scheme::HTTP,
                )
            }
            None => {
                let parts = target.url.parse::<Uri>().map_err(|_| bad())?.into_parts();
                let scheme = parts.scheme.filter(|it| [Scheme::HTTP, Scheme::HTTPS].contains(it));
                let way = ServerAddress::Network(Box::new(tls::connector(target)?));
                Self::on(way, parts.authority.ok_or_else(bad)?, scheme.ok_or_else(bad)?)
            }
        };
        for (name, value) in metadata {
            channel.metadata.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        Ok(channel)
    }

    /// A channel to an endpoint without TLS, for occasional calls: idle connections are not pinged.
    pub(crate) fn plain(endpoint: &Endpoint, way: Dialer) -> Result<Self, BadTarget> {
        let mut channel = match endpoint {
            Endpoint::Unix(path) => Self::on(
                ServerAddress::Socket(path.clone()),
                Authority::from_static("localhost"),
                Scheme::HTTP,
            ),
            Endpoint::Tcp(host) => {
                Self::new(&Target { url: format!("http://{host}"), way, ..Target::default() }, &[])?
            }
        };
        channel.pings = false;
        Ok(channel)
    }

    fn on(way: ServerAddress, authority: Authority, scheme: Scheme) -> Self {
        let mut metadata = HeaderMap::new();
        metadata.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        metadata.insert(TE, HeaderValue::from_static("trailers"));
        metadata.insert(USER_AGENT, HeaderValue::from_static(concat!("pintle/", env!("CARGO_PKG_VERSION"))));
        Channel { way, authority, scheme, metadata, connection: Mutex::new(None), pings: true, once: None }
    }

    /// A channel for one stream, whose connection ends with the channel. Idle connections are not pinged: some
    /// proxies reject pings.
    pub(crate) fn once(target: &Target) -> Result<Self, BadTarget> {
        let mut channel = Self::new(target, &[])?;
        channel.pings = false;
        channel.once = Some(OnceLock::new());
        Ok(channel)
    }

    /// Drops the connection; the next call makes another.
    pub(crate) async fn disconnect(&self) {
        *self.connection.lock().await = None;
    }

    /// Calls a unary method, by its path, and returns the response message.
    pub async fn call(
        &self,
        path: &str,
        message: &[u8],
        time: Duration,
        limit: usize,
    ) -> Result<Bytes, RpcError> {
        let until = Instant::now() + time;
        let connection = match timeout(time, self.connect()).await {
            Ok(connect) => connect?,
            Err(_) => return Err(RpcError::Unsent(format!("no connection within {time:?}"))),
        };
        let answered = async {
            let answer = self.send(connection, path, RequestBody::Whole(Some(frame(message)))).await?;
            let mut messages = Messages::new(answer, limit);
            let Some(first) = messages.next().await? else {
                return Err(RpcError::Lost("the server sent no response message".to_owned()));
            };
            match messages.next().await? {
                Some(_) => Err(RpcError::Lost("the server sent more than one response message".to_owned())),
                None => Ok(first),
            }
        };
        match tokio::time::timeout_at(until, answered).await {
            Ok(answered) => answered,
            Err(_) => Err(RpcError::Late(time)),
        }
    }

    /// Opens a stream and returns its two halves; no received message is larger than the limit. It returns at once:
    /// the receiving half reports whether the server accepts the stream.
    pub async fn open(
        &self,
        path: &str,
        first: &[u8],
        time: Duration,
        limit: usize,
    ) -> Result<(Sender, Messages), RpcError> {
        let late = |_| RpcError::Late(time);
        let connection = timeout(time, self.connect()).await.map_err(late)??;
        let (messages, sent) = mpsc::channel(UNSENT);
        // the queue is empty, so this succeeds
        let _ = messages.try_send(frame(first));
        let answer =
            timeout(time, self.send(connection, path, RequestBody::Stream(sent))).await.map_err(late)??;
        Ok((Sender(messages), Messages::new(answer, limit)))
    }

    async fn send(
        &self,
        mut connection: SendRequest<RequestBody>,
        path: &str,
        body: RequestBody,
    ) -> Result<Response<Incoming>, RpcError> {
        let uri = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path)
            .build();
        let mut request = Request::new(body);
        *request.uri_mut() = uri.map_err(|why| RpcError::Unsent(why.to_string()))?;
        *request.method_mut() = Method::POST;
        *request.headers_mut() = self.metadata.clone();
        let answer = connection.try_send_request(request).await.map_err(|mut failed| {
            let unsent = failed.take_message().is_some();
            let why = chain(&failed.into_error());
            if unsent { RpcError::Unsent(why) } else { RpcError::Lost(why) }
        })?;
        match answer.status() {
            StatusCode::OK => Ok(answer),
            other => Err(RpcError::Lost(format!("the server answered with HTTP status {other}"))),
        }
    }

    async fn connect(&self) -> Result<SendRequest<RequestBody>, RpcError> {
        let mut kept = self.connection.lock().await;
        if let Some(connection) = kept.as_ref().filter(|it| !it.is_closed()) {
            return Ok(connection.clone());
        }
        *kept = None;
        let made = match &self.way {
            ServerAddress::Socket(path) => {
                let stream = UnixStream::connect(path).await;
                self.handshake(TokioIo::new(stream.map_err(|why| RpcError::Unsent(why.to_string()))?)).await?
            }
            ServerAddress::Network(connector) => {
                let uri = Uri::builder()
                    .scheme(self.scheme.clone())
                    .authority(self.authority.clone())
                    .path_and_query("/")
                    .build()
                    .map_err(|why| RpcError::Unsent(why.to_string()))?;
                let stream = Service::call(&mut connector.clone(), uri).await;
                self.handshake(stream.map_err(|why| RpcError::Unsent(chain(&*why)))?).await?
            }
        };
        Ok(kept.insert(made).clone())
    }

    async fn handshake<S>(&self, stream: S) -> Result<SendRequest<RequestBody>, RpcError>
    where
        S: Read + Write + Unpin + Send + 'static,
    {
        let made = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(self.pings.then_some(SILENCE))
            .keep_alive_timeout(ANSWER)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(stream)
            .await;
        let (sender, connection) = made.map_err(|why| RpcError::Unsent(chain(&why)))?;
        // the task ends when the last sender is dropped
        let driver = tokio::spawn(connection);
        if let Some(once) = &self.once {
            let _ = once.set(driver.abort_handle());
        }
        Ok(sender)
    }
}

/// Frames a message with its prefix.
fn frame(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(PREFIX + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(message);
    frame.freeze()
}

/// The sending half of a stream. Dropping it ends the request stream.
pub struct Sender(mpsc::Sender<Bytes>);

impl Sender {
    /// Queues a message if there is room, and returns whether there was.
    pub fn send(&self, message: &[u8]) -> bool {
        self.0.try_send(frame(message)).is_ok()
    }

    /// Queues a message once there is room, and returns whether the stream is still open.
    pub(crate) async fn put(&self, message: &[u8]) -> bool {
        self.0.send(frame(message)).await.is_ok()
    }
}

/// The receiving half of a stream.
pub struct Messages {
    body: Incoming,
    /// The status, for a response that has only headers.
    head: HeaderMap,
    read: BytesMut,
    limit: usize,
}

impl Messages {
    fn new(answer: Response<Incoming>, limit: usize) -> Self {
        let (parts, body) = answer.into_parts();
        Messages { body, head: parts.headers, read: BytesMut::new(), limit }
    }

    /// The next message; `None` at the end of a stream with status OK. Cancel-safe: partial data stays buffered.
    pub async fn next(&mut self) -> Result<Option<Bytes>, RpcError> {
        loop {
            if let Some(message) = self.take_message()? {
                return Ok(Some(message));
            }
            match self.body.frame().await {
                None => return check_status(&self.head).map(|()| None),
                Some(Err(why)) => return Err(RpcError::Lost(chain(&why))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.read.extend_from_slice(&data),
                    Err(frame) => {
                        let trailers = frame.into_trailers().unwrap_or_default();
                        return check_status(&trailers).map(|()| None);
                    }
                },
            }
        }
    }

    /// Takes a complete message from the buffer.
    fn take_message(&mut self) -> Result<Option<Bytes>, RpcError> {
        let Some(mut prefix) = self.read.get(..PREFIX) else { return Ok(None) };
        if prefix.get_u8() != 0 {
            return Err(RpcError::Lost(
                "the server sent a compressed message without negotiation".to_owned(),
            ));
        }
        let length = prefix.get_u32() as usize;
        if length > self.limit {
            return Err(RpcError::TooLarge(self.limit));
        }
        if self.read.len() < PREFIX + length {
            // reserve the whole message at once
            self.read.reserve(PREFIX + length - self.read.len());
            return Ok(None);
        }
        self.read.advance(PREFIX);
        Ok(Some(self.read.split_to(length).freeze()))
    }
}

/// Checks the gRPC status in the trailers.
fn check_status(trailers: &HeaderMap) -> Result<(), RpcError> {
    let text = |name: &str| trailers.get(name).and_then(|value| value.to_str().ok());
    match text("grpc-status") {
        Some("0") => Ok(()),
        Some(code) => {
            let message = percent_decode(text("grpc-message").unwrap_or(""));
            // 2 is "unknown": a code that cannot be parsed maps to it
            Err(RpcError::Refused { code: code.parse().unwrap_or(2), message })
        }
        None => Err(RpcError::Lost("the server sent no grpc-status".to_owned())),
    }
}

/// Decodes the percent-encoding of `grpc-message`.
fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%').and_then(|it| std::str::from_utf8(it).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A request body: one message, or a queue of them.
enum RequestBody {
    Whole(Option<Bytes>),
    Stream(mpsc::Receiver<Bytes>),
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match self.get_mut() {
            RequestBody::Whole(message) => message.take(),
            RequestBody::Stream(messages) => std::task::ready!(messages.poll_recv(context)),
        };
        Poll::Ready(next.map(|message| Ok(Frame::data(message))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, RequestBody::Whole(None))
    }
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
    fn reasons_are_read() {
        assert_eq!(percent_decode("a%20b%zz%e2%82%ac%4"), "a b%zz€%4");
        let metadata = |pairs: &[(&'static str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
            check_status(&pairs.collect())
        };
        assert_eq!(metadata(&[("grpc-status", "0")]), Ok(()));
        let refused = |code, message: &str| Err(RpcError::Refused { code, message: message.to_owned() });
        assert_eq!(
            metadata(&[("grpc-status", "14"), ("grpc-message", "no%20leader")]),
            refused(14, "no leader")
        );
        assert_eq!(metadata(&[("grpc-status", "x")]), refused(2, ""));
        assert!(matches!(metadata(&[]), Err(RpcError::Lost(_))));
    }
}
