//! A lasting connection to a server whose procedures are called: many calls at a time, and streams of messages in
//! both directions.
//!
//! What always holds: a call ends within its time; no message is read beyond its limit; a connection that does not
//! answer is found out and given up, also while it is only listened to. Who gets no answer is told whether the
//! other side may have got the question. Nothing is tried twice.

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

/// What precedes every message: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// After how long a silent connection is asked whether it lives, and how long it may take to say so.
const SILENCE: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(10);
/// What may be on its way to us unread: of one call, and of all together. A stream that nobody reads leaves room for
/// the others.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Messages of a stream that wait to be sent.
const UNSENT: usize = 16;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RpcError {
    /// The other side surely did not get the question.
    #[error("{0}")]
    Unsent(String),
    /// The connection went away: the other side may have got the question.
    #[error("{0}")]
    Lost(String),
    #[error("no answer within {0:?}")]
    Late(Duration),
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    /// The other side answered that it did not do it; the code says what sort of reason there is.
    #[error("{message} (status {code})")]
    Refused { code: u16, message: String },
}

/// See the module.
pub struct Channel {
    way: Way,
    authority: Authority,
    scheme: Scheme,
    /// Said with every call.
    said: HeaderMap,
    connection: Mutex<Option<SendRequest<Sent>>>,
    /// Whether a silent connection is asked if it lives.
    asks: bool,
    /// What carries the connection of a channel that is used once.
    once: Option<OnceLock<AbortHandle>>,
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.once.iter().filter_map(OnceLock::get).for_each(AbortHandle::abort);
    }
}

enum Way {
    Network(Box<tls::Connector>),
    Socket(PathBuf),
}

impl Channel {
    /// The server at an `http`, `https` or `unix` URL. Every call says `said` besides.
    pub fn new(target: &Target, said: &[(&'static str, &'static str)]) -> Result<Self, BadTarget> {
        let bad = || BadTarget::Url(target.url.clone());
        let mut channel = match target.url.strip_prefix("unix:") {
            Some(path) => {
                let path = path.strip_prefix("//").unwrap_or(path);
                if path.is_empty() {
                    return Err(bad());
                }
                Self::on(Way::Socket(path.into()), Authority::from_static("localhost"), Scheme::HTTP)
            }
            None => {
                let parts = target.url.parse::<Uri>().map_err(|_| bad())?.into_parts();
                let scheme = parts.scheme.filter(|it| [Scheme::HTTP, Scheme::HTTPS].contains(it));
                let way = Way::Network(Box::new(tls::connector(target)?));
                Self::on(way, parts.authority.ok_or_else(bad)?, scheme.ok_or_else(bad)?)
            }
        };
        for (name, value) in said {
            channel.said.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        Ok(channel)
    }

    /// The server at an endpoint, without TLS, for calls now and then: a silent connection is not asked if it lives.
    pub(crate) fn plain(endpoint: &Endpoint, way: Dialer) -> Result<Self, BadTarget> {
        let mut channel = match endpoint {
            Endpoint::Unix(path) => {
                Self::on(Way::Socket(path.clone()), Authority::from_static("localhost"), Scheme::HTTP)
            }
            Endpoint::Tcp(host) => {
                Self::new(&Target { url: format!("http://{host}"), way, ..Target::default() }, &[])?
            }
        };
        channel.asks = false;
        Ok(channel)
    }

    fn on(way: Way, authority: Authority, scheme: Scheme) -> Self {
        let mut said = HeaderMap::new();
        said.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        said.insert(TE, HeaderValue::from_static("trailers"));
        said.insert(USER_AGENT, HeaderValue::from_static(concat!("pintle/", env!("CARGO_PKG_VERSION"))));
        Channel { way, authority, scheme, said, connection: Mutex::new(None), asks: true, once: None }
    }

    /// The same for one stream, which ends with the channel, whatever the other side does. A silent connection is not
    /// asked whether it lives: who passes on what others say may take that amiss.
    pub(crate) fn once(target: &Target) -> Result<Self, BadTarget> {
        let mut channel = Self::new(target, &[])?;
        channel.asks = false;
        channel.once = Some(OnceLock::new());
        Ok(channel)
    }

    /// Lets the connection go: the next call makes another.
    pub(crate) async fn let_go(&self) {
        *self.connection.lock().await = None;
    }

    /// Calls a procedure, by its path, and gives the message that comes back.
    pub async fn call(
        &self,
        path: &str,
        message: &[u8],
        time: Duration,
        limit: usize,
    ) -> Result<Bytes, RpcError> {
        let until = Instant::now() + time;
        let connection = match timeout(time, self.connected()).await {
            Ok(connected) => connected?,
            Err(_) => return Err(RpcError::Unsent(format!("no connection within {time:?}"))),
        };
        let answered = async {
            let answer = self.send(connection, path, Sent::Whole(Some(framed(message)))).await?;
            let mut messages = Messages::new(answer, limit);
            let Some(first) = messages.next().await? else {
                return Err(RpcError::Lost("the server answered nothing".to_owned()));
            };
            match messages.next().await? {
                Some(_) => Err(RpcError::Lost("the server answered more than once".to_owned())),
                None => Ok(first),
            }
        };
        match tokio::time::timeout_at(until, answered).await {
            Ok(answered) => answered,
            Err(_) => Err(RpcError::Late(time)),
        }
    }

    /// Opens a stream: gives where messages are sent and where they come from, none of them larger than the limit.
    /// The stream is open at once; whether the other side likes it is said where messages come from.
    pub async fn open(
        &self,
        path: &str,
        first: &[u8],
        time: Duration,
        limit: usize,
    ) -> Result<(Sender, Messages), RpcError> {
        let late = |_| RpcError::Late(time);
        let connection = timeout(time, self.connected()).await.map_err(late)??;
        let (messages, sent) = mpsc::channel(UNSENT);
        // there is room: it is empty
        let _ = messages.try_send(framed(first));
        let answer = timeout(time, self.send(connection, path, Sent::Stream(sent))).await.map_err(late)??;
        Ok((Sender(messages), Messages::new(answer, limit)))
    }

    async fn send(
        &self,
        mut connection: SendRequest<Sent>,
        path: &str,
        body: Sent,
    ) -> Result<Response<Incoming>, RpcError> {
        let uri = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path)
            .build();
        let mut request = Request::new(body);
        *request.uri_mut() = uri.map_err(|why| RpcError::Unsent(why.to_string()))?;
        *request.method_mut() = Method::POST;
        *request.headers_mut() = self.said.clone();
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

    async fn connected(&self) -> Result<SendRequest<Sent>, RpcError> {
        let mut kept = self.connection.lock().await;
        if let Some(connection) = kept.as_ref().filter(|it| !it.is_closed()) {
            return Ok(connection.clone());
        }
        *kept = None;
        let made = match &self.way {
            Way::Socket(path) => {
                let stream = UnixStream::connect(path).await;
                self.greeted(TokioIo::new(stream.map_err(|why| RpcError::Unsent(why.to_string()))?)).await?
            }
            Way::Network(connector) => {
                let uri = Uri::builder()
                    .scheme(self.scheme.clone())
                    .authority(self.authority.clone())
                    .path_and_query("/")
                    .build()
                    .map_err(|why| RpcError::Unsent(why.to_string()))?;
                let stream = Service::call(&mut connector.clone(), uri).await;
                self.greeted(stream.map_err(|why| RpcError::Unsent(chain(&*why)))?).await?
            }
        };
        Ok(kept.insert(made).clone())
    }

    async fn greeted<S>(&self, stream: S) -> Result<SendRequest<Sent>, RpcError>
    where
        S: Read + Write + Unpin + Send + 'static,
    {
        let made = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(self.asks.then_some(SILENCE))
            .keep_alive_timeout(ANSWER)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(stream)
            .await;
        let (sender, connection) = made.map_err(|why| RpcError::Unsent(chain(&why)))?;
        // it ends with the last that sends through it
        let driver = tokio::spawn(connection);
        if let Some(once) = &self.once {
            let _ = once.set(driver.abort_handle());
        }
        Ok(sender)
    }
}

/// A message as it goes over the wire.
fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(PREFIX + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(message);
    framed.freeze()
}

/// Where messages of a stream are sent. The other side sees the end once this is dropped.
pub struct Sender(mpsc::Sender<Bytes>);

impl Sender {
    /// Sends a message if there is room for it, and says whether there was.
    pub fn send(&self, message: &[u8]) -> bool {
        self.0.try_send(framed(message)).is_ok()
    }

    /// Sends a message once there is room for it, and says whether anybody is there to take it.
    pub(crate) async fn put(&self, message: &[u8]) -> bool {
        self.0.send(framed(message)).await.is_ok()
    }
}

/// Where messages come from.
pub struct Messages {
    body: Incoming,
    /// Where the outcome stands when the answer has no messages.
    head: HeaderMap,
    read: BytesMut,
    limit: usize,
}

impl Messages {
    fn new(answer: Response<Incoming>, limit: usize) -> Self {
        let (parts, body) = answer.into_parts();
        Messages { body, head: parts.headers, read: BytesMut::new(), limit }
    }

    /// The next message; none at an end that the other side calls a success. What was read is kept when the wait is
    /// given up.
    pub async fn next(&mut self) -> Result<Option<Bytes>, RpcError> {
        loop {
            if let Some(message) = self.whole()? {
                return Ok(Some(message));
            }
            match self.body.frame().await {
                None => return succeeded(&self.head).map(|()| None),
                Some(Err(why)) => return Err(RpcError::Lost(chain(&why))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.read.extend_from_slice(&data),
                    Err(frame) => {
                        let trailers = frame.into_trailers().unwrap_or_default();
                        return succeeded(&trailers).map(|()| None);
                    }
                },
            }
        }
    }

    /// A message that has been read to its end.
    fn whole(&mut self) -> Result<Option<Bytes>, RpcError> {
        let Some(mut prefix) = self.read.get(..PREFIX) else { return Ok(None) };
        if prefix.get_u8() != 0 {
            return Err(RpcError::Lost("the server compressed a message, unasked".to_owned()));
        }
        let length = prefix.get_u32() as usize;
        if length > self.limit {
            return Err(RpcError::TooLarge(self.limit));
        }
        if self.read.len() < PREFIX + length {
            // all at once, rather than in steps
            self.read.reserve(PREFIX + length - self.read.len());
            return Ok(None);
        }
        self.read.advance(PREFIX);
        Ok(Some(self.read.split_to(length).freeze()))
    }
}

/// Whether the other side says that it did what was asked.
fn succeeded(trailers: &HeaderMap) -> Result<(), RpcError> {
    let text = |name: &str| trailers.get(name).and_then(|value| value.to_str().ok());
    match text("grpc-status") {
        Some("0") => Ok(()),
        Some(code) => {
            let message = unescaped(text("grpc-message").unwrap_or(""));
            // 2 is "unknown", which is what a code that is none comes to
            Err(RpcError::Refused { code: code.parse().unwrap_or(2), message })
        }
        None => Err(RpcError::Lost("the server did not say how the call ended".to_owned())),
    }
}

/// A text in which bytes that a header cannot hold are written as `%` and two digits.
fn unescaped(text: &str) -> String {
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

/// What is sent: one message, or as many as come.
enum Sent {
    Whole(Option<Bytes>),
    Stream(mpsc::Receiver<Bytes>),
}

impl Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match self.get_mut() {
            Sent::Whole(message) => message.take(),
            Sent::Stream(messages) => std::task::ready!(messages.poll_recv(context)),
        };
        Poll::Ready(next.map(|message| Ok(Frame::data(message))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Sent::Whole(None))
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
        assert_eq!(unescaped("a%20b%zz%e2%82%ac%4"), "a b%zz€%4");
        let said = |pairs: &[(&'static str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
            succeeded(&pairs.collect())
        };
        assert_eq!(said(&[("grpc-status", "0")]), Ok(()));
        let refused = |code, message: &str| Err(RpcError::Refused { code, message: message.to_owned() });
        assert_eq!(said(&[("grpc-status", "14"), ("grpc-message", "no%20leader")]), refused(14, "no leader"));
        assert_eq!(said(&[("grpc-status", "x")]), refused(2, ""));
        assert!(matches!(said(&[]), Err(RpcError::Lost(_))));
    }
}
