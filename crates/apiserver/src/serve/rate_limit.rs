//! Rate limit for the long-lasting responses of one connection.
//!
//! A piece is sent whole and pays afterwards: the next waits until the time that its bytes take at the agreed speed
//! has passed. The answers of one connection share the speed.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct Pace {
    bytes_per_second: u64,
    /// When everything that was sent is paid for.
    paid: Mutex<Instant>,
}

impl Pace {
    /// None where zero bytes are allowed, which means that all are.
    pub(super) fn new(bytes_per_second: u64) -> Option<Self> {
        (bytes_per_second > 0).then(|| Pace { bytes_per_second, paid: Mutex::new(Instant::now()) })
    }

    /// Until when nothing may be sent, if not now.
    pub(super) fn busy_until(&self, now: Instant) -> Option<Instant> {
        let paid = *self.paid.lock();
        (paid > now).then_some(paid)
    }

    pub(super) fn spend(&self, bytes: usize, now: Instant) {
        let takes =
            Duration::from_nanos((bytes as u64).saturating_mul(1_000_000_000) / self.bytes_per_second);
        let mut paid = self.paid.lock();
        *paid = (*paid).max(now) + takes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_paid_for_in_time() {
        assert!(Pace::new(0).is_none());
        let pace = Pace::new(1000).unwrap();
        let began = Instant::now();
        let mut now = began;
        for _ in 0..10 {
            now = pace.busy_until(now).unwrap_or(now);
            pace.spend(500, now);
        }
        // the last piece is sent when the nine before it are paid for
        assert_eq!(now - began, Duration::from_millis(4500));
        let later = now + Duration::from_secs(60);
        assert_eq!(pace.busy_until(later), None);
        pace.spend(500, later);
        let free = pace.busy_until(later);
        assert_eq!(free, Some(later + Duration::from_millis(500)), "silence saves nothing up");
    }
}
