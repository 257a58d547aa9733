//! "Limits": what a request may be.

use super::*;
use apiserver::serve::Limits;
use std::time::Duration;
use tests::{Cluster, Options, Protocol};

const MIB: usize = 1024 * 1024;

/// A body of about this many bytes whose object is wrong only in being large.
fn large(bytes: usize) -> Value {
    json!({"metadata": {"name": "x"}, "data": {"k": "x".repeat(bytes)}})
}

#[tokio::test]
async fn a_body_has_three_mebibytes() {
    let cluster = Cluster::start().await;
    // taken, read, and refused for what it is
    cluster.post(CONFIGMAPS, large(3 * MIB - 1024)).await.refused(422, "Invalid");
    let status = cluster.post(CONFIGMAPS, large(3 * MIB)).await.refused(413, "RequestEntityTooLarge");
    assert!(status["message"].as_str().unwrap().contains("3145728"), "{status}");
    cluster.answers().await;
}

#[tokio::test]
async fn an_objects_data_has_one_mebibyte() {
    let cluster = Cluster::start().await;
    let status = cluster.post(CONFIGMAPS, large(MIB + 1)).await.refused(422, "Invalid");
    assert_eq!(status["details"]["causes"][0]["reason"], "FieldValueTooLong");
    cluster.create(CONFIGMAPS, large(MIB - 16)).await;
}

#[tokio::test]
async fn annotations_have_a_quarter_of_that() {
    let cluster = Cluster::start().await;
    let with = |bytes: usize| json!({"metadata": {"name": "x", "annotations": {"a": "x".repeat(bytes)}}});
    let status = cluster.post(CONFIGMAPS, with(256 * 1024)).await.refused(422, "Invalid");
    assert_eq!(fields(&status), ["metadata.annotations"]);
    cluster.create(CONFIGMAPS, with(256 * 1024 - 1)).await;
}

#[tokio::test]
async fn headers_have_a_limit() {
    let limits = Limits { max_header_bytes: 16 * 1024, ..Limits::default() };
    let cluster = Cluster::with(Options { limits, ..Options::default() }).await;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        cluster.get("/readyz").protocol(protocol).header("x-small", &"x".repeat(4 * 1024)).await.code(200);
        let large = cluster.get("/readyz").protocol(protocol).header("x-large", &"x".repeat(64 * 1024));
        // refused or cut off
        if let Ok(answer) = large.attempt().await {
            assert_eq!(answer.status, 431, "{}", answer.text());
        }
    }
    cluster.answers().await;
}

#[tokio::test]
async fn many_requests_share_a_connection() {
    let cluster = Cluster::start().await;
    let asks = (0..100).map(|_| {
        let ask = cluster.get(NAMESPACES);
        async move { ask.await.code(200) }
    });
    assert_eq!(futures_util::future::join_all(asks).await.len(), 100);
}

#[tokio::test]
async fn a_large_list_is_streamed_whole() {
    let cluster = Cluster::start().await;
    let text = "x".repeat(100_000);
    for n in 0..20 {
        let object = json!({"metadata": {"name": format!("c{n:02}")}, "data": {"k": text}});
        cluster.create(CONFIGMAPS, object).await;
    }
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let list = cluster.get(CONFIGMAPS).protocol(protocol).await.code(200);
        assert!(list.body.len() > 20 * 100_000);
        assert_eq!(names(&list.json()).len(), 20);
    }
}

#[tokio::test]
async fn idle_connections_are_closed() {
    use tokio::io::AsyncReadExt;
    let limits = Limits { idle_timeout: Duration::from_millis(300), ..Limits::default() };
    let cluster = Cluster::with(Options { limits, ..Options::default() }).await;
    let mut stream = cluster.connect(&tests::Who::Admin, Protocol::Http1).await;
    let mut rest = Vec::new();
    // an end with or without a farewell: the connection is closed either way
    let _ = tests::soon("the end of the connection", stream.read_to_end(&mut rest)).await;
    assert_eq!(rest, b"");
    cluster.answers().await;
}
