//! Spans of requests, as a collector receives them.

use super::*;
use apiserver::{authorization, observability, trace};
use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use tests::{Cluster, HttpsServer, Options, Reply, TestUser, authority, soon};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

#[derive(Debug, Clone, Default, PartialEq)]
struct Span {
    trace: String,
    id: String,
    parent: String,
    name: String,
    began: u64,
    ended: u64,
    attributes: Vec<(String, String)>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn varint(bytes: &mut Bytes) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes.get_u8();
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return value;
        }
    }
}

/// The fields of a message: their numbers, with their bytes or their number.
fn fields(mut bytes: Bytes) -> Vec<(u64, Bytes, u64)> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let (content, number) = match tag & 7 {
            0 => (Bytes::new(), varint(&mut bytes)),
            1 => (Bytes::new(), bytes.get_u64_le()),
            2 => {
                let length = varint(&mut bytes) as usize;
                (bytes.split_to(length), 0)
            }
            other => panic!("wire type {other}"),
        };
        out.push((tag >> 3, content, number));
    }
    out
}

fn within(bytes: Bytes, number: u64) -> impl Iterator<Item = Bytes> {
    fields(bytes).into_iter().filter(move |field| field.0 == number).map(|field| field.1)
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn attribute(bytes: Bytes) -> (String, String) {
    let key = text(&within(bytes.clone(), 1).next().unwrap());
    let value = within(bytes, 2).next().unwrap();
    let (number, content, plain) = fields(value).remove(0);
    (key, if number == 1 { text(&content) } else { plain.to_string() })
}

fn span(bytes: Bytes) -> Span {
    let mut span = Span::default();
    for (number, content, plain) in fields(bytes) {
        match number {
            1 => span.trace = hex(&content),
            2 => span.id = hex(&content),
            4 => span.parent = hex(&content),
            5 => span.name = text(&content),
            7 => span.began = plain,
            8 => span.ended = plain,
            9 => span.attributes.push(attribute(content)),
            _ => {}
        }
    }
    span
}

/// Takes spans over HTTP/2, as collectors do.
async fn collector() -> (String, UnboundedReceiver<Span>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, received) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let sender = sender.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let sender = sender.clone();
                async move {
                    assert_eq!(
                        request.uri().path(),
                        "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
                    );
                    assert_eq!(request.headers()["content-type"], "application/grpc");
                    let mut body = request.into_body().collect().await.unwrap().to_bytes();
                    assert_eq!(body.get_u8(), 0);
                    assert_eq!(body.get_u32() as usize, body.len());
                    for resource in within(body, 1) {
                        let about = within(resource.clone(), 1).next().unwrap();
                        let about: Vec<_> = within(about, 1).map(attribute).collect();
                        assert!(about.contains(&("service.name".to_owned(), "apiserver".to_owned())));
                        let spans = within(resource, 2).flat_map(|scope| within(scope, 2));
                        spans.for_each(|bytes| drop(sender.send(span(bytes))));
                    }
                    let trailers = HeaderMap::from_iter([(
                        http::HeaderName::from_static("grpc-status"),
                        HeaderValue::from_static("0"),
                    )]);
                    let frames = [
                        Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[0, 0, 0, 0, 0]))),
                        Ok(Frame::trailers(trailers)),
                    ];
                    let body = StreamBody::new(futures_util::stream::iter(frames));
                    Ok::<_, Infallible>(Response::new(body))
                }
            });
            tokio::spawn(async move {
                let _ = http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    (address, received)
}

fn traced(endpoint: &str, per_million: u32) -> Options {
    let configuration = trace::Configuration { endpoint: endpoint.parse().unwrap(), per_million };
    let observability =
        observability::Options { tracing: Some(configuration), ..observability::Options::default() };
    Options { observability, ..Options::default() }
}

/// The spans of a trace, up to that of the request itself.
async fn of_trace(spans: &mut UnboundedReceiver<Span>, trace: &str) -> Vec<Span> {
    let mut found = Vec::new();
    loop {
        let span = soon("a span", spans.recv()).await.unwrap();
        if span.trace != trace {
            continue;
        }
        let last = span.name == "KubernetesAPI";
        found.push(span);
        if last {
            return found;
        }
    }
}

#[tokio::test]
async fn requests_of_clients_that_trace_have_spans() {
    let (endpoint, mut received) = collector().await;
    let cluster = Cluster::with(traced(&endpoint, 0)).await;
    // untraced requests have no spans
    cluster.get(CONFIGMAPS).await.code(200);
    let with = format!("00-{TRACE}-{PARENT}-01");
    let body = json!({"metadata": {"name": "a"}});
    cluster.post(CONFIGMAPS, body).header("traceparent", &with).await.code(201);
    let spans = of_trace(&mut received, TRACE).await;
    let root = spans.last().unwrap();
    assert_eq!(root.parent, PARENT);
    let attribute = |key: &str| root.attributes.iter().find(|it| it.0 == key).map(|it| it.1.as_str());
    assert_eq!(attribute("http.method"), Some("POST"));
    assert_eq!(attribute("http.target"), Some(CONFIGMAPS));
    assert_eq!(attribute("http.status_code"), Some("201"));
    let steps: Vec<_> = spans[..spans.len() - 1].iter().map(|span| span.name.as_str()).collect();
    let expected = ["authentication", "priorityandfairness", "authorization", "body", "admission", "store"];
    assert_eq!(steps, expected);
    for span in &spans[..spans.len() - 1] {
        assert_eq!(span.parent, root.id);
        assert!(root.began <= span.began && span.began <= span.ended && span.ended <= root.ended, "{span:?}");
    }
    let metrics = cluster.get("/metrics").await.code(200).text();
    let sent = format!("pintle_trace_spans_sent_total {}\n", spans.len());
    assert!(metrics.contains(&sent), "{metrics}");
}

#[tokio::test]
async fn outgoing_calls_propagate_the_trace() {
    let (endpoint, mut spans) = collector().await;
    let elsewhere = HttpsServer::start(|seen| {
        let body = &seen.body;
        let mut answer = json!({"apiVersion": body["apiVersion"], "kind": body["kind"]});
        answer["status"] = json!({"allowed": true});
        Reply::Json(answer)
    })
    .await;
    let mut options = traced(&endpoint, 0);
    options.authorization = authorization::Options {
        modes: vec![auth::Mode::Webhook],
        webhook: Some(authorization::webhook::Options::new(elsewhere.client())),
        ..authorization::Options::default()
    };
    let cluster = Cluster::with(options).await;
    let with = format!("00-{TRACE}-{PARENT}-01");
    let wanda = TestUser::Certificate(authority().client("wanda", "staff"));
    cluster.get(CONFIGMAPS).user(&wanda).header("traceparent", &with).await.code(200);
    let root = of_trace(&mut spans, TRACE).await.pop().unwrap();
    let passed: Vec<_> =
        elsewhere.requests().iter().filter_map(|it| it.headers.get("traceparent").cloned()).collect();
    assert_eq!(passed, [format!("00-{TRACE}-{}-01", root.id).as_str()]);
}

#[tokio::test]
async fn an_absent_collector_delays_no_request() {
    let cluster = Cluster::with(traced("127.0.0.1:1", 1_000_000)).await;
    cluster.get(CONFIGMAPS).await.code(200);
    let lost = async {
        loop {
            let text = cluster.get("/metrics").await.code(200).text();
            let lost = text.lines().find_map(|line| line.strip_prefix("pintle_trace_spans_lost_total "));
            if lost.is_some_and(|lost| lost != "0") {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    soon("the loss of spans", lost).await;
}
