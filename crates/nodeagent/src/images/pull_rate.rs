//! The rate of pulls: a bucket of tokens, one per pull.

use parking_lot::Mutex;
use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub struct PullRate {
    per_second: f64,
    burst: f64,
    /// The tokens that were left, and when, by the monotonic clock.
    left: Mutex<(f64, Duration)>,
}

impl PullRate {
    /// `None` for a rate of zero or less, which is no limit.
    pub fn new(per_second: i64, burst: i64) -> Option<Self> {
        let burst = burst as f64;
        let left = Mutex::new((burst, Duration::ZERO));
        (per_second > 0).then_some(PullRate { per_second: per_second as f64, burst, left })
    }

    /// Takes a token, if there is one.
    pub fn take(&self, now: Duration) -> bool {
        let mut left = self.left.lock();
        let passed = now.saturating_sub(left.1).as_secs_f64();
        let tokens = (left.0 + passed * self.per_second).min(self.burst);
        let is_taken = tokens >= 1.0;
        *left = (if is_taken { tokens - 1.0 } else { tokens }, now);
        is_taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pulls_have_a_burst_and_a_rate() {
        let rate = PullRate::new(2, 3).unwrap();
        let at = |millis| rate.take(Duration::from_millis(millis));
        assert_eq!([at(0), at(0), at(0), at(0)], [true, true, true, false]);
        assert_eq!([at(400), at(500), at(900), at(1000)], [false, true, false, true]);
        assert_eq!([at(60_000), at(60_000), at(60_000), at(60_000)], [true, true, true, false]);
        assert!(PullRate::new(0, 10).is_none());
    }
}
