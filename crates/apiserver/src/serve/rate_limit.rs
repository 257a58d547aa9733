//! Rate limit for the streaming responses of one connection.
//!
//! A piece is sent whole and paid for afterwards: the next one waits until the time that its bytes take at
//! the limit has passed. The responses of one connection share the limit.

use env::io::RealInstant;
use parking_lot::Mutex;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct RateLimit {
    bytes_per_second: u64,
    /// When all sent bytes are paid for.
    paid: Mutex<RealInstant>,
}

impl RateLimit {
    /// `None` for zero, which means no limit.
    pub(crate) fn new(bytes_per_second: u64) -> Option<Self> {
        (bytes_per_second > 0).then(|| RateLimit { bytes_per_second, paid: Mutex::new(RealInstant::now()) })
    }

    /// The end of the pause, if nothing may be sent now.
    pub(crate) fn busy_until(&self, now: RealInstant) -> Option<RealInstant> {
        let paid = *self.paid.lock();
        (paid > now).then_some(paid)
    }

    pub(crate) fn spend(&self, bytes: usize, now: RealInstant) {
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
    fn sent_bytes_are_paid_for_in_time() {
        assert!(RateLimit::new(0).is_none());
        let pace = RateLimit::new(1000).unwrap();
        let began = RealInstant::now();
        let mut now = began;
        for _ in 0..10 {
            now = pace.busy_until(now).unwrap_or(now);
            pace.spend(500, now);
        }
        // the last piece is sent when the nine before it are paid for
        assert_eq!(now.since(began), Duration::from_millis(4500));
        let later = now + Duration::from_secs(60);
        assert_eq!(pace.busy_until(later), None);
        pace.spend(500, later);
        let free = pace.busy_until(later);
        assert_eq!(free, Some(later + Duration::from_millis(500)), "silence saves nothing up");
    }
}
