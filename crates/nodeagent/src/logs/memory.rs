//! Reads the log of a container whose runtime writes no file.
//!
//! Invariants: as for files, a log that is not followed ends where it was when it was read first; a followed log ends
//! when its container has ended. Lines with the same time are there together or not at all.

use super::line::LogLine;
use super::options::LogOptions;
use super::reader::{LineWriter, LogSink};
use futures_util::future::BoxFuture;
use std::io;
use std::time::Duration;

/// The interval between reads of a followed log.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The lines of a log up to now, and whether the container may write more.
pub type LogText = (Vec<u8>, bool);

/// Reads a log into a sink.
pub async fn read_text(
    text: impl Fn() -> BoxFuture<'static, io::Result<LogText>>,
    options: &LogOptions,
    sink: &mut dyn LogSink,
) -> io::Result<()> {
    let mut writer = LineWriter::new(options, sink);
    let mut last: Option<Vec<u8>> = None;
    loop {
        let (lines, is_running) = text().await?;
        let lines: Vec<&[u8]> = lines.split_inclusive(|byte| *byte == b'\n').collect();
        let first = match (&last, options.tail_lines) {
            (None, Some(tail)) => lines.len().saturating_sub(usize::try_from(tail).unwrap_or(usize::MAX)),
            _ => 0,
        };
        let is_new = |line: &&&[u8]| {
            let time = LogLine::parse(line).map(|it| it.time);
            last.as_deref().is_none_or(|last| time > Some(last))
        };
        let newest = lines.last().and_then(|line| LogLine::parse(line)).map(|it| it.time.to_vec());
        for line in lines[first..].iter().filter(is_new) {
            if !writer.write(line).await? {
                return writer.flush().await;
            }
        }
        writer.flush().await?;
        if !options.follow || !is_running {
            return Ok(());
        }
        last = newest.or(last).or(Some(Vec::new()));
        env::io::sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::text_sink::Text;
    use super::*;
    use futures_util::FutureExt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const LINES: [&str; 3] = [
        "2020-01-01T00:00:00.000000000Z stdout F a\n2020-01-01T00:00:00.000000000Z stdout F b\n",
        "2020-01-01T00:00:01.000000000Z stdout F c\n",
        "2020-01-01T00:00:02.000000000Z stdout F d\n",
    ];

    /// Reads a log that has one part more at each read, and loses its first part at the third.
    async fn read(options: LogOptions) -> String {
        let reads = Arc::new(AtomicUsize::new(0));
        let text = move || {
            let read = reads.fetch_add(1, Ordering::SeqCst);
            let first = usize::from(read >= 2);
            let lines = LINES[first..=read.min(2)].concat().into_bytes();
            async move { Ok((lines, read < 2)) }.boxed()
        };
        let mut sink = Text::default();
        read_text(text, &options, &mut sink).await.unwrap();
        String::from_utf8(sink.0).unwrap()
    }

    #[tokio::test]
    async fn options_select_lines() {
        let usual = LogOptions::default;
        assert_eq!(read(usual()).await, "a\nb\n");
        assert_eq!(read(LogOptions { tail_lines: Some(1), ..usual() }).await, "b\n");
        assert_eq!(read(LogOptions { limit_bytes: Some(3), ..usual() }).await, "a\nb");
        assert_eq!(read(LogOptions { tail_lines: Some(0), ..usual() }).await, "");
    }

    #[tokio::test]
    async fn a_followed_log_has_each_line_once() {
        let follow = LogOptions { follow: true, ..LogOptions::default() };
        assert_eq!(read(follow.clone()).await, "a\nb\nc\nd\n");
        assert_eq!(read(LogOptions { tail_lines: Some(1), ..follow }).await, "b\nc\nd\n");
    }
}
