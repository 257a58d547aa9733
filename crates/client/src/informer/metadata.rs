//! The metadata that an informer has, for those who follow the objects of many kinds and need no more of them: they save
//! a watch of their own.
//!
//! Invariants: a follower receives what a watch of metadata alone would bring, without managed fields, and that of objects
//! that do not decode as their kind, too: they exist, although the informer leaves them out.

use crate::key::Key;
use api::meta::v1::ObjectMeta;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Weak};

/// The receiver of metadata. Its methods must return soon.
pub trait MetadataFollower: Send + Sync + 'static {
    fn put(&self, object: &ObjectMeta);

    fn gone(&self, object: &ObjectMeta);

    /// The resource has been listed: it has the objects with these uids and no others.
    fn whole(&self, uids: &HashSet<String>);
}

/// The followers of an informer, and the objects that it leaves out. The informer calls it after its cache has a change.
#[derive(Default)]
pub(super) struct Followers {
    all: RwLock<Vec<Weak<dyn MetadataFollower>>>,
    unreadable: Mutex<Unreadable>,
}

#[derive(Default)]
struct Unreadable {
    by_key: BTreeMap<Key, ObjectMeta>,
    /// Those of the list that is being read.
    listed: Vec<ObjectMeta>,
}

fn key(object: &ObjectMeta) -> Key {
    Key::new(&object.namespace, &object.name)
}

impl Followers {
    /// Adds a follower, and drops those that have ended.
    pub fn add(&self, follower: &Arc<dyn MetadataFollower>) {
        let mut all = self.all.write();
        all.retain(|it| it.strong_count() > 0);
        all.push(Arc::downgrade(follower));
    }

    pub fn clear(&self) {
        self.all.write().clear();
    }

    fn notify(&self, notify: impl Fn(&dyn MetadataFollower)) {
        self.all.read().iter().filter_map(Weak::upgrade).for_each(|follower| notify(&*follower));
    }

    pub fn put(&self, object: &ObjectMeta) {
        self.forget(object);
        self.notify(|follower| follower.put(object));
    }

    pub fn gone(&self, object: &ObjectMeta) {
        self.forget(object);
        self.notify(|follower| follower.gone(object));
    }

    fn forget(&self, object: &ObjectMeta) {
        let known = &mut self.unreadable.lock().by_key;
        if !known.is_empty() {
            known.remove(&key(object));
        }
    }

    /// The informer leaves out an object that was created or changed.
    pub fn put_unreadable(&self, object: &ObjectMeta) {
        self.unreadable.lock().by_key.insert(key(object), object.clone());
        self.notify(|follower| follower.put(object));
    }

    /// The informer leaves out these objects of a page.
    pub fn unreadable_in_page(&self, is_first: bool, unreadable: Vec<ObjectMeta>) {
        unreadable.iter().for_each(|object| self.notify(|follower| follower.put(object)));
        let listed = &mut self.unreadable.lock().listed;
        if is_first {
            listed.clear();
        }
        listed.extend(unreadable);
    }

    /// The list is complete; `uids` are those of the objects that the informer has.
    pub fn list_complete(&self, uids: impl FnOnce() -> HashSet<String>) {
        {
            let Unreadable { by_key, listed } = &mut *self.unreadable.lock();
            *by_key = std::mem::take(listed).into_iter().map(|object| (key(&object), object)).collect();
        }
        if self.all.read().is_empty() {
            return;
        }
        let mut all = uids();
        all.extend(self.unreadable().into_iter().map(|it| it.uid));
        self.notify(|follower| follower.whole(&all));
    }

    /// The objects that the informer leaves out.
    pub fn unreadable(&self) -> Vec<ObjectMeta> {
        self.unreadable.lock().by_key.values().cloned().collect()
    }
}
