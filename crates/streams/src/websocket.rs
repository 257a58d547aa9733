//! WebSocket (RFC 6455), the server's side: messages whose first byte names a channel, in binary or base64.
//!
//! Invariants: a message of a client is passed on in pieces, whatever its length; pings are answered; an error of the
//! client ends the connection with a close frame.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use names::streams::{COMMAND_V1, COMMAND_V1_BASE64, COMMAND_V4, COMMAND_V4_BASE64};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// Constant that is appended to the key before hashing.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Timeout of one message.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
const CONTROL_LIMIT: u64 = 125;
/// The largest piece of a message that is passed on at once.
const PIECE_LIMIT: usize = 32 << 10;
/// The largest message in base64, which is decoded whole.
const BASE64_LIMIT: usize = 1 << 20;
const QUEUE: usize = 8;

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// The form of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// The channel as a byte, then the data.
    Binary,
    /// The channel as a digit, then the data in base64.
    Base64,
}

/// The codec of a subprotocol of channels.
pub fn codec(protocol: &str) -> Option<Codec> {
    match protocol {
        "" | COMMAND_V1 | COMMAND_V4 => Some(Codec::Binary),
        COMMAND_V1_BASE64 | COMMAND_V4_BASE64 => Some(Codec::Base64),
        _ => None,
    }
}

/// The `Sec-WebSocket-Accept` of a key.
pub fn accept_key(key: &str) -> String {
    let mut digest = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
    digest.update(key.as_bytes());
    digest.update(GUID);
    STANDARD.encode(digest.finish())
}

/// Data of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub channel: u8,
    pub data: Bytes,
}

/// A frame for the writing task.
enum Outgoing {
    Channel(Message),
    Control(u8, Bytes),
    End,
}

/// The sending side. Clones share the connection.
#[derive(Clone)]
pub struct Sender(mpsc::Sender<Outgoing>);

impl Sender {
    pub async fn send(&self, channel: u8, data: impl Into<Bytes>) -> io::Result<()> {
        let message = Outgoing::Channel(Message { channel, data: data.into() });
        self.0.send(message).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Sends what waits, then a close frame.
    pub async fn close(&self) {
        let _ = self.0.send(Outgoing::End).await;
        // until the writing task is gone
        self.0.closed().await;
    }
}

/// The receiving side; `None` at the end of the connection.
pub type Receiver = mpsc::Receiver<Message>;

/// Starts the tasks of an upgraded connection.
pub fn start<T>(io: T, codec: Codec) -> (Sender, Receiver)
where
    T: AsyncRead + AsyncWrite + Send + 'static,
{
    let (reader, writer) = tokio::io::split(io);
    let (frames, queue) = mpsc::channel(QUEUE);
    let (messages, received) = mpsc::channel(QUEUE);
    let sender = Sender(frames.clone());
    tokio::spawn(async move {
        let reading = async move {
            if let Err(code) = read(reader, codec, &messages, &frames).await {
                let _ =
                    frames.send(Outgoing::Control(CLOSE, Bytes::copy_from_slice(&code.to_be_bytes()))).await;
            }
            drop(messages);
            // the writing ends when every sender is gone
            drop(frames);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = reading => {}
            _ = write(writer, codec, queue) => {}
        }
    });
    (sender, received)
}

async fn write(
    mut writer: impl AsyncWrite + Unpin,
    codec: Codec,
    mut queue: mpsc::Receiver<Outgoing>,
) -> io::Result<()> {
    while let Some(next) = queue.recv().await {
        let (opcode, payload) = match next {
            Outgoing::Channel(message) => encode(codec, &message),
            Outgoing::Control(opcode, payload) => (opcode, payload.to_vec()),
            Outgoing::End => (CLOSE, 1000u16.to_be_bytes().to_vec()),
        };
        let whole = write_frame(&mut writer, opcode, &payload);
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        env::io::timeout(WRITE_TIMEOUT, whole).await.map_err(late)??;
        if opcode == CLOSE {
            break;
        }
    }
    writer.shutdown().await
}

fn encode(codec: Codec, message: &Message) -> (u8, Vec<u8>) {
    match codec {
        Codec::Binary => {
            let mut payload = Vec::with_capacity(message.data.len() + 1);
            payload.push(message.channel);
            payload.extend_from_slice(&message.data);
            (BINARY, payload)
        }
        Codec::Base64 => {
            let text =
                format!("{}{}", char::from(b'0' + message.channel % 10), STANDARD.encode(&message.data));
            (TEXT, text.into_bytes())
        }
    }
}

async fn write_frame(writer: &mut (impl AsyncWrite + Unpin), opcode: u8, payload: &[u8]) -> io::Result<()> {
    let mut head = vec![0x80 | opcode];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length), _) if u64::from(length) <= CONTROL_LIMIT => head.push(length),
        (_, Ok(length)) => {
            head.push(126);
            head.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            head.push(127);
            head.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    writer.write_all(&head).await?;
    writer.write_all(payload).await?;
    writer.flush().await
}

/// Close codes.
const NORMAL: u16 = 1000;
const PROTOCOL_ERROR: u16 = 1002;
const TOO_BIG: u16 = 1009;

/// Reads messages until the client closes; the error is the code of the close frame in reply.
async fn read(
    mut reader: impl AsyncRead + Unpin,
    codec: Codec,
    messages: &mpsc::Sender<Message>,
    frames: &mpsc::Sender<Outgoing>,
) -> Result<(), u16> {
    let broken = |_| NORMAL;
    // the channel of the message that continues
    let mut channel = None;
    let mut text = Vec::new();
    loop {
        let mut head = [0; 2];
        reader.read_exact(&mut head).await.map_err(broken)?;
        let (is_final, opcode, is_masked) = (head[0] & 0x80 != 0, head[0] & 0x0f, head[1] & 0x80 != 0);
        let length = match head[1] & 0x7f {
            126 => u64::from(reader.read_u16().await.map_err(broken)?),
            127 => reader.read_u64().await.map_err(broken)?,
            length => u64::from(length),
        };
        if !is_masked || opcode & 8 != 0 && length > CONTROL_LIMIT {
            return Err(PROTOCOL_ERROR);
        }
        let mask = reader.read_u32().await.map_err(broken)?.to_be_bytes();
        let mut masked = Masked { reader: &mut reader, mask, at: 0, rest: length };
        match opcode {
            CLOSE => return Err(NORMAL),
            PING | PONG => {
                let payload = masked.all().await.map_err(broken)?;
                if opcode == PING {
                    let _ = frames.send(Outgoing::Control(PONG, payload.into())).await;
                }
            }
            CONTINUATION | TEXT | BINARY if codec == Codec::Base64 => {
                if text.len() as u64 + length > BASE64_LIMIT as u64 {
                    return Err(TOO_BIG);
                }
                text.extend(masked.all().await.map_err(broken)?);
                if is_final {
                    let message = decode_base64(&std::mem::take(&mut text)).ok_or(PROTOCOL_ERROR)?;
                    let _ = messages.send(message).await;
                }
            }
            CONTINUATION | TEXT | BINARY => {
                if opcode != CONTINUATION {
                    channel = None;
                }
                while let Some(mut piece) = masked.piece().await.map_err(broken)? {
                    let to = *channel.get_or_insert_with(|| piece.remove(0));
                    if !piece.is_empty() {
                        let _ = messages.send(Message { channel: to, data: piece.into() }).await;
                    }
                }
            }
            _ => return Err(PROTOCOL_ERROR),
        }
    }
}

fn decode_base64(text: &[u8]) -> Option<Message> {
    let (digit, data) = text.split_first()?;
    let channel = digit.checked_sub(b'0').filter(|it| *it < 10)?;
    Some(Message { channel, data: STANDARD.decode(data).ok()?.into() })
}

/// The payload of a frame, unmasked piece by piece.
struct Masked<'r, R> {
    reader: &'r mut R,
    mask: [u8; 4],
    at: usize,
    rest: u64,
}

impl<R: AsyncRead + Unpin> Masked<'_, R> {
    async fn piece(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.rest == 0 {
            return Ok(None);
        }
        let mut piece = vec![0; self.rest.min(PIECE_LIMIT as u64) as usize];
        self.reader.read_exact(&mut piece).await?;
        self.rest -= piece.len() as u64;
        for byte in &mut piece {
            *byte ^= self.mask[self.at % 4];
            self.at += 1;
        }
        Ok(Some(piece))
    }

    async fn all(&mut self) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        while let Some(piece) = self.piece().await? {
            all.extend(piece);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(head: u8, payload: &[u8]) -> Vec<u8> {
        let (mask, length) = ([1, 2, 3, 4], u8::try_from(payload.len()).unwrap());
        let payload = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
        [&[head, 0x80 | length][..], &mask].concat().into_iter().chain(payload).collect()
    }

    #[tokio::test]
    async fn channels_are_the_first_byte() {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let (sender, mut received) = start(server, Codec::Binary);
        let fragmented = [masked(0x02, b"\0ab"), masked(0x80, b"cd"), masked(0x82, b"\x04{}")].concat();
        client.write_all(&fragmented).await.unwrap();
        let mut got = Vec::new();
        for _ in 0..3 {
            let message = received.recv().await.unwrap();
            got.push((message.channel, message.data.to_vec()));
        }
        assert_eq!(got, [(0, b"ab".to_vec()), (0, b"cd".to_vec()), (4, b"{}".to_vec())]);
        client.write_all(&masked(0x89, b"hi")).await.unwrap();
        let mut pong = [0; 4];
        client.read_exact(&mut pong).await.unwrap();
        assert_eq!(&pong, b"\x8a\x02hi");
        sender.send(1, "out").await.unwrap();
        sender.close().await;
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"\x82\x04\x01out\x88\x02\x03\xe8");
    }

    #[tokio::test]
    async fn base64_channels_are_digits() {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let (sender, mut received) = start(server, Codec::Base64);
        client.write_all(&masked(0x81, b"0YWI=")).await.unwrap();
        assert_eq!(received.recv().await, Some(Message { channel: 0, data: Bytes::from_static(b"ab") }));
        sender.send(2, "e").await.unwrap();
        let mut frame = [0; 7];
        client.read_exact(&mut frame).await.unwrap();
        assert_eq!(&frame, b"\x81\x052ZQ==");
        client.write_all(&masked(0x81, b"xYWI=")).await.unwrap();
        assert_eq!(received.recv().await, None);
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"\x88\x02\x03\xea");
    }

    #[test]
    fn the_accept_key_is_computed() {
        assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
