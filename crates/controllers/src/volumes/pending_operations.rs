//! Work on volumes that others carry out: since when they have been at it.

use metrics::seconds;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// Upper bounds of the times that work on volumes takes, in seconds.
pub const BOUNDS: &[u64] =
    &seconds([0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0]);

/// What was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    pub operation: &'static str,
    /// Who does it.
    pub by: String,
    pub since: Duration,
}

/// Operations that have not ended, by object.
pub struct PendingOperations<K>(Mutex<HashMap<K, Work>>);

impl<K> Default for PendingOperations<K> {
    fn default() -> Self {
        PendingOperations(Mutex::default())
    }
}

impl<K: Eq + Hash> PendingOperations<K> {
    /// Something is asked for. Asking again for the same begins nothing anew.
    pub fn begin(&self, key: K, work: Work) {
        let mut all = self.0.lock();
        if all.get(&key).is_none_or(|it| it.operation != work.operation) {
            all.insert(key, work);
        }
    }

    pub fn get(&self, key: &K) -> Option<Work> {
        self.0.lock().get(key).cloned()
    }

    /// It has come to an end, or nobody waits for it any longer.
    pub fn end(&self, key: &K) -> Option<Work> {
        self.0.lock().remove(key)
    }

    /// It failed and is tried again, from now on.
    pub fn again(&self, key: &K, now: Duration) {
        if let Some(work) = self.0.lock().get_mut(key) {
            work.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_twice_has_begun_once() {
        let (underway, at) = (PendingOperations::default(), Duration::from_secs);
        let work = |operation, since| Work { operation, by: "d".to_owned(), since };
        underway.begin("v", work("attach", at(1)));
        underway.begin("v", work("attach", at(2)));
        assert_eq!(underway.get(&"v"), Some(work("attach", at(1))));
        underway.again(&"v", at(3));
        assert_eq!(underway.get(&"v"), Some(work("attach", at(3))));
        // it is to go before it has come
        underway.begin("v", work("detach", at(4)));
        assert_eq!(underway.end(&"v"), Some(work("detach", at(4))));
        assert_eq!(underway.end(&"v"), None);
    }
}
