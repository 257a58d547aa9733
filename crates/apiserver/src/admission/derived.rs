//! A value derived from all objects of a resource, rebuilt when one of them changes.
//!
//! Invariant: a write sees the value of all changes before it, without a background task, and without a lock
//! except while the value is rebuilt.

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use rest::{Api, Collection, Object};
use std::sync::{Arc, OnceLock};

/// The cached value.
pub(super) struct DerivedValue<T> {
    plural: &'static str,
    collection: OnceLock<Arc<Collection>>,
    current: ArcSwapOption<Snapshot<T>>,
    rebuild_lock: Mutex<()>,
}

/// The value, and the newest change that it includes.
pub(super) struct Snapshot<T> {
    newest: u64,
    pub value: T,
}

impl<T> DerivedValue<T> {
    pub fn new(plural: &'static str) -> Self {
        DerivedValue {
            plural,
            collection: OnceLock::new(),
            current: ArcSwapOption::empty(),
            rebuild_lock: Mutex::new(()),
        }
    }

    /// The current value; `None` where the resource is not served. `make` gets all objects, in order of name,
    /// and the previous value.
    pub fn get(
        &self,
        api: &Api,
        make: impl FnOnce(&Collection, &[Arc<Object>], Option<&T>) -> T,
    ) -> Option<Arc<Snapshot<T>>> {
        let collection = match self.collection.get() {
            Some(collection) => collection,
            None => {
                let collection = api.resources().named(self.plural)?.collection.clone();
                self.collection.get_or_init(|| collection)
            }
        };
        let newest = collection.cache.newest();
        if let Some(snapshot) = self.current.load_full().filter(|snapshot| snapshot.newest == newest) {
            return Some(snapshot);
        }
        let _making = self.rebuild_lock.lock();
        // later reads are at least as new
        let newest = collection.cache.newest();
        let before = self.current.load_full();
        if let Some(snapshot) = before.clone().filter(|snapshot| snapshot.newest == newest) {
            return Some(snapshot);
        }
        let collected = collection.cache.snapshot();
        let objects: Vec<Arc<Object>> =
            collected.range(None, None).map(|(_, object)| object.clone()).collect();
        let value = make(collection, &objects, before.as_deref().map(|snapshot| &snapshot.value));
        let snapshot = Arc::new(Snapshot { newest, value });
        self.current.store(Some(snapshot.clone()));
        Some(snapshot)
    }
}
