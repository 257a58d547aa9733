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
        assert_eq!(client.get("/http2").await, (200, http2.to_string()));
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
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert!(response.ends_with("false"), "{response}");
}

#[tokio::test]
async fn plain_http_gets_an_explanation() {
    let served = serve(Limits::default()).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut response = vec![0; 24];
    stream.read_exact(&mut response).await.unwrap();
    assert_eq!(response, b"HTTP/1.0 400 Bad Request");
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
        let (status, text) = client.get("/panic").await;
        assert_eq!(status, 500);
        assert!(
            text.contains(r#""kind":"Status""#) && text.contains(r#""reason":"InternalError""#),
            "{text}"
        );
        assert!(!text.contains("on request"), "{text}");
        assert_eq!(client.get("/http2").await.0, 200);
    }
}

#[tokio::test]
async fn a_broken_response_is_visible() {
    let served = serve(Limits::default()).await;
    for http2 in [false, true] {
        let mut client = served.client(http2, None).await;
        let response = client.post("/broken", "").await;
        // the first piece may or may not be sent before the break
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
            let mut request = Box::pin(client.post(path, ""));
            if path == "/endless" {
                drop(request.as_mut().await.unwrap());
            } else {
                // long enough for the request to be on its way; it is dropped wherever it is by then
                let waited =
                    tokio::time::timeout(std::time::Duration::from_millis(100), request.as_mut()).await;
                assert!(waited.is_err());
            }
            drop(request);
            drop(client);
            served.dropped.recv().await.unwrap();
        }
    }
}

#[tokio::test]
async fn requests_beyond_the_pending_limit_are_rejected() {
    let served = serve(Limits { max_pending_requests: 2, ..Limits::default() }).await;
    let mut stuck = Vec::new();
    for http2 in [false, true] {
        let mut client = served.client(http2, None).await;
        stuck.push(tokio::spawn(async move { client.post("/stuck", "").await.is_ok() }));
    }
    let mut client = served.client(true, None).await;
    // the two are on their way; once they have arrived, no other request is let in
    while client.get("/http2").await.0 == 200 {
        tokio::task::yield_now().await;
    }
    let refused = client.post("/http2", "").await.unwrap();
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"1".parse().unwrap()));
    stuck.iter().for_each(|one| one.abort());
    while client.get("/http2").await.0 == 429 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn large_responses_do_not_block_connections() {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    for http2 in [false, true] {
        let served = Arc::new(serve(Limits::default()).await);
        let mut held = tokio::task::JoinSet::new();
        for _ in 0..count {
            let served = served.clone();
            held.spawn(async move { served.client(http2, None).await.get("/held").await });
        }
        served.hold.until_holding(count).await;
        // a new connection is accepted, secured and answered
        assert_eq!(served.client(true, None).await.get("/http2").await.1, "true");
        assert_eq!(served.client(false, None).await.get("/http2").await.1, "false");
        served.hold.release();
        for (status, text) in held.join_all().await {
            assert_eq!((status, text.len()), (200, (512 << 10) + 3));
            assert!(text.ends_with("end"));
        }
    }
}

#[tokio::test]
async fn a_stream_sends_its_backlog_from_bulk_threads() {
    for http2 in [false, true] {
        let served = serve(Limits::default()).await;
        let mut client = served.client(http2, None).await;
        let mut body = client.post("/backlog", "").await.unwrap().into_body();
        let mut backlog = Vec::new();
        while backlog.len() < BACKLOG {
            backlog.extend_from_slice(body.frame().await.unwrap().unwrap().data_ref().unwrap());
        }
        assert!(backlog.iter().all(|it| *it == b'b'), "http2: {http2}");
        // afterwards it moves to its connection's task
        let mut later = 0;
        while !body.frame().await.unwrap().unwrap().data_ref().unwrap().contains(&b'i') {
            later += 1;
            assert!(later < 100_000, "http2: {http2}");
        }
    }
}
