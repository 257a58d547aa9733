//! A growing hash table whose readers take no lock.
//!
//! An entry is at the slot of its key's hash, or at the next free one behind it; at least half of all slots are
//! free. The table is replaced as a whole when an entry is added. Lookups are far more frequent than additions, so
//! they are cheap: one hash and, as a rule, one comparison.

use crate::MOST;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::sync::Arc;

/// Values by label values.
pub struct Index<T> {
    table: ArcSwap<Table<T>>,
    growing: Mutex<()>,
    most: usize,
}

struct Table<T> {
    /// A power of two, or empty.
    places: Box<[Option<(u64, Arc<Entry<T>>)>]>,
    count: usize,
}

pub(crate) struct Entry<T> {
    pub key: Box<[Box<str>]>,
    pub value: T,
}

impl<T> Entry<T> {
    fn is(&self, key: &[&str]) -> bool {
        self.key.len() == key.len() && self.key.iter().zip(key).all(|(one, other)| **one == **other)
    }
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Index::of_at_most(MOST)
    }
}

/// Keys come from instrumented code, not from clients, so collisions cannot be provoked.
fn hash(key: &[&str]) -> u64 {
    const FACTOR: u64 = 0x517c_c1b7_2722_0a95;
    let mut hash = 0u64;
    let mut add = |word: u64| hash = (hash.rotate_left(5) ^ word).wrapping_mul(FACTOR);
    for text in key {
        add(text.len() as u64);
        let (words, rest) = text.as_bytes().as_chunks::<8>();
        words.iter().for_each(|word| add(u64::from_le_bytes(*word)));
        add(rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    }
    hash ^ (hash >> 32)
}

impl<T> Table<T> {
    /// The slots that an entry of this hash may have, in order.
    fn places(&self, hash: u64) -> impl Iterator<Item = usize> {
        let mask = self.places.len().wrapping_sub(1);
        (0..self.places.len()).map(move |step| (hash as usize).wrapping_add(step) & mask)
    }

    fn find(&self, hash: u64, key: &[&str]) -> Option<&Entry<T>> {
        for place in self.places(hash) {
            let (other, entry) = self.places[place].as_ref()?;
            if *other == hash && entry.is(key) {
                return Some(entry);
            }
        }
        None
    }

    fn put(&mut self, hash: u64, entry: Arc<Entry<T>>) {
        let free = self.places(hash).find(|place| self.places[*place].is_none());
        if let Some(free) = free {
            self.places[free] = Some((hash, entry));
            self.count += 1;
        }
    }

    /// A copy with one more entry.
    fn with(&self, hash: u64, entry: Arc<Entry<T>>) -> Self {
        let size = ((self.count + 1) * 2).next_power_of_two();
        let mut more = Table { places: (0..size).map(|_| None).collect(), count: 0 };
        for (hash, entry) in self.places.iter().flatten() {
            more.put(*hash, entry.clone());
        }
        more.put(hash, entry);
        more
    }
}

impl<T> Index<T> {
    /// An empty index with a maximum number of entries: a further value is created for each use and not kept.
    pub fn of_at_most(most: usize) -> Self {
        let empty = Table { places: Box::default(), count: 0 };
        Index { table: ArcSwap::from_pointee(empty), growing: Mutex::new(()), most }
    }

    /// Calls back with the value of a key, which is created if it does not exist.
    pub fn with<R>(&self, key: &[&str], make: impl FnOnce() -> T, then: impl FnOnce(&T) -> R) -> R {
        self.hashed(hash(key), key, make, then)
    }

    /// The same for a number instead of label values. An index has keys of one sort only.
    pub fn numbered<R>(&self, number: u64, make: impl FnOnce() -> T, then: impl FnOnce(&T) -> R) -> R {
        // the hash of numbers is injective, so there is nothing else to compare
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.hashed(spread ^ (spread >> 32), &[], make, then)
    }

    fn hashed<R>(&self, hash: u64, key: &[&str], make: impl FnOnce() -> T, then: impl FnOnce(&T) -> R) -> R {
        if let Some(entry) = self.table.load().find(hash, key) {
            return then(&entry.value);
        }
        let _growing = self.growing.lock();
        let table = self.table.load_full();
        // another thread may have added it meanwhile
        if let Some(entry) = table.find(hash, key) {
            return then(&entry.value);
        }
        let value = make();
        if table.count >= self.most {
            return then(&value);
        }
        let key = key.iter().map(|text| (*text).into()).collect();
        let entry = Arc::new(Entry { key, value });
        self.table.store(Arc::new(table.with(hash, entry.clone())));
        then(&entry.value)
    }

    /// All current entries, by key.
    pub(crate) fn all(&self) -> Vec<Arc<Entry<T>>> {
        let table = self.table.load();
        let mut all: Vec<_> = table.places.iter().flatten().map(|(_, entry)| entry.clone()).collect();
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }

    pub fn len(&self) -> usize {
        self.table.load().count
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
