//! Recent changes in memory, for watches; older ones are read from the file.

use std::collections::VecDeque;
use std::sync::Arc;

use grpc::etcd::KeyValue;

/// The bytes of changes that are kept, about.
const MAX_BYTES: usize = 8 << 20;
/// The memory of a change beside its key and value.
const OVERHEAD: usize = 128;

/// All changes of one revision; a deletion has the version 0.
#[derive(Debug)]
pub struct RevisionChanges {
    pub revision: i64,
    pub changes: Vec<KeyValue>,
}

impl RevisionChanges {
    fn bytes(&self) -> usize {
        self.changes.iter().map(size).sum()
    }
}

/// The memory of a change, about.
pub fn size(kv: &KeyValue) -> usize {
    kv.key.len() + kv.value.len() + OVERHEAD
}

/// The newest revisions, without gaps.
#[derive(Default)]
pub struct History {
    revisions: VecDeque<Arc<RevisionChanges>>,
    bytes: usize,
}

impl History {
    pub fn push(&mut self, changes: Arc<RevisionChanges>) {
        self.bytes += changes.bytes();
        self.revisions.push_back(changes);
        while self.bytes > MAX_BYTES && self.revisions.len() > 1 {
            let Some(oldest) = self.revisions.pop_front() else { break };
            self.bytes -= oldest.bytes();
        }
    }

    /// The changes from a revision on, at most `limit` revisions; `None` if they are not all here.
    pub fn from(&self, revision: i64, limit: usize) -> Option<Vec<Arc<RevisionChanges>>> {
        let oldest = self.revisions.front()?.revision;
        let skipped = usize::try_from(revision - oldest).ok()?;
        Some(self.revisions.iter().skip(skipped).take(limit).cloned().collect())
    }
}
