//! "Limits" of requests and connections.

use super::*;
use apiserver::limits;
use apiserver::serve::Limits;
use std::time::Duration;
use tests::http2::{DATA, GOAWAY, Http2, RESET};
use tests::{Cluster, Options, Protocol, TestUser};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MIB: usize = 1024 * 1024;

/// A body of about this many bytes whose object is wrong only in being large.
fn large(bytes: usize) -> Value {
    json!({"metadata": {"name": "x"}, "data": {"k": "x".repeat(bytes)}})
}

#[tokio::test]
async fn a_body_has_three_mebibytes() {
    let cluster = Cluster::start().await;
    // accepted by size, and rejected by content
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
async fn annotations_have_a_quarter_of_a_mebibyte() {
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
    let limits = Limits { idle_timeout: Duration::from_millis(300), ..Limits::default() };
    let cluster = Cluster::with(Options { limits, ..Options::default() }).await;
    let mut stream = cluster.connect(&TestUser::Admin, Protocol::Http1).await;
    let mut rest = Vec::new();
    // an end with or without a farewell: the connection is closed either way
    let _ = tests::soon("the end of the connection", stream.read_to_end(&mut rest)).await;
    assert_eq!(rest, b"");
    cluster.answers().await;
}

fn requests(change: impl FnOnce(&mut limits::Options)) -> Options {
    let mut options = Options::default();
    // each number is a limit by itself
    options.fairness.on = false;
    change(&mut options.requests);
    options
}

/// A user with all permissions that is not in `system:masters`.
pub(super) async fn cluster_admin(cluster: &Cluster) -> TestUser {
    let binding = json!({
        "metadata": {"name": "alice"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}],
    });
    cluster.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    let alice = TestUser::Certificate(tests::authority().client("alice", "people"));
    // the policy follows a moment later
    while cluster.get(CONFIGMAPS).user(&alice).await.status != 200 {
        tokio::task::yield_now().await;
    }
    alice
}

/// A request that is being carried out for as long as the result is there: its body does not come.
pub(super) async fn held(cluster: &Cluster, who: &TestUser, method: &str) -> tests::Stream {
    let before = cluster.server.service.in_flight.total();
    let mut stream = cluster.connect(who, Protocol::Http1).await;
    let head = format!("{method} {CONFIGMAPS} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    while cluster.server.service.in_flight.total() == before {
        tokio::task::yield_now().await;
    }
    stream
}

#[tokio::test]
async fn requests_in_flight_are_limited() {
    let cluster = Cluster::with(requests(|limits| (limits.reading, limits.writing) = (2, 1))).await;
    let alice = cluster_admin(&cluster).await;
    let writing = held(&cluster, &alice, "POST").await;
    let refused = cluster.post(CONFIGMAPS, json!({"metadata": {"name": "a"}})).user(&alice).await.code(429);
    assert_eq!(refused.text(), "Too many requests, please try again later.\n");
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(refused.header("content-type"), "text/plain; charset=utf-8");
    cluster.delete("/nothing").user(&alice).await.code(429);
    // reading has places of its own, and masters always find one
    cluster.get(CONFIGMAPS).user(&alice).await.code(200);
    cluster.named(CONFIGMAPS, "by-a-master").await;
    let reading = [held(&cluster, &alice, "GET").await, held(&cluster, &alice, "GET").await];
    cluster.get(CONFIGMAPS).user(&alice).await.code(429);
    cluster.get("/version").user(&TestUser::Anonymous).await.code(429);
    cluster.read(CONFIGMAPS).await;
    // long-running requests do not count
    let mut watch = cluster.get(&format!("{CONFIGMAPS}?watch=1")).user(&alice).watch().await;
    watch.expect("ADDED", "by-a-master").await;
    drop(reading);
    while cluster.get(CONFIGMAPS).user(&alice).await.status == 429 {
        tokio::task::yield_now().await;
    }
    drop(writing);
}

#[tokio::test]
async fn zero_requests_in_flight_is_no_limit() {
    let cluster = Cluster::with(requests(|limits| (limits.reading, limits.writing) = (0, 0))).await;
    let alice = cluster_admin(&cluster).await;
    let mut open = Vec::new();
    for method in ["POST", "GET", "POST", "GET"] {
        open.push(held(&cluster, &alice, method).await);
    }
    cluster.get(CONFIGMAPS).user(&alice).await.code(200);
}

#[tokio::test]
async fn a_list_is_in_flight_until_it_is_sent() {
    let cluster = Cluster::with(requests(|limits| limits.reading = 1)).await;
    let alice = cluster_admin(&cluster).await;
    let text = "x".repeat(500_000);
    for n in 0..40 {
        let object = json!({"metadata": {"name": format!("c{n}")}, "data": {"k": text}});
        cluster.create(CONFIGMAPS, object).await;
    }
    // twenty unread megabytes: more than the buffers hold
    let mut stream = cluster.connect(&alice, Protocol::Http1).await;
    let head = format!("GET {CONFIGMAPS} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut start = [0; 15];
    stream.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 200 OK");
    cluster.get(NODES).user(&alice).await.code(429);
    let mut rest = Vec::new();
    let _ = tests::soon("the list", stream.read_to_end(&mut rest)).await;
    assert!(rest.len() > 40 * text.len());
    while cluster.get(NODES).user(&alice).await.status == 429 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_request_has_a_timeout() {
    let cluster = Cluster::with(requests(|limits| limits.request_timeout = Duration::from_millis(300))).await;
    let mut stream = held(&cluster, &TestUser::Admin, "POST").await;
    let mut answer = Vec::new();
    let _ = tests::soon("the answer", stream.read_to_end(&mut answer)).await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    assert!(answer.contains("Timeout: request did not complete within the allotted timeout"), "{answer}");
    // clients may ask for less, and not for more
    let path = |time: &str| format!("{CONFIGMAPS}?resourceVersion=999999&timeout={time}");
    cluster.get(&path("1ms")).await.refused(504, "Timeout");
    cluster.get(&path("1h")).await.refused(504, "Timeout");
    for wrong in ["soon", "10"] {
        cluster.get(&path(wrong)).await.refused(400, "BadRequest");
    }
}

#[tokio::test]
async fn a_watch_lasts_a_random_time_above_the_least() {
    let options = requests(|limits| {
        limits.min_request_timeout = Duration::from_secs(60);
        limits.request_timeout = Duration::from_secs(10);
    });
    let cluster = Cluster::with(Options { simulated_clock: true, ..options }).await;
    let mut ends = Vec::new();
    for _ in 0..4 {
        let mut watch = cluster.get(&format!("{CONFIGMAPS}?watch=1")).watch().await;
        ends.push(tokio::spawn(async move { assert_eq!(watch.next().await, None) }));
    }
    cluster.advance(Duration::from_secs(59));
    cluster.answers().await;
    assert!(ends.iter().all(|end| !end.is_finished()));
    cluster.advance(Duration::from_secs(61));
    for end in ends {
        end.await.unwrap();
    }
    // shorter and negative timeouts are used as given
    for seconds in ["1", "-1"] {
        let path = format!("{CONFIGMAPS}?watch=1&timeoutSeconds={seconds}");
        let mut watch = cluster.get(&path).watch().await;
        cluster.advance(Duration::from_secs(1));
        assert_eq!(watch.next().await, None);
    }
}

#[tokio::test]
async fn connections_are_closed_at_random_with_goaway() {
    let cluster = Cluster::with(requests(|limits| limits.goaway_chance = 1.0)).await;
    let mut client = Http2::open(&cluster).await;
    client.get(1, NAMESPACES).await;
    let seen =
        client.until(|frame| frame.kind == GOAWAY && frame.payload[..4] != [0x7f, 0xff, 0xff, 0xff]).await;
    let done = seen.iter().any(|frame| frame.kind == DATA && frame.stream == 1 && frame.flags & 1 == 1);
    let last = seen.last().unwrap();
    assert_eq!(&last.payload[4..8], [0; 4], "nothing is wrong");
    assert!(done || client.until(|frame| frame.flags & 1 == 1).await.last().unwrap().stream == 1);
    client.closed().await;
    // HTTP/1 has no GOAWAY
    let answer = cluster.get(NAMESPACES).protocol(Protocol::Http1).await.code(200);
    assert_eq!(answer.header("connection"), "");
    // and it is off by default
    let cluster = Cluster::start().await;
    let mut client = Http2::open(&cluster).await;
    for stream in (1..40).step_by(2) {
        client.get(stream, NAMESPACES).await;
        let seen = client.until(|frame| frame.stream == stream && frame.flags & 1 == 1).await;
        assert!(seen.iter().all(|frame| frame.kind != GOAWAY));
    }
}

#[tokio::test]
async fn the_streams_of_a_connection_are_limited() {
    let limits = Limits { max_concurrent_streams: 3, ..Limits::default() };
    let cluster = Cluster::with(Options { limits, ..Options::default() }).await;
    let mut client = Http2::open(&cluster).await;
    assert_eq!(client.max_streams, Some(3));
    for stream in [1, 3, 5, 7] {
        client.get(stream, &format!("{NAMESPACES}?watch=1")).await;
    }
    let seen = client.until(|frame| frame.kind == RESET).await;
    let refused = seen.last().unwrap();
    assert_eq!((refused.stream, &refused.payload[..]), (7, &[0, 0, 0, 7][..]), "refused, to be tried again");
    cluster.answers().await;
}

#[tokio::test]
async fn long_running_responses_can_be_throttled() {
    let limits = Limits { stream_bytes_per_second: 20_000, ..Limits::default() };
    let cluster = Cluster::with(Options { limits, ..Options::default() }).await;
    for n in 0..6 {
        let object = json!({"metadata": {"name": format!("c{n}")}, "data": {"k": "x".repeat(5_000)}});
        cluster.create(CONFIGMAPS, object).await;
    }
    let began = tokio::time::Instant::now();
    let mut watch = cluster.get(&format!("{CONFIGMAPS}?watch=1")).watch().await;
    for n in 0..6 {
        watch.expect("ADDED", &format!("c{n}")).await;
    }
    // five pieces of more than five kilobytes are paid for before the sixth
    assert!(began.elapsed() >= Duration::from_millis(1250), "{:?}", began.elapsed());
    // other responses are not throttled
    assert!(cluster.get(CONFIGMAPS).await.code(200).body.len() > 30_000);
}

#[tokio::test]
async fn history_is_kept_for_the_configured_time() {
    let cluster = Cluster::with(requests(|limits| limits.history = Duration::from_secs(20))).await;
    let old = version(&cluster.named(CONFIGMAPS, "a").await);
    cluster.named(CONFIGMAPS, "b").await;
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={old}");
    cluster.advance(Duration::from_secs(15));
    cluster.named(CONFIGMAPS, "c").await;
    cluster.get(&path).watch().await.expect("ADDED", "b").await;
    cluster.advance(Duration::from_secs(15));
    cluster.named(CONFIGMAPS, "d").await;
    assert_eq!(cluster.get(&path).watch().await.some().await["object"]["code"], 410);
}
