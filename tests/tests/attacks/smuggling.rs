//! Requests that two parsers could split or read in two ways.
//!
//! Every case is sent by a user who reads config maps of `default` but no secrets. A hidden second request never gets an
//! answer of its own, and nothing that HTTP forbids is served.

use super::arena::{Arena, TREASURE};
use super::inventory;
use super::*;
use tests::http2::{DATA, Frame, GOAWAY, HEADERS, Http2, RESET, header};
use tests::{Protocol, TestUser, authority, soon};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn reader() -> TestUser {
    TestUser::Certificate(authority().client("reader", "people"))
}

/// A case over HTTP/1.1: the bytes, and the status codes of all responses until the server closes.
struct Raw {
    name: &'static str,
    bytes: String,
    codes: &'static [u16],
}

fn raw(name: &'static str, bytes: impl Into<String>, codes: &'static [u16]) -> Raw {
    Raw { name, bytes: bytes.into(), codes }
}

/// A second request that hides in the first.
fn hidden() -> String {
    format!("GET {CONFIGMAPS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}

fn cases() -> Vec<Raw> {
    let post = |headers: &str, body: &str| {
        format!(
            "POST {CONFIGMAPS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}\r\n{body}"
        )
    };
    let get = |headers: &str| format!("GET {CONFIGMAPS} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    let hidden = hidden();
    let long = hidden.len();
    vec![
        raw(
            "two lengths",
            post(&format!("Content-Length: 0\r\nContent-Length: {long}\r\n"), &hidden),
            &[400],
        ),
        raw("a length in two numbers", post(&format!("Content-Length: 0, {long}\r\n"), &hidden), &[400]),
        raw("a length with a sign", post("Content-Length: +0\r\n", &hidden), &[400]),
        raw("a negative length", post("Content-Length: -1\r\n", &hidden), &[400]),
        raw("a length in hexadecimal", post("Content-Length: 0x10\r\n", &hidden), &[400]),
        raw("a length with a blank before its colon", post("Content-Length : 0\r\n", &hidden), &[400]),
        raw("a length that overflows", post("Content-Length: 18446744073709551616\r\n", &hidden), &[400]),
        raw(
            "chunks and a length",
            post(
                &format!("Content-Length: {}\r\nTransfer-Encoding: chunked\r\n", long + 5),
                &format!("0\r\n\r\n{hidden}"),
            ),
            &[403],
        ),
        raw(
            "a length and chunks",
            post(
                &format!("Transfer-Encoding: chunked\r\nContent-Length: {}\r\n", long + 5),
                &format!("0\r\n\r\n{hidden}"),
            ),
            &[403],
        ),
        raw(
            "chunks of an unknown name",
            post("Transfer-Encoding: xchunked\r\n", &format!("0\r\n\r\n{hidden}")),
            &[400],
        ),
        raw(
            "chunks that are not the last encoding",
            post("Transfer-Encoding: chunked, identity\r\n", &format!("0\r\n\r\n{hidden}")),
            &[400],
        ),
        raw(
            "chunks with a control character",
            post("Transfer-Encoding: \x0bchunked\r\n", &format!("0\r\n\r\n{hidden}")),
            &[400],
        ),
        raw(
            "chunks in HTTP/1.0",
            format!(
                "POST {CONFIGMAPS} HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"
            ),
            &[400],
        ),
        raw(
            "a chunk whose size overflows",
            post("Transfer-Encoding: chunked\r\n", &format!("FFFFFFFFFFFFFFFFF\r\n{hidden}")),
            &[403],
        ),
        raw(
            "a chunk with a negative size",
            post("Transfer-Encoding: chunked\r\n", &format!("-1\r\n{hidden}")),
            &[403],
        ),
        raw("a folded header", get("X-A: b\r\n Impersonate-User: admin\r\n"), &[400]),
        raw("a header without a name", get(": x\r\n"), &[400]),
        raw("a header with a zero byte", get("X-A: b\0c\r\n"), &[400]),
        raw("a header name with a blank", get("Impersonate User: admin\r\n"), &[400]),
        raw("a carriage return within a header", get("X-A: b\rImpersonate-User: admin\r\n"), &[400]),
        raw(
            "a request line with a second target",
            format!("GET {CONFIGMAPS} {SECRETS} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            &[400],
        ),
        raw(
            "a version that does not exist",
            format!("GET {CONFIGMAPS} HTTP/1.2\r\nHost: localhost\r\n\r\n"),
            &[400],
        ),
        raw(
            "the URL of another server",
            format!(
                "GET http://169.254.169.254{SECRETS} HTTP/1.1\r\nHost: 169.254.169.254\r\nConnection: close\r\n\r\n"
            ),
            &[403],
        ),
        raw(
            "the URL of another server beside a host",
            format!(
                "GET https://evil.example{SECRETS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            ),
            &[403],
        ),
        raw(
            "a tunnel to the loopback",
            "CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1:22\r\nConnection: close\r\n\r\n",
            &[403],
        ),
        raw(
            "an upgrade to HTTP/2 without TLS",
            get(
                "Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
            ),
            &[200],
        ),
        raw(
            "a user in a trailer",
            post(
                "Transfer-Encoding: chunked\r\nTrailer: Impersonate-User\r\nConnection: close\r\n",
                "0\r\nImpersonate-User: admin\r\nImpersonate-Group: system:masters\r\n\r\n",
            ),
            &[403],
        ),
        raw(
            "a body that is refused before it is read",
            post(&format!("Content-Length: {long}\r\nConnection: close\r\n"), &hidden),
            &[403],
        ),
        raw(
            "headers of a hop that hide credentials",
            format!(
                "GET {SECRETS} HTTP/1.1\r\nHost: localhost\r\nConnection: close, Authorization, Impersonate-User\r\nImpersonate-User: admin\r\n\r\n"
            ),
            &[403],
        ),
    ]
}

/// The status codes of the responses in these bytes.
fn codes(text: &str) -> Vec<u16> {
    let starts = text.match_indices("HTTP/1.");
    starts.filter_map(|(at, _)| text.get(at + 9..at + 12)?.parse().ok()).collect()
}

#[tokio::test]
async fn one_request_has_one_answer() {
    let arena = Arena::start().await;
    let before = arena.revision().await;
    let (cases, mut wrong) = (cases(), Vec::new());
    for case in &cases {
        let mut stream = arena.cluster.connect(&reader(), Protocol::Http1).await;
        let _ = stream.write_all(case.bytes.as_bytes()).await;
        let mut answer = Vec::new();
        // a reset is an end as well
        let _ = soon(case.name, stream.read_to_end(&mut answer)).await;
        let answer = String::from_utf8_lossy(&answer);
        if codes(&answer) != case.codes || answer.contains(TREASURE) {
            wrong.push(format!("{}: {:?} {answer}", case.name, codes(&answer)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(arena.revision().await, before);
    arena.is_unharmed().await;
    inventory::check("Smuggling over HTTP/1.1", &cases.iter().map(|it| it.name).collect::<Vec<_>>());
}

/// A header block of literal fields.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        header(&mut block, name, value);
    }
    block
}

#[tokio::test]
async fn forbidden_frames_are_not_served() {
    let arena = Arena::start().await;
    let request = |path: &str, more: &[(&str, &str)]| {
        let own = [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", path)];
        block(&[&own[..], more].concat())
    };
    let limit =
        |name: &'static str, block: Vec<u8>, data: Option<&[u8]>| (name, block, data.map(<[u8]>::to_vec));
    let version = "/version";
    let cases = vec![
        limit("a header of connections over HTTP/2", request(version, &[("connection", "upgrade")]), None),
        limit("chunks over HTTP/2", request(version, &[("transfer-encoding", "chunked")]), None),
        limit("a keep-alive header over HTTP/2", request(version, &[("keep-alive", "timeout=5")]), None),
        limit("an upgrade over HTTP/2", request(version, &[("upgrade", "websocket")]), None),
        limit("a second path over HTTP/2", request(version, &[(":path", SECRETS)]), None),
        limit("a second method over HTTP/2", request(version, &[(":method", "DELETE")]), None),
        limit(
            "a pseudo header after others over HTTP/2",
            request(version, &[("a", "b"), (":authority", "x")]),
            None,
        ),
        limit(
            "a pseudo header that does not exist over HTTP/2",
            request(version, &[(":protocol", "websocket")]),
            None,
        ),
        limit("a header in capitals over HTTP/2", request(version, &[("Impersonate-User", "admin")]), None),
        limit(
            "a header with a line break over HTTP/2",
            request(version, &[("a", "b\r\nimpersonate-user: admin")]),
            None,
        ),
        limit("a header with a zero byte over HTTP/2", request(version, &[("a", "b\0")]), None),
        limit("a path without a slash over HTTP/2", request("version", &[]), None),
        limit("an empty path over HTTP/2", request("", &[]), None),
        limit("a path with a line break over HTTP/2", request("/version\r\nx: y", &[]), None),
        limit("no method over HTTP/2", block(&[(":scheme", "https"), (":path", version)]), None),
        limit(
            "a length that is too short over HTTP/2",
            request(version, &[("content-length", "1")]),
            Some(b"longer"),
        ),
        limit(
            "a length that is too long over HTTP/2",
            request(version, &[("content-length", "99")]),
            Some(b"short"),
        ),
    ];
    let mut wrong = Vec::new();
    for (name, block, data) in &cases {
        let mut client = Http2::open_as(&arena.cluster, &reader()).await;
        let flags = if data.is_some() { END_HEADERS } else { END_HEADERS | END_STREAM };
        let mut frames = vec![Frame::new(HEADERS, flags, 1, block.clone())];
        frames.extend(data.clone().map(|data| Frame::new(DATA, END_STREAM, 1, data)));
        let _ = client.send(&frames).await;
        let answer = loop {
            match client.next().await {
                None => break None,
                Some(frame) if frame.kind == GOAWAY || frame.stream == 1 => break Some(frame),
                Some(_) => {}
            }
        };
        // a header block that begins with this byte has the status 200
        let is_served =
            answer.as_ref().is_some_and(|it| it.kind == HEADERS && it.payload.first() == Some(&0x88));
        let is_refused = answer.is_none_or(|it| matches!(it.kind, RESET | GOAWAY | HEADERS));
        if is_served || !is_refused {
            wrong.push(*name);
        }
    }
    assert!(wrong.is_empty(), "served: {wrong:?}");
    arena.is_unharmed().await;
    inventory::check("Smuggling over HTTP/2", &cases.iter().map(|it| it.0).collect::<Vec<_>>());
}
