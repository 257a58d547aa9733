//! Calls of procedures on another server: one message there, one back, over HTTP/2 without TLS.
//!
//! What always holds: a call ends within its time and reads no more of an answer than its limit. One connection is
//! kept; when it is gone the next call makes another.

use crate::{CallError, Limits, WayOut, broken};
use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, TE, USER_AGENT};
use http::{Method, Request};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::path::PathBuf;
use std::str::FromStr;
use tokio::net::UnixStream;
use tokio::sync::Mutex;

/// What precedes every message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// Host and port.
    Tcp(String),
    /// A path, or a zero byte and a name that no file has.
    Unix(PathBuf),
}

impl FromStr for Endpoint {
    type Err = String;

    /// `host:port`, `dns:host:port`, `dns:///host:port`, `unix:path` or `unix:///path`.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            // sockets that have no file stand below the root with a sign of their own
            return match path.strip_prefix("/@") {
                _ if path.is_empty() => Err("a path is missing".to_owned()),
                Some(name) => Ok(Endpoint::Unix(format!("\0{name}").into())),
                None => Ok(Endpoint::Unix(path.into())),
            };
        }
        let host = match text.strip_prefix("dns:") {
            Some(rest) => rest.rsplit('/').next().unwrap_or(""),
            None if text.contains("//") => {
                return Err(format!("{text:?} is none of host:port, dns:host:port and unix:path"));
            }
            None => text,
        };
        let port =
            host.rsplit_once(':').is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok());
        if port { Ok(Endpoint::Tcp(host.to_owned())) } else { Err(format!("{host:?} is not host:port")) }
    }
}

/// A server whose procedures can be called.
pub struct Procedures {
    endpoint: Endpoint,
    limits: Limits,
    way: WayOut,
    connection: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

impl Procedures {
    pub fn new(endpoint: Endpoint, limits: Limits) -> Self {
        Procedures { endpoint, limits, way: WayOut::Direct, connection: Mutex::new(None) }
    }

    /// The same by another way, if it is over a network.
    #[must_use]
    pub fn by(self, way: WayOut) -> Self {
        Procedures { way, ..self }
    }

    /// Calls a procedure, by its path, and gives the message that comes back.
    pub async fn call(&self, path: &str, message: &[u8]) -> Result<Bytes, CallError> {
        match tokio::time::timeout(self.limits.time, self.answered(path, message)).await {
            Ok(answered) => answered,
            Err(_) => {
                *self.connection.lock().await = None;
                Err(CallError::Late(self.limits.time))
            }
        }
    }

    async fn answered(&self, path: &str, message: &[u8]) -> Result<Bytes, CallError> {
        let mut framed = BytesMut::with_capacity(PREFIX + message.len());
        framed.put_u8(0);
        framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
        framed.put_slice(message);
        let authority = match &self.endpoint {
            Endpoint::Tcp(host) => host.as_str(),
            Endpoint::Unix(_) => "localhost",
        };
        let url = format!("http://{authority}{path}");
        let mut request = Request::new(Full::new(framed.freeze()));
        *request.uri_mut() = url.parse().map_err(|_| CallError::Url(url))?;
        *request.method_mut() = Method::POST;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("pintle/", env!("CARGO_PKG_VERSION"))));
        let answer = self.connected().await?.send_request(request).await.map_err(|why| broken(&why))?;
        let (parts, body) = answer.into_parts();
        let limit = self.limits.answer;
        let whole = Limited::new(body, limit + PREFIX).collect().await;
        let whole = whole.map_err(|why| CallError::Lost(why.to_string()))?;
        let trailers = whole.trailers().unwrap_or(&parts.headers);
        succeeded(trailers)?;
        let bytes = whole.to_bytes();
        // whoever answers with nothing at all has said nothing, which is a message, too
        Ok(if bytes.len() < PREFIX { Bytes::new() } else { bytes.slice(PREFIX..) })
    }

    async fn connected(&self) -> Result<SendRequest<Full<Bytes>>, CallError> {
        let mut kept = self.connection.lock().await;
        if let Some(connection) = kept.as_ref().filter(|it| !it.is_closed()) {
            return Ok(connection.clone());
        }
        let refused = |why: std::io::Error| CallError::Connection(why.to_string());
        let made = match &self.endpoint {
            Endpoint::Tcp(host) => greeted(self.way.connect(host).await.map_err(refused)?).await,
            Endpoint::Unix(path) => {
                greeted(TokioIo::new(UnixStream::connect(path).await.map_err(refused)?)).await
            }
        }?;
        Ok(kept.insert(made).clone())
    }
}

async fn greeted<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, CallError>
where
    S: Read + Write + Unpin + Send + 'static,
{
    let made = http2::handshake(TokioExecutor::new(), stream).await;
    let (sender, connection) = made.map_err(|why| broken(&why))?;
    // it ends with the last that sends through it
    tokio::spawn(connection);
    Ok(sender)
}

/// Whether the other side says that it did what was asked.
fn succeeded(trailers: &HeaderMap) -> Result<(), CallError> {
    let text = |name: &str| trailers.get(name).and_then(|value| value.to_str().ok());
    match text("grpc-status") {
        Some("0") => Ok(()),
        Some(code) => {
            let why = unescaped(text("grpc-message").unwrap_or(""));
            Err(CallError::Refused { code: code_name(code), why })
        }
        None => Err(CallError::Lost("the server did not say how the call ended".to_owned())),
    }
}

/// What the codes of procedures are called.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

fn code_name(code: &str) -> &'static str {
    code.parse::<usize>().ok().and_then(|code| CODES.get(code)).copied().unwrap_or("Unknown")
}

/// A message without the escapes that let a header carry any text.
fn unescaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%').and_then(|two| std::str::from_utf8(two).ok());
        match digits.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    #[test]
    fn refusals_are_read() {
        let refused = |code: &'static str, message: &'static str| {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static(code));
            trailers.insert("grpc-message", HeaderValue::from_static(message));
            succeeded(&trailers).map_err(|why| why.to_string())
        };
        assert_eq!(refused("0", ""), Ok(()));
        let told = |code: &str, why: &str| Err(format!("rpc error: code = {code} desc = {why}"));
        assert_eq!(refused("14", "not now"), told("Unavailable", "not now"));
        assert_eq!(refused("3", "50%25 of %E2%82%ac %zz%2"), told("InvalidArgument", "50% of € %zz%2"));
        assert_eq!(refused("99", ""), told("Unknown", ""));
    }
}
