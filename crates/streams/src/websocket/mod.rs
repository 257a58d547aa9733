//! WebSocket (RFC 6455), the server's side: messages whose first byte names a channel, in binary or base64.
//!
//! Invariants: a message of a client is passed on in pieces, whatever its length; pings are answered; an error of the
//! client ends the connection with a close frame.

pub mod frame;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use frame::{Frame, NORMAL_CLOSURE, Opcode, PROTOCOL_ERROR, TOO_BIG};
use names::streams::{COMMAND_V1, COMMAND_V1_BASE64, COMMAND_V4, COMMAND_V4_BASE64};
use std::io;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// The largest message in base64, which is decoded whole.
const BASE64_LIMIT: usize = 1 << 20;
const QUEUE: usize = 8;

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

/// Data of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub channel: u8,
    pub data: Bytes,
}

/// A frame for the writing task.
enum Outgoing {
    Channel(Message),
    Control(Opcode, Bytes),
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
                let reply = Outgoing::Control(Opcode::Close, Bytes::copy_from_slice(&code.to_be_bytes()));
                let _ = frames.send(reply).await;
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
            Outgoing::End => (Opcode::Close, NORMAL_CLOSURE.to_be_bytes().to_vec()),
        };
        frame::write(&mut writer, opcode, &payload).await?;
        if opcode == Opcode::Close {
            break;
        }
    }
    writer.shutdown().await
}

fn encode(codec: Codec, message: &Message) -> (Opcode, Vec<u8>) {
    match codec {
        Codec::Binary => {
            let mut payload = Vec::with_capacity(message.data.len() + 1);
            payload.push(message.channel);
            payload.extend_from_slice(&message.data);
            (Opcode::Binary, payload)
        }
        Codec::Base64 => {
            let text =
                format!("{}{}", char::from(b'0' + message.channel % 10), STANDARD.encode(&message.data));
            (Opcode::Text, text.into_bytes())
        }
    }
}

/// Reads messages until the client closes; the error is the code of the close frame in reply.
async fn read(
    mut reader: impl AsyncRead + Unpin,
    codec: Codec,
    messages: &mpsc::Sender<Message>,
    frames: &mpsc::Sender<Outgoing>,
) -> Result<(), u16> {
    let broken = |_| NORMAL_CLOSURE;
    // the channel of the message that continues
    let mut channel = None;
    let mut text = Vec::new();
    loop {
        let mut frame = Frame::read(&mut reader).await.map_err(broken)?.ok_or(PROTOCOL_ERROR)?;
        match frame.opcode.ok_or(PROTOCOL_ERROR)? {
            Opcode::Close => return Err(NORMAL_CLOSURE),
            Opcode::Pong => frame.skip().await.map_err(broken)?,
            Opcode::Ping => {
                let payload = frame.payload().await.map_err(broken)?;
                let _ = frames.send(Outgoing::Control(Opcode::Pong, payload.into())).await;
            }
            _ if codec == Codec::Base64 => {
                if (text.len() as u64).saturating_add(frame.rest) > BASE64_LIMIT as u64 {
                    return Err(TOO_BIG);
                }
                text.extend(frame.payload().await.map_err(broken)?);
                if frame.is_final {
                    let message = decode_base64(&std::mem::take(&mut text)).ok_or(PROTOCOL_ERROR)?;
                    let _ = messages.send(message).await;
                }
            }
            opcode => {
                if opcode != Opcode::Continuation {
                    channel = None;
                }
                while let Some(mut piece) = frame.piece().await.map_err(broken)? {
                    let to = *channel.get_or_insert_with(|| piece.remove(0));
                    if !piece.is_empty() {
                        let _ = messages.send(Message { channel: to, data: piece.into() }).await;
                    }
                }
            }
        }
    }
}

fn decode_base64(text: &[u8]) -> Option<Message> {
    let (digit, data) = text.split_first()?;
    let channel = digit.checked_sub(b'0').filter(|it| *it < 10)?;
    Some(Message { channel, data: STANDARD.decode(data).ok()?.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

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
}
