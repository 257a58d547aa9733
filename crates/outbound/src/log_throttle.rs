//! Throttle for log lines of events that are frequent under pressure.

use env::io::RealInstant;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Minimum interval of a log line.
const EVERY: Duration = Duration::from_secs(10);

/// Lets one of many lines through, and counts the suppressed ones.
#[derive(Debug)]
pub struct LogThrottle {
    began: RealInstant,
    /// When the next line may be logged, in milliseconds since `began`.
    next_ms: AtomicU64,
    suppressed: AtomicU64,
}

impl Default for LogThrottle {
    fn default() -> Self {
        LogThrottle { began: RealInstant::now(), next_ms: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }
}

impl LogThrottle {
    /// Whether to log now; returns the number of lines suppressed before.
    pub fn now(&self) -> Option<u64> {
        self.at(self.began.elapsed())
    }

    fn at(&self, elapsed: Duration) -> Option<u64> {
        let now_ms = elapsed.as_millis() as u64;
        let due = self.next_ms.load(Ordering::Relaxed);
        let next = now_ms + EVERY.as_millis() as u64;
        let mine = now_ms >= due
            && self.next_ms.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if mine {
            return Some(self.suppressed.swap(0, Ordering::Relaxed));
        }
        self.suppressed.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_of_many_is_logged() {
        let throttle = LogThrottle::default();
        let at = |ms| throttle.at(Duration::from_millis(ms));
        assert_eq!((at(5), at(6), at(9_000)), (Some(0), None, None));
        assert_eq!((at(10_005), at(10_006), at(90_000)), (Some(2), None, Some(1)));
    }
}
