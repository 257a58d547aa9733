//! What there is of a kind, kept up to date by a watch, shared by all loops that look at it.
//!
//! What always holds: the objects are those of the server at some revision, a little ago; changes are told in the
//! order in which they happened, after the objects have them. A watch that breaks is resumed; where the server has
//! forgotten what happened meanwhile everything is listed again, and the difference is told as changes. Who owns which
//! field is left out: no loop looks at it, and it is often half of an object.

use crate::key::Key;
use crate::reflector::{self, Page, Sink, Told};
use kube::api::WatchEvent;
use kube::{Resource, ResourceExt};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;

/// What happened to an object.
pub enum Change<'a, K> {
    Added(&'a Arc<K>),
    Updated { old: &'a Arc<K>, new: &'a Arc<K> },
    Removed(&'a Arc<K>),
}

impl<K> Change<'_, K> {
    /// The object as it is, or was last.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Change::Added(object) | Change::Updated { new: object, .. } | Change::Removed(object) => object,
        }
    }

    pub fn is_removal(&self) -> bool {
        matches!(self, Change::Removed(_))
    }
}

impl<K: ResourceExt> Change<'_, K> {
    pub fn key(&self) -> Key {
        Key::of(&**self.object())
    }
}

/// What a watched kind must be able to do.
pub trait Watched: Resource + Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static {}

impl<K: Resource + Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static> Watched for K {}

type Listener<K> = Box<dyn Fn(&Change<'_, K>) + Send + Sync>;
/// Under which texts an object is found.
type IndexBy<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;

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
    state: RwLock<State<K>>,
    listeners: RwLock<Vec<Listener<K>>>,
    synced: watch::Sender<bool>,
    reached: watch::Sender<Reached>,
}

/// How far an informer has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reached {
    /// Everything up to this revision has been seen, and told.
    pub version: u64,
    /// Another number when revisions began to count anew: the server was given another past.
    pub history: u64,
}

struct State<K> {
    objects: HashMap<Key, Arc<K>>,
    by_namespace: HashMap<String, HashSet<String>>,
    indexes: Vec<Index<K>>,
}

struct Index<K> {
    name: &'static str,
    by: IndexBy<K>,
    keys: HashMap<String, HashSet<Key>>,
}

impl<K> State<K> {
    fn file(&mut self, key: &Key, object: &Arc<K>) {
        self.by_namespace.entry(key.namespace.clone()).or_default().insert(key.name.clone());
        for index in &mut self.indexes {
            for text in (index.by)(object) {
                index.keys.entry(text).or_default().insert(key.clone());
            }
        }
    }

    fn unfile(&mut self, key: &Key, object: &Arc<K>, gone: bool) {
        if gone && let Some(names) = self.by_namespace.get_mut(&key.namespace) {
            names.remove(&key.name);
            if names.is_empty() {
                self.by_namespace.remove(&key.namespace);
            }
        }
        for index in &mut self.indexes {
            for text in (index.by)(object) {
                if let Some(keys) = index.keys.get_mut(&text) {
                    keys.remove(key);
                    if keys.is_empty() {
                        index.keys.remove(&text);
                    }
                }
            }
        }
    }

    fn put(&mut self, key: &Key, object: Arc<K>) -> Option<Arc<K>> {
        let old = self.objects.insert(key.clone(), object.clone());
        if let Some(old) = &old {
            self.unfile(key, old, false);
        }
        self.file(key, &object);
        old
    }

    fn take(&mut self, key: &Key) -> Option<Arc<K>> {
        let old = self.objects.remove(key)?;
        self.unfile(key, &old, true);
        Some(old)
    }
}

impl<K: Watched> Default for Informer<K> {
    fn default() -> Self {
        let state = State { objects: HashMap::new(), by_namespace: HashMap::new(), indexes: Vec::new() };
        let shared = Shared {
            state: RwLock::new(state),
            listeners: RwLock::new(Vec::new()),
            synced: watch::Sender::new(false),
            reached: watch::Sender::default(),
        };
        Informer { shared: Arc::new(shared) }
    }
}

impl<K: Watched> Informer<K> {
    /// Objects are found by this from now on; the same index twice is one.
    pub fn index(&self, name: &'static str, by: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) {
        let mut state = self.shared.state.write();
        if state.indexes.iter().any(|index| index.name == name) {
            return;
        }
        let mut keys: HashMap<String, HashSet<Key>> = HashMap::new();
        for (key, object) in &state.objects {
            for text in by(object) {
                keys.entry(text).or_default().insert(key.clone());
            }
        }
        state.indexes.push(Index { name, by: Box::new(by), keys });
    }

    /// Told of every change from now on, and first of everything there is. Must not take long.
    pub fn listen(&self, listener: impl Fn(&Change<'_, K>) + Send + Sync + 'static) {
        let mut listeners = self.shared.listeners.write();
        for object in self.shared.state.read().objects.values() {
            listener(&Change::Added(object));
        }
        listeners.push(Box::new(listener));
    }

    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.shared.state.read().objects.get(key).cloned()
    }

    /// Everything there is.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.shared.state.read().objects.values().cloned().collect()
    }

    /// Everything in a namespace.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let state = self.shared.state.read();
        let names = state.by_namespace.get(namespace).into_iter().flatten();
        names.filter_map(|name| state.objects.get(&Key::new(namespace, name)).cloned()).collect()
    }

    /// Everything that an index has under a text; nothing where there is no such index.
    pub fn by(&self, index: &str, text: &str) -> Vec<Arc<K>> {
        let state = self.shared.state.read();
        let Some(index) = state.indexes.iter().find(|one| one.name == index) else { return Vec::new() };
        let keys = index.keys.get(text).into_iter().flatten();
        keys.filter_map(|key| state.objects.get(key).cloned()).collect()
    }

    pub fn len(&self) -> usize {
        self.shared.state.read().objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until everything has been listed once.
    pub async fn synced(&self) {
        let mut synced = self.shared.synced.subscribe();
        // the sender lives as long as this informer
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// How far it has come, and comes.
    pub fn reached(&self) -> watch::Receiver<Reached> {
        self.shared.reached.subscribe()
    }

    fn has_reached(&self, version: &str) {
        let Ok(version) = version.parse() else { return };
        self.shared.reached.send_modify(|reached| {
            reached.history += u64::from(version < reached.version);
            reached.version = version;
        });
    }

    /// An object is as it is since its revision.
    pub fn tell(&self, object: K) -> String {
        let version = object.resource_version().unwrap_or_default();
        self.put(object);
        self.has_reached(&version);
        version
    }

    /// An object is gone since its revision.
    pub fn tell_gone(&self, object: &K) -> String {
        let version = object.resource_version().unwrap_or_default();
        self.remove(&Key::of(object));
        self.has_reached(&version);
        version
    }

    fn put(&self, mut object: K) {
        object.meta_mut().managed_fields = None;
        let (key, object) = (Key::of(&object), Arc::new(object));
        let listeners = self.shared.listeners.read();
        let old = self.shared.state.write().put(&key, object.clone());
        let change = match &old {
            // a list made anew tells what is known already
            Some(old) if old.meta().resource_version == object.meta().resource_version => return,
            Some(old) => Change::Updated { old, new: &object },
            None => Change::Added(&object),
        };
        listeners.iter().for_each(|listener| listener(&change));
    }

    fn remove(&self, key: &Key) {
        let listeners = self.shared.listeners.read();
        let Some(old) = self.shared.state.write().take(key) else { return };
        listeners.iter().for_each(|listener| listener(&Change::Removed(&old)));
    }
}

impl<K: Watched> Sink for Informer<K> {
    fn listed(&self, text: &str, all: &mut HashSet<Key>) -> Result<Page, serde_json::Error> {
        let (objects, page) = reflector::page::<K>(text)?;
        for object in objects {
            all.insert(Key::of(&object));
            self.put(object);
        }
        Ok(page)
    }

    fn whole(&self, all: HashSet<Key>, version: &str) {
        let known: Vec<Key> = self.shared.state.read().objects.keys().cloned().collect();
        known.iter().filter(|key| !all.contains(key)).for_each(|key| self.remove(key));
        self.has_reached(version);
        self.shared.synced.send_replace(true);
    }

    fn told(&self, line: &str) -> Result<Told, serde_json::Error> {
        Ok(match serde_json::from_str::<WatchEvent<K>>(line)? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => Told::UpTo(self.tell(object)),
            WatchEvent::Deleted(object) => Told::UpTo(self.tell_gone(&object)),
            WatchEvent::Bookmark(mark) => {
                self.has_reached(&mark.metadata.resource_version);
                Told::UpTo(mark.metadata.resource_version)
            }
            WatchEvent::Error(status) => Told::Failed(status),
        })
    }
}

#[cfg(test)]
mod tests;
