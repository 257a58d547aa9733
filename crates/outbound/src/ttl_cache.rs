//! What other servers answered, kept for a while.
//!
//! What always holds: nothing is given out after its time, and there is never more than a number of answers
//! and a total of bytes; what was not used for the longest time goes first. Questions are not kept, only a
//! digest of them that nobody outside can compute: they may be secrets.

use env::{World, random_u64};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Stands for a question.
pub type Key = [u8; 32];

/// See the module.
pub struct TtlCache<V> {
    world: World,
    salt: [u64; 4],
    most: usize,
    most_bytes: usize,
    kept: Mutex<Kept<V>>,
}

struct Kept<V> {
    answers: HashMap<Key, Answer<V>>,
    /// When each was used, counted in uses.
    order: BTreeMap<u64, Key>,
    uses: u64,
    bytes: usize,
}

struct Answer<V> {
    value: V,
    bytes: usize,
    until: Duration,
    used: u64,
}

impl<V: Clone> TtlCache<V> {
    /// Keeps so many answers, of so many bytes together.
    pub fn new(world: World, most: usize, most_bytes: usize) -> Self {
        let salt = std::array::from_fn(|_| random_u64(&world));
        let kept = Kept { answers: HashMap::new(), order: BTreeMap::new(), uses: 0, bytes: 0 };
        TtlCache { world, salt, most, most_bytes, kept: Mutex::new(kept) }
    }

    /// What stands for a question that has these parts.
    pub fn key<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> Key {
        let mut digest = Sha256::new();
        for word in self.salt {
            digest.update(word.to_le_bytes());
        }
        for part in parts {
            // so that no two questions look alike when put together
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        digest.finalize().into()
    }

    /// What was answered, if that is still good.
    pub fn get(&self, key: &Key) -> Option<V> {
        let now = self.world.elapsed();
        let mut kept = self.kept.lock();
        let kept = &mut *kept;
        let answer = kept.answers.get_mut(key)?;
        if answer.until <= now {
            kept.remove(key);
            return None;
        }
        kept.order.remove(&answer.used);
        kept.uses += 1;
        answer.used = kept.uses;
        kept.order.insert(kept.uses, *key);
        Some(answer.value.clone())
    }

    /// How many answers there are.
    pub fn count(&self) -> usize {
        self.kept.lock().answers.len()
    }

    /// Keeps an answer of about so many bytes for a time. One that would push out most of the others is not kept.
    pub fn put(&self, key: Key, value: V, bytes: usize, time: Duration) {
        let until = self.world.elapsed().saturating_add(time);
        if time.is_zero() || bytes > self.most_bytes / 2 {
            return;
        }
        let mut kept = self.kept.lock();
        kept.remove(&key);
        kept.uses += 1;
        let used = kept.uses;
        kept.bytes += bytes;
        kept.order.insert(used, key);
        kept.answers.insert(key, Answer { value, bytes, until, used });
        while kept.answers.len() > self.most || kept.bytes > self.most_bytes {
            let Some((_, oldest)) = kept.order.pop_first() else { break };
            kept.remove(&oldest);
        }
    }
}

impl<V> Kept<V> {
    fn remove(&mut self, key: &Key) {
        if let Some(answer) = self.answers.remove(key) {
            self.order.remove(&answer.used);
            self.bytes -= answer.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Simulated;

    #[test]
    fn answers_are_good_for_their_time() {
        let world = Simulated::new(1000, 7);
        let memory = TtlCache::new(world.clone(), 10, 1000);
        let key = memory.key([&b"q"[..]]);
        memory.put(key, "a", 1, Duration::from_secs(5));
        world.advance(Duration::from_millis(4999));
        assert_eq!(memory.get(&key), Some("a"));
        // being used does not make it live longer
        world.advance(Duration::from_millis(1));
        assert_eq!(memory.get(&key), None);
        memory.put(key, "b", 1, Duration::ZERO);
        assert_eq!(memory.get(&key), None);
        assert_eq!(memory.kept.lock().order.len(), 0);
    }

    #[test]
    fn there_is_never_too_much_and_the_unused_goes_first() {
        let memory = TtlCache::new(Simulated::new(1000, 7), 3, 100);
        let key = |name: &str| memory.key([name.as_bytes()]);
        let keep = |name: &'static str, bytes| memory.put(key(name), name, bytes, Duration::from_secs(1));
        for name in ["a", "b", "c"] {
            keep(name, 1);
        }
        assert_eq!(memory.get(&key("a")), Some("a"));
        keep("d", 1);
        let there = |names: &[&str]| {
            let found: Vec<_> = ["a", "b", "c", "d", "e", "f"]
                .into_iter()
                .filter(|it| memory.kept.lock().answers.contains_key(&key(it)))
                .collect();
            assert_eq!(found, names);
        };
        there(&["a", "c", "d"]);
        keep("e", 51);
        there(&["a", "c", "d"]);
        keep("e", 50);
        keep("f", 50);
        there(&["e", "f"]);
        keep("f", 49);
        there(&["e", "f"]);
        assert_eq!(memory.kept.lock().bytes, 99);
    }

    #[test]
    fn questions_are_told_apart_and_cannot_be_guessed() {
        let (one, other) = (Simulated::new(0, 1), Simulated::new(0, 2));
        let (one, other) = (TtlCache::<()>::new(one, 1, 1), TtlCache::<()>::new(other, 1, 1));
        assert_ne!(one.key([&b"ab"[..], b"c"]), one.key([&b"a"[..], b"bc"]));
        assert_ne!(one.key([&b"a"[..]]), other.key([&b"a"[..]]));
    }
}
