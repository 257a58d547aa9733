//! The authority in requests to a Unix socket.
//!
//! Clients in Go that dial a path send the path as `:authority`, raw or with `%2F` for slashes. Neither is an authority,
//! and the HTTP/2 library refuses such requests. [`SocketAuthority`] reads in front of the library and turns `/` and `%`
//! into `-` in these values. A slash, a percent sign and a hyphen have the same size in every encoding of HPACK, so the
//! lengths of frames and the dynamic table, which both sides keep, stay as the client has them.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The bytes before the first frame of a client.
const PREFACE: usize = 24;
const FRAME_HEADER: usize = 9;
const HEADERS: u8 = 1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// The largest frame that is looked at: that of a peer without other settings.
const FRAME_LIMIT: usize = 16 << 10;
/// The index of `:authority` in the static table.
const AUTHORITY: usize = 1;
/// Lengths of Huffman codes in bits, and how many codes have them; codes of a length are consecutive.
const CODES: [(usize, u32); 10] =
    [(5, 10), (6, 26), (7, 32), (8, 6), (10, 5), (11, 3), (12, 2), (13, 6), (14, 2), (15, 3)];
/// Codes of six bits.
const PERCENT: u32 = 0x15;
const HYPHEN: u32 = 0x16;
const SLASH: u32 = 0x18;

/// A connection whose requests have valid authorities.
pub struct SocketAuthority<S> {
    stream: S,
    frames: Frames,
    /// Bytes for the reader, of which some are read.
    output: Vec<u8>,
    read: usize,
}

impl<S> SocketAuthority<S> {
    pub fn new(stream: S) -> Self {
        SocketAuthority { stream, frames: Frames::default(), output: Vec::new(), read: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SocketAuthority<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.read == this.output.len() {
            this.output.clear();
            this.read = 0;
            let mut space = [0; 4096];
            let mut input = ReadBuf::new(&mut space);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut input))?;
            if input.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.frames.push(input.filled(), &mut this.output);
        }
        let count = buffer.remaining().min(this.output.len() - this.read);
        buffer.put_slice(&this.output[this.read..this.read + count]);
        this.read += count;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SocketAuthority<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, data)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

/// The frames of a client, as they arrive.
struct Frames {
    /// Bytes that pass unchanged.
    passing: usize,
    /// The beginning of a frame that is not complete.
    partial: Vec<u8>,
}

impl Default for Frames {
    fn default() -> Self {
        Frames { passing: PREFACE, partial: Vec::new() }
    }
}

impl Frames {
    fn push(&mut self, mut input: &[u8], output: &mut Vec<u8>) {
        while !input.is_empty() {
            if self.passing > 0 {
                let (passed, rest) = input.split_at(self.passing.min(input.len()));
                output.extend_from_slice(passed);
                (self.passing, input) = (self.passing - passed.len(), rest);
                continue;
            }
            let missing = self.frame_length() - self.partial.len();
            let (taken, rest) = input.split_at(missing.min(input.len()));
            self.partial.extend_from_slice(taken);
            input = rest;
            if self.partial.len() < self.frame_length() {
                continue;
            }
            if self.partial.len() > FRAME_HEADER {
                rewrite_headers(&mut self.partial);
            } else {
                self.passing = self.payload_length();
            }
            output.append(&mut self.partial);
        }
    }

    fn payload_length(&self) -> usize {
        self.partial[..3].iter().fold(0, |sum, it| sum << 8 | usize::from(*it))
    }

    /// The bytes of the current frame that are kept until they are complete.
    fn frame_length(&self) -> usize {
        if self.partial.len() < FRAME_HEADER {
            return FRAME_HEADER;
        }
        match (self.partial[3], self.payload_length()) {
            (HEADERS, length @ 1..=FRAME_LIMIT) => FRAME_HEADER + length,
            _ => FRAME_HEADER,
        }
    }
}

fn rewrite_headers(frame: &mut [u8]) {
    let flags = frame[4];
    let mut block = &mut frame[FRAME_HEADER..];
    if flags & PADDED != 0 {
        let padding = usize::from(block[0]);
        let end = block.len().saturating_sub(padding).max(1);
        block = &mut block[1..end];
    }
    if flags & PRIORITY != 0 {
        block = block.get_mut(5..).unwrap_or_default();
    }
    // a block that goes on in another frame ends in the middle of a field
    let _ = rewrite_block(block);
}

/// Walks over the fields of a header block. `None` where it is cut off.
fn rewrite_block(block: &mut [u8]) -> Option<()> {
    let mut position = 0;
    while position < block.len() {
        let prefix = match block[position] {
            first if first & 0x80 != 0 => {
                position = integer(block, position, 7)?.1;
                continue;
            }
            first if first & 0x40 != 0 => 6,
            first if first & 0x20 != 0 => {
                position = integer(block, position, 5)?.1;
                continue;
            }
            _ => 4,
        };
        let (index, after) = integer(block, position, prefix)?;
        position = after;
        let mut is_authority = index == AUTHORITY;
        if index == 0 {
            let (is_huffman, name) = string(block, position)?;
            is_authority = !is_huffman && &block[name.clone()] == b":authority";
            position = name.end;
        }
        let (is_huffman, value) = string(block, position)?;
        position = value.end;
        match (is_authority, is_huffman) {
            (true, true) => replace_codes(&mut block[value]),
            (true, false) => {
                block[value].iter_mut().filter(|it| matches!(**it, b'/' | b'%')).for_each(|it| *it = b'-')
            }
            (false, _) => {}
        }
    }
    Some(())
}

/// An integer with a prefix of some bits, and the position after it.
fn integer(block: &[u8], position: usize, prefix: u32) -> Option<(usize, usize)> {
    let limit = (1 << prefix) - 1;
    let mut value = usize::from(*block.get(position)?) & limit;
    let mut position = position + 1;
    if value < limit {
        return Some((value, position));
    }
    for shift in [0, 7, 14, 21] {
        let byte = usize::from(*block.get(position)?);
        value += (byte & 0x7f) << shift;
        position += 1;
        if byte & 0x80 == 0 {
            return Some((value, position));
        }
    }
    None
}

/// Whether a string is compressed, and its bytes.
fn string(block: &[u8], position: usize) -> Option<(bool, Range<usize>)> {
    let is_huffman = block.get(position)? & 0x80 != 0;
    let (length, start) = integer(block, position, 7)?;
    let end = start.checked_add(length).filter(|it| *it <= block.len())?;
    Some((is_huffman, start..end))
}

fn bit(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from(bytes.get(at / 8)? >> (7 - at % 8) & 1))
}

/// Replaces codes in a compressed string. Longer codes than those of ASCII end the walk.
fn replace_codes(bytes: &mut [u8]) {
    let mut start = 0;
    while let Some((code, length)) = next_code(bytes, start) {
        if length == 6 && matches!(code, SLASH | PERCENT) {
            for offset in 0..length {
                let at = start + offset;
                let mask = 0x80 >> (at % 8);
                match HYPHEN >> (length - 1 - offset) & 1 {
                    0 => bytes[at / 8] &= !mask,
                    _ => bytes[at / 8] |= mask,
                }
            }
        }
        start += length;
    }
}

/// The code at a position in bits, and its length.
fn next_code(bytes: &[u8], start: usize) -> Option<(u32, usize)> {
    let (mut code, mut length, mut first, mut previous) = (0, 0, 0, 0);
    for (bits, count) in CODES {
        first <<= bits - previous;
        while length < bits {
            code = code << 1 | bit(bytes, start + length)?;
            length += 1;
        }
        if code < first + count {
            return Some((code, length));
        }
        (first, previous) = (first + count, bits);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes and their lengths of the characters in the tests.
    fn code(character: char) -> (u32, usize) {
        let codes = [
            ('%', 0x15, 6),
            ('-', 0x16, 6),
            ('.', 0x17, 6),
            ('/', 0x18, 6),
            ('2', 0x2, 5),
            ('F', 0x61, 7),
            ('c', 0x4, 5),
            ('k', 0x75, 7),
            ('n', 0x2a, 6),
            ('o', 0x7, 5),
            ('r', 0x2c, 6),
            ('s', 0x8, 5),
            ('u', 0x2d, 6),
            ('~', 0x1ffd, 13),
        ];
        let (_, code, length) = *codes.iter().find(|it| it.0 == character).unwrap();
        (code, length)
    }

    fn compress(text: &str) -> Vec<u8> {
        let mut bits: Vec<u32> = Vec::new();
        for (code, length) in text.chars().map(code) {
            bits.extend((0..length).rev().map(|at| code >> at & 1));
        }
        bits.resize(bits.len().next_multiple_of(8), 1);
        bits.chunks(8).map(|byte| byte.iter().fold(0, |sum, it| sum << 1 | *it as u8)).collect()
    }

    fn literal(first: u8, value: &[u8], is_huffman: bool) -> Vec<u8> {
        let length = value.len() as u8 | if is_huffman { 0x80 } else { 0 };
        [&[first, length][..], value].concat()
    }

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = payload.len() as u32;
        [&length.to_be_bytes()[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    #[test]
    fn paths_become_names_in_both_encodings() {
        let (from, to) = ("/run~/s.sock", "-run~-s.sock");
        let escaped = ("%2Frun%2Fs.sock", "-2Frun-2Fs.sock");
        for (from, to) in [(from, to), escaped] {
            // :method POST, a size update, :authority, :path with a slash
            let block = |text: &[u8], is_huffman| {
                let path = literal(0x44, b"/a", false);
                [&[0x83, 0x3f, 0xe1, 0x1f][..], &literal(0x41, text, is_huffman), &path].concat()
            };
            let mut raw = block(from.as_bytes(), false);
            rewrite_block(&mut raw).unwrap();
            assert_eq!(raw, block(to.as_bytes(), false));
            let mut compressed = block(&compress(from), true);
            rewrite_block(&mut compressed).unwrap();
            assert_eq!(compressed, block(&compress(to), true));
        }
        let named = |value: &[u8]| {
            [&literal(0x00, b":authority", false)[..], &literal(0, value, false)[1..]].concat()
        };
        let mut block = named(b"/x");
        rewrite_block(&mut block).unwrap();
        assert_eq!(block, named(b"-x"));
    }

    #[test]
    fn frames_may_arrive_in_any_pieces() {
        let padded = |value: &[u8]| {
            let block = literal(0x41, value, false);
            [&[2, 0, 0, 0, 0, 16][..], &block, b"//"].concat()
        };
        let stream = |value: &[u8]| {
            let data = frame(0, 0, b"/data/");
            let headers = frame(HEADERS, 0x4 | PADDED | PRIORITY, &padded(value));
            [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, b""), &data, &headers, &data].concat()
        };
        for size in [1, 3, 10, 1000] {
            let (mut frames, mut output) = (Frames::default(), Vec::new());
            stream(b"/run/x").chunks(size).for_each(|it| frames.push(it, &mut output));
            assert_eq!(output, stream(b"-run-x"), "pieces of {size}");
        }
    }

    #[test]
    fn blocks_that_are_cut_off_are_left_alone() {
        for length in 0..12 {
            let mut block = literal(0x41, b"/run/x.sock", false);
            block.truncate(length);
            let before = block.clone();
            let _ = rewrite_block(&mut block);
            assert_eq!(block, before);
        }
        rewrite_headers(&mut frame(HEADERS, PADDED | PRIORITY, &[9]));
        assert!(integer(&[0x7f, 0xff, 0xff, 0xff, 0xff, 0x01], 0, 7).is_none());
    }
}
