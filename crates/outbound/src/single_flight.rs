//! Merges concurrent equal requests into one call.
//!
//! Invariants: every waiter gets the one result. If the caller that makes the call is cancelled, the next waiter
//! makes it. No result is kept once all waiters are gone; a [`TtlCache`](crate::TtlCache) does that.

use crate::ttl_cache::Key;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// See the module.
pub struct SingleFlight<V> {
    open: Mutex<HashMap<Key, Arc<OnceCell<V>>>>,
}

impl<V> Default for SingleFlight<V> {
    fn default() -> Self {
        SingleFlight { open: Mutex::default() }
    }
}

impl<V: Clone> SingleFlight<V> {
    /// The result for `key`: of the call in flight, or of `ask` if there is none.
    pub async fn ask(&self, key: Key, ask: impl Future<Output = V>) -> V {
        let cell = self.open.lock().entry(key).or_default().clone();
        let waiting = Waiter { open: &self.open, key, cell };
        waiting.cell.get_or_init(|| ask).await.clone()
    }
}

/// One waiter.
struct Waiter<'a, V> {
    open: &'a Mutex<HashMap<Key, Arc<OnceCell<V>>>>,
    key: Key,
    cell: Arc<OnceCell<V>>,
}

impl<V> Drop for Waiter<'_, V> {
    fn drop(&mut self) {
        let mut open = self.open.lock();
        // a finished call is forgotten at once; an unfinished one when its last waiter leaves
        let last = Arc::strong_count(&self.cell) <= 2;
        if open.get(&self.key).is_some_and(|it| Arc::ptr_eq(it, &self.cell) && (it.initialized() || last)) {
            open.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::Semaphore;

    #[tokio::test]
    async fn concurrent_callers_share_one_call() {
        let (flight, calls) = (Arc::new(SingleFlight::default()), Arc::new(AtomicUsize::new(0)));
        let answers = Arc::new(Semaphore::new(0));
        let ask = |key: u8| {
            let (flight, calls, answers) = (flight.clone(), calls.clone(), answers.clone());
            tokio::spawn(async move {
                let ask = async {
                    let at = calls.fetch_add(1, Ordering::SeqCst);
                    answers.acquire().await.unwrap().forget();
                    at
                };
                flight.ask([key; 32], ask).await
            })
        };
        let waiting: Vec<_> = (0..10).map(|_| ask(1)).collect();
        let other = ask(2);
        while calls.load(Ordering::SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        // the first caller is cancelled
        waiting[0].abort();
        while calls.load(Ordering::SeqCst) < 3 {
            tokio::task::yield_now().await;
        }
        answers.add_permits(2);
        for one in waiting.into_iter().skip(1) {
            assert_eq!(one.await.unwrap(), 2);
        }
        assert_eq!(other.await.unwrap(), 1);
        assert!(flight.open.lock().is_empty());
        answers.add_permits(1);
        assert_eq!(ask(1).await.unwrap(), 3, "what was answered is not kept");
        let gone = ask(3);
        while calls.load(Ordering::SeqCst) < 5 {
            tokio::task::yield_now().await;
        }
        gone.abort();
        let _ = gone.await;
        assert!(flight.open.lock().is_empty());
    }
}
