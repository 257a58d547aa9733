//! The backoff of a pod after failed attempts.

use std::time::Duration;

/// Doubles from `initial` with each attempt, up to `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub initial: Duration,
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { initial: Duration::from_secs(1), max: Duration::from_secs(10) }
    }
}

impl Backoff {
    /// The backoff after a number of attempts.
    pub fn after(&self, attempts: u32) -> Duration {
        let mut backoff = self.initial;
        if backoff.is_zero() {
            return backoff;
        }
        // ends after 90 rounds at the latest: a duration cannot double more often
        for _ in 1..attempts {
            if backoff > self.max.saturating_sub(backoff) {
                return self.max;
            }
            backoff = backoff.saturating_add(backoff);
        }
        backoff
    }
}
