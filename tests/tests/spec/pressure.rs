//! Clients that take more than their share, or nothing of what they are sent: bounded, cut off, and others are served
//! meanwhile.

use super::*;
use apiserver::limits;
use apiserver::serve::Limits;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tests::http2::{
    CONTINUATION, Frame, GOAWAY, HEADERS, Http2, PING, PRIORITY, RESET, SETTINGS, WINDOW_UPDATE, get,
    get_headers, header,
};
use tests::{Cluster, Options, Protocol, Stream, TestUser, soon};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The HTTP/2 error code `ENHANCE_YOUR_CALM`.
const ENHANCE_YOUR_CALM: u32 = 11;
/// A type of frames that the protocol does not have.
const UNKNOWN: u8 = 99;

fn within(send_timeout: Duration) -> Options {
    Options { limits: Limits { send_timeout, ..Limits::default() }, ..Options::default() }
}

/// Twenty megabytes: more than the buffers to a client that does not read.
async fn filled(cluster: &Cluster) {
    let text = "x".repeat(500_000);
    for n in 0..40 {
        let object = json!({"metadata": {"name": format!("c{n:02}")}, "data": {"k": text}});
        cluster.create(CONFIGMAPS, object).await;
    }
}

async fn nothing_under_way(cluster: &Cluster) {
    while cluster.server.service.in_flight.total() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn until_closed(stream: &mut Stream) -> Vec<u8> {
    let mut all = Vec::new();
    // a reset is an end as well
    let _ = soon("the end of the connection", stream.read_to_end(&mut all)).await;
    all
}

/// Waits until so many connections were closed for misbehaviour, by the log.
async fn odd(cluster: &Cluster, at_least: u64) {
    let counted = || cluster.server.service.metrics.protocol_violations.get();
    soon("what clients do wrong is counted", async {
        while counted() < at_least {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// The reason in a farewell, if there was one.
fn reason(seen: &[Frame]) -> Option<u32> {
    let farewell = seen.iter().rfind(|frame| frame.kind == GOAWAY)?;
    Some(u32::from_be_bytes(farewell.payload[4..8].try_into().unwrap()))
}

/// Sends the same again and again, reading nothing, until the server has enough or takes no more for now.
async fn flood(client: &mut Http2, frames: &[Frame], times: usize) {
    for _ in 0..times {
        match tokio::time::timeout(Duration::from_secs(2), client.send(frames)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

#[tokio::test]
async fn an_unread_list_is_cut_off() {
    let cluster = Cluster::with(within(Duration::from_millis(300))).await;
    filled(&cluster).await;
    let mut lazy = cluster.connect(&TestUser::Admin, Protocol::Http1).await;
    let head = format!("GET {CONFIGMAPS} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    lazy.write_all(head.as_bytes()).await.unwrap();
    // over HTTP/2 the connection lives, but the windows stay shut
    let mut shut = Http2::open(&cluster).await;
    shut.get(1, CONFIGMAPS).await;
    shut.until(|frame| frame.kind == HEADERS).await;
    assert!(cluster.server.service.in_flight.total() > 0);
    soon("the places of the lazy", nothing_under_way(&cluster)).await;
    let got = until_closed(&mut lazy).await;
    assert!(got.starts_with(b"HTTP/1.1 200 OK") && got.len() < 20_000_000, "{}", got.len());
    shut.closed().await;
    odd(&cluster, 2).await;
    cluster.answers().await;
}

#[tokio::test]
async fn a_watch_that_is_not_read_loses_its_connection() {
    let cluster = Cluster::with(within(Duration::from_millis(300))).await;
    let mut lazy = cluster.connect(&TestUser::Admin, Protocol::Http1).await;
    let head = format!("GET {CONFIGMAPS}?watch=1 HTTP/1.1\r\nhost: localhost\r\n\r\n");
    lazy.write_all(head.as_bytes()).await.unwrap();
    let resources = cluster.server.service.api.resources();
    let cache = &resources.get("v1", "configmaps").unwrap().collection.cache;
    while cache.watchers() == 0 {
        tokio::task::yield_now().await;
    }
    filled(&cluster).await;
    let gone = async {
        while cache.watchers() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon("the end of the watch", gone).await;
    until_closed(&mut lazy).await;
    cluster.answers().await;
}

#[tokio::test]
async fn idle_connections_are_closed_near_the_limit() {
    let limits = Limits { max_connections: 40, ..Limits::default() };
    let cluster = Cluster::with(Options { limits, ..Options::default() }).await;
    let mut busy = cluster.get(&format!("{CONFIGMAPS}?watch=1")).watch().await;
    let mut idle = Vec::new();
    for n in 0..120 {
        let protocol = if n % 2 == 0 { Protocol::Http1 } else { Protocol::Http2 };
        idle.push(cluster.connect(&TestUser::Anonymous, protocol).await);
    }
    cluster.answers().await;
    // connections with requests stay open
    cluster.named(CONFIGMAPS, "a").await;
    busy.expect("ADDED", "a").await;
    assert!(idle.len() == 120);
}

#[tokio::test]
async fn requests_that_are_reset_at_once() {
    let cluster = Cluster::start().await;
    let mut client = Http2::open(&cluster).await;
    let cancel = |stream| Frame::new(RESET, 0, stream, [0, 0, 0, 8]);
    'rounds: for round in 0..200u32 {
        let streams = (0..50).map(|n| 2 * (round * 50 + n) + 1);
        let frames: Vec<_> = streams.flat_map(|stream| [get(stream, CONFIGMAPS), cancel(stream)]).collect();
        if client.send(&frames).await.is_err() {
            break 'rounds;
        }
    }
    // reset or served: no stream is left
    let farewell = tokio::time::timeout(Duration::from_secs(5), client.closed()).await;
    if let Ok(seen) = farewell {
        odd(&cluster, u64::from(reason(&seen) == Some(ENHANCE_YOUR_CALM))).await;
        assert!(reason(&seen).is_none_or(|why| why == ENHANCE_YOUR_CALM), "{seen:?}");
    }
    soon("an end of all requests", nothing_under_way(&cluster)).await;
    cluster.answers().await;
}

#[tokio::test]
async fn pings_and_settings_without_end() {
    let cluster = Cluster::with(within(Duration::from_millis(500))).await;
    let pings: Vec<_> = (0..1000).map(|n: u64| Frame::new(PING, 0, 0, n.to_be_bytes())).collect();
    let settings: Vec<_> = (0..1000).map(|_| Frame::new(SETTINGS, 0, 0, [0, 4, 0, 1, 0, 0])).collect();
    for frames in [pings, settings] {
        let mut client = Http2::open(&cluster).await;
        let flooding = flood(&mut client, &frames, 50);
        let meanwhile = async {
            for n in 0..20 {
                cluster.get(NAMESPACES).protocol(Protocol::Http1).await.code(200);
                if n % 5 == 0 {
                    cluster.read(NAMESPACES).await;
                }
            }
        };
        tokio::join!(flooding, meanwhile);
        // unread responses are bounded: the server stops reading, and then closes
        drop(client);
        cluster.answers().await;
    }
}

#[tokio::test]
async fn control_frames_without_end_are_the_end_of_the_connection() {
    let cluster = Cluster::start().await;
    let frames = [
        Frame::new(SETTINGS, 0, 0, [0, 4, 0, 1, 0, 0]),
        Frame::new(PING, 0, 0, [0; 8]),
        Frame::new(WINDOW_UPDATE, 0, 0, [0, 0, 0, 1]),
        Frame::new(PRIORITY, 0, 1, [0, 0, 0, 0, 1]),
        Frame::new(UNKNOWN, 0, 0, []),
    ];
    for (nth, frame) in frames.into_iter().enumerate() {
        let mut client = Http2::open(&cluster).await;
        // a proper client is among them
        client.get(1, "/version").await;
        client.until(|seen| seen.stream == 1 && seen.flags & 1 == 1).await;
        let seen = client.flood_until_closed(&vec![frame.clone(); 1000], 200).await;
        assert_eq!(reason(&seen), Some(ENHANCE_YOUR_CALM), "{frame:?}");
        odd(&cluster, nth as u64 + 1).await;
    }
    cluster.answers().await;
}

#[tokio::test]
async fn headers_without_end() {
    let cluster = Cluster::start().await;
    let mut client = Http2::open(&cluster).await;
    // a block that goes on in further frames and never ends
    let mut block = Vec::new();
    for n in 0..200 {
        header(&mut block, &format!("x-{n}"), &"v".repeat(70));
    }
    let first = Frame::new(HEADERS, 1, 1, get_headers("/version"));
    client.send(&[first]).await.unwrap();
    let more = vec![Frame::new(CONTINUATION, 0, 1, block.clone()); 20];
    flood(&mut client, &more, 100).await;
    let seen = client.closed().await;
    assert!(reason(&seen).is_none_or(|why| why != 0), "{seen:?}");
    // many small ones in one request
    for (count, protocol) in [(5_000, Protocol::Http1), (60_000, Protocol::Http1)] {
        let mut stream = cluster.connect(&TestUser::Admin, protocol).await;
        let headers: String = (0..count).map(|n| format!("x-{n}: v\r\n")).collect();
        let request = format!("GET /version HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
        let _ = stream.write_all(request.as_bytes()).await;
        let answer = until_closed(&mut stream).await;
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431 "), "{count}");
    }
    odd(&cluster, 3).await;
    cluster.answers().await;
}

#[tokio::test]
async fn bodies_without_end() {
    let requests = limits::Options { request_timeout: Duration::from_secs(1), ..limits::Options::default() };
    let cluster = Cluster::with(Options { requests, ..Options::default() }).await;
    let head = format!(
        "POST {CONFIGMAPS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         transfer-encoding: chunked\r\n\r\n"
    );
    // fast: refused when it is too much
    let mut fast = cluster.connect(&TestUser::Admin, Protocol::Http1).await;
    fast.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(65_536));
    let (mut reading, mut writing) = tokio::io::split(fast);
    let pouring = async { while writing.write_all(chunk.as_bytes()).await.is_ok() {} };
    let mut answer = Vec::new();
    let read = async {
        let _ = soon("the refusal", reading.read_to_end(&mut answer)).await;
    };
    tokio::select! { () = pouring => {}, () = read => {} }
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1.1 413 "),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    // slow: out of time, however diligently it drips
    let slow = cluster.connect(&TestUser::Admin, Protocol::Http1).await;
    let (mut reading, mut writing) = tokio::io::split(slow);
    writing.write_all(head.as_bytes()).await.unwrap();
    let dripping = async {
        loop {
            if writing.write_all(b"1\r\n \r\n").await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let mut start = [0; 13];
    tokio::select! {
        () = dripping => {}
        read = reading.read_exact(&mut start) => drop(read.unwrap()),
    }
    assert_eq!(&start, b"HTTP/1.1 504 ");
    soon("an end of all requests", nothing_under_way(&cluster)).await;
    cluster.answers().await;
}

#[tokio::test]
async fn queries_that_are_far_too_long() {
    let cluster = Cluster::start().await;
    let long = "x".repeat(60_000);
    // as long as an address may be: work in proportion
    for query in [
        format!("labelSelector={long}"),
        format!("fieldSelector=metadata.name={long}"),
        format!("continue={long}"),
        format!("exclude={long}"),
        "a=b&".repeat(15_000),
        "labelSelector=a&".repeat(4_000),
        "exclude=e&".repeat(6_000),
    ] {
        for (path, protocol) in [(CONFIGMAPS, Protocol::Http1), ("/readyz", Protocol::Http2)] {
            let answer = cluster.get(&format!("{path}?{query}")).protocol(protocol).await;
            let fits = matches!(answer.status, 200 | 400 | 414);
            assert!(fits, "{} {path} {}", answer.status, &query[..20]);
        }
    }
    // longer ones are no addresses
    for bytes in [70_000, 900_000, 3_000_000] {
        let mut stream = cluster.connect(&TestUser::Admin, Protocol::Http1).await;
        let request = format!("GET {CONFIGMAPS}?a={} HTTP/1.1\r\nhost: localhost\r\n\r\n", "x".repeat(bytes));
        let _ = stream.write_all(request.as_bytes()).await;
        let answer = until_closed(&mut stream).await;
        let head = String::from_utf8_lossy(&answer[..answer.len().min(13)]).into_owned();
        assert!(matches!(&*head, "" | "HTTP/1.1 414 " | "HTTP/1.1 431 "), "{bytes}: {head}");
    }
    cluster.answers().await;
}

#[tokio::test]
async fn overload_is_rejected_fairly() {
    for fair in [false, true] {
        let mut options = Options::default();
        (options.requests.reading, options.requests.writing) = (4, 2);
        options.fairness.on = fair;
        overloaded(options).await;
    }
}

async fn overloaded(options: Options) {
    let cluster = std::sync::Arc::new(Cluster::with(options).await);
    let alice = super::limits::cluster_admin(&cluster).await;
    let is_over = std::sync::Arc::new(AtomicBool::new(false));
    let mut crowd = tokio::task::JoinSet::new();
    for worker in 0..30 {
        let (cluster, alice, is_over) = (cluster.clone(), alice.clone(), is_over.clone());
        crowd.spawn(async move {
            let (mut done, mut refused) = (0, 0);
            for n in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let object = json!({"metadata": {"name": format!("w{worker}-{n}")}});
                let status = match worker % 2 {
                    0 => cluster.post(CONFIGMAPS, object).user(&alice).await.status,
                    _ => cluster.get(CONFIGMAPS).user(&alice).await.status,
                };
                match status {
                    200 | 201 => done += 1,
                    429 => refused += 1,
                    other => panic!("{other}"),
                }
            }
            (done, refused)
        });
    }
    // the administrator is served all the time, reading and writing
    for nth in 0..10 {
        cluster.named(CONFIGMAPS, &format!("admin-{nth}")).await;
        cluster.read(&format!("{CONFIGMAPS}/admin-{nth}")).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let (done, refused) = crowd
        .join_all()
        .await
        .into_iter()
        .fold((0, 0), |all: (u32, u32), one| (all.0 + one.0, all.1 + one.1));
    assert!(done > 0, "{done} done, {refused} refused");
    // as soon as it is over all is as before
    soon("an end of all requests", nothing_under_way(&cluster)).await;
    cluster.get(CONFIGMAPS).user(&alice).await.code(200);
    cluster.post(CONFIGMAPS, json!({"metadata": {"name": "after"}})).user(&alice).await.code(201);
}
