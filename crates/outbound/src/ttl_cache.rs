//! An LRU cache with a TTL for responses of other servers.
//!
//! Invariants: no entry is returned after its TTL, and the cache never exceeds its number of entries or its total
//! bytes; the least recently used entry is evicted first. Requests may contain secrets, so only their keyed digest
//! is stored.

use env::{World, random_u64};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// The keyed digest of a request.
pub type Key = [u8; 32];

/// See the module.
pub struct TtlCache<V> {
    world: World,
    salt: [u64; 4],
    max_entries: usize,
    max_bytes: usize,
    entries: Mutex<Entries<V>>,
}

struct Entries<V> {
    by_key: HashMap<Key, Entry<V>>,
    /// The last use of each entry, counted in uses.
    order: BTreeMap<u64, Key>,
    uses: u64,
    bytes: usize,
}

struct Entry<V> {
    value: V,
    bytes: usize,
    until: Duration,
    used: u64,
}

impl<V: Clone> TtlCache<V> {
    /// A cache of at most so many entries, of so many bytes in total.
    pub fn new(world: World, max_entries: usize, max_bytes: usize) -> Self {
        let salt = std::array::from_fn(|_| random_u64(&world));
        let entries = Entries { by_key: HashMap::new(), order: BTreeMap::new(), uses: 0, bytes: 0 };
        TtlCache { world, salt, max_entries, max_bytes, entries: Mutex::new(entries) }
    }

    /// The key of a request with these parts.
    pub fn key<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> Key {
        let mut digest = Sha256::new();
        for word in self.salt {
            digest.update(word.to_le_bytes());
        }
        for part in parts {
            // the lengths keep the concatenation unambiguous
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        digest.finalize().into()
    }

    /// The entry of a key, unless it has expired.
    pub fn get(&self, key: &Key) -> Option<V> {
        let now = self.world.elapsed();
        let mut entries = self.entries.lock();
        let entries = &mut *entries;
        let answer = entries.by_key.get_mut(key)?;
        if answer.until <= now {
            entries.remove(key);
            return None;
        }
        entries.order.remove(&answer.used);
        entries.uses += 1;
        answer.used = entries.uses;
        entries.order.insert(entries.uses, *key);
        Some(answer.value.clone())
    }

    /// The number of entries.
    pub fn count(&self) -> usize {
        self.entries.lock().by_key.len()
    }

    /// Adds an entry of about so many bytes with a TTL. An entry that would evict most others is not stored.
    pub fn put(&self, key: Key, value: V, bytes: usize, time: Duration) {
        let until = self.world.elapsed().saturating_add(time);
        if time.is_zero() || bytes > self.max_bytes / 2 {
            return;
        }
        let mut entries = self.entries.lock();
        entries.remove(&key);
        entries.uses += 1;
        let used = entries.uses;
        entries.bytes += bytes;
        entries.order.insert(used, key);
        entries.by_key.insert(key, Entry { value, bytes, until, used });
        while entries.by_key.len() > self.max_entries || entries.bytes > self.max_bytes {
            let Some((_, oldest)) = entries.order.pop_first() else { break };
            entries.remove(&oldest);
        }
    }
}

impl<V> Entries<V> {
    fn remove(&mut self, key: &Key) {
        if let Some(answer) = self.by_key.remove(key) {
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
        // a use does not extend the TTL
        world.advance(Duration::from_millis(1));
        assert_eq!(memory.get(&key), None);
        memory.put(key, "b", 1, Duration::ZERO);
        assert_eq!(memory.get(&key), None);
        assert_eq!(memory.entries.lock().order.len(), 0);
    }

    #[test]
    fn the_least_recently_used_entries_are_evicted() {
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
                .filter(|it| memory.entries.lock().by_key.contains_key(&key(it)))
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
        assert_eq!(memory.entries.lock().bytes, 99);
    }

    #[test]
    fn keys_are_distinct_and_unpredictable() {
        let (one, other) = (Simulated::new(0, 1), Simulated::new(0, 2));
        let (one, other) = (TtlCache::<()>::new(one, 1, 1), TtlCache::<()>::new(other, 1, 1));
        assert_ne!(one.key([&b"ab"[..], b"c"]), one.key([&b"a"[..], b"bc"]));
        assert_ne!(one.key([&b"a"[..]]), other.key([&b"a"[..]]));
    }
}
