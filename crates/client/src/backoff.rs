//! Exponential backoff of retries.

use std::time::Duration;

/// Waits between retries: each is twice the one before, up to a maximum.
#[derive(Debug, Clone)]
pub struct Backoff {
    next: Duration,
    max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { next: Duration::from_millis(100), max: Duration::from_secs(30) }
    }
}

impl Backoff {
    /// Waits that grow up to this one.
    pub fn up_to(max: Duration) -> Self {
        Backoff { max, ..Backoff::default() }
    }

    /// How long to wait before the next retry.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        pause
    }
}
