//! Accepts any `:authority` of HTTP/2 requests.
//!
//! etcdctl 3.4 sends whole URLs as the authority in some calls (`endpoint status`), and clients in Go that dial a Unix
//! socket send its path. Other servers ignore them, and the HTTP library refuses them. The authority has no meaning to a
//! gRPC server, so its text is replaced while bytes come in:
//!
//! ```text
//! frame HEADERS   83 86 45 .. 41 8f <15 bytes, Huffman-coded>     :authority, indexed, as the client sends it
//!                 83 86 45 .. 41 0f e e e e e e e e e e e e e e e  the same length, in plain bytes
//! ```
//!
//! The length in bytes stays, so nothing else of the frame changes. The decoder's table of headers gets a shorter entry
//! than the encoder's: it may keep old entries longer than the encoder, which never refers to those. Frames other than
//! HEADERS, connections of HTTP/1, and what cannot be read pass as they are.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER: usize = 9;
const HEADERS: u8 = 1;
const PADDED: u8 = 0x08;
const PRIORITY: u8 = 0x20;
/// The index of `:authority` in the static table.
const AUTHORITY: usize = 1;
/// Larger frames are passed on, for the library to refuse.
const MAX_FRAME: usize = 64 << 10;
const READ_SIZE: usize = 16 << 10;

/// The position in the client's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Preface,
    Frame,
    /// So many bytes are passed on.
    Payload(usize),
    /// No HTTP/2: everything is passed on.
    Other,
}

/// A connection whose requests have an authority of no meaning.
pub struct LenientAuthority<S> {
    stream: S,
    position: Position,
    /// Bytes that have not been looked at.
    pending: BytesMut,
    /// Bytes for the reader.
    ready: BytesMut,
}

impl<S> LenientAuthority<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, position: Position::Preface, pending: BytesMut::new(), ready: BytesMut::new() }
    }

    /// Moves bytes that are complete to the reader.
    fn advance(&mut self) {
        loop {
            match self.position {
                Position::Preface => {
                    let seen = self.pending.len().min(PREFACE.len());
                    if self.pending[..seen] != PREFACE[..seen] {
                        self.position = Position::Other;
                    } else if seen == PREFACE.len() {
                        self.position = Position::Payload(seen);
                    } else {
                        return;
                    }
                }
                Position::Frame => {
                    let [a, b, c, kind, flags, ..] = *self.pending else { return };
                    let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                    let whole = FRAME_HEADER + length;
                    if kind == HEADERS && whole <= MAX_FRAME {
                        if self.pending.len() < whole {
                            return;
                        }
                        let mut frame = self.pending.split_to(whole);
                        // a block that cannot be read is for the library to refuse
                        let _ = replace_authority(&mut frame[FRAME_HEADER..], flags);
                        self.ready.unsplit(frame);
                    } else {
                        self.position = Position::Payload(whole);
                    }
                }
                Position::Payload(left) => {
                    let part = left.min(self.pending.len());
                    self.ready.unsplit(self.pending.split_to(part));
                    if part < left {
                        self.position = Position::Payload(left - part);
                        return;
                    }
                    self.position = Position::Frame;
                }
                Position::Other => {
                    self.ready.unsplit(self.pending.split());
                    return;
                }
            }
        }
    }
}

/// Replaces the authority in the payload of a HEADERS frame; `None` if it cannot be read to its end.
fn replace_authority(payload: &mut [u8], flags: u8) -> Option<()> {
    let padding = if flags & PADDED != 0 { 1 } else { 0 };
    let mut at = padding + if flags & PRIORITY != 0 { 5 } else { 0 };
    while at < payload.len() {
        let first = payload[at];
        // an indexed header, a new size of the table, or a literal with or without an entry in the table
        let prefix_bits = match first {
            0x80.. => 7,
            0x40.. => 6,
            0x20.. => 5,
            _ => 4,
        };
        let (index, next) = integer(payload, at, prefix_bits)?;
        at = next;
        if matches!(first, 0x80.. | 0x20..0x40) {
            continue;
        }
        if index == 0 {
            at = string(payload, at)?.1;
        }
        let (text, next) = string(payload, at)?;
        if index == AUTHORITY && first & 0xc0 == 0x40 && !text.is_empty() {
            payload[at] &= 0x7f;
            payload[text].fill(b'e');
        }
        at = next;
    }
    Some(())
}

/// The range of a string's bytes, and the position after it.
fn string(payload: &[u8], at: usize) -> Option<(std::ops::Range<usize>, usize)> {
    let (length, start) = integer(payload, at, 7)?;
    let end = start.checked_add(length).filter(|end| *end <= payload.len())?;
    Some((start..end, end))
}

/// An integer whose first bits are the last ones of a byte, and the position after it.
fn integer(payload: &[u8], at: usize, prefix_bits: u32) -> Option<(usize, usize)> {
    let max = (1usize << prefix_bits) - 1;
    let mut value = usize::from(*payload.get(at)?) & max;
    let mut at = at + 1;
    if value < max {
        return Some((value, at));
    }
    for shift in [0, 7, 14, 21] {
        let byte = *payload.get(at)?;
        at += 1;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value, at));
        }
    }
    None
}

impl<S: AsyncRead + Unpin> AsyncRead for LenientAuthority<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.ready.is_empty() {
            let before = this.pending.len();
            this.pending.resize(before + READ_SIZE, 0);
            let mut buffer = ReadBuf::new(&mut this.pending[before..]);
            let polled = Pin::new(&mut this.stream).poll_read(context, &mut buffer);
            let count = buffer.filled().len();
            this.pending.truncate(before + count);
            ready!(polled)?;
            if count == 0 {
                // the end, perhaps within a frame
                this.ready.unsplit(this.pending.split());
                break;
            }
            this.advance();
        }
        let part = this.ready.len().min(out.remaining());
        out.put_slice(&this.ready[..part]);
        this.ready.advance(part);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LenientAuthority<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    /// A frame of this type with this payload.
    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    async fn pass(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        LenientAuthority::new(bytes).read_to_end(&mut out).await.unwrap();
        out
    }

    #[tokio::test]
    async fn only_the_authority_is_replaced() {
        // POST, http, a path as a literal, the authority with three Huffman-coded bytes, a header with a new name
        let block = |authority: &[u8]| {
            let before = [0x83, 0x86, 0x44, 0x02, b'/', b'x'];
            [&before[..], authority, &[0x40, 0x01, b'n', 0x01, b'v', 0xbe, 0x3f, 0x00]].concat()
        };
        let (sent, received) =
            (block(&[0x41, 0x83, 0xff, 0xfe, 0xfd]), block(&[0x41, 0x03, b'e', b'e', b'e']));
        let data = frame(0, 0, &sent);
        for (flags, prefix) in [(4, &[][..]), (4 | PRIORITY, &[0, 0, 0, 0, 9]), (4 | PADDED, &[0])] {
            let stream = |block: &[u8]| {
                let headers = frame(HEADERS, flags, &[prefix, block].concat());
                [PREFACE, &frame(4, 0, &[]), &headers, &data, &headers].concat()
            };
            assert_eq!(pass(&stream(&sent)).await, stream(&received));
        }
    }

    #[tokio::test]
    async fn other_bytes_pass() {
        let cut = [PREFACE, &frame(HEADERS, 4, &[0x41, 0x83])].concat();
        for bytes in [b"GET /health HTTP/1.1\r\n\r\n".as_slice(), b"P", &cut, &cut[..PREFACE.len() + 11]] {
            assert_eq!(pass(bytes).await, bytes);
        }
    }
}
