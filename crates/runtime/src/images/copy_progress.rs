//! Progress of imports and exports: bytes of content that were read.

use std::io::{self, Read};
use std::sync::Arc;

/// Takes the bytes that were read, and how many there are in all if that is known.
pub type CopyProgress = Arc<dyn Fn(u64, Option<u64>) + Send + Sync>;

/// Reports what is read.
pub struct CountingReader<R> {
    pub input: R,
    /// Bytes that were read, also from readers before this one.
    pub done: u64,
    pub all: Option<u64>,
    pub progress: CopyProgress,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.done += count as u64;
        (self.progress)(self.done, self.all);
        Ok(count)
    }
}
