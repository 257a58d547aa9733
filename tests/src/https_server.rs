//! An HTTPS server with a handler from the test: webhooks and identity providers.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use outbound::{Backoff, HttpClient, Limits, Target};
use rustls_pki_types::PrivateKeyDer;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// A received request.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    pub method: http::Method,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Value,
}

/// A response.
#[derive(Clone)]
pub enum Reply {
    Json(Value),
    /// A status and a text.
    Text(u16, String),
    /// Another reply, after a side effect.
    After(Arc<dyn Fn() -> SideEffect + Send + Sync>, Box<Reply>),
    /// Nothing, ever.
    Silence,
    /// A gigabyte.
    Flood,
    /// Switches to the protocol of the request; then every byte comes back, in capitals.
    Echo,
}

/// Work before a reply.
pub type SideEffect = Pin<Box<dyn Future<Output = ()> + Send>>;

/// See the module. Dropping it stops the server.
pub struct HttpsServer {
    pub url: String,
    /// Its self-signed certificate, in PEM.
    pub certificate: String,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    serving: JoinHandle<()>,
}

impl Drop for HttpsServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl HttpsServer {
    pub async fn start(handler: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static) -> Self {
        Self::named("localhost", handler).await
    }

    /// With a certificate for this name.
    pub async fn named(
        name: &str,
        handler: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::at(Ipv4Addr::LOCALHOST.into(), name, handler).await
    }

    /// The same at an address of this machine.
    pub async fn at(
        ip: IpAddr,
        name: &str,
        handler: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((ip, 0)).await.unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let certified = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certified.cert.der().clone()],
                PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap(),
            )
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (handler, log) = (Arc::new(handler), requests.clone());
        let serving = tokio::spawn(async move {
            // connections end with the server
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, handler, log) = (acceptor.clone(), handler.clone(), log.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(tcp).await else { return };
                    let service = service_fn(move |request| respond(request, handler.clone(), log.clone()));
                    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                    let _ = connection.with_upgrades().await;
                });
            }
        });
        HttpsServer { url, certificate: certified.cert.pem(), requests, serving }
    }

    pub fn port(&self) -> u16 {
        self.url.rsplit(':').next().unwrap().parse().unwrap()
    }

    /// All received requests.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }

    pub fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    pub fn target(&self) -> Target {
        Target {
            url: self.url.clone(),
            authorities: Some(self.certificate.clone().into_bytes()),
            ..Target::default()
        }
    }

    pub fn client(&self) -> HttpClient {
        HttpClient::new(&self.target(), Limits::REVIEW).unwrap()
    }

    /// A client with a short timeout, for tests without a response.
    pub fn client_with_short_timeout(&self) -> HttpClient {
        let limits = Limits { time: std::time::Duration::from_millis(200), ..Limits::REVIEW };
        HttpClient::new(&self.target(), limits).unwrap()
    }

    /// The usual number of attempts, with short pauses.
    pub fn backoff() -> Backoff {
        Backoff { first: std::time::Duration::from_millis(1), ..Backoff::default() }
    }
}

type TestResponse = Response<UnsyncBoxBody<Bytes, Infallible>>;

async fn respond(
    mut request: Request<Incoming>,
    handler: Arc<impl Fn(&ReceivedRequest) -> Reply>,
    log: Arc<Mutex<Vec<ReceivedRequest>>>,
) -> Result<TestResponse, Infallible> {
    let (upgrade, protocol) = (hyper::upgrade::on(&mut request), request.headers().get("upgrade").cloned());
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let path = parts.uri.path_and_query().map_or("", |it| it.as_str()).to_owned();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let received = ReceivedRequest { method: parts.method, path, headers: parts.headers, body };
    let mut reply = handler(&received);
    log.lock().unwrap().push(received);
    while let Reply::After(effect, then) = reply {
        effect().await;
        reply = *then;
    }
    let answered = |status: u16, text: String| {
        let response = Response::builder().status(status).header("content-type", "application/json");
        response.body(Full::new(Bytes::from(text)).boxed_unsync()).unwrap()
    };
    Ok(match reply {
        Reply::Json(value) => answered(200, value.to_string()),
        Reply::Text(status, text) => answered(status, text),
        Reply::Silence | Reply::After(..) => std::future::pending().await,
        Reply::Flood => Response::new(Flood { left: 1 << 30 }.boxed_unsync()),
        Reply::Echo => match protocol {
            None => answered(400, "no upgrade".to_owned()),
            Some(protocol) => {
                tokio::spawn(echo(upgrade));
                let response = Response::builder().status(101).header("connection", "Upgrade");
                let response = response.header("upgrade", protocol);
                response.body(Full::default().boxed_unsync()).unwrap()
            }
        },
    })
}

async fn echo(upgrade: hyper::upgrade::OnUpgrade) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let Ok(upgraded) = upgrade.await else { return };
    let (mut reads, mut writes) = tokio::io::split(TokioIo::new(upgraded));
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = reads.read(&mut buffer).await {
        if writes.write_all(&buffer[..count].to_ascii_uppercase()).await.is_err() {
            return;
        }
    }
    let _ = writes.shutdown().await;
}

/// A number of blanks, a valid start of JSON.
struct Flood {
    left: usize,
}

impl Body for Flood {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left = self.left.saturating_sub(64 * 1024);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b' '; 64 * 1024])))))
    }
}
