//! A value derived from all objects of a resource, rebuilt when one of them changes.
//!
//! What always holds: whoever writes after a change sees what came of it, without a task that follows and without a
//! lock, but for those who find that it must be made again.

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use rest::{Api, Collection, Object};
use std::sync::{Arc, OnceLock};

/// See the module.
pub(super) struct Derived<T> {
    plural: &'static str,
    collection: OnceLock<Arc<Collection>>,
    now: ArcSwapOption<Made<T>>,
    making: Mutex<()>,
}

/// What was made, and the newest change that it knows of.
pub(super) struct Made<T> {
    newest: u64,
    pub it: T,
}

impl<T> Derived<T> {
    pub fn new(plural: &'static str) -> Self {
        Derived { plural, collection: OnceLock::new(), now: ArcSwapOption::empty(), making: Mutex::new(()) }
    }

    /// As things are now; nothing where the resource is not served. `make` is given all objects, in the order of
    /// their names, and what was made before.
    pub fn get(
        &self,
        api: &Api,
        make: impl FnOnce(&Collection, &[Arc<Object>], Option<&T>) -> T,
    ) -> Option<Arc<Made<T>>> {
        let collection = match self.collection.get() {
            Some(collection) => collection,
            None => {
                let found = api.resources().named(self.plural)?.collection.clone();
                self.collection.get_or_init(|| found)
            }
        };
        let newest = collection.cache.newest();
        if let Some(made) = self.now.load_full().filter(|made| made.newest == newest) {
            return Some(made);
        }
        let _making = self.making.lock();
        // what is read after this is at least as new
        let newest = collection.cache.newest();
        let before = self.now.load_full();
        if let Some(made) = before.clone().filter(|made| made.newest == newest) {
            return Some(made);
        }
        let snapshot = collection.cache.snapshot();
        let objects: Vec<Arc<Object>> =
            snapshot.range(None, None).map(|(_, object)| object.clone()).collect();
        let it = make(collection, &objects, before.as_deref().map(|made| &made.it));
        let made = Arc::new(Made { newest, it });
        self.now.store(Some(made.clone()));
        Some(made)
    }
}
