//! The objects of an informer by key, with indexes.
//!
//! Objects are kept without their type, so that the code is compiled once for all kinds; the informer restores it. The key
//! of an object is allocated once, and an index holds its objects: a lookup hashes the text of the index alone. Objects come
//! in no order, but in the same one for the same seed.

use crate::hash_seed::HashSeed;
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
    objects: Objects,
    by_namespace: HashMap<String, HashSet<Arc<Key>, HashSeed>>,
    indexes: Vec<Index>,
}

type Objects = HashMap<Arc<Key>, Object, HashSeed>;

struct Index {
    name: &'static str,
    by: IndexBy,
    entries: HashMap<String, Objects>,
    seed: HashSeed,
}

impl Indexer {
    pub fn new(seed: HashSeed) -> Self {
        Indexer { objects: HashMap::with_hasher(seed), by_namespace: HashMap::new(), indexes: Vec::new() }
    }

    /// Adds an index. An index of the same name is not added twice.
    pub fn index(&mut self, name: &'static str, by: IndexBy) {
        if self.indexes.iter().any(|index| index.name == name) {
            return;
        }
        let mut index = Index { name, by, entries: HashMap::new(), seed: self.objects.hasher().clone() };
        self.objects.iter().for_each(|(key, object)| index.file(key, object));
        self.indexes.push(index);
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
        let keys = self.by_namespace.get(namespace).into_iter().flatten();
        keys.filter_map(|key| self.get(key)).collect()
    }

    /// The objects that an index has under a key; none if there is no such index.
    pub fn by(&self, index: &str, text: &str) -> Vec<Object> {
        self.entries(index, text).map(|it| it.values().cloned().collect()).unwrap_or_default()
    }

    /// The number of them.
    pub fn count(&self, index: &str, text: &str) -> usize {
        self.entries(index, text).map_or(0, HashMap::len)
    }

    fn entries(&self, index: &str, text: &str) -> Option<&Objects> {
        self.indexes.iter().find(|one| one.name == index)?.entries.get(text)
    }

    /// The keys of the objects that are not among these.
    pub fn missing_from(&self, all: &HashSet<Key>) -> Vec<Key> {
        self.objects.keys().filter(|key| !all.contains(&***key)).map(|key| Key::clone(key)).collect()
    }

    /// Puts an object in. Returns the previous one.
    pub fn put(&mut self, key: &Key, object: Object) -> Option<Object> {
        let Some((key, old)) = self.objects.get_key_value(key) else {
            self.add(Arc::new(key.clone()), object);
            return None;
        };
        let (key, old) = (key.clone(), old.clone());
        for index in &mut self.indexes {
            index.refile(&key, &old, &object);
        }
        self.objects.insert(key, object);
        Some(old)
    }

    fn add(&mut self, key: Arc<Key>, object: Object) {
        let namespace = match self.by_namespace.get_mut(&key.namespace) {
            Some(keys) => keys,
            None => {
                let seed = self.objects.hasher().clone();
                self.by_namespace.entry(key.namespace.clone()).or_insert_with(|| HashSet::with_hasher(seed))
            }
        };
        namespace.insert(key.clone());
        self.indexes.iter_mut().for_each(|index| index.file(&key, &object));
        self.objects.insert(key, object);
    }

    pub fn take(&mut self, key: &Key) -> Option<Object> {
        let old = self.objects.remove(key)?;
        if let Some(keys) = self.by_namespace.get_mut(&key.namespace) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_namespace.remove(&key.namespace);
            }
        }
        for index in &mut self.indexes {
            let texts = (index.by)(&*old);
            texts.iter().for_each(|text| index.unfile(key, text));
        }
        Some(old)
    }
}

impl Index {
    fn file(&mut self, key: &Arc<Key>, object: &Object) {
        for text in (self.by)(&**object) {
            self.add(text, key, object);
        }
    }

    /// Replaces an object by its next version.
    fn refile(&mut self, key: &Arc<Key>, old: &Object, new: &Object) {
        let (before, after) = ((self.by)(&**old), (self.by)(&**new));
        before.iter().filter(|text| !after.contains(text)).for_each(|text| self.unfile(key, text));
        for text in after {
            self.add(text, key, new);
        }
    }

    fn add(&mut self, text: String, key: &Arc<Key>, object: &Object) {
        let new = || HashMap::with_hasher(self.seed.clone());
        self.entries.entry(text).or_insert_with(new).insert(key.clone(), object.clone());
    }

    fn unfile(&mut self, key: &Key, text: &str) {
        let Some(objects) = self.entries.get_mut(text) else { return };
        objects.remove(key);
        if objects.is_empty() {
            self.entries.remove(text);
        }
    }
}
