//! Tests of the cache as a whole, and their helpers.

mod bounds;
mod model;
mod races;
mod watching;

use std::sync::Arc;
use std::time::Duration;

use env::{Simulated, World};

use crate::{Cache, Change, Entry, Options, PublishedRevision};

/// A small object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Doc {
    pub namespace: String,
    pub name: String,
    pub revision: u64,
    pub term: Option<String>,
    pub weight: usize,
}

impl Entry for Doc {
    fn namespace(&self) -> &str {
        &self.namespace
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn revision(&self) -> u64 {
        self.revision
    }
    fn weight(&self) -> usize {
        self.weight
    }
    fn term(&self) -> Option<&str> {
        self.term.as_deref()
    }
}

/// `path` is `namespace/name` or `name`.
pub(super) fn doc(path: &str, revision: u64, term: Option<&str>) -> Arc<Doc> {
    let (namespace, name) = path.split_once('/').unwrap_or(("", path));
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    Arc::new(Doc { namespace, name, revision, term: term.map(str::to_owned), weight: 100 })
}

pub(super) fn put(path: &str, revision: u64) -> Change<Doc> {
    Change::Put(doc(path, revision, None))
}

pub(super) fn put_term(path: &str, revision: u64, term: &str) -> Change<Doc> {
    Change::Put(doc(path, revision, Some(term)))
}

pub(super) fn delete(path: &str, revision: u64) -> Change<Doc> {
    Change::Delete(doc(path, revision, None))
}

/// A cache with its publisher's means.
pub(super) struct Bench {
    pub cache: Cache<Doc>,
    pub published: Arc<PublishedRevision>,
    pub world: Arc<Simulated>,
}

impl Bench {
    pub fn new(options: Options) -> Self {
        let published = Arc::new(PublishedRevision::new(0));
        let simulated = Simulated::new(1_000, 1);
        let world: World = simulated.clone();
        Self { cache: Cache::new(published.clone(), options, world), published, world: simulated }
    }

    pub fn publish(&self, changes: Vec<Change<Doc>>) {
        let newest = changes.iter().map(Change::revision).max();
        self.cache.apply(changes);
        if let Some(newest) = newest {
            self.published.raise(newest);
        }
    }

    pub fn advance(&self, seconds: u64) {
        self.world.advance(Duration::from_secs(seconds));
    }
}

/// The paths and revisions of a snapshot.
pub(super) fn listed(snapshot: &crate::Snapshot<Doc>) -> Vec<(String, u64)> {
    snapshot.range(None, None).map(|(key, entry)| (key.path().to_owned(), entry.revision)).collect()
}
