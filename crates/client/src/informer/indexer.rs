//! The objects of an informer by key, with indexes.
//!
//! Objects are kept without their type, so that the code is compiled once for all kinds; the informer restores it.

use crate::key::Key;
use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// An object of some kind.
pub(super) type Object = Arc<dyn Any + Send + Sync>;
/// The index keys of an object.
pub(super) type IndexBy = Box<dyn Fn(&(dyn Any + Send + Sync)) -> Vec<String> + Send + Sync>;

/// See the module.
#[derive(Default)]
pub(super) struct Indexer {
    objects: HashMap<Key, Object>,
    by_namespace: HashMap<String, HashSet<String>>,
    indexes: Vec<Index>,
}

struct Index {
    name: &'static str,
    by: IndexBy,
    keys: HashMap<String, HashSet<Key>>,
}

impl Indexer {
    /// Adds an index. An index of the same name is not added twice.
    pub fn index(&mut self, name: &'static str, by: IndexBy) {
        if self.indexes.iter().any(|index| index.name == name) {
            return;
        }
        let mut keys: HashMap<String, HashSet<Key>> = HashMap::new();
        for (key, object) in &self.objects {
            for text in by(&**object) {
                keys.entry(text).or_default().insert(key.clone());
            }
        }
        self.indexes.push(Index { name, by, keys });
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn get(&self, key: &Key) -> Option<Object> {
        self.objects.get(key).cloned()
    }

    pub fn all(&self) -> impl Iterator<Item = &Object> {
        self.objects.values()
    }

    pub fn in_namespace(&self, namespace: &str) -> Vec<Object> {
        let names = self.by_namespace.get(namespace).into_iter().flatten();
        names.filter_map(|name| self.get(&Key::new(namespace, name))).collect()
    }

    /// The objects that an index has under a key; none if there is no such index.
    pub fn by(&self, index: &str, text: &str) -> Vec<Object> {
        let Some(index) = self.indexes.iter().find(|one| one.name == index) else { return Vec::new() };
        index.keys.get(text).into_iter().flatten().filter_map(|key| self.get(key)).collect()
    }

    /// The keys of the objects that are not among these.
    pub fn missing_from(&self, all: &HashSet<Key>) -> Vec<Key> {
        self.objects.keys().filter(|key| !all.contains(*key)).cloned().collect()
    }

    /// Puts an object in. Returns the previous one.
    pub fn put(&mut self, key: &Key, object: Object) -> Option<Object> {
        let old = self.objects.insert(key.clone(), object.clone());
        if let Some(old) = &old {
            self.unfile(key, old, false);
        }
        self.file(key, &object);
        old
    }

    pub fn take(&mut self, key: &Key) -> Option<Object> {
        let old = self.objects.remove(key)?;
        self.unfile(key, &old, true);
        Some(old)
    }

    fn file(&mut self, key: &Key, object: &Object) {
        self.by_namespace.entry(key.namespace.clone()).or_default().insert(key.name.clone());
        for index in &mut self.indexes {
            for text in (index.by)(&**object) {
                index.keys.entry(text).or_default().insert(key.clone());
            }
        }
    }

    fn unfile(&mut self, key: &Key, object: &Object, gone: bool) {
        if gone && let Some(names) = self.by_namespace.get_mut(&key.namespace) {
            names.remove(&key.name);
            if names.is_empty() {
                self.by_namespace.remove(&key.namespace);
            }
        }
        for index in &mut self.indexes {
            for text in (index.by)(&**object) {
                if let Some(keys) = index.keys.get_mut(&text) {
                    keys.remove(key);
                    if keys.is_empty() {
                        index.keys.remove(&text);
                    }
                }
            }
        }
    }
}
