//! HTTP/2 frame by frame, for requests that a proper client does not send.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use crate::Cluster;
use crate::soon;
use crate::transport::{Protocol, Stream, TestUser};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RESET: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

const MAX_STREAMS: u16 = 3;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    pub fn new(kind: u8, flags: u8, stream: u32, payload: impl Into<Vec<u8>>) -> Self {
        Frame { kind, flags, stream, payload: payload.into() }
    }

    fn bytes(&self) -> Vec<u8> {
        let length = u32::try_from(self.payload.len()).unwrap().to_be_bytes();
        let mut bytes = length[1..].to_vec();
        bytes.extend([self.kind, self.flags]);
        bytes.extend(self.stream.to_be_bytes());
        bytes.extend(&self.payload);
        bytes
    }
}

/// A connection after its preface.
pub struct Http2 {
    stream: Stream,
    /// `MAX_CONCURRENT_STREAMS` of the server.
    pub max_streams: Option<u32>,
}

impl Http2 {
    /// As the administrator.
    pub async fn open(cluster: &Cluster) -> Self {
        Self::open_as(cluster, &TestUser::Admin).await
    }

    pub async fn open_as(cluster: &Cluster, who: &TestUser) -> Self {
        let mut stream = cluster.connect(who, Protocol::Http2).await;
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        let mut client = Http2 { stream, max_streams: None };
        client.send(&[Frame::new(SETTINGS, 0, 0, [])]).await.unwrap();
        let settings = client.until(|frame| frame.kind == SETTINGS && frame.flags == 0).await;
        for one in settings.last().unwrap().payload.chunks(6) {
            if u16::from_be_bytes([one[0], one[1]]) == MAX_STREAMS {
                client.max_streams = Some(u32::from_be_bytes([one[2], one[3], one[4], one[5]]));
            }
        }
        client.send(&[Frame::new(SETTINGS, ACK, 0, [])]).await.unwrap();
        client
    }

    /// Sends frames in one go; an error where the server has closed.
    pub async fn send(&mut self, frames: &[Frame]) -> std::io::Result<()> {
        let bytes: Vec<u8> = frames.iter().flat_map(Frame::bytes).collect();
        soon("the sending", self.stream.write_all(&bytes)).await?;
        soon("the sending", self.stream.flush()).await
    }

    /// Asks for a path on a stream.
    pub async fn get(&mut self, stream: u32, path: &str) {
        self.send(&[get(stream, path)]).await.unwrap();
    }

    /// The next frame; nothing when the server has closed.
    pub async fn next(&mut self) -> Option<Frame> {
        next(&mut self.stream).await
    }

    /// Sends frames several times while it reads what comes; returns the frames until the server closes.
    pub async fn flood_until_closed(&mut self, frames: &[Frame], times: usize) -> Vec<Frame> {
        let bytes: Vec<u8> = frames.iter().flat_map(Frame::bytes).collect();
        let (mut reader, mut writer) = tokio::io::split(&mut self.stream);
        let send = async {
            for _ in 0..times {
                // an error is the end that the reader sees as well
                if writer.write_all(&bytes).await.is_err() || writer.flush().await.is_err() {
                    break;
                }
            }
        };
        let receive = async {
            let mut seen = Vec::new();
            while let Some(frame) = next(&mut reader).await {
                seen.push(frame);
            }
            seen
        };
        tokio::pin!(receive);
        tokio::select! {
            seen = &mut receive => seen,
            () = send => receive.await,
        }
    }

    /// All frames up to one; pings are answered.
    pub async fn until(&mut self, wanted: impl Fn(&Frame) -> bool) -> Vec<Frame> {
        let mut seen = Vec::new();
        loop {
            let Some(frame) = self.next().await else { panic!("closed after {seen:?}") };
            if frame.kind == PING && frame.flags & ACK == 0 {
                let pong = Frame { flags: ACK, ..frame.clone() };
                self.send(&[pong]).await.unwrap();
            }
            let found = wanted(&frame);
            seen.push(frame);
            if found {
                return seen;
            }
        }
    }

    /// The frames until the server closes.
    pub async fn closed(&mut self) -> Vec<Frame> {
        let mut seen = Vec::new();
        while let Some(frame) = self.next().await {
            seen.push(frame);
        }
        seen
    }
}

async fn next(stream: &mut (impl AsyncRead + Unpin)) -> Option<Frame> {
    let mut head = [0; 9];
    soon("a frame", stream.read_exact(&mut head)).await.ok()?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    soon("a frame", stream.read_exact(&mut payload)).await.ok()?;
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    Some(Frame { kind: head[3], flags: head[4], stream, payload })
}

/// The frame that asks for a path.
pub fn get(stream: u32, path: &str) -> Frame {
    Frame::new(HEADERS, END_STREAM | END_HEADERS, stream, get_headers(path))
}

/// Headers of a GET: two that are in the table of the protocol, and two with their text.
pub fn get_headers(path: &str) -> Vec<u8> {
    // ":method: GET" and ":scheme: https"
    let mut block = vec![0x82, 0x87];
    // ":path" and ":authority" are number 4 and 1
    for (name, value) in [(4, path), (1, "localhost")] {
        block.push(name);
        text(&mut block, value);
    }
    block
}

/// A header with its name and value as text.
pub fn header(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    text(block, name);
    text(block, value);
}

/// A string literal of HPACK: the length as a 7-bit prefix integer, and the text.
fn text(block: &mut Vec<u8>, value: &str) {
    let mut length = value.len();
    if length < 127 {
        block.push(length as u8);
    } else {
        block.push(127);
        length -= 127;
        while length >= 128 {
            block.push((length % 128) as u8 | 0x80);
            length /= 128;
        }
        block.push(length as u8);
    }
    block.extend(value.as_bytes());
}
