//! The egress dialer: connects directly, through a proxy, or to a server in this process.
//!
//! Invariants: all connections of this crate are made here, and a connection through a proxy is used like any
//! other, with the same TLS verification. Host names are passed to proxies unresolved, because the network behind a
//! proxy may have its own names. Connecting ends within [`TIMEOUT`].

mod connect;
mod in_process;
mod proxy;
mod tunnel;

pub use in_process::InProcessServers;
pub use proxy::{DialMetrics, Protocol, Proxy};

use crate::client_certificate::IdentityChange;
use http::Uri;
use http::uri::Scheme;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tower_service::Service;

/// The timeout of connecting.
const TIMEOUT: Duration = Duration::from_secs(30);

/// See the module. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub enum Dialer {
    #[default]
    Direct,
    Through(Arc<Proxy>),
    /// To servers in this process alone.
    InProcess(Arc<dyn InProcessServers>),
}

/// A byte stream in both directions.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection.
pub(crate) enum Wire {
    Tcp(TokioIo<TcpStream>),
    Proxied(TokioIo<Box<dyn Stream>>),
    /// Ends when the identity of the client changes.
    Identified(Box<Wire>, IdentityChange),
}

impl Wire {
    fn proxied(stream: impl Stream + 'static) -> Self {
        Wire::Proxied(TokioIo::new(Box::new(stream)))
    }
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        match self {
            Wire::Tcp(stream) => stream.connected(),
            Wire::Proxied(_) => Connected::new(),
            Wire::Identified(wire, _) => wire.connected(),
        }
    }
}

impl Read for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Tcp(stream) => Pin::new(stream).poll_read(context, into),
            Wire::Proxied(stream) => Pin::new(stream).poll_read(context, into),
            Wire::Identified(wire, change) => match change.as_mut().poll(context) {
                Poll::Ready(()) => {
                    Poll::Ready(Err(io::Error::other("the certificate of the client was replaced")))
                }
                Poll::Pending => Pin::new(&mut **wire).poll_read(context, into),
            },
        }
    }
}

impl Write for Wire {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Wire::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Wire::Proxied(stream) => Pin::new(stream).poll_write(context, bytes),
            Wire::Identified(wire, _) => Pin::new(&mut **wire).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Wire::Proxied(stream) => Pin::new(stream).poll_flush(context),
            Wire::Identified(wire, _) => Pin::new(&mut **wire).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Wire::Proxied(stream) => Pin::new(stream).poll_shutdown(context),
            Wire::Identified(wire, _) => Pin::new(&mut **wire).poll_shutdown(context),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Wire::Tcp(stream) => stream.is_write_vectored(),
            Wire::Proxied(stream) => stream.is_write_vectored(),
            Wire::Identified(wire, _) => wire.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Wire::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            Wire::Proxied(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            Wire::Identified(wire, _) => Pin::new(&mut **wire).poll_write_vectored(context, parts),
        }
    }
}

/// Makes a future that completes when the client's present certificate is replaced.
pub(crate) type IdentityChanges = Arc<dyn Fn() -> IdentityChange + Send + Sync>;

/// The connector for hyper clients, which name the server by a URL.
#[derive(Clone)]
pub(crate) struct DialingConnector {
    tcp: HttpConnector,
    dialer: Dialer,
    changes: Option<IdentityChanges>,
}

impl DialingConnector {
    /// With `changes`, connections end when the certificate is replaced.
    pub fn new(dialer: Dialer, timeout: Option<Duration>, changes: Option<IdentityChanges>) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(timeout.unwrap_or(TIMEOUT)));
        DialingConnector { tcp, dialer, changes }
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Service<Uri> for DialingConnector {
    type Response = Wire;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Wire, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        // before the handshake: a certificate that is replaced during it ends the connection
        let change = self.changes.as_ref().map(|change| change());
        let identified = |wire: Wire| match change {
            Some(change) => Wire::Identified(Box::new(wire), change),
            None => wire,
        };
        match &self.dialer {
            Dialer::Direct => {
                let connecting = self.tcp.call(to);
                Box::pin(async move { Ok(identified(Wire::Tcp(connecting.await?))) })
            }
            Dialer::Through(proxy) => {
                let proxy = proxy.clone();
                Box::pin(async move {
                    let address = address(&to).ok_or_else(|| format!("{to} names no host"))?;
                    Ok(identified(proxy.dial(&address).await?))
                })
            }
            Dialer::InProcess(servers) => {
                let host = to.host().unwrap_or_default();
                let stream =
                    servers.connect(host).ok_or_else(|| format!("no server in this process is {host}"));
                Box::pin(async move { Ok(identified(Wire::proxied(stream?))) })
            }
        }
    }
}

/// Host and port of a URL.
fn address(url: &Uri) -> Option<String> {
    let usual = if url.scheme() == Some(&Scheme::HTTP) { 80 } else { 443 };
    Some(format!("{}:{}", url.host()?, url.port_u16().unwrap_or(usual)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InvalidTarget, Target};

    #[test]
    fn proxies_receive_host_and_port() {
        for (url, expected) in [
            ("https://a.b/c", "a.b:443"),
            ("http://a.b", "a.b:80"),
            ("https://[::1]:9/x", "[::1]:9"),
            ("https://10.0.0.1:8443", "10.0.0.1:8443"),
        ] {
            assert_eq!(address(&url.parse().unwrap()).as_deref(), Some(expected));
        }
    }

    #[tokio::test]
    async fn proxies_are_where_their_url_says() {
        let proxy = |url: &str| {
            let target = Target { url: url.to_owned(), ..Target::default() };
            Proxy::new(Protocol::HttpConnect, &target)
        };
        for good in ["http://h:1", "https://[::1]:8131", "unix:/run/x"] {
            assert!(proxy(good).is_ok(), "{good}");
        }
        for bad in ["", "h", "ftp://h", "unix:"] {
            assert!(matches!(proxy(bad), Err(InvalidTarget::Url(_))), "{bad}");
        }
        // `begin` has not been called
        let why = proxy("unix:/run/x").unwrap().dial("a:1").await.err().unwrap().to_string();
        assert_eq!(why, "the egress proxy at /run/x is not ready yet");
    }
}
