//! The log of a container, in the form of the CRI: `TIME STREAM TAG LINE`.
//!
//! A line without an end, or longer than [`LINE_LIMIT`], has the tag `P`; the last part of it has `F`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The longest line of a log.
pub const LINE_LIMIT: usize = 16 * 1024;

/// See the module.
pub struct LogFile {
    path: PathBuf,
    file: Option<File>,
}

/// The part of a line that has come so far.
#[derive(Default)]
pub struct LineBuffer {
    text: Vec<u8>,
}

impl LogFile {
    /// An empty path is no log.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut log = LogFile { path: path.to_owned(), file: None };
        log.reopen()?;
        Ok(log)
    }

    /// Opens the file again, after it was renamed.
    pub fn reopen(&mut self) -> io::Result<()> {
        if !self.path.as_os_str().is_empty() {
            self.file = Some(OpenOptions::new().append(true).create(true).mode(0o640).open(&self.path)?);
        }
        Ok(())
    }

    /// Writes output: whole lines at once, and the rest with what comes later.
    pub fn write(
        &mut self,
        stream: &str,
        buffer: &mut LineBuffer,
        data: &[u8],
        now: SystemTime,
    ) -> io::Result<()> {
        buffer.text.extend_from_slice(data);
        let mut entries = Vec::new();
        let mut rest = &buffer.text[..];
        loop {
            match rest.iter().take(LINE_LIMIT).position(|it| *it == b'\n') {
                Some(end) => {
                    // terminals and HTTP end lines with two characters
                    let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
                    entry(&mut entries, stream, b'F', line, now);
                    rest = &rest[end + 1..];
                }
                None if rest.len() >= LINE_LIMIT => {
                    entry(&mut entries, stream, b'P', &rest[..LINE_LIMIT], now);
                    rest = &rest[LINE_LIMIT..];
                }
                None => break,
            }
        }
        buffer.text = rest.to_vec();
        self.append(&entries)
    }

    /// Writes a line that never ended.
    pub fn finish(&mut self, stream: &str, buffer: &mut LineBuffer, now: SystemTime) -> io::Result<()> {
        let mut entries = Vec::new();
        if !buffer.text.is_empty() {
            entry(&mut entries, stream, b'P', &buffer.text, now);
            buffer.text.clear();
        }
        self.append(&entries)
    }

    fn append(&mut self, entries: &[u8]) -> io::Result<()> {
        match &mut self.file {
            Some(file) if !entries.is_empty() => file.write_all(entries),
            _ => Ok(()),
        }
    }
}

fn entry(entries: &mut Vec<u8>, stream: &str, tag: u8, line: &[u8], now: SystemTime) {
    entries.extend_from_slice(timestamp(now).as_bytes());
    entries.extend_from_slice(format!(" {stream} {} ", char::from(tag)).as_bytes());
    entries.extend_from_slice(line);
    entries.push(b'\n');
}

/// RFC 3339 with nanoseconds.
fn timestamp(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = schema::time::format_time(i64::try_from(since.as_secs()).unwrap_or(0));
    format!("{}.{:09}Z", seconds.trim_end_matches('Z'), since.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn lines_are_written_whole_or_marked_as_parts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        let mut log = LogFile::open(&path).unwrap();
        let (mut out, mut err) = (LineBuffer::default(), LineBuffer::default());
        let now = UNIX_EPOCH + Duration::from_nanos(1_700_000_000_000_000_001);
        log.write("stdout", &mut out, b"one\r\ntw", now).unwrap();
        log.write("stderr", &mut err, b"\n", now).unwrap();
        log.write("stdout", &mut out, b"o\nrest", now).unwrap();
        std::fs::rename(&path, folder.path().join("rotated")).unwrap();
        log.reopen().unwrap();
        log.finish("stdout", &mut out, now).unwrap();
        log.write("stdout", &mut out, &[b'x'; LINE_LIMIT + 2], now).unwrap();
        log.write("stdout", &mut out, b"\n", now).unwrap();
        let time = "2023-11-14T22:13:20.000000001Z";
        let expected = format!("{time} stdout F one\n{time} stderr F \n{time} stdout F two\n");
        assert_eq!(std::fs::read_to_string(folder.path().join("rotated")).unwrap(), expected);
        let expected =
            format!("{time} stdout P rest\n{time} stdout P {}\n{time} stdout F xx\n", "x".repeat(LINE_LIMIT));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    }
}
