//! Another server, over HTTPS, that answers as a test wants: webhooks and providers of identity.

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

/// A request that came.
#[derive(Debug, Clone)]
pub struct Seen {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Value,
}

/// What is answered.
#[derive(Clone)]
pub enum Reply {
    Json(Value),
    /// A status and a text.
    Text(u16, String),
    /// Another reply, once something is done.
    After(Arc<dyn Fn() -> Deed + Send + Sync>, Box<Reply>),
    /// Nothing, ever.
    Silence,
    /// A gigabyte.
    Flood,
}

/// What is done before a reply.
pub type Deed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// See the module. The server ends with it.
pub struct Elsewhere {
    pub url: String,
    /// The certificate by which it is known, in PEM.
    pub certificate: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    serving: JoinHandle<()>,
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Elsewhere {
    pub async fn start(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::named("localhost", answer).await
    }

    /// One whose certificate has another name than that of its address.
    pub async fn named(name: &str, answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::at(Ipv4Addr::LOCALHOST.into(), name, answer).await
    }

    /// The same at an address of this machine.
    pub async fn at(ip: IpAddr, name: &str, answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
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
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (answer, log) = (Arc::new(answer), seen.clone());
        let serving = tokio::spawn(async move {
            // connections end with the server
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, answer, log) = (acceptor.clone(), answer.clone(), log.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(tcp).await else { return };
                    let service = service_fn(move |request| reply(request, answer.clone(), log.clone()));
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Elsewhere { url, certificate: certified.cert.pem(), seen, serving }
    }

    pub fn port(&self) -> u16 {
        self.url.rsplit(':').next().unwrap().parse().unwrap()
    }

    /// All requests that came so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    pub fn target(&self) -> Target {
        Target {
            url: self.url.clone(),
            authorities: Some(self.certificate.clone().into_bytes()),
            ..Target::default()
        }
    }

    pub fn caller(&self) -> HttpClient {
        HttpClient::new(&self.target(), Limits::REVIEW).unwrap()
    }

    /// Waits for hardly a moment: for tests in which no answer comes.
    pub fn hasty(&self) -> HttpClient {
        let limits = Limits { time: std::time::Duration::from_millis(200), ..Limits::REVIEW };
        HttpClient::new(&self.target(), limits).unwrap()
    }

    /// Tries as often as usual, with hardly a pause.
    pub fn backoff() -> Backoff {
        Backoff { first: std::time::Duration::from_millis(1), ..Backoff::default() }
    }
}

type Answered = Response<UnsyncBoxBody<Bytes, Infallible>>;

async fn reply(
    request: Request<Incoming>,
    answer: Arc<impl Fn(&Seen) -> Reply>,
    log: Arc<Mutex<Vec<Seen>>>,
) -> Result<Answered, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let path = parts.uri.path_and_query().map_or("", |it| it.as_str()).to_owned();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let seen = Seen { path, headers: parts.headers, body };
    let mut reply = answer(&seen);
    log.lock().unwrap().push(seen);
    while let Reply::After(deed, then) = reply {
        deed().await;
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
    })
}

/// So many bytes, of what could begin an object.
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
