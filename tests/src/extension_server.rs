//! An extension API server for aggregation: one group version with node metrics, over HTTPS.
//!
//! It trusts the client certificate of the proxy and records all requests. Its behavior can be changed while it runs.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// The group and version that it answers for.
pub const GROUP_VERSION: &str = "metrics.example.com/v1beta1";

/// A received request.
#[derive(Debug, Clone)]
pub struct ProxiedRequest {
    pub method: Method,
    /// With its query.
    pub path: String,
    pub headers: HeaderMap,
    /// Whether the connection has the client certificate of the proxy.
    pub has_proxy_certificate: bool,
}

/// The behavior of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerBehavior {
    Good,
    /// Everything is an error.
    Failing,
    /// Redirects every request.
    Leading(String),
    /// Serves invalid discovery and OpenAPI documents.
    Lying,
    /// Accepts requests and never responds.
    Silent,
}

/// See the module. Dropping it stops the server.
pub struct ExtensionServer {
    pub port: u16,
    /// The CA of its certificate, in PEM.
    pub authority: String,
    /// Certificate and key of the trusted proxy, in PEM.
    pub proxy: (String, String),
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

struct Shared {
    requests: Mutex<Vec<ProxiedRequest>>,
    behavior: Mutex<ServerBehavior>,
    events: broadcast::Sender<Value>,
}

impl Drop for ExtensionServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl ExtensionServer {
    /// One whose certificate has the name of a service.
    pub async fn start(namespace: &str, service: &str) -> Self {
        Self::named(&format!("{service}.{namespace}.svc")).await
    }

    /// One whose certificate has some name.
    pub async fn named(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let leaf = |params: CertificateParams| {
            let key = KeyPair::generate().unwrap();
            (params.signed_by(&key, &issuer).unwrap(), key)
        };
        let (own, own_key) = leaf(CertificateParams::new([name.to_owned()]).unwrap());
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let (proxy, proxy_key) = leaf(params);
        let mut roots = RootCertStore::empty();
        roots.add(issuer.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients.allow_unauthenticated().build().unwrap())
            .with_single_cert(
                vec![own.der().clone()],
                PrivateKeyDer::try_from(own_key.serialize_der()).unwrap(),
            )
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            requests: Mutex::default(),
            behavior: Mutex::new(ServerBehavior::Good),
            events: broadcast::Sender::new(64),
        });
        let serving = tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(config)), shared.clone()));
        let proxy = (proxy.pem(), proxy_key.serialize_pem());
        ExtensionServer { port, authority: issuer.pem(), proxy, shared, serving }
    }

    pub fn behave(&self, behavior: ServerBehavior) {
        *self.shared.behavior.lock().unwrap() = behavior;
    }

    /// Sends an event to all watchers.
    pub fn send_event(&self, event: Value) {
        let _ = self.shared.events.send(event);
    }

    /// The received requests of clients, without those of the aggregator itself.
    pub fn requests(&self) -> Vec<ProxiedRequest> {
        let requests = self.shared.requests.lock().unwrap().clone();
        let own = |it: &ProxiedRequest| {
            it.headers.get("x-remote-user").is_some_and(|it| it == "system:kube-aggregator")
        };
        requests.into_iter().filter(|it| !own(it)).collect()
    }

    /// All received requests.
    pub fn all(&self) -> Vec<ProxiedRequest> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// The number of watchers.
    pub fn watchers(&self) -> usize {
        self.shared.events.receiver_count()
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    // connections end with the server
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((tcp, _)) = listener.accept().await {
        let (acceptor, shared) = (acceptor.clone(), shared.clone());
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(tcp).await else { return };
            let has_proxy_certificate = stream.get_ref().1.peer_certificates().is_some();
            let service = service_fn(move |request| respond(request, has_proxy_certificate, shared.clone()));
            let builder = auto::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
        });
    }
}

type TestResponse = Response<UnsyncBoxBody<Bytes, hyper::Error>>;

fn response(code: u16, media: &str, text: String) -> TestResponse {
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync();
    Response::builder().status(code).header(header::CONTENT_TYPE, media).body(body).unwrap()
}

async fn respond(
    mut request: Request<Incoming>,
    has_proxy_certificate: bool,
    shared: Arc<Shared>,
) -> Result<TestResponse, Infallible> {
    let path = request.uri().path_and_query().map_or("", |it| it.as_str()).to_owned();
    let (method, headers) = (request.method().clone(), request.headers().clone());
    shared.requests.lock().unwrap().push(ProxiedRequest {
        method: method.clone(),
        path,
        headers,
        has_proxy_certificate,
    });
    let behavior = shared.behavior.lock().unwrap().clone();
    match &behavior {
        ServerBehavior::Failing => return Ok(response(500, "text/plain", "out of order".to_owned())),
        ServerBehavior::Leading(to) => {
            let mut answer = response(302, "text/plain", String::new());
            answer.headers_mut().insert(header::LOCATION, HeaderValue::from_str(to).unwrap());
            return Ok(answer);
        }
        ServerBehavior::Silent => std::future::pending().await,
        ServerBehavior::Good | ServerBehavior::Lying => {}
    }
    let path = request.uri().path().to_owned();
    if let Some(said) = about_itself(&path) {
        let text = if behavior == ServerBehavior::Lying { "\u{0}{{{".to_owned() } else { said.to_string() };
        return Ok(response(200, "application/json", text));
    }
    let Some(rest) = path.strip_prefix("/apis/metrics.example.com/v1beta1/") else {
        return Ok(response(404, "text/plain", "404 page not found\n".to_owned()));
    };
    let watching = request.uri().query().is_some_and(|query| query.contains("watch="));
    Ok(match (method.as_str(), rest) {
        ("GET", "nodes") if watching => watch(&shared),
        ("GET", "nodes") => response(200, "application/json", json!({"items": [metrics("a")]}).to_string()),
        ("GET", "slow") => {
            // the beginning of something that never ends
            let first = stream::iter([Ok(Frame::data(Bytes::from_static(b"begun")))]);
            Response::new(StreamBody::new(first.chain(stream::pending())).boxed_unsync())
        }
        ("POST", "echo") => Response::new(request.into_body().boxed_unsync()),
        (_, "nodes/a/attach") => match request.headers().get(header::UPGRADE).cloned() {
            None => response(400, "text/plain", "nothing to switch to".to_owned()),
            Some(protocol) => {
                let upgraded = hyper::upgrade::on(&mut request);
                tokio::spawn(echo(upgraded));
                let mut answer = response(101, "text/plain", String::new());
                *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                answer.headers_mut().insert(header::UPGRADE, protocol);
                answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
                answer
            }
        },
        ("GET", node) if node.starts_with("nodes/") => {
            response(200, "application/json", metrics(&node["nodes/".len()..]).to_string())
        }
        _ => response(404, "text/plain", "404 page not found\n".to_owned()),
    })
}

fn metrics(node: &str) -> Value {
    json!({"kind": "NodeMetrics", "apiVersion": GROUP_VERSION, "metadata": {"name": node},
        "usage": {"cpu": "100m", "memory": "1Mi"}})
}

fn watch(shared: &Shared) -> TestResponse {
    let events = stream::unfold(shared.events.subscribe(), |mut events| async {
        let event = events.recv().await.ok()?;
        Some((Ok(Frame::data(Bytes::from(format!("{event}\n")))), events))
    });
    let mut answer = Response::new(StreamBody::new(events).boxed_unsync());
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// Everything comes back, in capitals.
async fn echo(upgraded: hyper::upgrade::OnUpgrade) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let Ok(upgraded) = upgraded.await else { return };
    let (mut reads, mut writes) = tokio::io::split(TokioIo::new(upgraded));
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = reads.read(&mut buffer).await {
        if writes.write_all(&buffer[..count].to_ascii_uppercase()).await.is_err() {
            return;
        }
    }
    let _ = writes.shutdown().await;
}

fn about_itself(path: &str) -> Option<Value> {
    let definition = "com.example.metrics.v1beta1.NodeMetrics";
    let meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    Some(match path {
        "/apis/metrics.example.com/v1beta1" => json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION, "resources": [
                {"name": "nodes", "singularName": "", "namespaced": false, "kind": "NodeMetrics",
                    "verbs": ["get", "list", "watch"]},
                {"name": "nodes/attach", "singularName": "", "namespaced": false, "kind": "NodeMetrics",
                    "verbs": ["get"]}]}),
        "/openapi/v2" => json!({"swagger": "2.0", "info": {"title": "metrics", "version": "v0"}, "paths": {
            "/apis/metrics.example.com/v1beta1/nodes": {"get": {"operationId": "listNodeMetrics", "responses": {
                "200": {"description": "OK", "schema": {"$ref": format!("#/definitions/{definition}")}}}}},
            "/api/v1/pods": {"get": {"operationId": "notItsOwn", "responses": {}}}},
            "definitions": {
                definition: {"type": "object", "properties": {
                    "metadata": {"$ref": format!("#/definitions/{meta}")}}},
                meta: {"type": "object", "description": "otherwise than elsewhere"},
                "unused": {"type": "string"}}}),
        "/openapi/v3" => json!({"paths": {"apis/metrics.example.com/v1beta1": {
            "serverRelativeURL": "/openapi/v3/apis/metrics.example.com/v1beta1?hash=ABC"},
            "apis/apps/v1": {"serverRelativeURL": "/openapi/v3/apis/apps/v1?hash=LIE"}}}),
        "/openapi/v3/apis/metrics.example.com/v1beta1" => {
            json!({"openapi": "3.0.0", "info": {"title": "metrics"}, "paths": {}})
        }
        _ => return None,
    })
}
