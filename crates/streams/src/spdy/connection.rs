//! A connection: a task that reads frames and one that writes them.

use super::compression::{Compressor, Decompressor};
use super::frame::{self, Head, Headers, take_u32};
use super::shared::{Receiver, Shared};
use super::stream::Stream;
use bytes::Bytes;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};

/// Pieces of a stream that wait for its reader.
const PIECES: usize = 4;
/// Frames that wait for the writer.
const FRAMES: usize = 8;
/// The largest piece that is read at once.
const PIECE_LIMIT: usize = 32 << 10;
/// The most streams of a connection at a time.
const STREAM_LIMIT: usize = 1000;
/// How long the last frames of a closed connection may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The side of a connection: clients open odd streams, servers even ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Client,
    Server,
}

/// The handle of a connection. The connection ends when the peer ends it, or by [`Connection::close`].
#[derive(Clone)]
pub struct Connection(Arc<Shared>);

/// Streams that the peer opens; `None` at the end of the connection.
pub struct Incoming {
    streams: mpsc::Receiver<Stream>,
    writing: Option<tokio::task::JoinHandle<()>>,
    reading: tokio::task::JoinHandle<()>,
    shared: Arc<Shared>,
}

impl Incoming {
    pub async fn next(&mut self) -> Option<Stream> {
        self.streams.recv().await
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.reading.abort();
        // readers get the pieces that have arrived, then the end
        self.shared.streams.lock().clear();
        if let Some(writing) = &self.writing {
            writing.abort();
        }
    }
}

impl Connection {
    /// Starts the tasks of a connection.
    pub fn start<T>(io: T, role: Role) -> (Connection, Incoming)
    where
        T: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (reader, writer) = tokio::io::split(io);
        let (frames, queue) = mpsc::channel(FRAMES);
        let (opened, streams) = mpsc::channel(1);
        let first = if role == Role::Client { 1 } else { 2 };
        let compressor = tokio::sync::Mutex::new((Compressor::default(), first));
        let shared = Arc::new(Shared { streams: Mutex::default(), compressor, frames });
        let reading = tokio::spawn(read(reader, shared.clone(), opened, role));
        let writing = tokio::spawn(write(writer, queue));
        let incoming = Incoming { streams, writing: Some(writing), reading, shared: shared.clone() };
        (Connection(shared), incoming)
    }

    /// Opens a stream and waits for the peer's reply.
    pub async fn open(&self, headers: Headers) -> io::Result<Stream> {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        let (pieces, received) = mpsc::channel(PIECES);
        let (reply, replied) = oneshot::channel();
        let id = {
            // frames of new streams leave in the order of their ids and of the compressed stream
            let mut compressor = self.0.compressor.lock().await;
            let id = compressor.1;
            compressor.1 += 2;
            self.0.streams.lock().insert(id, Receiver { pieces: Some(pieces), reply: Some(reply) });
            let block = compressor.0.compress(&headers.encode());
            let fields = [id, 0];
            let message = frame::control(frame::SYN_STREAM, 0, &fields, &[&[0, 0], &block[..]].concat());
            self.0.frames.send(message.into()).await.map_err(|_| broken())?;
            id
        };
        replied.await.map_err(|_| broken())?;
        Ok(Stream::new(id, headers, received, self.0.clone()))
    }

    /// Sends the frames that wait, then GOAWAY, and closes the connection.
    pub async fn close(self, mut incoming: Incoming) {
        let goaway = frame::control(frame::GOAWAY, 0, &[0, 0], &[]);
        let end = async {
            let _ = self.0.frames.send(goaway.into()).await;
            // an empty message ends the writing task
            let _ = self.0.frames.send(Bytes::new()).await;
            if let Some(writing) = incoming.writing.as_mut() {
                let _ = writing.await;
            }
        };
        let _ = env::io::timeout(CLOSE_TIMEOUT, end).await;
    }
}

async fn write(mut writer: impl AsyncWrite + Unpin, mut frames: mpsc::Receiver<Bytes>) {
    while let Some(message) = frames.recv().await {
        if message.is_empty() || writer.write_all(&message).await.is_err() {
            break;
        }
        if frames.is_empty() && writer.flush().await.is_err() {
            break;
        }
    }
    let _ = writer.flush().await;
    let _ = writer.shutdown().await;
}

async fn read(
    mut reader: impl AsyncRead + Unpin,
    shared: Arc<Shared>,
    opened: mpsc::Sender<Stream>,
    role: Role,
) {
    let mut decompressor = Decompressor::default();
    // an error of the peer ends the connection like its end
    while let Ok(true) = read_frame(&mut reader, &shared, &opened, &mut decompressor, role).await {}
    // readers see the end, and streams without a reply an error
    shared.streams.lock().clear();
}

/// Reads one frame; false is the end of the connection.
async fn read_frame(
    reader: &mut (impl AsyncRead + Unpin),
    shared: &Arc<Shared>,
    opened: &mpsc::Sender<Stream>,
    decompressor: &mut Decompressor,
    role: Role,
) -> io::Result<bool> {
    let mut head = [0; 8];
    reader.read_exact(&mut head).await?;
    let (kind, flags, length) = match Head::decode(head)? {
        Head::Data { stream, is_last, length } => {
            pass_data(reader, shared, stream, length).await?;
            if is_last {
                end_reading(shared, stream);
            }
            return Ok(true);
        }
        Head::Control { kind, flags, length } => (kind, flags, length),
    };
    let mut payload = vec![0; length];
    reader.read_exact(&mut payload).await?;
    let mut rest = &payload[..];
    match kind {
        frame::SYN_STREAM => {
            let id = take_u32(&mut rest)? & 0x7fff_ffff;
            take_u32(&mut rest)?;
            let block = rest.get(2..).unwrap_or_default();
            let headers = Headers::decode(&decompressor.decompress(block)?)?;
            return accept(shared, opened, id, headers, flags).await;
        }
        frame::SYN_REPLY => {
            let id = take_u32(&mut rest)? & 0x7fff_ffff;
            decompressor.decompress(rest)?;
            let reply = shared.streams.lock().get_mut(&id).and_then(|it| it.reply.take());
            reply.map(|reply| reply.send(()));
            if flags & frame::FLAG_FIN != 0 {
                end_reading(shared, id);
            }
        }
        frame::RST_STREAM => {
            let id = take_u32(&mut rest)? & 0x7fff_ffff;
            shared.streams.lock().remove(&id);
        }
        frame::PING => {
            let id = take_u32(&mut rest)?;
            let is_of_peer = (id % 2 == 1) == (role == Role::Server);
            if is_of_peer {
                let reply = frame::control(frame::PING, 0, &[id], &[]);
                return Ok(shared.frames.send(reply.into()).await.is_ok());
            }
        }
        frame::HEADERS => {
            take_u32(&mut rest)?;
            decompressor.decompress(rest)?;
        }
        // streams that exist may go on
        frame::GOAWAY | frame::SETTINGS | frame::WINDOW_UPDATE => {}
        // unknown frames are ignored
        _ => {}
    }
    Ok(true)
}

async fn accept(
    shared: &Arc<Shared>,
    opened: &mpsc::Sender<Stream>,
    id: u32,
    headers: Headers,
    flags: u8,
) -> io::Result<bool> {
    if shared.streams.lock().len() >= STREAM_LIMIT {
        let reset = frame::control(frame::RST_STREAM, 0, &[id, frame::CANCEL], &[]);
        return Ok(shared.frames.send(reset.into()).await.is_ok());
    }
    let (pieces, received) = mpsc::channel(PIECES);
    let pieces = (flags & frame::FLAG_FIN == 0).then_some(pieces);
    shared.streams.lock().insert(id, Receiver { pieces, reply: None });
    let reply = {
        let mut compressor = shared.compressor.lock().await;
        let block = compressor.0.compress(&Headers::default().encode());
        let reply = frame::control(frame::SYN_REPLY, 0, &[id], &block);
        shared.frames.send(reply.into()).await
    };
    let stream = Stream::new(id, headers, received, shared.clone());
    // without a receiver the connection is about to end
    Ok(reply.is_ok() && opened.send(stream).await.is_ok())
}

/// Passes the payload of a data frame to its stream, in pieces; the data of an unknown stream is discarded.
async fn pass_data(
    reader: &mut (impl AsyncRead + Unpin),
    shared: &Shared,
    stream: u32,
    length: usize,
) -> io::Result<()> {
    let mut rest = length;
    while rest > 0 {
        let mut piece = vec![0; rest.min(PIECE_LIMIT)];
        reader.read_exact(&mut piece).await?;
        rest -= piece.len();
        let pieces = shared.streams.lock().get(&stream).and_then(|it| it.pieces.clone());
        if let Some(pieces) = pieces {
            // a reader that is gone needs no data
            let _ = pieces.send(piece.into()).await;
        }
    }
    Ok(())
}

fn end_reading(shared: &Shared, stream: u32) {
    if let Some(receiver) = shared.streams.lock().get_mut(&stream) {
        receiver.pieces = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> ((Connection, Incoming), (Connection, Incoming)) {
        let (a, b) = tokio::io::duplex(1 << 16);
        (Connection::start(a, Role::Client), Connection::start(b, Role::Server))
    }

    #[tokio::test]
    async fn streams_carry_bytes_and_half_closes() {
        let ((client, _replies), (server, mut incoming)) = pair();
        let served = tokio::spawn(async move {
            let mut stream = incoming.next().await.unwrap();
            assert_eq!(stream.headers().get("streamtype"), Some("stdin"));
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.unwrap();
            stream.write_all(&all).await.unwrap();
            stream.shutdown().await.unwrap();
            drop(stream);
            server.close(incoming).await;
        });
        let mut stream = client.open(Headers::new([("streamType", "stdin")])).await.unwrap();
        let sent: Vec<u8> = (0..300_000u32).map(|it| it as u8).collect();
        stream.write_all(&sent).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).await.unwrap();
        assert_eq!(back, sent);
        served.await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_that_ends_ends_its_streams() {
        let ((client, replies), (_server, mut incoming)) = pair();
        let opened = tokio::spawn(async move {
            let stream = client.open(Headers::default()).await.unwrap();
            (client, stream)
        });
        let mut accepted = incoming.next().await.unwrap();
        let (client, stream) = opened.await.unwrap();
        drop(stream);
        client.close(replies).await;
        let mut rest = Vec::new();
        accepted.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty() && incoming.next().await.is_none());
    }

    #[tokio::test]
    async fn pieces_that_have_arrived_outlive_their_connection() {
        let ((client, replies), (_server, mut incoming)) = pair();
        let mut stream = client.open(Headers::default()).await.unwrap();
        let mut accepted = incoming.next().await.unwrap();
        accepted.write_all(b"hello").await.unwrap();
        let mut first = [0; 1];
        stream.read_exact(&mut first).await.unwrap();
        client.close(replies).await;
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"ello");
    }

    #[tokio::test]
    async fn an_unread_stream_holds_little_memory() {
        let ((client, _replies), (_server, mut incoming)) = pair();
        let mut stream = client.open(Headers::default()).await.unwrap();
        let accepted = incoming.next().await.unwrap();
        let mut written = 0usize;
        let whole = async {
            loop {
                stream.write_all(&[0; 16 << 10]).await.unwrap();
                written += 16 << 10;
            }
        };
        let _ = env::io::timeout(Duration::from_millis(200), whole).await;
        assert!(written < 1 << 20, "{written}");
        drop(accepted);
    }
}
