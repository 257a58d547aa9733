//! Exponential backoff of retries.

use std::time::Duration;

/// Waits between retries: each is a multiple of the one before, up to a maximum.
#[derive(Debug, Clone)]
pub struct Backoff {
    next: Duration,
    max: Duration,
    factor: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff::new(Duration::from_millis(100), Duration::from_secs(30))
    }
}

impl Backoff {
    /// Waits that double from `first` up to `max`.
    pub const fn new(first: Duration, max: Duration) -> Self {
        Backoff { next: first, max, factor: 2 }
    }

    /// The same with another factor between two waits.
    pub const fn with_factor(self, factor: u32) -> Self {
        Backoff { factor, ..self }
    }

    /// How long to wait before the next retry.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(self.factor).min(self.max);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(mut backoff: Backoff) -> [u128; 5] {
        std::array::from_fn(|_| backoff.pause().as_millis())
    }

    #[test]
    fn waits_grow_up_to_their_maximum() {
        let (first, max) = (Duration::from_millis(10), Duration::from_millis(70));
        assert_eq!(pauses(Backoff::new(first, max)), [10, 20, 40, 70, 70]);
        assert_eq!(pauses(Backoff::new(first, max).with_factor(5)), [10, 50, 70, 70, 70]);
        let mut large = Backoff::new(Duration::MAX, Duration::MAX);
        assert_eq!([large.pause(), large.pause()], [Duration::MAX; 2]);
    }
}
