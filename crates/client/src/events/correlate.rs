//! The correlator: chooses which events are written, and which increment the count of an existing one.
//!
//! After some events about one object with the same reason and different messages, further ones are combined into one with
//! the last message. A token bucket per object limits the rate.

use super::event::{EventType, Record};
use crate::token_bucket::{Rate, TokenBucket};
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::time::Duration;

/// The size of each map.
const REMEMBERED: usize = 4096;
/// The number of different messages with one reason from which on they are combined.
const MESSAGES: usize = 10;
/// The quiet time after which a group begins anew.
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
/// The rate of the events of an object.
const OF_OBJECT: Rate = Rate { per_second: 1.0 / 300.0, burst: 25 };

/// The identity of an event: object with its part, type, reason, and message unless it is combined.
pub type EventKey = (String, EventType, String, Option<String>);

/// A map of bounded size that evicts the oldest key.
struct BoundedMap<K, V> {
    by: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K, V> Default for BoundedMap<K, V> {
    fn default() -> Self {
        BoundedMap { by: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Clone + Eq + Hash, V> BoundedMap<K, V> {
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

#[derive(Default)]
pub struct Correlator {
    groups: BoundedMap<(String, EventType, String), Group>,
    buckets: BoundedMap<String, TokenBucket>,
    written: BoundedMap<EventKey, (String, i32)>,
}

impl Correlator {
    /// The key and the message to write; `None` if the rate limit drops the event. `about` names the object.
    pub fn correlate(&mut self, about: &str, record: &Record, now: Duration) -> Option<(EventKey, String)> {
        if !self.buckets.of(&about.to_owned(), || TokenBucket::new(OF_OBJECT)).take(now) {
            return None;
        }
        let group_key = (about.to_owned(), record.event_type, record.reason.clone());
        // the same event about two parts of an object is two events
        let identity = format!("{about}/{}", record.about.field_path);
        let group = self.groups.of(&group_key, || Group { messages: HashSet::new(), last: now });
        if now.saturating_sub(group.last) > SIMILAR_WITHIN {
            group.messages.clear();
        }
        group.last = now;
        let is_known = group.messages.contains(&record.message);
        if is_known || group.messages.len() + 1 < MESSAGES {
            group.messages.insert(record.message.clone());
            return Some((
                (identity, group_key.1, group_key.2, Some(record.message.clone())),
                record.message.clone(),
            ));
        }
        let message = format!("(combined from similar events): {}", record.message);
        Some(((identity, group_key.1, group_key.2, None), message))
    }

    /// The name and the count of the event that was written for a key.
    pub fn written(&self, key: &EventKey) -> Option<(String, i32)> {
        self.written.by.get(key).cloned()
    }

    pub fn remember(&mut self, key: &EventKey, name: String, count: i32) {
        *self.written.of(key, Default::default) = (name, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(message: &str) -> Record {
        Record {
            source: Default::default(),
            about: Default::default(),
            event_type: EventType::Normal,
            reason: "Made".to_owned(),
            message: message.to_owned(),
        }
    }

    #[test]
    fn many_messages_are_combined() {
        let mut correlator = Correlator::default();
        let mut say = |message: &str, seconds| {
            let now = Duration::from_secs(seconds);
            correlator.correlate("a", &record(message), now).map(|(key, message)| (key.3.is_none(), message))
        };
        for turn in 0..9 {
            assert_eq!(say(&format!("m{turn}"), 0), Some((false, format!("m{turn}"))));
        }
        assert_eq!(say("m9", 1), Some((true, "(combined from similar events): m9".to_owned())));
        // a message that has its own event keeps it
        assert_eq!(say("m3", 1), Some((false, "m3".to_owned())));
        // much later it begins anew
        assert_eq!(say("m9", 700), Some((false, "m9".to_owned())));
    }

    #[test]
    fn a_bucket_per_object_limits_the_rate() {
        let mut correlator = Correlator::default();
        let mut say = |about: &str, seconds| {
            correlator.correlate(about, &record("m"), Duration::from_secs(seconds)).is_some()
        };
        assert_eq!((0..100).filter(|_| say("a", 0)).count(), 25);
        assert!(say("b", 0) && !say("a", 299) && say("a", 301) && !say("a", 302));
    }

    #[test]
    fn maps_are_bounded() {
        let mut correlator = Correlator::default();
        let key = |turn: usize| (turn.to_string(), EventType::Normal, String::new(), None);
        for turn in 0..REMEMBERED + 10 {
            correlator.correlate(&turn.to_string(), &record("m"), Duration::ZERO);
            correlator.remember(&key(turn), "event".to_owned(), 1);
        }
        assert_eq!(correlator.buckets.by.len(), REMEMBERED);
        assert!(correlator.written(&key(0)).is_none() && correlator.written(&key(REMEMBERED)).is_some());
    }
}
