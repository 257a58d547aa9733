//! The revision up to which every cache of a server is complete.
//!
//! The one publisher raises it after a batch has been applied to all caches, never before: a reader of revision R
//! finds every change up to R in any cache that it reads afterwards. It never goes back.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// The published revision, shared by all caches.
#[derive(Default)]
pub struct PublishedRevision {
    revision: AtomicU64,
    raised: Notify,
}

impl PublishedRevision {
    /// Starts at `revision`, the one the caches were loaded at.
    pub fn new(revision: u64) -> Self {
        Self { revision: AtomicU64::new(revision), raised: Notify::new() }
    }

    /// The newest published revision.
    pub fn get(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Declares every change up to `revision` applied. A revision already reached changes nothing.
    pub fn raise(&self, revision: u64) {
        // Release: a reader of this revision sees every change applied before.
        if self.revision.fetch_max(revision, Ordering::AcqRel) < revision {
            self.raised.notify_waiters();
        }
    }

    /// Waits until `revision` is published, for consistent reads; returns the published revision. It has no
    /// timeout: the caller sets one.
    pub async fn reached(&self, revision: u64) -> u64 {
        loop {
            let mut raised = std::pin::pin!(self.raised.notified());
            // Enlisted before looking: a raise between the look and the wait is then not missed.
            raised.as_mut().enable();
            let now = self.get();
            if now >= revision {
                return now;
            }
            raised.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn waits_until_the_revision_is_reached() {
        let published = Arc::new(PublishedRevision::new(5));
        assert_eq!(published.reached(5).await, 5);
        let waiting = tokio::spawn({
            let published = published.clone();
            async move { published.reached(8).await }
        });
        for revision in [6, 7] {
            published.raise(revision);
            tokio::task::yield_now().await;
            assert!(!waiting.is_finished());
        }
        published.raise(9);
        assert_eq!(waiting.await.unwrap(), 9);
        published.raise(3);
        assert_eq!(published.get(), 9);
    }
}
