//! Operations on volumes that external drivers have not finished, with their start times.

use metrics::seconds;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// Histogram buckets of volume operations, in seconds.
pub const BOUNDS: &[u64] =
    &seconds([0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0]);

/// A started operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingOperation {
    pub name: &'static str,
    /// The driver that carries it out.
    pub driver: String,
    pub since: Duration,
    /// Whether the volume is of an in-tree plugin that the driver replaced.
    pub is_migrated: bool,
}

/// Operations that have not ended, by object.
pub struct PendingOperations<K>(Mutex<HashMap<K, PendingOperation>>);

impl<K> Default for PendingOperations<K> {
    fn default() -> Self {
        PendingOperations(Mutex::default())
    }
}

impl<K: Eq + Hash> PendingOperations<K> {
    /// Starts an operation. A repeated start of the same one keeps the first start time.
    pub fn begin(&self, key: K, operation: PendingOperation) {
        let mut all = self.0.lock();
        if all.get(&key).is_none_or(|it| it.name != operation.name) {
            all.insert(key, operation);
        }
    }

    pub fn get(&self, key: &K) -> Option<PendingOperation> {
        self.0.lock().get(key).cloned()
    }

    /// Removes an operation that has finished or is not waited for any more.
    pub fn end(&self, key: &K) -> Option<PendingOperation> {
        self.0.lock().remove(key)
    }

    /// Restarts the time of an operation that failed and is retried.
    pub fn restart(&self, key: &K, now: Duration) {
        if let Some(operation) = self.0.lock().get_mut(key) {
            operation.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_start_keeps_the_first_time() {
        let (pending, at) = (PendingOperations::default(), Duration::from_secs);
        let operation =
            |name, since| PendingOperation { name, driver: "d".to_owned(), since, is_migrated: false };
        pending.begin("v", operation("attach", at(1)));
        pending.begin("v", operation("attach", at(2)));
        assert_eq!(pending.get(&"v"), Some(operation("attach", at(1))));
        pending.restart(&"v", at(3));
        assert_eq!(pending.get(&"v"), Some(operation("attach", at(3))));
        // detached before it was attached
        pending.begin("v", operation("detach", at(4)));
        assert_eq!(pending.end(&"v"), Some(operation("detach", at(4))));
        assert_eq!(pending.end(&"v"), None);
    }
}
