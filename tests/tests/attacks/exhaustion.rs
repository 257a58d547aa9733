//! One client that tries to use up memory, log space or time of the server. Each test has a bound, and the administrator
//! is served meanwhile.

use super::arena::{Arena, Attacker};
use super::*;
use http::Method;
use tests::http2::{CONTINUATION, DATA, Frame, GOAWAY, HEADERS, Http2, RESET, get, get_headers, header};
use tests::{Cluster, Protocol, TestUser, escape, soon};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const JSON_PATCH: &str = "application/json-patch+json";
const END_HEADERS: u8 = 4;
const END_STREAM: u8 = 1;

fn owner() -> TestUser {
    Attacker::Owner.test_user()
}

async fn patch(arena: &Arena, operations: Value) -> tests::ApiResponse {
    let request = arena.cluster.request(Method::PATCH, &format!("{CONFIGMAPS}/settings"));
    request.body(operations).content_type(JSON_PATCH).user(&owner()).await
}

#[tokio::test]
async fn patches_have_limits() {
    let arena = Arena::start().await;
    let test = json!({"op": "test", "path": "/kind", "value": "ConfigMap"});
    patch(&arena, json!(vec![test; 10_001])).await.refused(413, "RequestEntityTooLarge");
    // every copy doubles the object
    let copies: Vec<Value> = (0..64)
        .flat_map(|n| {
            [
                json!({"op": "copy", "from": "/metadata", "path": format!("/metadata/a{n}")}),
                json!({"op": "copy", "from": "/metadata", "path": format!("/metadata/b{n}")}),
            ]
        })
        .collect();
    let refused = patch(&arena, json!(copies)).await;
    assert!(matches!(refused.status, 413 | 422), "{} {}", refused.status, refused.text());
    // insertions at the front of a list shift all of it
    let shifts = vec![json!({"op": "add", "path": "/metadata/finalizers/0", "value": "a.example/b"}); 9_000];
    let first = json!({"op": "add", "path": "/metadata/finalizers", "value": []});
    let refused = patch(&arena, json!([vec![first], shifts].concat())).await;
    assert!((400..500).contains(&refused.status), "{} {}", refused.status, refused.text());
    arena.is_unharmed().await;
}

#[tokio::test]
async fn compressed_bodies_are_not_expanded() {
    use std::io::Write;
    let arena = Arena::start().await;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    for _ in 0..1024 {
        encoder.write_all(&[b' '; 65_536]).unwrap();
    }
    let bomb = encoder.finish().unwrap();
    assert!(bomb.len() < 1 << 20);
    let request = arena.cluster.post(CONFIGMAPS, bomb).header("content-encoding", "gzip").user(&owner());
    let refused = request.await;
    assert!(matches!(refused.status, 400 | 415), "{} {}", refused.status, refused.text());
    arena.is_unharmed().await;
}

/// The number of samples in the metrics.
async fn samples(cluster: &Cluster) -> usize {
    let text = cluster.get("/metrics").await.code(200).text();
    text.lines().filter(|line| !line.starts_with('#')).count()
}

#[tokio::test]
async fn metrics_do_not_grow_with_names_of_a_client() {
    let arena = Arena::start().await;
    let send = async |n: usize| {
        let name = format!("x{n}");
        let (stranger, owner) = (Attacker::Stranger.test_user(), owner());
        let requests = [
            arena.cluster.get(&format!("/apis/{name}.example.com/v1/{name}s")).user(&stranger),
            arena.cluster.get(&format!("/apis/apps/{name}/namespaces/default/deployments")).user(&owner),
            arena.cluster.get(&format!("{CONFIGMAPS}/{name}/{name}")).user(&owner),
            arena.cluster.get(&format!("/{name}")).user(&stranger),
            arena.cluster.request(Method::from_bytes(name.as_bytes()).unwrap(), CONFIGMAPS).user(&owner),
            arena
                .cluster
                .get(CONFIGMAPS)
                .user(&owner)
                .header("user-agent", &name)
                .accept(&format!("application/{name}")),
            arena.cluster.get(&format!("{CONFIGMAPS}?dryRun={name}&fieldManager={name}")).user(&owner),
        ];
        for request in requests {
            request.await;
        }
    };
    // the first round makes the samples of what is there, as every request may
    for n in 0..2 {
        send(n).await;
    }
    let before = samples(&arena.cluster).await;
    for n in 2..40 {
        send(n).await;
    }
    assert_eq!(samples(&arena.cluster).await, before);
    arena.is_unharmed().await;
}

#[tokio::test]
async fn audit_events_do_not_grow_with_the_user_agent() {
    let arena = Arena::start().await;
    let agent = "a".repeat(100_000);
    let request = arena.cluster.get(SECRETS).user(&TestUser::Anonymous).header("user-agent", &agent);
    request.header("audit-id", "large").await.refused(403, "Forbidden");
    let log = arena.audit_log();
    let event = log.lines().rfind(|line| line.contains("\"auditID\":\"large\"")).unwrap();
    let event: Value = serde_json::from_str(event).unwrap();
    let recorded = event["userAgent"].as_str().unwrap();
    assert_eq!(recorded, format!("{}...TRUNCATED", "a".repeat(1024)));
}

#[tokio::test]
async fn selectors_of_one_client_delay_no_other() {
    let arena = Arena::start().await;
    for n in 0..200 {
        let labels = json!({"n": n.to_string()});
        arena.cluster.labelled(CONFIGMAPS, &format!("c{n}"), labels).await;
    }
    let values: Vec<String> = (1000..8_000).map(|n| n.to_string()).collect();
    let selector = escape(&format!("n in ({})", values.join(",")));
    let path = format!("{CONFIGMAPS}?labelSelector={selector}");
    let (reader, path) = (Attacker::Reader.test_user(), &path);
    let lists = (0..8).map(|_| {
        let request = arena.cluster.get(path).user(&reader);
        async move { request.await.code(200).json()["items"].as_array().unwrap().len() }
    });
    let (found, ()) = tokio::join!(futures_util::future::join_all(lists), arena.is_answering());
    assert_eq!(found, [0; 8]);
    arena.is_unharmed().await;
}

#[tokio::test]
async fn watches_of_one_client_end_with_its_connection() {
    let arena = Arena::start().await;
    let resources = arena.cluster.server.service.api.resources();
    let cache = &resources.get("v1", "configmaps").unwrap().collection.cache;
    let before = cache.watchers();
    let mut client = Http2::open_as(&arena.cluster, &owner()).await;
    let limit = client.max_streams.unwrap();
    let frames: Vec<Frame> = (0..=limit).map(|n| get(2 * n + 1, &format!("{CONFIGMAPS}?watch=1"))).collect();
    client.send(&frames).await.unwrap();
    // the one beyond the limit is refused
    let seen = client.until(|frame| frame.kind == RESET).await;
    assert_eq!(seen.last().unwrap().stream, 2 * limit + 1);
    arena.is_answering().await;
    assert!(cache.watchers() <= before + limit as usize);
    drop(client);
    soon("the end of the watches", async {
        while cache.watchers() > before {
            tokio::task::yield_now().await;
        }
    })
    .await;
    arena.is_unharmed().await;
}

/// The first frame that ends a stream or the connection; `None` if the connection ended without one.
async fn refusal(client: &mut Http2) -> Option<Frame> {
    loop {
        match client.next().await? {
            frame if frame.kind == GOAWAY || frame.stream == 1 => return Some(frame),
            _ => {}
        }
    }
}

#[tokio::test]
async fn compressed_headers_are_bounded() {
    let arena = Arena::start().await;
    let mut client = Http2::open_as(&arena.cluster, &TestUser::Anonymous).await;
    let mut block = get_headers("/version");
    // a field of nearly four kilobytes enters the table, and is repeated by a byte each
    let mut field = Vec::new();
    header(&mut field, "x", &"v".repeat(3_900));
    field[0] = 0x40;
    block.extend(field);
    block.extend([0xbe; 12_000]);
    let _ = client.send(&[Frame::new(HEADERS, END_HEADERS | END_STREAM, 1, block)]).await;
    let frame = refusal(&mut client).await;
    assert!(frame.is_none_or(|it| it.kind != HEADERS || it.payload.first() != Some(&0x88)));
    arena.is_unharmed().await;
}

#[tokio::test]
async fn empty_frames_without_end_are_the_end_of_the_connection() {
    let arena = Arena::start().await;
    let mut head = get_headers(CONFIGMAPS);
    // ":method: POST"
    head[0] = 0x83;
    for (first, empty) in [
        (Frame::new(HEADERS, END_HEADERS, 1, head.clone()), Frame::new(DATA, 0, 1, [])),
        (Frame::new(HEADERS, 0, 1, head.clone()), Frame::new(CONTINUATION, 0, 1, [])),
    ] {
        let mut client = Http2::open_as(&arena.cluster, &owner()).await;
        client.send(&[first]).await.unwrap();
        let kind = empty.kind;
        let seen = client.flood_until_closed(&vec![empty; 1000], 400).await;
        assert!(
            seen.iter().all(|it| it.kind != HEADERS || it.payload.first() != Some(&0x88)),
            "{kind}: {seen:?}"
        );
        arena.is_unharmed().await;
    }
}

#[tokio::test]
async fn a_websocket_message_is_not_stored() {
    let arena = Arena::start().await;
    let mut stream = arena.cluster.connect(&owner(), Protocol::Http1).await;
    let request = format!(
        "GET {CONFIGMAPS}?watch=1 HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Origin: https://localhost\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 101");
    // the head of a message of an exabyte, and then as much of it as the server takes
    let mut message = vec![0x82, 0xff];
    message.extend((1u64 << 60).to_be_bytes());
    message.extend([0; 4]);
    let (mut reading, mut writing) = tokio::io::split(stream);
    let pour = async {
        let _ = writing.write_all(&message).await;
        let piece = vec![0; 1 << 20];
        // more than any buffer: the server discards it or closes
        for _ in 0..64 {
            if writing.write_all(&piece).await.is_err() {
                break;
            }
        }
    };
    let read = async { tokio::io::copy(&mut reading, &mut tokio::io::sink()).await };
    tokio::select! { () = pour => {}, _ = read => {} }
    arena.is_answering().await;
}
