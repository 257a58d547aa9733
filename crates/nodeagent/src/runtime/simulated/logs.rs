//! Logs of simulated containers: they follow from the behaviour and the times of a container, and are kept nowhere.

use super::behaviour::SimulatedLog;
use std::fmt::Write as _;
use std::time::Duration;

/// The most lines of a log; the first ones are dropped, as by a rotation.
const MAX_LINES: usize = 10_000;

/// Lines of a container that started at a time and wrote until another, both in nanoseconds since the epoch, in the
/// format of log files.
pub fn lines(log: &SimulatedLog, started_at: i64, until: i64) -> Vec<u8> {
    let lines: Vec<&str> = log.text.lines().collect();
    if lines.is_empty() || started_at == 0 {
        return Vec::new();
    }
    let age = u64::try_from(until.saturating_sub(started_at)).unwrap_or(0);
    let every = log.every.map_or(0, |it| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX));
    let last = age.checked_div(every).unwrap_or(0);
    let kept = u64::try_from(MAX_LINES / lines.len()).unwrap_or(0).max(1);
    let mut text = String::new();
    for turn in last.saturating_sub(kept - 1)..=last {
        let at = started_at.saturating_add(i64::try_from(turn.saturating_mul(every)).unwrap_or(i64::MAX));
        let time = timestamp(at);
        for line in &lines {
            // writing to a string cannot fail
            let _ = writeln!(text, "{time} stdout F {line}");
        }
    }
    text.into_bytes()
}

/// A time as runtimes write it: to the nanosecond.
fn timestamp(nanos: i64) -> String {
    let since = Duration::from_nanos(u64::try_from(nanos).unwrap_or(0));
    let seconds = schema::time::format_time(i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
    format!("{}.{:09}Z", seconds.trim_end_matches('Z'), since.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: i64 = 1_577_836_800_000_000_000;

    fn log(text: &str, every_ms: u64) -> SimulatedLog {
        let every = Some(Duration::from_millis(every_ms)).filter(|it| !it.is_zero());
        SimulatedLog { text: text.to_owned(), every }
    }

    fn read(log: &SimulatedLog, age_ms: i64) -> String {
        String::from_utf8(lines(log, START, START + age_ms * 1_000_000)).unwrap()
    }

    #[test]
    fn lines_are_written_at_the_start_and_again_after_each_interval() {
        assert_eq!(
            read(&log("a\nb", 0), 5_000),
            "2020-01-01T00:00:00.000000000Z stdout F a\n2020-01-01T00:00:00.000000000Z stdout F b\n"
        );
        assert_eq!(
            read(&log("tick", 1_500), 3_100),
            "2020-01-01T00:00:00.000000000Z stdout F tick\n2020-01-01T00:00:01.500000000Z stdout F tick\n\
             2020-01-01T00:00:03.000000000Z stdout F tick\n"
        );
    }

    #[test]
    fn a_long_log_keeps_its_last_lines() {
        let text = read(&log("tick", 1), 1_000_000);
        assert_eq!(text.lines().count(), MAX_LINES);
        assert!(
            text.ends_with("2020-01-01T00:16:40.000000000Z stdout F tick\n"),
            "{}",
            &text[text.len() - 80..]
        );
    }

    #[test]
    fn a_container_that_has_not_started_has_no_log() {
        assert!(lines(&log("a", 0), 0, START).is_empty());
        assert_eq!(read(&log("", 0), 1), "");
    }
}
