//! Throttle for log lines of events that are frequent under pressure.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// How often the same thing is told.
const EVERY: Duration = Duration::from_secs(10);

/// Lets one of many through, and counts the others.
#[derive(Debug)]
pub struct LogThrottle {
    began: Instant,
    /// When it may be told again, in milliseconds since then.
    next_ms: AtomicU64,
    kept_back: AtomicU64,
}

impl Default for LogThrottle {
    fn default() -> Self {
        LogThrottle { began: Instant::now(), next_ms: AtomicU64::new(0), kept_back: AtomicU64::new(0) }
    }
}

impl LogThrottle {
    /// Whether to tell it now; gives how many times it was kept back before.
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
            return Some(self.kept_back.swap(0, Ordering::Relaxed));
        }
        self.kept_back.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_many_is_told() {
        let seldom = LogThrottle::default();
        let at = |ms| seldom.at(Duration::from_millis(ms));
        assert_eq!((at(5), at(6), at(9_000)), (Some(0), None, None));
        assert_eq!((at(10_005), at(10_006), at(90_000)), (Some(2), None, Some(1)));
    }
}
