//! Limit on the connections of a listener.
//!
//! A flood of connections that ask for nothing must not keep out those that do. So each connection says when it comes
//! and goes; when only a quarter of the places is left, all that have no request under way are told, and leave.

use super::LogThrottle;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

pub(super) struct Crowd {
    all: u32,
    places: Arc<Semaphore>,
    /// Fewer free places than this are few.
    few: usize,
    /// How many may come before the others are told again.
    until_told: AtomicUsize,
    told: Notify,
    seldom: LogThrottle,
}

impl Crowd {
    pub(super) fn new(all: u32) -> Self {
        let places = Arc::new(Semaphore::new(all as usize));
        let (few, until_told) = (all as usize / 4, AtomicUsize::new(0));
        Crowd { all, places, few, until_told, told: Notify::new(), seldom: LogThrottle::default() }
    }

    /// A place for one more connection, as soon as there is one.
    pub(super) async fn enter(&self) -> Option<OwnedSemaphorePermit> {
        let free = self.places.available_permits();
        if free <= self.few {
            self.feel(free);
        }
        // an error would mean a closed semaphore, which nobody closes
        self.places.clone().acquire_owned().await.ok()
    }

    /// Telling everybody costs everybody a turn, so it is done for every so many newcomers only, or when it is full.
    fn feel(&self, free: usize) {
        let left = self.until_told.load(Ordering::Relaxed);
        if left > 0 && free > 0 {
            return self.until_told.store(left - 1, Ordering::Relaxed);
        }
        self.until_told.store((self.few / 8).max(1), Ordering::Relaxed);
        if let Some(kept_back) = self.seldom.now() {
            tracing::warn!(
                free,
                all = self.all,
                kept_back,
                "many connections: those without a request are closed"
            );
        }
        self.told.notify_waiters();
    }

    /// Waits until there are too many.
    pub(super) async fn felt(&self) {
        self.told.notified().await;
    }

    /// Waits until nobody is left.
    pub(super) async fn gone(&self) {
        let _ = self.places.acquire_many(self.all).await;
    }
}
