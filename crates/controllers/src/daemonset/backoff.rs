//! The backoff of nodes on which pods of a daemon set fail.

use api::Resource;
use api::apps::v1::DaemonSet;
use client::Key;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// The time without a failure after which the backoff is reset.
const FORGOTTEN: Duration = Duration::from_secs(30 * 60);

/// Failures by set and node. A restart of the process and a new generation of the set reset them.
#[derive(Default)]
pub struct Failures {
    by_set: Mutex<HashMap<Key, SetFailures>>,
}

#[derive(Default)]
struct SetFailures {
    uid: String,
    generation: i64,
    by_node: HashMap<String, LastFailure>,
}

#[derive(Debug, Clone, Copy)]
struct LastFailure {
    at: Duration,
    pause: Duration,
}

impl Failures {
    /// The time for which a failed pod on a node is not deleted yet.
    pub fn pause(&self, set: &DaemonSet, node: &str, now: Duration) -> Duration {
        let by_set = self.by_set.lock();
        let failed = by_set.get(&Key::of(set)).filter(|it| it.is_of(set));
        let last = failed.and_then(|it| it.by_node.get(node));
        last.map_or(Duration::ZERO, |last| (last.at + last.pause).saturating_sub(now))
    }

    /// Counts a failed pod on a node.
    pub fn note(&self, set: &DaemonSet, node: &str, now: Duration) {
        let mut by_set = self.by_set.lock();
        let failed = by_set.entry(Key::of(set)).or_default();
        if !failed.is_of(set) {
            let (uid, generation) = (set.uid().to_owned(), set.metadata.generation);
            *failed = SetFailures { uid, generation, by_node: HashMap::new() };
        }
        failed.by_node.retain(|_, last| last.at + FORGOTTEN > now);
        let last = failed.by_node.get(node);
        let pause = last.map_or(FIRST, |last| (last.pause * 2).min(LONGEST));
        failed.by_node.insert(node.to_owned(), LastFailure { at: now, pause });
    }

    pub fn forget(&self, key: &Key) {
        self.by_set.lock().remove(key);
    }
}

impl SetFailures {
    fn is_of(&self, set: &DaemonSet) -> bool {
        self.uid == set.metadata.uid && self.generation == set.metadata.generation
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;

    #[test]
    fn pauses_double_for_each_node() {
        let set = |generation: i64| -> DaemonSet {
            object(serde_json::json!({"metadata": {"name": "d", "uid": "u", "generation": generation}}))
        };
        let (failures, at) = (Failures::default(), Duration::from_secs);
        let pause = |node: &str, now| failures.pause(&set(1), node, at(now)).as_secs();
        assert_eq!(pause("a", 100), 0);
        failures.note(&set(1), "a", at(100));
        assert_eq!((pause("a", 100), pause("a", 101), pause("b", 100)), (1, 0, 0));
        failures.note(&set(1), "a", at(101));
        failures.note(&set(1), "a", at(103));
        assert_eq!((pause("a", 103), pause("a", 106)), (4, 1));
        (0..20).for_each(|_| failures.note(&set(1), "a", at(200)));
        assert_eq!(pause("a", 200), 900);
        // another generation
        assert_eq!(failures.pause(&set(2), "a", at(200)), Duration::ZERO);
        // long ago
        failures.note(&set(1), "b", at(300));
        failures.note(&set(1), "a", at(200 + 1800));
        assert_eq!(pause("a", 200 + 1800), 1);
        failures.forget(&Key::of(&set(1)));
        assert_eq!(pause("a", 200 + 1800), 0);
    }
}
