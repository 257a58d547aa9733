//! The end of an agent after a number of calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Counts the calls that an agent makes before it is killed. The last one takes effect, and never returns to its caller.
pub struct CallLimit {
    left: AtomicUsize,
    reached: Notify,
}

impl CallLimit {
    pub fn new(calls: usize) -> Arc<Self> {
        Arc::new(CallLimit { left: AtomicUsize::new(calls), reached: Notify::new() })
    }

    /// Counts a call that has taken effect. Says whether its caller lives on.
    pub fn count(&self) -> bool {
        let before = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1));
        let is_alive = before.is_ok_and(|left| left > 1);
        if !is_alive {
            self.reached.notify_one();
        }
        is_alive
    }

    pub fn is_reached(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Completes when the last call was made.
    pub async fn reached(&self) {
        self.reached.notified().await;
    }
}
