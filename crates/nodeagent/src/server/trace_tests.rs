//! Spans of the agent, as a collector receives them.

use super::tests::TestServer;
use crate::resource_managers::unix_server::{bind, serve};
use crate::runtime::Runtime;
use crate::runtime::cri::CriRuntime;
use api::core::v1::Node;
use bytes::Bytes;
use client::Api;
use client::{Rate, transport};
use grpc::otlp::any_value::Value;
use grpc::otlp::span::SpanKind;
use grpc::otlp::trace_service_server::{TraceService, TraceServiceServer};
use grpc::otlp::{ExportTraceServiceRequest, ExportTraceServiceResponse, Span};
use grpc::tonic::body::Body;
use grpc::tonic::{Request, Response, Status};
use http::HeaderMap;
use http_body_util::{Full, StreamBody};
use hyper::body::Frame;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use metrics::Registry;
use outbound::trace::{Tracer, TracerOptions};
use outbound::{Dialer, Target};
use parking_lot::Mutex;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tower_service::Service;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Keeps what it receives.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

#[grpc::tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.lock().push(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    fn start(&self, socket: &Path) -> JoinHandle<()> {
        let listener = bind(socket).unwrap();
        let server = TraceServiceServer::new(self.clone());
        tokio::spawn(serve(listener, move |request: http::Request<hyper::body::Incoming>| {
            let mut server = server.clone();
            async move { server.call(request.map(Body::new)).await }
        }))
    }

    /// The spans of a name.
    fn spans(&self, name: &str) -> Vec<Span> {
        let requests = self.0.lock();
        let all = requests.iter().flat_map(|it| &it.resource_spans).flat_map(|it| &it.scope_spans);
        all.flat_map(|it| &it.spans).filter(|span| span.name == name).cloned().collect()
    }
}

fn attribute(span: &Span, key: &str) -> String {
    let found = span.attributes.iter().find(|it| it.key == key);
    match found.and_then(|it| it.value.as_ref()?.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A runtime that knows its version and nothing else. It keeps the spans that call it.
fn start_runtime(socket: &Path, parents: &Arc<Mutex<Vec<String>>>) -> JoinHandle<()> {
    let parents = parents.clone();
    let listener = bind(socket).unwrap();
    tokio::spawn(serve(listener, move |request: http::Request<hyper::body::Incoming>| {
        let header = request.headers().get("traceparent").map(|it| it.to_str().unwrap().to_owned());
        parents.lock().extend(header);
        let is_known = request.uri().path().ends_with("/Version");
        async move {
            if !is_known {
                return Ok::<_, Infallible>(Status::unimplemented("not here").into_http());
            }
            let trailers = HeaderMap::from_iter([(
                http::HeaderName::from_static("grpc-status"),
                http::HeaderValue::from_static("0"),
            )]);
            let frames = [
                Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[0, 0, 0, 0, 0]))),
                Ok(Frame::trailers(trailers)),
            ];
            let response = http::Response::builder().header("content-type", "application/grpc");
            Ok(response.body(Body::new(StreamBody::new(futures_util::stream::iter(frames)))).unwrap())
        }
    }))
}

/// A tracer that samples nothing by itself.
fn start_tracer(endpoint: &str) -> Arc<Tracer> {
    let options = TracerOptions {
        endpoint: endpoint.parse().unwrap(),
        per_million: 0,
        resource: vec![("service.name", "kubelet".to_owned()), ("host.name", "n".to_owned())],
    };
    let world: env::World = env::Seeded::new(1_700_000_000, 7);
    Arc::new(Tracer::start(options, Dialer::Direct, world, &Registry::default()))
}

#[tokio::test]
async fn requests_and_calls_to_the_runtime_are_spans() {
    let folder = tempfile::tempdir().unwrap();
    let socket = |name: &str| format!("unix://{}", folder.path().join(name).display());
    let (collector, parents) = (Collector::default(), Arc::default());
    let collecting = collector.start(&folder.path().join("otlp"));
    let serving = start_runtime(&folder.path().join("cri"), &parents);
    let tracer = start_tracer(&socket("otlp"));
    let runtime = CriRuntime::new(&socket("cri"), None, None, Some(tracer.clone())).unwrap();
    // nothing is sampled by itself
    runtime.version().await.unwrap();
    let parent = http::HeaderValue::from_static(PARENT);
    outbound::within(parent.clone(), runtime.version()).await.unwrap();
    outbound::within(parent, runtime.remove_sandbox("s")).await.unwrap_err();
    let server = TestServer::traced(Some(tracer.clone())).await;
    let (status, _) =
        server.get_with("GET", "/pods?x=1", "admin", &format!("traceparent: {PARENT}\r\n")).await;
    assert_eq!(status, 200);
    tracer.flush().await;

    let [version] = &collector.spans("runtime.v1.RuntimeService/Version")[..] else {
        panic!("one is sampled")
    };
    assert_eq!(version.kind, i32::from(SpanKind::Client));
    assert_eq!(
        (hex(&version.trace_id), hex(&version.parent_span_id)),
        (PARENT[3..35].into(), PARENT[36..52].into())
    );
    assert_eq!(attribute(version, "rpc.system"), "grpc");
    assert_eq!(attribute(version, "rpc.service"), "runtime.v1.RuntimeService");
    assert_eq!(attribute(version, "rpc.method"), "Version");
    assert_eq!(attribute(version, "rpc.grpc.status_code"), "0");
    assert!(version.status.is_none());
    let [removal] = &collector.spans("runtime.v1.RuntimeService/RemovePodSandbox")[..] else { panic!("one") };
    assert_eq!(attribute(removal, "rpc.grpc.status_code"), "12");
    assert!(removal.status.is_some());
    let received: Vec<String> = parents.lock().clone();
    assert_eq!(received.len(), 2, "the runtime sees the spans that call it");
    assert!(received[0].contains(&hex(&version.span_id)), "{received:?}");

    let [pods] = &collector.spans("/pods/")[..] else { panic!("one") };
    assert_eq!(pods.kind, i32::from(SpanKind::Server));
    assert_eq!(
        (attribute(pods, "http.method"), attribute(pods, "http.target")),
        ("GET".into(), "/pods?x=1".into())
    );
    assert_eq!(attribute(pods, "http.status_code"), "200");
    assert_eq!(hex(&pods.parent_span_id), &PARENT[36..52]);
    collecting.abort();
    serving.abort();
}

/// An API server with one node. It keeps the spans that call it.
async fn start_api_server(parents: &Arc<Mutex<Vec<String>>>) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let parents = parents.clone();
    let serving = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let parents = parents.clone();
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let header = request.headers().get("traceparent").map(|it| it.to_str().unwrap().to_owned());
                parents.lock().extend(header);
                let status = if request.uri().path().ends_with("/nodes/n") { 200 } else { 404 };
                let body = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}"#;
                let response = http::Response::builder().status(status).body(Full::new(Bytes::from(body)));
                std::future::ready(response)
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    (url, serving)
}

#[tokio::test]
async fn requests_to_the_api_server_are_spans() {
    let folder = tempfile::tempdir().unwrap();
    let (collector, parents) = (Collector::default(), Arc::default());
    let collecting = collector.start(&folder.path().join("otlp"));
    let (url, serving) = start_api_server(&parents).await;
    let tracer = start_tracer(&format!("unix://{}", folder.path().join("otlp").display()));
    let world: env::World = env::Seeded::new(1_700_000_000, 7);
    let metrics = client::Metrics::new(Arc::default());
    let target = Target { url: url.clone(), ..Target::default() };
    let transport =
        transport::transport(&target, "kubelet", &metrics).unwrap().traced_by(Some(tracer.clone()));
    let nodes = Api::<Node>::all(&transport::client(&transport, Rate::default(), &world));
    // nothing is sampled by itself
    nodes.get("n").await.unwrap();
    let parent = http::HeaderValue::from_static(PARENT);
    outbound::within(parent.clone(), nodes.get("n")).await.unwrap();
    outbound::within(parent, nodes.get("absent")).await.unwrap_err();
    tracer.flush().await;

    let spans = collector.spans("HTTP GET");
    let [found, absent] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!(attribute(found, "http.url"), format!("{url}/api/v1/nodes/n"));
    assert_eq!(
        (attribute(found, "http.method"), attribute(found, "http.status_code")),
        ("GET".into(), "200".into())
    );
    assert_eq!(attribute(absent, "http.status_code"), "404");
    assert!(found.status.is_none() && absent.status.is_some());
    for span in &spans {
        assert_eq!(span.kind, i32::from(SpanKind::Client));
        assert_eq!(
            (hex(&span.trace_id), hex(&span.parent_span_id)),
            (PARENT[3..35].into(), PARENT[36..52].into())
        );
    }
    let received: Vec<String> = parents.lock().clone();
    let sent = [found, absent].map(|span| format!("00-{}-{}-01", &PARENT[3..35], hex(&span.span_id)));
    assert_eq!(received, sent, "the server sees the spans that call it");
    collecting.abort();
    serving.abort();
}
