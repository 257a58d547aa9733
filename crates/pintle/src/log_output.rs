//! Where lines of the log go: all to standard error, or errors there and all others to standard output, with a buffer
//! if it has a size.
//!
//! Invariant: the buffer holds whole lines. They are written when the next line does not fit, at intervals, and by
//! [`flush`] at the end of the process; a process that is killed loses them.

use parking_lot::Mutex;
use std::io::{self, Stderr, Stdout, Write, stderr, stdout};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// The largest buffer.
const LARGEST: usize = 2 << 30;

/// The stream of each line.
#[derive(Clone, Default)]
pub enum LogOutput {
    #[default]
    Stderr,
    /// Errors to standard error, all others to this one.
    Split(Arc<LineBuffer<Stdout>>),
}

/// The buffer of the process, if it has one.
static BUFFER: OnceLock<Arc<LineBuffer<Stdout>>> = OnceLock::new();

impl LogOutput {
    /// Two streams, of which standard output has a buffer of this size that is written at intervals. Zero is no buffer,
    /// or no interval.
    pub fn split(buffer_size: usize, interval: Duration) -> Self {
        let buffer = Arc::new(LineBuffer::new(stdout(), buffer_size.min(LARGEST)));
        let is_first = buffer_size > 0 && BUFFER.set(buffer.clone()).is_ok();
        if is_first && !interval.is_zero() {
            let writer = move || loop {
                std::thread::sleep(interval);
                flush();
            };
            // without the thread, lines are written when the buffer is full
            let _ = std::thread::Builder::new().name("log-flush".to_owned()).spawn(writer);
        }
        LogOutput::Split(buffer)
    }
}

/// Writes the lines that are buffered, for the end of the process.
pub fn flush() {
    if let Some(buffer) = BUFFER.get() {
        buffer.flush();
    }
}

impl<'a> MakeWriter<'a> for LogOutput {
    type Writer = LineWriter;

    fn make_writer(&'a self) -> LineWriter {
        LineWriter::Stderr(stderr())
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> LineWriter {
        match self {
            LogOutput::Split(buffer) if *meta.level() != Level::ERROR => LineWriter::Buffer(buffer.clone()),
            _ => self.make_writer(),
        }
    }
}

/// The writer of one line.
pub enum LineWriter {
    Stderr(Stderr),
    Buffer(Arc<LineBuffer<Stdout>>),
}

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self {
            LineWriter::Stderr(stream) => stream.write(line),
            LineWriter::Buffer(buffer) => buffer.add(line).map(|()| line.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stream with a buffer for whole lines.
pub struct LineBuffer<W> {
    size: usize,
    pending: Mutex<Pending<W>>,
}

struct Pending<W> {
    lines: Vec<u8>,
    stream: W,
}

impl<W: Write> LineBuffer<W> {
    fn new(stream: W, size: usize) -> Self {
        LineBuffer { size, pending: Mutex::new(Pending { lines: Vec::new(), stream }) }
    }

    fn add(&self, line: &[u8]) -> io::Result<()> {
        let mut pending = self.pending.lock();
        if pending.lines.len() + line.len() > self.size {
            pending.write()?;
        }
        if line.len() > self.size {
            return pending.stream.write_all(line).and_then(|()| pending.stream.flush());
        }
        pending.lines.extend_from_slice(line);
        Ok(())
    }

    fn flush(&self) {
        // there is no other place to report it
        let _ = self.pending.lock().write();
    }
}

impl<W: Write> Pending<W> {
    fn write(&mut self) -> io::Result<()> {
        let written = self.stream.write_all(&self.lines).and_then(|()| self.stream.flush());
        self.lines.clear();
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_written_when_the_next_one_does_not_fit() {
        let buffer = LineBuffer::new(Vec::new(), 8);
        let written = || String::from_utf8(buffer.pending.lock().stream.clone()).unwrap();
        buffer.add(b"abc\n").unwrap();
        buffer.add(b"def\n").unwrap();
        assert_eq!(written(), "");
        buffer.add(b"g\n").unwrap();
        assert_eq!(written(), "abc\ndef\n");
        // a line that is larger than the buffer comes after those before it
        buffer.add(b"larger than all\n").unwrap();
        assert_eq!(written(), "abc\ndef\ng\nlarger than all\n");
        buffer.add(b"h\n").unwrap();
        buffer.flush();
        assert_eq!(written(), "abc\ndef\ng\nlarger than all\nh\n");
    }

    #[test]
    fn lines_are_written_at_once_without_a_buffer() {
        let buffer = LineBuffer::new(Vec::new(), 0);
        buffer.add(b"a\n").unwrap();
        assert_eq!(buffer.pending.lock().stream, b"a\n");
    }
}
