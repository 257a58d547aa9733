//! Watches over a WebSocket.

use super::*;
use apiserver::serve::Limits;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::time::Duration;
use tests::{Cluster, Options, Protocol, Stream, TestUser, soon};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const UPGRADE: &str = "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n";
const HANDSHAKE: &str =
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://page\r\n";

/// Sends a handshake; returns the connection and the head of the response in lower case.
async fn handshake(cluster: &Cluster, who: &TestUser, path: &str, headers: &str) -> (Stream, String) {
    let mut stream = cluster.connect(who, Protocol::Http1).await;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{UPGRADE}{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(soon("the head", stream.read_u8()).await.unwrap());
    }
    (stream, String::from_utf8(head).unwrap().to_ascii_lowercase())
}

/// A watch that was switched.
async fn watch(cluster: &Cluster, path: &str, headers: &str) -> Stream {
    let (stream, head) = handshake(cluster, &TestUser::Admin, path, &format!("{HANDSHAKE}{headers}")).await;
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
    stream
}

/// The opcode and the payload of the next frame.
async fn frame(stream: &mut Stream) -> (u8, Vec<u8>) {
    let mut head = [0; 2];
    soon("a frame", stream.read_exact(&mut head)).await.unwrap();
    assert_eq!((head[0] & 0xf0, head[1] & 0x80), (0x80, 0), "whole and not masked");
    let length = match head[1] {
        126 => u64::from(stream.read_u16().await.unwrap()),
        127 => stream.read_u64().await.unwrap(),
        length => u64::from(length),
    };
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    soon("its payload", stream.read_exact(&mut payload)).await.unwrap();
    (head[0] & 0x0f, payload)
}

async fn event(stream: &mut Stream) -> Value {
    let (opcode, payload) = frame(stream).await;
    assert_eq!((opcode, payload.last()), (1, Some(&b'\n')), "JSON is text");
    serde_json::from_slice(&payload).unwrap()
}

async fn ends(mut stream: Stream) {
    assert_eq!(frame(&mut stream).await, (8, 1000_u16.to_be_bytes().to_vec()));
    assert_eq!(soon("the end", stream.read(&mut [0; 16])).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn events_of_a_watch_are_messages() {
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "a").await;
    let mut stream = watch(&cluster, &format!("{CONFIGMAPS}?watch=1"), "").await;
    let first = event(&mut stream).await;
    assert_eq!((&first["type"], &first["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("a")));
    let large = json!({"metadata": {"name": "b"}, "data": {"k": "x".repeat(70_000)}});
    cluster.create(CONFIGMAPS, large).await;
    assert_eq!(event(&mut stream).await["object"]["metadata"]["name"], "b");
    // pings are answered, whatever else is said is not, and both sides close
    stream.write_all(&[0x89, 0x82, 1, 2, 3, 4, b'h' ^ 1, b'i' ^ 2]).await.unwrap();
    assert_eq!(frame(&mut stream).await, (10, b"hi".to_vec()));
    stream.write_all(&[0x81, 0x81, 0, 0, 0, 0, b'x', 0x88, 0x82, 0, 0, 0, 0, 3, 232]).await.unwrap();
    ends(stream).await;
}

#[tokio::test]
async fn every_format_of_a_watch_is_sent() {
    let cluster = Cluster::start().await;
    let at = version(&cluster.named(CONFIGMAPS, "a").await);
    // the older path, a table, partial metadata, protobuf without its own framing, the end
    let path = format!("/api/v1/watch/namespaces/default/configmaps/a?resourceVersion={at}&timeoutSeconds=1");
    ends(watch(&cluster, &path, "").await).await;
    let path = format!("{CONFIGMAPS}?watch=1&timeoutSeconds=1");
    for kind in ["Table", "PartialObjectMetadata"] {
        let accept = format!("Accept: application/json;as={kind};v=v1;g=meta.k8s.io\r\n");
        let mut stream = watch(&cluster, &path, &accept).await;
        assert_eq!(event(&mut stream).await["object"]["kind"], kind);
        ends(stream).await;
    }
    let mut stream = watch(&cluster, &path, "Accept: application/vnd.kubernetes.protobuf\r\n").await;
    let (opcode, payload) = frame(&mut stream).await;
    assert_eq!((opcode, &payload[..7]), (2, &b"\x0a\x05ADDED"[..]));
    ends(stream).await;
    // rejected requests and other requests get a plain response
    let (_, head) =
        handshake(&cluster, &TestUser::Admin, &format!("{CONFIGMAPS}?watch=1&limit=x"), HANDSHAKE).await;
    assert!(head.starts_with("http/1.1 400 "), "{head}");
    let (_, head) = handshake(&cluster, &TestUser::Admin, CONFIGMAPS, HANDSHAKE).await;
    assert!(head.starts_with("http/1.1 200 "), "{head}");
}

#[tokio::test]
async fn invalid_handshakes_are_rejected() {
    let cluster = Cluster::start().await;
    let path = format!("{CONFIGMAPS}?watch=1");
    for (headers, code) in [
        (HANDSHAKE.replace("Version: 13", "Version: 8"), 400),
        (HANDSHAKE.replace("Sec-WebSocket-Key", "X-Key"), 400),
        (HANDSHAKE.replace("Origin", "X-Origin"), 403),
        (HANDSHAKE.replace("http://page", "null"), 403),
        (format!("{HANDSHAKE}Sec-WebSocket-Protocol: a, b\r\n"), 400),
    ] {
        let (_, head) = handshake(&cluster, &TestUser::Admin, &path, &headers).await;
        assert!(head.starts_with(&format!("http/1.1 {code} ")), "{headers}: {head}");
    }
}

#[tokio::test]
async fn tokens_are_accepted_as_a_subprotocol() {
    let tokens = auth::Tokens::parse("secret,jane,1,system:masters").unwrap();
    let authentication = apiserver::authentication::Options { tokens, ..Default::default() };
    let cluster = Cluster::with(Options { authentication, ..Options::default() }).await;
    cluster.named(CONFIGMAPS, "a").await;
    let token = format!("base64url.bearer.authorization.k8s.io.{}", URL_SAFE_NO_PAD.encode("secret"));
    let path = format!("{CONFIGMAPS}?watch=1");
    let headers = format!("{HANDSHAKE}Sec-WebSocket-Protocol: {token}, base64.binary.k8s.io\r\n");
    let (mut stream, head) = handshake(&cluster, &TestUser::Anonymous, &path, &headers).await;
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    assert!(head.contains("sec-websocket-protocol: base64.binary.k8s.io\r\n"), "{head}");
    assert_eq!(event(&mut stream).await["object"]["metadata"]["name"], "a");
    // no common protocol, and an unknown token
    for protocols in [token.clone(), format!("{token}x, base64.binary.k8s.io")] {
        let headers = format!("{HANDSHAKE}Sec-WebSocket-Protocol: {protocols}\r\n");
        let (_, head) = handshake(&cluster, &TestUser::Anonymous, &path, &headers).await;
        assert!(head.starts_with("http/1.1 401 "), "{protocols}: {head}");
    }
}

#[tokio::test]
async fn initial_events_and_bookmarks_are_messages() {
    let cluster = Cluster::start().await;
    let at = version(&cluster.named(CONFIGMAPS, "a").await);
    cluster.named(CONFIGMAPS, "b").await;
    let mut streams = Vec::new();
    // without a version and from 0 initial events come first; from a version only new ones
    for (query, first) in [
        ("", &["a", "b"][..]),
        ("&resourceVersion=0", &["a", "b"]),
        (&format!("&resourceVersion={at}"), &["b"]),
    ] {
        let path = format!("{CONFIGMAPS}?watch=1&allowWatchBookmarks=true{query}");
        let mut stream = watch(&cluster, &path, "").await;
        for name in first {
            let event = event(&mut stream).await;
            assert_eq!(
                (&event["type"], &event["object"]["metadata"]["name"]),
                (&json!("ADDED"), &json!(name))
            );
        }
        streams.push(stream);
    }
    // the streams wait for nothing but time now, so it can be moved under them
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    for stream in &mut streams {
        let bookmark = event(stream).await;
        assert_eq!(
            (&bookmark["type"], &bookmark["object"]["kind"]),
            (&json!("BOOKMARK"), &json!("ConfigMap"))
        );
        assert!(version(&bookmark["object"]).parse::<u64>().unwrap() >= at.parse().unwrap());
    }
}

#[tokio::test]
async fn a_stopping_server_sends_close_frames() {
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "a").await;
    let mut stream = watch(&cluster, &format!("{CONFIGMAPS}?watch=1"), "").await;
    event(&mut stream).await;
    let stopping = tokio::spawn(cluster.stop());
    ends(stream).await;
    stopping.await.unwrap();
}

#[tokio::test]
async fn websockets_count_as_connections() {
    const PLACES: usize = 4;
    let limits = Limits { max_connections: PLACES as u32, ..Limits::default() };
    let cluster = Cluster::with(Options { limits, ..Options::default() }).await;
    let mut open = Vec::new();
    for _ in 0..PLACES {
        open.push(watch(&cluster, &format!("{CONFIGMAPS}?watch=1"), "").await);
    }
    let address = cluster.address;
    let waiting = tokio::spawn(async move { tests::fetch(address, &TestUser::Admin, "/version").await });
    for _ in 0..50 {
        for stream in &mut open {
            stream.write_all(&[0x89, 0x80, 1, 2, 3, 4]).await.unwrap();
            assert_eq!(frame(stream).await, (10, Vec::new()));
        }
    }
    assert!(!waiting.is_finished(), "there is no place for one more connection");
    drop(open.pop());
    assert_eq!(soon("a place", waiting).await.unwrap().0, 200);
}
