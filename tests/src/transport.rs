//! Connections: TLS with or without a client certificate, HTTP/1.1 or HTTP/2 on top.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::pki::{Pair, authority};
use crate::{NOW, soon};

/// An open TLS connection.
pub type Stream = TlsStream<TcpStream>;

/// The version of HTTP to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

/// The user of a request.
#[derive(Clone)]
pub enum TestUser {
    /// A member of `system:masters`.
    Admin,
    /// Without a client certificate.
    Anonymous,
    /// With this client certificate.
    Certificate(Pair),
}

impl TestUser {
    fn pair(&self) -> Option<&Pair> {
        static ADMIN: OnceLock<Pair> = OnceLock::new();
        match self {
            TestUser::Admin => Some(ADMIN.get_or_init(|| authority().client("admin", "system:masters"))),
            TestUser::Anonymous => None,
            TestUser::Certificate(pair) => Some(pair),
        }
    }
}

/// Connects with TLS.
pub(crate) async fn connect(address: SocketAddr, user: &TestUser, protocol: Protocol) -> Stream {
    let tcp = soon("the connection", TcpStream::connect(address)).await.unwrap();
    tcp.set_nodelay(true).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connecting = TlsConnector::from(Arc::new(config(user, protocol))).connect(name, tcp);
    soon("the TLS handshake", connecting).await.unwrap()
}

fn config(user: &TestUser, protocol: Protocol) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority().pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_details(provider, Arc::new(FixedClock))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match user.pair() {
        None => builder.with_no_client_auth(),
        Some(pair) => builder.with_client_cert_resolver(Arc::new(pair.resolver())),
    };
    let alpn: &[u8] = if protocol == Protocol::Http2 { b"h2" } else { b"http/1.1" };
    config.alpn_protocols = vec![alpn.to_vec()];
    config
}

/// The time at which the certificate of the server is valid.
#[derive(Debug)]
struct FixedClock;

impl rustls::time_provider::TimeProvider for FixedClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(NOW)))
    }
}

/// The sending half of a connection.
pub(crate) enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Sender {
    pub(crate) async fn open(address: SocketAddr, user: &TestUser, protocol: Protocol) -> Self {
        let stream = TokioIo::new(connect(address, user, protocol).await);
        match protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::handshake(stream).await.unwrap();
                tokio::spawn(connection);
                Sender::Http1(sender)
            }
            Protocol::Http2 => {
                let builder = http2::Builder::new(TokioExecutor::new());
                let (sender, connection) = builder.handshake(stream).await.unwrap();
                tokio::spawn(connection);
                Sender::Http2(sender)
            }
        }
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match self {
            Sender::Http1(sender) => sender.send_request(request).await,
            Sender::Http2(sender) => sender.send_request(request).await,
        }
    }
}
