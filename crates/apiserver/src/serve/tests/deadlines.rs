//! Slow connections. Deadlines are short, and the tests await the close itself.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::setup::serve;
use crate::serve::Limits;

fn short_limits() -> Limits {
    let short = Duration::from_millis(50);
    Limits { handshake_timeout: short, header_timeout: short, ..Limits::default() }
}

#[tokio::test]
async fn a_silent_connection_is_cut() {
    let served = serve(short_limits()).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn half_a_handshake_is_cut() {
    let served = serve(short_limits()).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(&[22, 3, 1]).await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn silence_after_the_handshake_is_cut() {
    let served = serve(Limits { handshake_timeout: Duration::from_secs(10), ..short_limits() }).await;
    for alpn in [&["h2"][..], &["http/1.1"], &[]] {
        let mut stream = served.tls(None, alpn).await;
        let mut received = Vec::new();
        // the cut itself: an end, or an error without a close_notify
        let _ = stream.read_to_end(&mut received).await;
    }
}

#[tokio::test]
async fn a_head_in_drips_is_cut() {
    let served = serve(Limits { handshake_timeout: Duration::from_secs(10), ..short_limits() }).await;
    for alpn in [&["h2"][..], &["http/1.1"]] {
        let (mut read, mut write) = tokio::io::split(served.tls(None, alpn).await);
        let first: &[u8] = if alpn[0] == "h2" { b"PRI * HT" } else { b"GET / HTTP/1.1\r\nx: " };
        write.write_all(first).await.unwrap();
        let dripping = async {
            // every drip meets the deadline; only their sum does not
            let mut drip = tokio::time::interval(Duration::from_millis(10));
            let byte: &[u8] = if alpn[0] == "h2" { b"" } else { b"x" };
            loop {
                drip.tick().await;
                if write.write_all(byte).await.is_err() || write.flush().await.is_err() {
                    break;
                }
            }
        };
        let mut received = Vec::new();
        tokio::select! {
            () = dripping => {}
            _ = read.read_to_end(&mut received) => {}
        }
    }
}

#[tokio::test]
async fn a_rest_between_requests_is_not_a_slow_head() {
    let served = serve(Limits { handshake_timeout: Duration::from_secs(10), ..short_limits() }).await;
    for http2 in [false, true] {
        let mut client = served.client(http2, None).await;
        assert_eq!(client.get("/http2").await.0, 200);
        // several deadlines long
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(client.get("/http2").await.0, 200);
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_a_busy_one_is_not() {
    let limits = Limits { idle_timeout: Duration::from_millis(50), ..Limits::default() };
    let served = serve(limits).await;
    for http2 in [false, true] {
        let mut busy = served.client(http2, None).await;
        let open = busy.post("/watch", "").await.unwrap();
        let mut idle = served.client(http2, None).await;
        assert_eq!(idle.get("/http2").await.0, 200);
        idle.closed().await;
        let mut open = open.into_body();
        use http_body_util::BodyExt;
        assert_eq!(open.frame().await.unwrap().unwrap().into_data().unwrap(), "first\n");
        drop(open);
    }
}
