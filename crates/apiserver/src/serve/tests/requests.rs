use std::sync::Arc;

use http::Request;
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::setup::{BACKLOG, LARGE, large, serve};
use crate::serve::Limits;

#[tokio::test]
async fn both_protocols_answer() {
    let served = serve(Limits::default()).await;
    for http2 in [false, true] {
        let mut client = served.client(http2, None).await;
        assert_eq!(client.ask("/http2").await, (200, http2.to_string()));
        let echoed = client.post("/echo", "hello").await.unwrap();
        assert_eq!(echoed.headers()["content-length"], "5");
        assert_eq!(echoed.into_body().collect().await.unwrap().to_bytes(), "hello");
    }
}

#[tokio::test]
async fn a_client_that_offers_no_protocol_gets_http1() {
    let served = serve(Limits::default()).await;
    let mut stream = served.tls(None, &[]).await;
    stream.write_all(b"GET /http2 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("false"), "{answer}");
}

#[tokio::test]
async fn plain_http_is_told_what_it_is_talking_to() {
    let served = serve(Limits::default()).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 24];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.0 400 Bad Request");
}

#[tokio::test]
async fn a_large_answer_arrives_whole_and_with_its_length() {
    let served = serve(Limits::default()).await;
    let expected: Vec<u8> = large().flatten().collect();
    for http2 in [false, true] {
        let mut client = served.client(http2, None).await;
        let response = client.post("/large", "").await.unwrap();
        assert_eq!(response.headers()["content-length"], LARGE.to_string());
        assert!(response.into_body().collect().await.unwrap().to_bytes() == expected, "http2: {http2}");
    }
}

#[tokio::test]
async fn a_panic_is_a_500_and_the_connection_lives() {
    let served = serve(Limits::default()).await;
    for http2 in [false, true] {
        let mut client = served.client(http2, None).await;
        let (status, text) = client.ask("/panic").await;
        assert_eq!(status, 500);
        assert!(
            text.contains(r#""kind":"Status""#) && text.contains(r#""reason":"InternalError""#),
            "{text}"
        );
        assert!(!text.contains("asked to"), "{text}");
        assert_eq!(client.ask("/http2").await.0, 200);
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_seen_to() {
    let served = serve(Limits::default()).await;
    for http2 in [false, true] {
        let mut client = served.client(http2, None).await;
        let response = client.post("/broken", "").await;
        // the first piece may or may not make it out before the break
        if let Ok(response) = response {
            assert!(response.into_body().collect().await.is_err(), "http2: {http2}");
        }
    }
}

#[tokio::test]
async fn too_many_bytes_of_headers_are_refused() {
    let limits = Limits { max_header_bytes: 16 << 10, ..Limits::default() };
    let served = serve(limits).await;
    for http2 in [false, true] {
        for (bytes, status) in [(8 << 10, 200), (20 << 10, 431)] {
            let mut client = served.client(http2, None).await;
            let request = Request::get("https://localhost/echo")
                .header("host", "localhost")
                .header("x-long", "x".repeat(bytes))
                .body(Full::default())
                .unwrap();
            assert_eq!(client.send(request).await.unwrap().status(), status, "http2: {http2}");
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_request() {
    let mut served = serve(Limits::default()).await;
    for http2 in [false, true] {
        for path in ["/endless", "/stuck"] {
            let mut client = served.client(http2, None).await;
            let mut asked = Box::pin(client.post(path, ""));
            if path == "/endless" {
                drop(asked.as_mut().await.unwrap());
            } else {
                // long enough for the request to be on its way; it is given up wherever it is by then
                let waited =
                    tokio::time::timeout(std::time::Duration::from_millis(100), asked.as_mut()).await;
                assert!(waited.is_err());
            }
            drop(asked);
            drop(client);
            served.given_up.recv().await.unwrap();
        }
    }
}

#[tokio::test]
async fn too_many_that_wait_are_refused_unseen() {
    let served = serve(Limits { max_pending_requests: 2, ..Limits::default() }).await;
    let mut stuck = Vec::new();
    for http2 in [false, true] {
        let mut client = served.client(http2, None).await;
        stuck.push(tokio::spawn(async move { client.post("/stuck", "").await.is_ok() }));
    }
    let mut client = served.client(true, None).await;
    // the two are on their way; from when they are there, nobody else is let in
    while client.ask("/http2").await.0 == 200 {
        tokio::task::yield_now().await;
    }
    let refused = client.post("/http2", "").await.unwrap();
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"1".parse().unwrap()));
    stuck.iter().for_each(|one| one.abort());
    while client.ask("/http2").await.0 == 429 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn large_answers_hold_up_no_connections() {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    for http2 in [false, true] {
        let served = Arc::new(serve(Limits::default()).await);
        let mut held = tokio::task::JoinSet::new();
        for _ in 0..count {
            let served = served.clone();
            held.spawn(async move { served.client(http2, None).await.ask("/held").await });
        }
        served.hold.until_holding(count).await;
        // a new connection is accepted, secured and answered
        assert_eq!(served.client(true, None).await.ask("/http2").await.1, "true");
        assert_eq!(served.client(false, None).await.ask("/http2").await.1, "false");
        served.hold.release();
        for (status, text) in held.join_all().await {
            assert_eq!((status, text.len()), (200, (512 << 10) + 3));
            assert!(text.ends_with("end"));
        }
    }
}

#[tokio::test]
async fn a_stream_sends_what_it_begins_with_from_bulk_threads() {
    for http2 in [false, true] {
        let served = serve(Limits::default()).await;
        let mut client = served.client(http2, None).await;
        let mut body = client.post("/backlog", "").await.unwrap().into_body();
        let mut backlog = Vec::new();
        while backlog.len() < BACKLOG {
            backlog.extend_from_slice(body.frame().await.unwrap().unwrap().data_ref().unwrap());
        }
        assert!(backlog.iter().all(|it| *it == b'b'), "http2: {http2}");
        // soon afterwards it lives where other streams do
        let mut later = 0;
        while !body.frame().await.unwrap().unwrap().data_ref().unwrap().contains(&b'i') {
            later += 1;
            assert!(later < 100_000, "http2: {http2}");
        }
    }
}
