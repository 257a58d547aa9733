//! The fake etcd's data: its keys and their whole history.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

static NEXT_CLUSTER: AtomicU64 = AtomicU64::new(0x1000);

/// See the module.
pub(super) struct Data {
    pub cluster: u64,
    pub version: String,
    pub revision: u64,
    pub keys: BTreeMap<Bytes, StoredValue>,
    /// Every change, in order.
    pub history: Vec<HistoryEntry>,
    pub compacted: u64,
    pub leases: BTreeMap<i64, i64>,
    /// The name and password of the only user; without one, the cluster needs no authentication.
    pub user: Option<(String, String)>,
    /// Counts the tokens that were revoked.
    pub revoked: u64,
    next_lease: i64,
}

#[derive(Clone, Debug)]
pub(super) struct StoredValue {
    pub value: Bytes,
    pub created: u64,
    pub modified: u64,
    pub version: u64,
    pub lease: i64,
}

#[derive(Clone, Debug)]
pub(super) struct HistoryEntry {
    pub key: Bytes,
    pub revision: u64,
    /// `None` for a delete.
    pub stored: Option<StoredValue>,
}

impl Data {
    pub fn new(version: &str) -> Self {
        Data {
            cluster: NEXT_CLUSTER.fetch_add(1, Ordering::Relaxed),
            version: version.to_owned(),
            revision: 1,
            keys: BTreeMap::new(),
            history: Vec::new(),
            compacted: 0,
            leases: BTreeMap::new(),
            user: None,
            revoked: 0,
            next_lease: 7000,
        }
    }

    /// The token that is valid now.
    pub fn token(&self) -> String {
        format!("token.{}", self.revoked)
    }

    /// Applies a change at the next revision, which counts only if it changed a key.
    pub fn change(&mut self, change: impl FnOnce(&mut Data)) -> u64 {
        self.revision += 1;
        change(self);
        if self.history.last().is_none_or(|entry| entry.revision < self.revision) {
            self.revision -= 1;
        }
        self.revision
    }

    pub fn put(&mut self, key: Bytes, value: Bytes, lease: i64) {
        let modified = self.revision;
        let (created, version) =
            self.keys.get(&key).map_or((modified, 1), |old| (old.created, old.version + 1));
        let stored = StoredValue { value, created, modified, version, lease };
        self.keys.insert(key.clone(), stored.clone());
        self.history.push(HistoryEntry { key, revision: modified, stored: Some(stored) });
    }

    pub fn delete(&mut self, key: &Bytes) {
        if self.keys.remove(key).is_some() {
            self.history.push(HistoryEntry { key: key.clone(), revision: self.revision, stored: None });
        }
    }

    /// The keys as of a revision.
    pub fn at(&self, revision: u64) -> BTreeMap<Bytes, StoredValue> {
        let mut keys = BTreeMap::new();
        for entry in self.history.iter().take_while(|entry| entry.revision <= revision) {
            match &entry.stored {
                Some(stored) => keys.insert(entry.key.clone(), stored.clone()),
                None => keys.remove(&entry.key),
            };
        }
        keys
    }

    pub fn go_back(&mut self, revision: u64) {
        self.keys = self.at(revision);
        self.history.retain(|entry| entry.revision <= revision);
        self.revision = revision;
    }

    pub fn grant(&mut self, seconds: i64) -> i64 {
        self.next_lease += 1;
        self.leases.insert(self.next_lease, seconds);
        self.next_lease
    }

    /// Lets seconds pass and returns the leases that have expired.
    pub fn pass(&mut self, seconds: i64) -> Vec<i64> {
        self.leases.values_mut().for_each(|left| *left -= seconds);
        self.leases.iter().filter(|(_, left)| **left <= 0).map(|(id, _)| *id).collect()
    }

    /// Revokes a lease and deletes its keys, at one revision.
    pub fn end(&mut self, lease: i64) {
        self.leases.remove(&lease);
        let keys: Vec<_> = self
            .keys
            .iter()
            .filter(|(_, stored)| stored.lease == lease)
            .map(|(key, _)| key.clone())
            .collect();
        keys.iter().for_each(|key| self.delete(key));
    }
}
