//! Certificates, an echoing handler, and clients of both protocols.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use env::{Simulated, World};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::serve::bulk::is_bulk_thread;
use crate::serve::{Body, Handler, Limits, ListenConfig, Peer, Shutdown, TlsMaterial, bind, run};

/// Start of the certificates' validity of a year.
pub(super) const NOW: u64 = 1_700_000_000;
const YEAR: Duration = Duration::from_secs(365 * 86_400);

pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key.
#[derive(Clone)]
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Pair {
    /// For a client to present, even with a key that does not match.
    fn unchecked(&self) -> SingleCertAndKey {
        let chain = vec![CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap();
        CertifiedKey::new(chain, rustls::crypto::ring::sign::any_supported_type(&key).unwrap()).into()
    }
}

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer }
    }

    pub(super) fn pem(&self) -> String {
        self.issuer.pem()
    }

    pub(super) fn client(&self, name: &str, group: &str) -> Pair {
        let mut params = params(name);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    pub(super) fn server(&self) -> Pair {
        self.server_of(&["localhost"])
    }

    pub(super) fn server_of(&self, names: &[&str]) -> Pair {
        let mut params = params("server");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        params.subject_alt_names = CertificateParams::new(names).unwrap().subject_alt_names;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = (UNIX_EPOCH + Duration::from_secs(NOW - 60)).into();
    params.not_after = (UNIX_EPOCH + Duration::from_secs(NOW) + YEAR).into();
    params
}

/// A running server and the data that its clients need.
pub(super) struct TestServer {
    pub(super) address: SocketAddr,
    pub(super) authority: Authority,
    pub(super) shutdown: Shutdown,
    pub(super) world: Arc<Simulated>,
    pub(super) running: JoinHandle<()>,
    /// One message per request that was dropped before its response ended.
    pub(super) dropped: mpsc::UnboundedReceiver<()>,
    /// Blocks responses to `/held`.
    pub(super) hold: Arc<Hold>,
}

pub(super) async fn serve(limits: Limits) -> TestServer {
    serve_with(limits, |_, tls| tls).await
}

/// A server with changed TLS material.
pub(super) async fn serve_with(
    limits: Limits,
    change: impl FnOnce(&Authority, TlsMaterial) -> TlsMaterial,
) -> TestServer {
    let authority = Authority::new("cluster");
    let server = authority.server();
    let simulated = Simulated::new(NOW, 0);
    let world: World = simulated.clone();
    let tls = TlsMaterial {
        certificate_chain: server.certificate.into_bytes(),
        private_key: server.key.into_bytes(),
        client_authorities: Some(authority.pem().into_bytes()),
        ..TlsMaterial::default()
    };
    let tls = change(&authority, tls);
    let listen = ListenConfig {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        tls,
        limits,
        share_port: false,
        world,
    };
    let bound = bind(listen).await.unwrap();
    let (address, shutdown) = (bound.local_addr(), Shutdown::new());
    let (drops, dropped) = mpsc::unbounded_channel();
    let hold = Arc::<Hold>::default();
    let handler = Arc::new(EchoHandler { shutdown: shutdown.clone(), drops, hold: hold.clone() });
    let running = tokio::spawn(run(bound, handler, shutdown.clone()));
    TestServer { address, authority, shutdown, world: simulated, running, dropped, hold }
}

/// Echoes requests, or acts by the path.
struct EchoHandler {
    shutdown: Shutdown,
    drops: mpsc::UnboundedSender<()>,
    hold: Arc<Hold>,
}

impl Handler for EchoHandler {
    async fn handle(self: &Arc<Self>, request: Request<Incoming>, peer: Arc<Peer>) -> Response<Body> {
        match request.uri().path() {
            "/panic" => panic!("on request"),
            "/stuck" => {
                let _noticed = OnDrop(self.drops.clone());
                pending().await
            }
            "/watch" => Response::new(self.watch()),
            "/backlog" => Response::new(self.backlog()),
            "/endless" => Response::new(Body::stream(Endless(OnDrop(self.drops.clone())))),
            "/broken" => Response::new(Body::frames(broken())),
            "/held" => Response::new(Body::frames(self.hold.clone().pieces())),
            "/large" => Response::new(Body::frames_of(LARGE as u64, large())),
            "/whoami" => match peer.certificate.as_ref().and_then(|it| it.current().certificate.user.clone())
            {
                None => Response::new(Body::full("anonymous")),
                Some(Ok(user)) => {
                    Response::new(Body::full(format!("{} {}", user.name, user.groups.join(","))))
                }
                Some(Err(reason)) => refused(reason.clone()),
            },
            "/http2" => Response::new(Body::full(peer.http2.to_string())),
            _ => Response::new(Body::full(request.into_body().collect().await.unwrap().to_bytes())),
        }
    }
}

fn refused(reason: String) -> Response<Body> {
    let mut response = Response::new(Body::full(reason));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    response
}

impl EchoHandler {
    /// A first event at once and a last one when the server stops.
    fn watch(&self) -> Body {
        let (sender, receiver) = mpsc::unbounded_channel();
        let shutdown = self.shutdown.clone();
        tokio::spawn(async move {
            sender.send(Bytes::from_static(b"first\n")).unwrap();
            shutdown.wait_for_stop().await;
            sender.send(Bytes::from_static(b"last\n")).unwrap();
        });
        Body::stream(Events(receiver))
    }

    /// Many events at once, and then one at a time. Each names the kind of thread that produced it.
    fn backlog(&self) -> Body {
        let (sender, later) = mpsc::channel(1);
        tokio::spawn(async move { while sender.send(()).await.is_ok() {} });
        Body::stream(Backlog { left: BACKLOG, later })
    }
}

pub(super) const BACKLOG: usize = 1000;

struct Backlog {
    left: usize,
    later: mpsc::Receiver<()>,
}

impl futures_core::Stream for Backlog {
    type Item = Bytes;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Bytes>> {
        let event = || Bytes::from_static(if is_bulk_thread() { b"b" } else { b"i" });
        if self.left > 0 {
            self.left -= 1;
            return std::task::Poll::Ready(Some(event()));
        }
        self.later.poll_recv(cx).map(|later| later.map(|()| event()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, None)
    }
}

struct Events(mpsc::UnboundedReceiver<Bytes>);

impl futures_core::Stream for Events {
    type Item = Bytes;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Bytes>> {
        self.0.poll_recv(cx)
    }
}

/// A stream that never yields.
struct Endless(#[allow(dead_code, reason = "held to notice the drop")] OnDrop);

impl futures_core::Stream for Endless {
    type Item = Bytes;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Bytes>> {
        std::task::Poll::Pending
    }
}

struct OnDrop(mpsc::UnboundedSender<()>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

fn broken() -> impl Iterator<Item = Bytes> + Send {
    (0..2).map(|n| if n == 0 { Bytes::from_static(b"half") } else { panic!("on request") })
}

/// Large responses of which a piece blocks its thread.
#[derive(Default)]
pub(super) struct Hold {
    /// How many threads are blocked, and whether they may go on.
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Hold {
    fn pieces(self: Arc<Self>) -> impl Iterator<Item = Bytes> + Send {
        let small = (0..8).map(|_| Bytes::from(vec![b'x'; 64 << 10]));
        small.chain(std::iter::once_with(move || {
            self.wait();
            Bytes::from_static(b"end")
        }))
    }

    fn wait(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        let long = Duration::from_secs(30);
        let (state, waited) = self.changed.wait_timeout_while(state, long, |state| !state.1).unwrap();
        drop(state);
        assert!(!waited.timed_out(), "nothing else went on while this thread was held");
    }

    pub(super) async fn until_holding(&self, count: usize) {
        while self.state.lock().unwrap().0 < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(super) fn release(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

pub(super) const LARGE: usize = 8 << 20;

/// Bytes that encode their position.
pub(super) fn large() -> impl Iterator<Item = Bytes> + Send {
    (0..LARGE).step_by(100_000).map(|start| {
        (start..(start + 100_000).min(LARGE)).map(|at| (at % 251) as u8).collect::<Vec<_>>().into()
    })
}

impl TestServer {
    pub(super) async fn tls(&self, pair: Option<&Pair>, alpn: &[&str]) -> TlsStream<TcpStream> {
        self.try_tls(pair, alpn).await.unwrap()
    }

    pub(super) async fn try_tls(
        &self,
        pair: Option<&Pair>,
        alpn: &[&str],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clock = Arc::new(FixedClock);
        let builder = ClientConfig::builder_with_details(provider, clock)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match pair {
            None => builder.with_no_client_auth(),
            Some(pair) => builder.with_client_cert_resolver(Arc::new(pair.unchecked())),
        };
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let tcp = TcpStream::connect(self.address).await?;
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), tcp).await
    }

    pub(super) async fn client(&self, http2: bool, pair: Option<&Pair>) -> Client {
        let stream = TokioIo::new(self.tls(pair, if http2 { &["h2"] } else { &["http/1.1"] }).await);
        if http2 {
            let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
            let (sender, connection) = builder.handshake(stream).await.unwrap();
            Client::Http2(sender, tokio::spawn(async move { drop(connection.await) }))
        } else {
            let (sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
            Client::Http1(sender, tokio::spawn(async move { drop(connection.await) }))
        }
    }
}

#[derive(Debug)]
struct FixedClock;

impl rustls::time_provider::TimeProvider for FixedClock {
    fn current_time(&self) -> Option<rustls_pki_types::UnixTime> {
        Some(rustls_pki_types::UnixTime::since_unix_epoch(Duration::from_secs(NOW)))
    }
}

pub(super) enum Client {
    Http1(hyper::client::conn::http1::SendRequest<Full<Bytes>>, JoinHandle<()>),
    Http2(hyper::client::conn::http2::SendRequest<Full<Bytes>>, JoinHandle<()>),
}

impl Client {
    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::Http1(sender, _) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::Http2(sender, _) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }

    pub(super) async fn post(&mut self, path: &str, body: &'static str) -> hyper::Result<Response<Incoming>> {
        let request = Request::post(format!("https://localhost{path}")).header("host", "localhost");
        self.send(request.body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap()).await
    }

    /// Status and text of the response.
    pub(super) async fn get(&mut self, path: &str) -> (u16, String) {
        let response = self.post(path, "").await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    /// Waits until the server has closed the connection.
    pub(super) async fn closed(self) {
        match self {
            // the senders stay alive: the client itself gives no reason to close
            Self::Http1(_sender, connection) => connection.await.unwrap(),
            Self::Http2(_sender, connection) => connection.await.unwrap(),
        }
    }
}
