//! The informer: a cache of the objects of a kind that a reflector keeps up to date, with indexes and listeners.
//!
//! Invariants: the cache is the server's state at a recent resource version; listeners receive changes in the order
//! in which they happened, after the cache has them. After a new list listeners receive the difference as changes.
//! Managed fields are dropped: no user reads them, and they are often half of an object. [`SummaryInformer`] caches less.

mod metadata;
mod summary;

pub use metadata::MetadataFollower;
pub use summary::{Handler, SummaryInformer};

mod indexer;

use crate::error::Error;
use crate::hash_seed::HashSeed;
use crate::key::Key;
use crate::reflector::{self, Page, Sink, UnreadableEvent, WatchProgress};
use crate::shared_objects::Decoder;
use api::meta::v1::ObjectMeta;
use api::{Resource, WatchEvent};
use bytes::Bytes;
use indexer::{Indexer, Object};
use metadata::Followers;
use parking_lot::RwLock;
use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::watch;

/// A change of an object.
pub enum Change<'a, K> {
    Added(&'a Arc<K>),
    Updated { old: &'a Arc<K>, new: &'a Arc<K> },
    Deleted(&'a Arc<K>),
}

impl<K> Change<'_, K> {
    /// The object in its newest state; the last one if it is deleted.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Change::Added(object) | Change::Updated { new: object, .. } | Change::Deleted(object) => object,
        }
    }

    pub fn is_deletion(&self) -> bool {
        matches!(self, Change::Deleted(_))
    }
}

impl<K: Resource> Change<'_, K> {
    pub fn key(&self) -> Key {
        Key::of(&**self.object())
    }
}

type Listener<K> = Box<dyn Fn(&Change<'_, K>) + Send + Sync>;

/// An object with its type. All objects of an informer have the same one.
fn typed<K: Resource>(object: Object) -> Option<Arc<K>> {
    object.downcast().ok()
}

/// See the module. Cheap to clone.
pub struct Informer<K> {
    shared: Arc<Shared<K>>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Informer { shared: self.shared.clone() }
    }
}

struct Shared<K> {
    decoder: Decoder<K>,
    state: RwLock<Indexer>,
    listeners: RwLock<Vec<Listener<K>>>,
    followers: Followers,
    synced: watch::Sender<bool>,
    reached: watch::Sender<Position>,
}

/// The position of an informer in the history of the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Position {
    /// The cache has, and listeners received, everything up to this resource version.
    pub version: u64,
    /// Changes when resource versions start anew, after the store was replaced by another.
    pub history: u64,
}

impl<K: Resource> Default for Informer<K> {
    fn default() -> Self {
        Informer::new(Decoder::default(), HashSeed::default())
    }
}

impl<K: Resource> Informer<K> {
    pub(crate) fn new(decoder: Decoder<K>, seed: HashSeed) -> Self {
        let shared = Shared {
            decoder,
            state: RwLock::new(Indexer::new(seed)),
            listeners: RwLock::new(Vec::new()),
            followers: Followers::default(),
            synced: watch::Sender::new(false),
            reached: watch::Sender::default(),
        };
        Informer { shared: Arc::new(shared) }
    }

    /// Adds an index. An index of the same name is not added twice.
    pub fn index(&self, name: &'static str, by: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) {
        let by = move |object: &(dyn Any + Send + Sync)| object.downcast_ref().map(&by).unwrap_or_default();
        self.shared.state.write().index(name, Box::new(by));
    }

    /// Adds a listener, which receives the cached objects as `Added`, then every change. It must return soon.
    pub fn listen(&self, listener: impl Fn(&Change<'_, K>) + Send + Sync + 'static) {
        let mut listeners = self.shared.listeners.write();
        for object in self.shared.state.read().all().cloned().filter_map(typed) {
            listener(&Change::Added(&object));
        }
        listeners.push(Box::new(listener));
    }

    /// Adds a follower, which receives the metadata of the cached objects, then every change, until it is dropped.
    pub(crate) fn follow_metadata(&self, follower: &Arc<dyn MetadataFollower>) {
        // changes wait meanwhile, so that none is older than what the follower has
        let _changes = self.shared.listeners.write();
        self.shared.followers.add(follower);
        let unreadable = self.shared.followers.unreadable();
        let mut uids = HashSet::new();
        let mut put = |object: &ObjectMeta| {
            uids.insert(object.uid.clone());
            follower.put(object);
        };
        self.all().iter().for_each(|object| put(object.metadata()));
        unreadable.iter().for_each(put);
        if *self.shared.synced.borrow() {
            follower.whole(&uids);
        }
    }

    /// Drops listeners, indexes and objects: nothing follows.
    pub(crate) fn close(&self) {
        // dropped without the locks: a listener may own informers
        let listeners = std::mem::take(&mut *self.shared.listeners.write());
        let state = std::mem::take(&mut *self.shared.state.write());
        self.shared.followers.clear();
        drop((listeners, state));
    }

    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.shared.state.read().get(key).and_then(typed)
    }

    /// All cached objects.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.shared.state.read().all().cloned().filter_map(typed).collect()
    }

    /// The objects of a namespace.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let objects = self.shared.state.read().in_namespace(namespace);
        objects.into_iter().filter_map(typed).collect()
    }

    /// The objects that an index has under a key; none if there is no such index.
    pub fn by(&self, index: &str, text: &str) -> Vec<Arc<K>> {
        let objects = self.shared.state.read().by(index, text);
        objects.into_iter().filter_map(typed).collect()
    }

    /// The number of objects that an index has under a key.
    pub fn count_by(&self, index: &str, text: &str) -> usize {
        self.shared.state.read().count(index, text)
    }

    pub fn len(&self) -> usize {
        self.shared.state.read().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until the first list is complete.
    pub async fn synced(&self) {
        let mut synced = self.shared.synced.subscribe();
        // the sender lives as long as this informer
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// The position, as it moves.
    pub fn reached(&self) -> watch::Receiver<Position> {
        self.shared.reached.subscribe()
    }

    fn move_to(&self, version: &str) {
        let Ok(version) = version.parse() else { return };
        self.shared.reached.send_modify(|reached| {
            reached.history += u64::from(version < reached.version);
            reached.version = version;
        });
    }

    /// Puts an object into the cache. Returns its resource version.
    pub fn apply(&self, mut object: K) -> String {
        object.metadata_mut().managed_fields = Vec::new();
        self.apply_shared(Arc::new(object))
    }

    fn apply_shared(&self, object: Arc<K>) -> String {
        let version = object.resource_version().to_owned();
        self.put(object);
        self.move_to(&version);
        version
    }

    /// Removes an object from the cache. Returns the resource version of the deletion.
    pub fn delete(&self, object: &K) -> String {
        let version = object.resource_version().to_owned();
        self.remove(&Key::of(object));
        self.move_to(&version);
        version
    }

    fn put(&self, object: Arc<K>) {
        let key = Key::of(&*object);
        let listeners = self.shared.listeners.read();
        let old = self.shared.state.write().put(&key, object.clone()).and_then(typed::<K>);
        let change = match &old {
            // a new list repeats objects that have not changed
            Some(old) if old.resource_version() == object.resource_version() => return,
            Some(old) => Change::Updated { old, new: &object },
            None => Change::Added(&object),
        };
        listeners.iter().for_each(|listener| listener(&change));
    }

    fn remove(&self, key: &Key) {
        let listeners = self.shared.listeners.read();
        let Some(old) = self.shared.state.write().take(key).and_then(typed) else { return };
        listeners.iter().for_each(|listener| listener(&Change::Deleted(&old)));
    }
}

impl<K: Resource> Sink for Informer<K> {
    fn list_page(&self, text: &[u8], all: &mut HashSet<Key>) -> Result<Page, Error> {
        let (objects, mut page) = reflector::page::<K>(text)?;
        self.shared.followers.unreadable_in_page(all.is_empty(), std::mem::take(&mut page.unreadable));
        for object in objects.into_iter().map(Arc::new) {
            all.insert(Key::of(&*object));
            self.put(object.clone());
            self.shared.followers.put(object.metadata());
        }
        Ok(page)
    }

    fn list_complete(&self, all: HashSet<Key>, version: &str) {
        let gone = self.shared.state.read().missing_from(&all);
        gone.iter().for_each(|key| self.remove(key));
        self.move_to(version);
        self.shared.synced.send_replace(true);
        let uids = || self.all().iter().map(|it| it.uid().to_owned()).collect();
        self.shared.followers.list_complete(uids);
    }

    fn watch_event(&self, line: &Bytes) -> Result<WatchProgress, Error> {
        let event = match self.shared.decoder.event(line) {
            Ok(event) => event,
            // a list leaves it out too
            Err(why) => {
                let event = reflector::unreadable_object(line, &why).ok_or(why)?;
                let object = event.object();
                self.remove(&Key::of(object));
                self.move_to(object.resource_version());
                match &event {
                    UnreadableEvent::Deleted(_) => self.shared.followers.gone(object.metadata()),
                    UnreadableEvent::Changed(_) => self.shared.followers.put_unreadable(object.metadata()),
                }
                return Ok(WatchProgress::Reached(object.resource_version().to_owned()));
            }
        };
        Ok(match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let version = self.apply_shared(object.clone());
                self.shared.followers.put(object.metadata());
                WatchProgress::Reached(version)
            }
            WatchEvent::Deleted(object) => {
                let version = self.delete(&object);
                self.shared.followers.gone(object.metadata());
                WatchProgress::Reached(version)
            }
            WatchEvent::Bookmark(version) => {
                self.move_to(&version);
                WatchProgress::Reached(version)
            }
            WatchEvent::Error(status) => WatchProgress::Failed(status),
        })
    }
}

#[cfg(test)]
mod tests;
