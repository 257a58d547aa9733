//! Reads the log of a container.
//!
//! Invariants: memory does not grow with the file; lines that are no log lines are skipped. A log that is not followed
//! ends where the file ended when it was opened. A followed log ends when its container has ended and all of it was read. A file that was rotated is opened again. A followed file is read
//! when the kernel reports a change; where it does not, in intervals.

use super::line::LogLine;
use super::options::LogOptions;
use super::tail::start_of_last;
use crate::file_watch::FileWatch;
use futures_util::future::BoxFuture;
use std::io::{self, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncSeekExt, BufReader};

/// The interval between reads of a followed file that cannot be watched.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Reads of such a file without new lines, before the state of the container is read.
const READS_PER_STATE: u32 = 10;
/// The time before the state of a container without new lines is read; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The longest line; runtimes split output into much shorter ones.
const LINE_LIMIT: usize = 1 << 20;

/// The receiver of a log. An error ends the reading.
pub trait LogSink: Send {
    /// Output of a stream.
    fn write<'a>(&'a mut self, bytes: &'a [u8], is_stderr: bool) -> BoxFuture<'a, io::Result<()>>;
    /// All lines that there are were written.
    fn flush(&mut self) -> BoxFuture<'_, io::Result<()>>;
}

/// Reads a log into a sink. `is_running` says whether the container may write more.
pub async fn read(
    path: &Path,
    options: &LogOptions,
    is_running: impl Fn() -> BoxFuture<'static, bool>,
    sink: &mut dyn LogSink,
) -> io::Result<()> {
    // before the first read, so that no change is missed
    let directory = path.parent().filter(|_| options.follow);
    let mut watch = directory.and_then(|directory| FileWatch::new(directory).ok());
    let mut file = File::open(path).await?;
    let metadata = file.metadata().await?;
    let (end, mut inode) = (metadata.len(), metadata.ino());
    let start = match options.tail_lines {
        Some(lines) => start_of_last(&mut file, end, lines).await?,
        None => 0,
    };
    file.seek(SeekFrom::Start(start)).await?;
    // lines that a container writes meanwhile belong to a log that is followed only
    let limit = if options.follow { u64::MAX } else { end - start };
    let mut reader = BufReader::new(file.take(limit));
    let mut writer = LineWriter::new(options, sink);
    let mut line = Vec::new();
    let (mut quiet_reads, mut pause, mut is_ended) = (0, FIRST_PAUSE, !options.follow);
    loop {
        let is_whole = read_line(&mut reader, &mut line).await?;
        if is_whole || is_ended && !line.is_empty() {
            let is_open = writer.write(&line).await?;
            line.clear();
            (quiet_reads, pause) = (0, FIRST_PAUSE);
            if !is_open {
                return writer.flush().await;
            }
            continue;
        }
        writer.flush().await?;
        if is_ended {
            return Ok(());
        }
        quiet_reads += 1;
        let is_state_due = quiet_reads > 1 && (watch.is_some() || quiet_reads % READS_PER_STATE == 0);
        if is_state_due && !is_running().await {
            // what was written before the end is read once more
            is_ended = true;
            continue;
        }
        match &mut watch {
            Some(changes) => match env::io::timeout(pause, changes.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => watch = None,
                Err(_) => pause = (pause * 2).min(LONGEST_PAUSE),
            },
            None => env::io::sleep(POLL_INTERVAL).await,
        }
        // after a rotation the rest of the old file was read above
        if let Ok(current) = tokio::fs::metadata(path).await
            && current.ino() != inode
        {
            reader = BufReader::new(File::open(path).await?.take(u64::MAX));
            inode = current.ino();
            line.clear();
        }
    }
}

/// Appends to a line up to its newline; false at the end of the file so far.
async fn read_line(reader: &mut BufReader<impl AsyncRead + Unpin>, line: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        let available = reader.fill_buf().await?;
        if available.is_empty() {
            return Ok(false);
        }
        let newline = available.iter().position(|byte| *byte == b'\n');
        let count = newline.map_or(available.len(), |at| at + 1);
        // the rest of a line that is too long is dropped
        let kept = count.min(LINE_LIMIT.saturating_sub(line.len()));
        line.extend_from_slice(&available[..kept]);
        reader.consume(count);
        if newline.is_some() {
            return Ok(true);
        }
    }
}

/// Writes lines as the options want them.
pub(super) struct LineWriter<'a> {
    options: &'a LogOptions,
    sink: &'a mut dyn LogSink,
    /// Bytes that may still be written.
    rest: Option<u64>,
    is_line_start: bool,
}

impl<'a> LineWriter<'a> {
    pub fn new(options: &'a LogOptions, sink: &'a mut dyn LogSink) -> Self {
        LineWriter { options, sink, rest: options.limit_bytes, is_line_start: true }
    }

    pub async fn flush(&mut self) -> io::Result<()> {
        self.sink.flush().await
    }

    /// False when nothing more may be written.
    pub async fn write(&mut self, line: &[u8]) -> io::Result<bool> {
        let Some(parsed) = LogLine::parse(line) else { return Ok(true) };
        if self.options.since_nanos.is_some_and(|since| parsed.nanos() < since) {
            return Ok(true);
        }
        let mut out = Vec::with_capacity(line.len());
        if self.options.timestamps && self.is_line_start {
            out.extend_from_slice(parsed.time);
            out.push(b' ');
        }
        out.extend_from_slice(parsed.text);
        if !parsed.is_partial {
            out.push(b'\n');
        }
        self.is_line_start = !parsed.is_partial;
        if let Some(rest) = &mut self.rest {
            out.truncate(usize::try_from(*rest).unwrap_or(usize::MAX));
            *rest -= out.len() as u64;
        }
        self.sink.write(&out, parsed.is_stderr).await?;
        Ok(self.rest != Some(0))
    }
}

#[cfg(test)]
mod tests {
    use super::super::text_sink::Text;
    use super::*;
    use futures_util::FutureExt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::sync::watch;

    /// A text that others can wait for.
    struct FlushedText {
        text: Text,
        flushed: watch::Sender<Vec<u8>>,
    }

    impl LogSink for FlushedText {
        fn write<'a>(&'a mut self, bytes: &'a [u8], is_stderr: bool) -> BoxFuture<'a, io::Result<()>> {
            self.text.write(bytes, is_stderr)
        }

        fn flush(&mut self) -> BoxFuture<'_, io::Result<()>> {
            self.flushed.send_replace(self.text.0.clone());
            self.text.flush()
        }
    }

    const LOG: &str = "2020-01-01T00:00:00Z stdout P one \n2020-01-01T00:00:01Z stdout F two\nbroken\n\
                       2020-01-01T00:00:02.5Z stderr F three\n2020-01-01T00:00:03Z stdout P four";

    async fn check(options: LogOptions, expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        std::fs::write(&path, LOG).unwrap();
        let mut text = Text::default();
        read(&path, &options, || async { false }.boxed(), &mut text).await.unwrap();
        assert_eq!(String::from_utf8(text.0).unwrap(), expected, "{options:?}");
    }

    #[tokio::test]
    async fn options_select_lines() {
        let usual = LogOptions::default;
        check(usual(), "one two\nthree\nfour").await;
        check(
            LogOptions { timestamps: true, ..usual() },
            "2020-01-01T00:00:00Z one two\n2020-01-01T00:00:02.5Z three\n2020-01-01T00:00:03Z four",
        )
        .await;
        check(LogOptions { tail_lines: Some(2), ..usual() }, "three\nfour").await;
        check(LogOptions { tail_lines: Some(0), ..usual() }, "").await;
        check(LogOptions { limit_bytes: Some(10), ..usual() }, "one two\nth").await;
        let since_nanos = Some(1_577_836_802_000_000_000);
        check(LogOptions { since_nanos, ..usual() }, "three\nfour").await;
        check(LogOptions { follow: true, ..usual() }, "one two\nthree\nfour").await;
    }

    /// Appends a line to the log with each line that it gets.
    struct GrowingLog {
        text: Text,
        path: std::path::PathBuf,
    }

    impl LogSink for GrowingLog {
        fn write<'a>(&'a mut self, bytes: &'a [u8], is_stderr: bool) -> BoxFuture<'a, io::Result<()>> {
            let mut log = std::fs::read(&self.path).unwrap();
            log.extend_from_slice(b"2020-01-01T00:00:09Z stdout F later\n");
            std::fs::write(&self.path, log).unwrap();
            self.text.write(bytes, is_stderr)
        }

        fn flush(&mut self) -> BoxFuture<'_, io::Result<()>> {
            self.text.flush()
        }
    }

    #[tokio::test]
    async fn lines_that_a_container_writes_meanwhile_are_not_among_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        for (tail_lines, expected) in [(Some(1), "b\n"), (None, "a\nb\n")] {
            let log = "2020-01-01T00:00:00Z stdout F a\n2020-01-01T00:00:01Z stdout F b\n";
            std::fs::write(&path, log).unwrap();
            let mut sink = GrowingLog { text: Text::default(), path: path.clone() };
            let options = LogOptions { tail_lines, ..LogOptions::default() };
            read(&path, &options, || async { true }.boxed(), &mut sink).await.unwrap();
            assert_eq!(String::from_utf8(sink.text.0).unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn a_followed_log_goes_on_over_a_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        std::fs::write(&path, "2020-01-01T00:00:00Z stdout F a\n").unwrap();
        let is_running = Arc::new(AtomicBool::new(true));
        let state = is_running.clone();
        let at = path.clone();
        let (flushed, mut read_text) = watch::channel(Vec::new());
        let reading = tokio::spawn(async move {
            let mut text = FlushedText { text: Text::default(), flushed };
            let options = LogOptions { follow: true, ..LogOptions::default() };
            let running = move || {
                let state = state.clone();
                async move { state.load(Ordering::SeqCst) }.boxed()
            };
            read(&at, &options, running, &mut text).await.unwrap();
            text.text.0
        });
        read_text.wait_for(|it| it == b"a\n").await.unwrap();
        std::fs::rename(&path, folder.path().join("0.log.old")).unwrap();
        std::fs::write(&path, "2020-01-01T00:00:01Z stdout F b\n").unwrap();
        read_text.wait_for(|it| it == b"a\nb\n").await.unwrap();
        is_running.store(false, Ordering::SeqCst);
        assert_eq!(reading.await.unwrap(), b"a\nb\n");
    }
}
