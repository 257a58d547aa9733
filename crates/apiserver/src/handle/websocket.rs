//! Watches and logs over a WebSocket (RFC 6455): each event is one message, text or binary by its encoding; a log is sent
//! in pieces, binary or in base64 by the protocol that the client requests, after an empty message.
//!
//! Invariants: the watch is authorized and started like any other before the upgrade, and ends with the
//! connection. Messages of clients are read and dropped; pings are answered. A client that reads nothing for
//! a while is cut. At the end of the watch, and when the server stops, the connection is closed with a close
//! frame. An upgraded connection keeps its permit until it is closed.

use super::plain_text::text;
use crate::authentication::is_websocket;
use crate::request::{RequestInfo, Target};
use crate::serve::{Body, Phase, Shutdown};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use names::streams::{BINARY, BINARY_BASE64};
use schema::url;
use std::io;
use streams::websocket::frame::{Frame, NORMAL_CLOSURE, Opcode, PROTOCOL_ERROR, accept_key, write};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// The longest piece of a log in a message.
const LOG_PIECE: usize = 2048;

/// Length prefix of protobuf watch frames, which WebSocket frames replace.
const LENGTH_PREFIX: usize = 4;

/// A response that can be sent over a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Watch,
    Log,
}

/// The messages of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Messages {
    /// An event each, as text.
    TextEvents,
    /// An event each, without its length prefix.
    BinaryEvents,
    Log,
    Base64Log,
}

impl Messages {
    fn opcode(self) -> Opcode {
        match self {
            Messages::TextEvents | Messages::Base64Log => Opcode::Text,
            Messages::BinaryEvents | Messages::Log => Opcode::Binary,
        }
    }

    fn is_log(self) -> bool {
        matches!(self, Messages::Log | Messages::Base64Log)
    }
}

/// The content to send after an upgrade: a watch or a log, if the client requests it.
pub(super) fn upgraded_content(
    info: &RequestInfo,
    parts: &Parts,
    response: &Response<Body>,
) -> Option<Content> {
    let is_log = |target: &Target| (&*target.resource, &*target.subresource) == ("pods", "log");
    let content = match info.verb {
        "watch" if matches!(response.body(), Body::Stream(_) | Body::Full(_)) => Content::Watch,
        "get" if info.target.as_ref().is_some_and(is_log) => Content::Log,
        _ => return None,
    };
    let is_upgrade = parts.headers.contains_key(header::UPGRADE)
        && parts.method == Method::GET
        && parts.version == Version::HTTP_11
        && response.status() == StatusCode::OK
        && is_websocket(&parts.headers);
    is_upgrade.then_some(content)
}

/// Responds with 101, and sends the body over the connection.
pub(super) fn switch(
    content: Content,
    parts: &Parts,
    token_prefix: &str,
    response: Response<Body>,
    shutdown: &Shutdown,
) -> Response<Body> {
    let headers = match handshake(content, &parts.headers, token_prefix) {
        Ok(headers) => headers,
        Err(refused) => return *refused,
    };
    let Some(upgrade) = parts.extensions.get::<OnUpgrade>().cloned() else { return response };
    let media = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let protocol = headers.get(header::SEC_WEBSOCKET_PROTOCOL);
    let messages = match content {
        Content::Watch if media.is_some_and(|it| it.starts_with("application/json")) => Messages::TextEvents,
        Content::Watch => Messages::BinaryEvents,
        Content::Log if protocol.is_some_and(|it| it == BINARY_BASE64) => Messages::Base64Log,
        Content::Log => Messages::Log,
    };
    let (body, shutdown) = (response.into_body(), shutdown.clone());
    tokio::spawn(async move {
        let sent = async {
            let connection = upgrade.await.map_err(io::Error::other)?;
            send(TokioIo::new(connection), body, messages, shutdown.wait_for_stop()).await
        };
        tokio::select! {
            sent = sent => sent.unwrap_or_else(|why| tracing::debug!(%why, "a WebSocket broke")),
            () = shutdown.wait_for(Phase::Cut) => {}
        }
    });
    let mut switched = Response::new(Body::Empty);
    *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *switched.headers_mut() = headers;
    switched
}

/// The headers of the response, or a refusal.
fn handshake(
    content: Content,
    request: &HeaderMap,
    token_prefix: &str,
) -> Result<HeaderMap, Box<Response<Body>>> {
    let refused = |code, why: &str| {
        let mut refused = text(code, why.to_owned());
        refused.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        Box::new(refused)
    };
    let text = |name| request.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    if text(header::SEC_WEBSOCKET_VERSION) != Some("13") {
        let mut bad = refused(400, "missing or bad WebSocket Version");
        bad.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return Err(bad);
    }
    let Some(key) = text(header::SEC_WEBSOCKET_KEY).filter(|key| !key.is_empty()) else {
        return Err(refused(400, "mismatch challenge/response"));
    };
    let has_origin = |origin: &str| origin != "null" && url::parse(origin).is_ok();
    if content == Content::Watch && !text(header::ORIGIN).is_some_and(has_origin) {
        return Err(refused(403, ""));
    }
    let lists = request.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|it| it.to_str().ok());
    let protocols = lists.flat_map(|list| list.split(',')).map(str::trim);
    // a token is not a protocol
    let protocols = protocols.filter(|it| !it.is_empty() && !it.starts_with(token_prefix));
    let protocols: Vec<&str> = protocols.collect();
    let protocol = match (content, &*protocols) {
        (_, []) => None,
        (Content::Watch, [one]) => Some(*one),
        (Content::Watch, _) => return Err(refused(400, "")),
        (Content::Log, all) => {
            let known = all.iter().find(|it| [BINARY, BINARY_BASE64].contains(it));
            Some(*known.ok_or_else(|| refused(403, ""))?)
        }
    };
    let mut headers = HeaderMap::new();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.extend(HeaderValue::try_from(accept_key(key)).ok().map(|it| (header::SEC_WEBSOCKET_ACCEPT, it)));
    let protocol = protocol.and_then(|it| HeaderValue::from_str(it).ok());
    headers.extend(protocol.map(|it| (header::SEC_WEBSOCKET_PROTOCOL, it)));
    Ok(headers)
}

/// Sends each piece of a body as a message, until the body or the connection ends, or the server stops.
async fn send(
    connection: impl AsyncRead + AsyncWrite,
    mut body: Body,
    messages: Messages,
    stop: impl Future<Output = ()>,
) -> Result<(), io::Error> {
    let (reader, mut writer) = tokio::io::split(connection);
    let (controls, mut replies) = mpsc::channel(1);
    let reading = read(reader, controls);
    tokio::pin!(reading, stop);
    let mut is_open = true;
    if messages.is_log() {
        // the client sees that the stream is there before the container writes
        write(&mut writer, messages.opcode(), &[]).await?;
    }
    loop {
        tokio::select! {
            // control frames of the client come first
            biased;
            Some((opcode, payload)) = replies.recv() => {
                write(&mut writer, opcode, &payload).await?;
                if opcode == Opcode::Close {
                    return writer.shutdown().await;
                }
            }
            ended = &mut reading, if is_open => {
                ended?;
                is_open = false;
            }
            piece = body.frame() => match piece {
                Some(Ok(frame)) => {
                    let data = frame.into_data().unwrap_or_default();
                    write_messages(&mut writer, messages, &data).await?;
                }
                Some(Err(why)) => return Err(why),
                None => break,
            },
            () = &mut stop => break,
        }
    }
    write(&mut writer, Opcode::Close, &NORMAL_CLOSURE.to_be_bytes()).await?;
    writer.shutdown().await
}

/// Writes a piece of a body.
async fn write_messages(
    writer: &mut (impl AsyncWrite + Unpin),
    messages: Messages,
    data: &[u8],
) -> Result<(), io::Error> {
    let opcode = messages.opcode();
    match messages {
        Messages::TextEvents => write(writer, opcode, data).await?,
        Messages::BinaryEvents => write(writer, opcode, &data[LENGTH_PREFIX.min(data.len())..]).await?,
        Messages::Log | Messages::Base64Log => {
            for piece in data.chunks(LOG_PIECE) {
                match messages {
                    Messages::Base64Log => write(writer, opcode, STANDARD.encode(piece).as_bytes()).await?,
                    _ => write(writer, opcode, piece).await?,
                }
            }
        }
    }
    Ok(())
}

/// Reads frames of the client and queues replies, until the client closes the connection.
async fn read(
    mut reader: impl AsyncRead + Unpin,
    replies: mpsc::Sender<(Opcode, Bytes)>,
) -> Result<(), io::Error> {
    // the receiver of replies lives as long as this future
    let code = loop {
        let Some(mut frame) = Frame::read(&mut reader).await? else { break PROTOCOL_ERROR };
        match frame.opcode {
            Some(Opcode::Close) => break NORMAL_CLOSURE,
            Some(Opcode::Ping) => {
                let payload = frame.payload().await?;
                let _ = replies.send((Opcode::Pong, payload.into())).await;
            }
            _ => frame.skip().await?,
        }
    };
    let _ = replies.send((Opcode::Close, Bytes::copy_from_slice(&code.to_be_bytes()))).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
        let (mask, length) = ([1, 2, 3, 4], u8::try_from(payload.len()).unwrap());
        let payload = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
        [&[0x80 | opcode, 0x80 | length][..], &mask].concat().into_iter().chain(payload).collect()
    }

    /// The bytes that a client receives after it sent these.
    async fn received(sent: Vec<u8>, body: Body, messages: Messages) -> Vec<u8> {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        client.write_all(&sent).await.unwrap();
        let served = tokio::spawn(send(server, body, messages, std::future::pending()));
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        served.await.unwrap().unwrap();
        received
    }

    fn events(events: &[&'static [u8]]) -> Body {
        Body::stream(futures_util::stream::iter(
            events.iter().copied().map(Bytes::from_static).collect::<Vec<_>>(),
        ))
    }

    #[tokio::test]
    async fn pieces_are_messages_and_the_end_is_a_close_frame() {
        let got = received(Vec::new(), events(&[b"one\n", &[b'x'; 300]]), Messages::TextEvents).await;
        let expected = [b"\x81\x04one\n\x81\x7e\x01\x2c", &[b'x'; 300][..], b"\x88\x02\x03\xe8"].concat();
        assert_eq!(got, expected);
        let got = received(Vec::new(), events(&[b"\0\0\0\x02ab"]), Messages::BinaryEvents).await;
        assert_eq!(got, b"\x82\x02ab\x88\x02\x03\xe8");
    }

    #[tokio::test]
    async fn logs_begin_with_an_empty_message() {
        let got = received(Vec::new(), events(&[b"line"]), Messages::Log).await;
        assert_eq!(got, b"\x82\0\x82\x04line\x88\x02\x03\xe8");
        let got = received(Vec::new(), events(&[b"line"]), Messages::Base64Log).await;
        assert_eq!(got, b"\x81\0\x81\x08bGluZQ==\x88\x02\x03\xe8");
        let got = received(Vec::new(), events(&[&[b'x'; 3000]]), Messages::Log).await;
        let pieces = [&b"\x82\0\x82\x7e\x08\0"[..], &[b'x'; 2048], b"\x82\x7e\x03\xb8", &[b'x'; 952]];
        assert_eq!(got, [&pieces.concat()[..], b"\x88\x02\x03\xe8"].concat());
    }

    #[tokio::test]
    async fn control_frames_are_answered_at_any_time() {
        let silent = || Body::stream(futures_util::stream::pending());
        let close = masked(8, b"\x03\xe8");
        let sent = [masked(9, b"hi"), masked(1, b"dropped"), close.clone()].concat();
        assert_eq!(received(sent, silent(), Messages::TextEvents).await, b"\x8a\x02hi\x88\x02\x03\xe8");
        let unmasked = received(b"\x81\x02hi".to_vec(), silent(), Messages::TextEvents).await;
        assert_eq!(unmasked, b"\x88\x02\x03\xea");
        let long = received(vec![0x89, 0xfe, 0x01, 0x00], silent(), Messages::TextEvents).await;
        assert_eq!(long, b"\x88\x02\x03\xea");
    }
}
