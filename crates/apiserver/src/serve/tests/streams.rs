//! Streams that are served without a listener.

use crate::serve::{Body, Handler, Limits, Peer, Shutdown, StreamServer};
use env::Simulated;
use http::{Request, Response};
use hyper::body::Incoming;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Answers with the connection and the protocol.
struct Naming;

impl Handler for Naming {
    async fn handle(self: &Arc<Self>, _: Request<Incoming>, peer: Arc<Peer>) -> Response<Body> {
        Response::new(Body::full(format!("{} {}", peer.connection, peer.http2)))
    }
}

/// All that the server sends to a client of this connection that sends these bytes.
async fn exchange(connection: u64, http2: bool, sent: &[u8]) -> Vec<u8> {
    let shutdown = Shutdown::new();
    let server =
        StreamServer::new(Arc::new(Naming), Limits::default(), shutdown.clone(), Simulated::new(0, 0));
    let (theirs, mut ours) = tokio::io::duplex(1 << 16);
    let remote = ([127, 0, 0, 1], 1).into();
    server.serve(theirs, Peer { connection, remote, certificate: None, http2 }).await;
    ours.write_all(sent).await.unwrap();
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains(&http2.to_string()) {
        assert!(ours.read_buf(&mut received).await.unwrap() > 0, "{received:?}");
    }
    // a client of HTTP/2 that answers no ping is not waited for
    shutdown.cut();
    drop(ours.read_to_end(&mut received).await);
    received
}

#[tokio::test]
async fn a_stream_is_served_as_a_connection() {
    let text = exchange(3, false, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\n3 false"), "{text}");
    // the preface, SETTINGS, and HEADERS of GET https://x/
    let head = b"\x82\x87\x84\x41\x01x";
    let frames =
        [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x06\x01\x05\0\0\0\x01"[..], head]
            .concat();
    let received = exchange(4, true, &frames).await;
    assert!(received.windows(6).any(|it| it == b"4 true"), "{received:?}");
}
