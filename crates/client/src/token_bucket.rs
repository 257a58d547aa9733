//! A token bucket, as the time at which it is full again.

use std::time::Duration;

/// A rate limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Requests (or events) per second; zero or less is no limit.
    pub per_second: f64,
    /// Requests (or events) that may be sent at once.
    pub burst: u32,
}

impl Default for Rate {
    fn default() -> Self {
        Rate { per_second: 20.0, burst: 30 }
    }
}

/// See the module. It reads no clock: every call has the time of the caller's world.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    /// The time in which a token is refilled.
    interval: Duration,
    burst: u32,
    full_at: Duration,
}

impl TokenBucket {
    /// A full bucket. A rate of zero or less is no limit.
    pub fn new(rate: Rate) -> Self {
        let interval = match rate.per_second > 0.0 {
            true => Duration::from_secs_f64(1.0 / rate.per_second),
            false => Duration::ZERO,
        };
        TokenBucket { interval, burst: rate.burst.max(1), full_at: Duration::ZERO }
    }

    /// Takes a token that may be refilled later, and returns how long that takes.
    pub fn reserve(&mut self, now: Duration) -> Duration {
        self.full_at = self.full_at_after_one(now);
        self.wait(self.full_at, now)
    }

    /// Takes a token, if there is one.
    pub fn take(&mut self, now: Duration) -> bool {
        let full_at = self.full_at_after_one(now);
        let is_there = self.wait(full_at, now).is_zero();
        if is_there {
            self.full_at = full_at;
        }
        is_there
    }

    fn full_at_after_one(&self, now: Duration) -> Duration {
        now.max(self.full_at).saturating_add(self.interval)
    }

    fn wait(&self, full_at: Duration, now: Duration) -> Duration {
        full_at.saturating_sub(now).saturating_sub(self.interval.saturating_mul(self.burst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(per_second: f64, burst: u32) -> TokenBucket {
        TokenBucket::new(Rate { per_second, burst })
    }

    #[test]
    fn a_burst_is_free_and_further_reservations_wait() {
        let mut bucket = bucket(10.0, 3);
        let mut waits = |now| -> Vec<u128> {
            (0..5).map(|_| bucket.reserve(Duration::from_secs(now)).as_millis()).collect()
        };
        assert_eq!(waits(0), [0, 0, 0, 100, 200]);
        assert_eq!(waits(60), [0, 0, 0, 100, 200]);
    }

    #[test]
    fn an_empty_bucket_refuses_and_refills_with_time() {
        let mut bucket = bucket(50.0, 2);
        let taken: Vec<bool> =
            [0, 0, 0, 20, 21].into_iter().map(|time| bucket.take(Duration::from_millis(time))).collect();
        assert_eq!(taken, [true, true, false, true, false]);
        let much_later = Duration::from_secs(3600);
        assert_eq!(
            (0..10).filter(|_| bucket.take(much_later)).count(),
            2,
            "silence saves up no more than the burst"
        );
    }

    #[test]
    fn a_rate_of_zero_is_no_limit() {
        let mut bucket = bucket(-1.0, 0);
        assert!((0..100).all(|_| bucket.reserve(Duration::ZERO).is_zero() && bucket.take(Duration::ZERO)));
    }
}
