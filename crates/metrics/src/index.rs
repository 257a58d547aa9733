//! A table that grows and is never locked by those who look.
//!
//! Entries are kept by the hash of their key, in a vector that is replaced as a whole when there is one more. That
//! happens as often as there are entries, so looking is what is made cheap: one hash, a few comparisons.

use crate::MOST;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Values by the texts that they belong to.
pub struct Index<T> {
    /// By hash; several of one hash stand side by side.
    entries: ArcSwap<Vec<(u64, Arc<Entry<T>>)>>,
    growing: Mutex<()>,
    most: usize,
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

fn hash(key: &[&str]) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

fn find<'a, T>(
    entries: &'a [(u64, Arc<Entry<T>>)],
    hash: u64,
    key: &[&str],
) -> Result<&'a Arc<Entry<T>>, usize> {
    let at = entries.partition_point(|(other, _)| *other < hash);
    let same = entries[at..].iter().take_while(|(other, _)| *other == hash);
    same.map(|(_, entry)| entry).find(|entry| entry.is(key)).ok_or(at)
}

impl<T> Index<T> {
    /// An empty one that never has more entries than this: what would be one more is made each time and not kept.
    pub fn of_at_most(most: usize) -> Self {
        Index { entries: ArcSwap::default(), growing: Mutex::new(()), most }
    }

    /// Does something with the value of a key, which is made where there is none.
    pub fn with<R>(&self, key: &[&str], make: impl FnOnce() -> T, then: impl FnOnce(&T) -> R) -> R {
        let hash = hash(key);
        if let Ok(entry) = find(&self.entries.load(), hash, key) {
            return then(&entry.value);
        }
        let _growing = self.growing.lock();
        let entries = self.entries.load_full();
        let at = match find(&entries, hash, key) {
            // somebody else was faster
            Ok(entry) => return then(&entry.value),
            Err(at) => at,
        };
        let value = make();
        if entries.len() >= self.most {
            return then(&value);
        }
        let key = key.iter().map(|text| (*text).into()).collect();
        let entry = Arc::new(Entry { key, value });
        let mut more = Vec::with_capacity(entries.len() + 1);
        more.extend_from_slice(&entries[..at]);
        more.push((hash, entry.clone()));
        more.extend_from_slice(&entries[at..]);
        self.entries.store(Arc::new(more));
        then(&entry.value)
    }

    /// All entries of the moment, by key.
    pub(crate) fn all(&self) -> Vec<Arc<Entry<T>>> {
        let mut all: Vec<_> = self.entries.load().iter().map(|(_, entry)| entry.clone()).collect();
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }

    pub fn len(&self) -> usize {
        self.entries.load().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
