//! Reading ahead of redb while a file is opened.
//!
//! A start reads the whole file two or three times, page by page and mostly in the order of the file. Each page would be a
//! call to the operating system, and from a cold disk a request of its own. So while the engine opens, a page is copied
//! from a chunk that was read whole:
//!
//! ```text
//! file      | chunk 0       | chunk 1       | chunk 2       |
//! pages        1 2 3 4  7     9 8 10 11       12 ...           as redb asks for them
//! kept      the last few chunks; none once the file is open
//! ```
//!
//! A page that belongs to a chunk which cannot be read, or lies across two, is read by itself, so that errors are those of
//! the pages that are needed. Where pages are scattered over the file, chunks cost more than they save: once most of what
//! was read ahead is not used, it ends. A write drops all chunks, so that no read returns what was there before it.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use redb::StorageBackend;

/// The bytes of a chunk: it stays in the processor's cache while its pages are copied.
const CHUNK: u64 = if cfg!(test) { 16 << 10 } else { 256 << 10 };
/// How many chunks are kept: enough for a few threads that each read another part.
const KEPT: usize = 16;
/// Chunks must have been worth it after so many.
const TRIAL: u64 = 64;

/// The chunks; shared with the engine, which says when a file is being opened.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    is_on: AtomicBool,
    chunks: Mutex<Chunks>,
}

#[derive(Debug, Default)]
struct Chunks {
    /// By where they begin, the one read last at the end.
    kept: VecDeque<(u64, Bytes)>,
    /// How many writes there were: a chunk that was read before one is not kept after it.
    writes: u64,
    /// Bytes that chunks had, and bytes that were copied from them.
    read: u64,
    used: u64,
}

impl ReadAhead {
    pub(crate) fn begin(&self) {
        *self.chunks.lock() = Chunks::default();
        self.is_on.store(true, Ordering::Release);
    }

    pub(crate) fn end(&self) {
        self.is_on.store(false, Ordering::Release);
        self.chunks.lock().kept = VecDeque::new();
    }

    /// Reads a page, from a chunk if that is possible. `len` is the length of the file.
    pub(crate) fn read(
        &self,
        storage: &dyn StorageBackend,
        len: u64,
        offset: u64,
        out: &mut [u8],
    ) -> io::Result<()> {
        match self.chunk(storage, len, offset, out.len()) {
            Some((start, chunk)) => {
                let at = (offset - start) as usize;
                out.copy_from_slice(&chunk[at..at + out.len()]);
                Ok(())
            }
            None => storage.read(offset, out),
        }
    }

    /// Drops what was read before a write that is done.
    pub(crate) fn written(&self) {
        if self.is_on.load(Ordering::Acquire) {
            let mut chunks = self.chunks.lock();
            chunks.writes += 1;
            chunks.kept.clear();
        }
    }

    /// The chunk with these bytes, and where it begins.
    fn chunk(
        &self,
        storage: &dyn StorageBackend,
        len: u64,
        offset: u64,
        bytes: usize,
    ) -> Option<(u64, Bytes)> {
        if !self.is_on.load(Ordering::Acquire) {
            return None;
        }
        let start = offset / CHUNK * CHUNK;
        let end = len.min(start.saturating_add(CHUNK));
        if offset.checked_add(bytes as u64)? > end {
            return None;
        }
        let writes = {
            let mut chunks = self.chunks.lock();
            chunks.used += bytes as u64;
            if let Some(known) = chunks.kept.iter().rev().find(|(at, _)| *at == start) {
                return Some(known.clone());
            }
            if chunks.read >= TRIAL * CHUNK && chunks.used < chunks.read / 2 {
                self.is_on.store(false, Ordering::Release);
                chunks.kept = VecDeque::new();
                return None;
            }
            chunks.read += end - start;
            chunks.writes
        };
        let mut chunk = vec![0; (end - start) as usize];
        storage.read(start, &mut chunk).ok()?;
        let chunk = Bytes::from(chunk);
        let mut chunks = self.chunks.lock();
        if chunks.writes == writes && self.is_on.load(Ordering::Acquire) {
            if chunks.kept.len() >= KEPT {
                chunks.kept.pop_front();
            }
            chunks.kept.push_back((start, chunk.clone()));
        }
        Some((start, chunk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// A file in memory that counts its reads; one part of it cannot be read.
    #[derive(Debug)]
    struct CountingFile {
        bytes: Mutex<Vec<u8>>,
        bad: Option<u64>,
        reads: AtomicU64,
    }

    impl CountingFile {
        fn new(len: u64) -> Self {
            let bytes = (0..len).map(|at| (at / 7) as u8).collect();
            Self { bytes: Mutex::new(bytes), bad: None, reads: AtomicU64::new(0) }
        }
    }

    impl StorageBackend for CountingFile {
        fn len(&self) -> io::Result<u64> {
            Ok(self.bytes.lock().len() as u64)
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            let bytes = self.bytes.lock();
            let end = offset + out.len() as u64;
            if self.bad.is_some_and(|bad| (offset..end).contains(&bad)) || end > bytes.len() as u64 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            out.copy_from_slice(&bytes[offset as usize..end as usize]);
            Ok(())
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.bytes.lock().resize(len as usize, 0);
            Ok(())
        }

        fn sync_data(&self) -> io::Result<()> {
            Ok(())
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.bytes.lock()[offset as usize..offset as usize + data.len()].copy_from_slice(data);
            Ok(())
        }
    }

    fn check(ahead: &ReadAhead, file: &CountingFile, offset: u64, bytes: usize) -> bool {
        let mut out = vec![0; bytes];
        let read = ahead.read(file, file.len().unwrap(), offset, &mut out);
        read.is_ok() && out[..] == file.bytes.lock()[offset as usize..offset as usize + bytes]
    }

    #[test]
    fn pages_in_order_are_read_in_chunks() {
        let file = CountingFile::new(10 * CHUNK + 5000);
        let ahead = ReadAhead::default();
        assert!(check(&ahead, &file, 0, 4096));
        assert!(ahead.chunks.lock().kept.is_empty(), "no file is being opened");
        ahead.begin();
        file.reads.store(0, Ordering::Relaxed);
        for page in 0..file.len().unwrap() / 4096 {
            assert!(check(&ahead, &file, page * 4096, 4096), "{page}");
        }
        assert!(check(&ahead, &file, 10 * CHUNK + 4999, 1), "the last chunk is shorter");
        assert_eq!(file.reads.load(Ordering::Relaxed), 11);
        assert!(check(&ahead, &file, CHUNK - 4096, 8192), "a page of two chunks");
        assert!(ahead.read(&file, file.len().unwrap(), file.len().unwrap(), &mut [0]).is_err());
        assert!(ahead.read(&file, file.len().unwrap(), u64::MAX - 9, &mut [0; 2]).is_err());
        ahead.end();
        assert!(ahead.chunks.lock().kept.is_empty());
    }

    #[test]
    fn a_chunk_that_cannot_be_read_hides_no_other_page() {
        let file = CountingFile { bad: Some(5000), ..CountingFile::new(2 * CHUNK) };
        let ahead = ReadAhead::default();
        ahead.begin();
        assert!(check(&ahead, &file, 0, 4096));
        assert!(!check(&ahead, &file, 4096, 4096));
        assert!(check(&ahead, &file, 8192, 4096));
    }

    #[test]
    fn a_read_returns_the_last_write() {
        let file = CountingFile::new(2 * CHUNK);
        let ahead = ReadAhead::default();
        ahead.begin();
        for round in 1..5 {
            assert!(check(&ahead, &file, 4096, 4096));
            file.write(4100, &[round; 100]).unwrap();
            ahead.written();
            assert!(check(&ahead, &file, 4096, 4096), "round {round}");
        }
        file.set_len(CHUNK + 4096).unwrap();
        ahead.written();
        assert!(check(&ahead, &file, CHUNK, 4096));
    }

    #[test]
    fn scattered_pages_are_read_by_themselves() {
        let chunks = 4 * TRIAL;
        let file = CountingFile::new(chunks * CHUNK);
        let ahead = ReadAhead::default();
        ahead.begin();
        for nth in 0..chunks * 2 {
            // no two that follow each other are in chunks that are kept
            assert!(check(&ahead, &file, nth * 37 % chunks * CHUNK, 4096), "{nth}");
        }
        assert!(!ahead.is_on.load(Ordering::Relaxed) && ahead.chunks.lock().kept.is_empty());
        assert!(ahead.chunks.lock().read <= (TRIAL + 1) * CHUNK);
    }
}
