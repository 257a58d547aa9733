//! Compression of header blocks: one zlib stream per direction and connection, flushed after every block.
//!
//! Blocks are sent as stored deflate blocks: they are small, and a decompressor reads them like any other. Blocks are
//! received with the dictionary of SPDY/3, which is put into the window as a first stored block.

use super::dictionary::{ID, dictionary};
use flate2::{Decompress, FlushDecompress, Status};
use std::io;

/// The largest header block, decompressed.
const BLOCK_LIMIT: usize = 64 << 10;
/// The flag of a zlib header that is followed by the id of a dictionary.
const HAS_DICTIONARY: u8 = 0x20;

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

/// Writes stored blocks after a zlib header.
#[derive(Default)]
pub struct Compressor {
    has_header: bool,
}

impl Compressor {
    pub fn compress(&mut self, block: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(block.len() + 8);
        if !self.has_header {
            out.extend_from_slice(&[0x78, 0x01]);
            self.has_header = true;
        }
        for piece in block.chunks(usize::from(u16::MAX)) {
            append_stored(piece, &mut out);
        }
        // an empty block is a flush: decompressors hand out what they have
        append_stored(&[], &mut out);
        out
    }
}

/// A stored deflate block that is not the last one.
fn append_stored(piece: &[u8], out: &mut Vec<u8>) {
    let length = u16::try_from(piece.len()).unwrap_or(u16::MAX);
    out.push(0);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&(!length).to_le_bytes());
    out.extend_from_slice(&piece[..usize::from(length)]);
}

/// Reads blocks of a zlib stream.
pub struct Decompressor {
    deflate: Decompress,
    /// The zlib header, until it is complete.
    header: Option<Vec<u8>>,
}

impl Default for Decompressor {
    fn default() -> Self {
        Decompressor { deflate: Decompress::new(false), header: Some(Vec::new()) }
    }
}

impl Decompressor {
    pub fn decompress(&mut self, mut block: &[u8]) -> io::Result<Vec<u8>> {
        if let Some(mut header) = self.header.take() {
            while let Some((byte, rest)) = block.split_first() {
                header.push(*byte);
                block = rest;
                if self.is_header_complete(&header)? {
                    return self.inflate(block);
                }
            }
            self.header = Some(header);
            return Ok(Vec::new());
        }
        self.inflate(block)
    }

    fn is_header_complete(&mut self, header: &[u8]) -> io::Result<bool> {
        let [method, flags, id @ ..] = header else { return Ok(false) };
        if method & 0x0f != 8 || u16::from_be_bytes([*method, *flags]) % 31 != 0 {
            return Err(invalid("a header block is no zlib stream"));
        }
        match flags & HAS_DICTIONARY {
            0 => Ok(true),
            _ if id.len() < ID.len() => Ok(false),
            _ if id != ID => Err(invalid("a header block has an unknown dictionary")),
            _ => {
                let mut primer = Vec::new();
                append_stored(&dictionary(), &mut primer);
                self.inflate(&primer)?;
                Ok(true)
            }
        }
    }

    fn inflate(&mut self, mut block: &[u8]) -> io::Result<Vec<u8>> {
        let mut all = Vec::with_capacity(1024);
        loop {
            if all.len() == all.capacity() {
                if all.len() >= BLOCK_LIMIT {
                    return Err(invalid("a header block is too large"));
                }
                all.reserve(all.len().max(1024));
            }
            let (read, written) = (self.deflate.total_in(), self.deflate.total_out());
            let status = self.deflate.decompress_vec(block, &mut all, FlushDecompress::Sync);
            let status = status.map_err(|_| invalid("a header block cannot be decompressed"))?;
            let read = (self.deflate.total_in() - read) as usize;
            block = block.get(read..).unwrap_or_default();
            let is_stuck = read == 0 && self.deflate.total_out() == written && all.len() < all.capacity();
            if status == Status::StreamEnd || is_stuck || block.is_empty() && all.len() < all.capacity() {
                return Ok(all);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_ends_with_a_flush() {
        let mut out = Compressor::default();
        assert_eq!(out.compress(b"a"), [0x78, 1, 0, 1, 0, 0xfe, 0xff, b'a', 0, 0, 0, 0xff, 0xff]);
        assert_eq!(out.compress(b""), [0, 0, 0, 0xff, 0xff]);
    }

    #[test]
    fn blocks_survive() {
        let (mut out, mut back) = (Compressor::default(), Decompressor::default());
        for block in [&b"first"[..], &[7; 40_000], b"", b"last"] {
            assert_eq!(back.decompress(&out.compress(block)).unwrap(), block);
        }
    }

    /// A header block of a client with a dictionary: made by zlib, flushed.
    #[test]
    fn dictionaries_are_used() {
        // zlib.compressobj(zdict=...) of b"\0\0\0\x04host\0\0\0\x07trailer" with Z_SYNC_FLUSH
        let sent = include_bytes!("testdata/dictionary.zlib");
        let mut back = Decompressor::default();
        assert_eq!(back.decompress(&sent[..3]).unwrap(), b"");
        assert_eq!(back.decompress(&sent[3..]).unwrap(), b"\0\0\0\x04host\0\0\0\x07trailer");
    }

    #[test]
    fn bombs_are_refused() {
        use std::io::Write;
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        zlib.write_all(&vec![0; 10 << 20]).unwrap();
        assert!(Decompressor::default().decompress(&zlib.finish().unwrap()).is_err());
        assert!(Decompressor::default().decompress(b"garbage").is_err());
    }
}
