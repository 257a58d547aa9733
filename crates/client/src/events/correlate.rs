//! Which events are written, and which are counted in one that is there.
//!
//! What many pods of one owner have in common is told once for all of them: after a few messages with the same reason
//! they are combined, and the last one stands for all. Whoever has much to tell about one object is heard at first, and
//! then rarely.

use super::event::{EventType, Record};
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::time::Duration;

/// How much is remembered of each kind of thing.
const REMEMBERED: usize = 4096;
/// After so many messages with the same reason they are combined,
const MESSAGES: usize = 10;
/// unless nothing like them came for so long.
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
/// How many events about one object come at once, and how long it takes until there may be one more.
const BURST: f64 = 25.0;
const ONE_PER: Duration = Duration::from_secs(300);

/// What makes two events the same: whom they are about, their tone, their reason, and their message unless they are
/// combined.
pub type Same = (String, EventType, String, Option<String>);

/// Things by key, the oldest forgotten first.
struct Remembered<K, V> {
    by: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Self {
        Remembered { by: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Clone + Eq + Hash, V> Remembered<K, V> {
    fn of(&mut self, key: &K, new: impl FnOnce() -> V) -> &mut V {
        if !self.by.contains_key(key) {
            self.order.push_back(key.clone());
            if self.order.len() > REMEMBERED
                && let Some(oldest) = self.order.pop_front()
            {
                self.by.remove(&oldest);
            }
        }
        self.by.entry(key.clone()).or_insert_with(new)
    }
}

struct Group {
    messages: HashSet<String>,
    last: Duration,
}

struct Bucket {
    left: f64,
    filled: Duration,
}

#[derive(Default)]
pub struct Correlator {
    groups: Remembered<(String, EventType, String), Group>,
    buckets: Remembered<String, Bucket>,
    written: Remembered<Same, (String, i32)>,
}

impl Correlator {
    /// What is written about what was told, if anything: its key and its message. `about` names the object.
    pub fn correlate(&mut self, about: &str, told: &Record, now: Duration) -> Option<(Same, String)> {
        let bucket = self.buckets.of(&about.to_owned(), || Bucket { left: BURST, filled: now });
        let passed = now.saturating_sub(bucket.filled).as_secs_f64();
        bucket.left = (bucket.left + passed / ONE_PER.as_secs_f64()).min(BURST);
        bucket.filled = now;
        if bucket.left < 1.0 {
            return None;
        }
        bucket.left -= 1.0;
        let key = (about.to_owned(), told.tone, told.reason.clone());
        let group = self.groups.of(&key, || Group { messages: HashSet::new(), last: now });
        if now.saturating_sub(group.last) > SIMILAR_WITHIN {
            group.messages.clear();
        }
        group.last = now;
        let is_known = group.messages.contains(&told.message);
        if is_known || group.messages.len() + 1 < MESSAGES {
            group.messages.insert(told.message.clone());
            return Some(((key.0, key.1, key.2, Some(told.message.clone())), told.message.clone()));
        }
        let message = format!("(combined from similar events): {}", told.message);
        Some(((key.0, key.1, key.2, None), message))
    }

    /// The event that was written for a key, and how often it was told.
    pub fn written(&self, same: &Same) -> Option<(String, i32)> {
        self.written.by.get(same).cloned()
    }

    pub fn remember(&mut self, same: &Same, name: String, count: i32) {
        *self.written.of(same, Default::default) = (name, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(message: &str) -> Record {
        Record {
            about: Default::default(),
            tone: EventType::Normal,
            reason: "Made".to_owned(),
            message: message.to_owned(),
        }
    }

    #[test]
    fn many_messages_are_combined() {
        let mut correlator = Correlator::default();
        let mut say = |message: &str, seconds| {
            let now = Duration::from_secs(seconds);
            correlator.correlate("a", &told(message), now).map(|(same, message)| (same.3.is_none(), message))
        };
        for turn in 0..9 {
            assert_eq!(say(&format!("m{turn}"), 0), Some((false, format!("m{turn}"))));
        }
        assert_eq!(say("m9", 1), Some((true, "(combined from similar events): m9".to_owned())));
        // what was told alone goes on alone
        assert_eq!(say("m3", 1), Some((false, "m3".to_owned())));
        // much later it begins anew
        assert_eq!(say("m9", 700), Some((false, "m9".to_owned())));
    }

    #[test]
    fn who_tells_too_much_is_heard_rarely() {
        let mut correlator = Correlator::default();
        let mut say = |about: &str, seconds| {
            correlator.correlate(about, &told("m"), Duration::from_secs(seconds)).is_some()
        };
        assert_eq!((0..100).filter(|_| say("a", 0)).count(), 25);
        assert!(say("b", 0) && !say("a", 299) && say("a", 301) && !say("a", 302));
    }

    #[test]
    fn little_is_remembered() {
        let mut correlator = Correlator::default();
        let same = |turn: usize| (turn.to_string(), EventType::Normal, String::new(), None);
        for turn in 0..REMEMBERED + 10 {
            correlator.correlate(&turn.to_string(), &told("m"), Duration::ZERO);
            correlator.remember(&same(turn), "event".to_owned(), 1);
        }
        assert_eq!(correlator.buckets.by.len(), REMEMBERED);
        assert!(correlator.written(&same(0)).is_none() && correlator.written(&same(REMEMBERED)).is_some());
    }
}
