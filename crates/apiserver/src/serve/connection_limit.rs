//! Limit on the connections of a listener.
//!
//! A flood of idle connections must not keep out active ones. When only a quarter of the permits is left, all
//! connections without a request in flight are notified, and close.

use outbound::LogThrottle;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

pub(super) struct ConnectionLimit {
    all: u32,
    permits: Arc<Semaphore>,
    /// Below this number of free permits the limit is under pressure.
    low_water: usize,
    /// New connections until the next notification.
    until_notified: AtomicUsize,
    notify: Notify,
    throttle: LogThrottle,
}

impl ConnectionLimit {
    pub(super) fn new(all: u32) -> Self {
        let permits = Arc::new(Semaphore::new(all as usize));
        let (low_water, until_notified) = (all as usize / 4, AtomicUsize::new(0));
        ConnectionLimit {
            all,
            permits,
            low_water,
            until_notified,
            notify: Notify::new(),
            throttle: LogThrottle::default(),
        }
    }

    /// Waits for a permit.
    pub(super) async fn enter(&self) -> Option<OwnedSemaphorePermit> {
        let free = self.permits.available_permits();
        if free <= self.low_water {
            self.notify_idle(free);
        }
        // the semaphore is never closed
        self.permits.clone().acquire_owned().await.ok()
    }

    /// Notifying wakes every connection, so it happens once per several new connections, or when no permit is
    /// left.
    fn notify_idle(&self, free: usize) {
        let left = self.until_notified.load(Ordering::Relaxed);
        if left > 0 && free > 0 {
            return self.until_notified.store(left - 1, Ordering::Relaxed);
        }
        self.until_notified.store((self.low_water / 8).max(1), Ordering::Relaxed);
        if let Some(suppressed) = self.throttle.now() {
            tracing::warn!(free, all = self.all, suppressed, "many connections: closing idle ones");
        }
        self.notify.notify_waiters();
    }

    /// Waits until the limit is under pressure.
    pub(super) async fn pressure(&self) {
        self.notify.notified().await;
    }

    /// Waits until every connection has closed.
    pub(super) async fn drained(&self) {
        let _ = self.permits.acquire_many(self.all).await;
    }
}
