//! The state of one resource type between two changes: an immutable map with shared structure.
//!
//! Cloning costs a few counters; changing the clone copies only the path to what changes. `by_term` holds
//! exactly the keys whose entry has a term, and is touched only when a term comes, goes or changes.

use std::sync::Arc;
use std::time::Duration;

use imbl::{OrdMap, OrdSet};

use crate::key::with_path;
use crate::{Change, Entry, Event, Key};

pub(crate) struct Contents<E> {
    pub(crate) objects: OrdMap<Key, Arc<E>>,
    pub(crate) by_term: OrdMap<Arc<str>, OrdSet<Key>>,
    /// The revision of the newest change within, deletions included.
    pub(crate) newest: u64,
}

impl<E> Clone for Contents<E> {
    fn clone(&self) -> Self {
        Self { objects: self.objects.clone(), by_term: self.by_term.clone(), newest: self.newest }
    }
}

impl<E: Entry> Contents<E> {
    pub(crate) fn new(newest: u64) -> Self {
        Self { objects: OrdMap::new(), by_term: OrdMap::new(), newest }
    }

    /// The contents at `revision`, made of these entries.
    pub(crate) fn of(entries: impl IntoIterator<Item = Arc<E>>, revision: u64) -> Self {
        let mut contents = Self::new(revision);
        for entry in entries {
            contents.newest = contents.newest.max(entry.revision());
            contents.put(entry.key(), entry);
        }
        contents
    }

    /// Applies the change and returns its event. Deleting an absent key is no event.
    pub(crate) fn change(&mut self, change: Change<E>, at: Duration) -> Option<Event<E>> {
        self.newest = self.newest.max(change.revision());
        match change {
            Change::Put(entry) => {
                // An update goes on with the key that is there, rather than making another.
                let known = with_path(entry.namespace(), entry.name(), |path| {
                    self.objects.get_key_value(path).map(|(key, _)| key.clone())
                });
                let key = known.unwrap_or_else(|| entry.key());
                let previous = self.put(key.clone(), entry.clone());
                Some(Event::new(key, entry, previous, false, at))
            }
            Change::Delete(tombstone) => {
                let removed = with_path(tombstone.namespace(), tombstone.name(), |path| self.remove(path));
                let (key, previous) = removed?;
                Some(Event::new(key, tombstone, Some(previous), true, at))
            }
        }
    }

    /// Goes back to before `event`.
    pub(crate) fn undo(&mut self, event: &Event<E>) {
        match &event.previous {
            Some(previous) => drop(self.put(event.key.clone(), previous.clone())),
            None => drop(self.remove(event.key.path().as_bytes())),
        }
    }

    fn put(&mut self, key: Key, entry: Arc<E>) -> Option<Arc<E>> {
        let previous = self.objects.insert(key.clone(), entry.clone());
        let (new, old) = (entry.term(), previous.as_ref().and_then(|previous| previous.term()));
        if new != old {
            self.forget_term(&key, old);
            if let Some(new) = new {
                match self.by_term.get_mut(new) {
                    Some(keys) => drop(keys.insert(key)),
                    None => drop(self.by_term.insert(Arc::from(new), OrdSet::unit(key))),
                }
            }
        }
        previous
    }

    fn remove(&mut self, path: &[u8]) -> Option<(Key, Arc<E>)> {
        let (key, previous) = self.objects.remove_with_key(path)?;
        self.forget_term(&key, previous.term());
        Some((key, previous))
    }

    fn forget_term(&mut self, key: &Key, term: Option<&str>) {
        let Some(term) = term else { return };
        if let Some(keys) = self.by_term.get_mut(term) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_term.remove(term);
            }
        }
    }
}
