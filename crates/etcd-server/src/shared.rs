//! The state that reads see, and what the threads of a store share.
//!
//! Locks, in the order in which they are taken: `state`, then `leases`; the file's own lock is taken inside of `state`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use env::World;
use grpc::Message;
use grpc::etcd::{KeyValue, RangeRequest, RangeResponse, ResponseHeader};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};

use crate::database::{Database, Meta};
use crate::error::Error;
use crate::history::{History, RevisionChanges, size};
use crate::index::{Index, Revision};
use crate::leases::Leases;
use crate::metrics::Metrics;
use crate::selection::{Rows, Selection};

/// Revisions, and bytes of changes, that a watch gets at a time.
const MAX_REVISIONS: usize = 1000;
const MAX_CHANGE_BYTES: usize = 4 << 20;
/// Raft's number of the leader's term. There is one member, and no election.
pub const TERM: u64 = 2;

/// The limits of requests.
#[derive(Clone, Debug)]
pub struct Limits {
    pub max_txn_ops: usize,
    pub max_request_bytes: usize,
    /// The size of the file at which keys are no longer put.
    pub quota_bytes: u64,
    /// The shortest life of a lease, in seconds.
    pub min_lease_ttl: i64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_txn_ops: 128, max_request_bytes: 3 << 19, quota_bytes: 2 << 30, min_lease_ttl: 2 }
    }
}

/// What reads see.
pub struct State {
    pub index: Index,
    /// The newest published revision.
    pub revision: i64,
    pub compacted: i64,
    pub applied: u64,
    pub alarms: u32,
    pub history: History,
}

/// What the threads share.
pub struct Shared {
    pub database: Database,
    pub state: RwLock<State>,
    pub leases: Mutex<Leases>,
    /// Wakes the task that ends leases.
    pub leases_changed: Notify,
    pub limits: Limits,
    pub world: World,
    pub metrics: Metrics,
    pub cluster_id: u64,
    pub member_id: u64,
    pub published: watch::Sender<i64>,
    /// Why there are no writes any more.
    pub fault: watch::Sender<Option<Error>>,
    pub watchers: AtomicUsize,
}

impl Shared {
    pub fn header(&self, revision: i64) -> ResponseHeader {
        ResponseHeader { cluster_id: self.cluster_id, member_id: self.member_id, revision, raft_term: TERM }
    }

    /// The header of an answer that reads no revision.
    pub fn current_header(&self) -> ResponseHeader {
        self.header(self.state.read().revision)
    }

    /// The newest published revision, and its successors.
    pub fn follow(&self) -> watch::Receiver<i64> {
        self.published.subscribe()
    }

    /// The error of the file, as soon as there is one.
    pub fn follow_fault(&self) -> watch::Receiver<Option<Error>> {
        self.fault.subscribe()
    }

    /// Whether writes are taken.
    pub fn is_healthy(&self) -> bool {
        self.fault.borrow().is_none()
    }

    pub fn stop_reason(&self) -> Error {
        self.fault.borrow().clone().unwrap_or(Error::Stopped)
    }

    /// Answers a range request that has been checked.
    pub fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Error> {
        let state = self.state.read();
        let at = state.readable(request.revision)?;
        let selection = Selection::new(&state.index, request, at);
        // begun under the lock: what is in the index now is in the file as it is now
        let rows = (selection.len() > 0).then(|| self.database.read()).transpose()?;
        let header = self.header(state.revision);
        drop(state);
        match rows {
            Some(rows) => selection.respond(&rows, header),
            None => selection.respond(&NoRows, header),
        }
    }

    /// The value of a key before a revision, for watches. `None` also if it has been compacted.
    pub fn previous(&self, key: &[u8], revision: i64) -> Result<Option<KeyValue>, Error> {
        let state = self.state.read();
        if revision - 1 < state.compacted {
            return Ok(None);
        }
        let Some(version) = state.index.get(key, revision - 1) else { return Ok(None) };
        let rows = self.database.read()?;
        drop(state);
        rows.row(version.at).map(Some)
    }

    /// The changes of the revisions from `first` to `last`, or of as many of them as are read at a time.
    pub fn changes(&self, first: i64, last: i64) -> Result<Vec<Arc<RevisionChanges>>, Error> {
        let state = self.state.read();
        if first < state.compacted {
            return Err(Error::Compacted);
        }
        if let Some(mut changes) = state.history.from(first, MAX_REVISIONS) {
            changes.retain(|it| it.revision <= last);
            return Ok(changes);
        }
        let rows = self.database.read()?;
        drop(state);
        let (mut found, mut current, mut bytes): (Vec<_>, Option<RevisionChanges>, usize) =
            (Vec::new(), None, 0);
        rows.visit((first, last), &mut |at, row| {
            if current.as_ref().is_some_and(|it| it.revision != at.main) {
                found.extend(current.take().map(Arc::new));
                if found.len() >= MAX_REVISIONS || bytes > MAX_CHANGE_BYTES {
                    return Ok(false);
                }
            }
            let kv = decode_change(at, row)?;
            bytes += size(&kv);
            let revision =
                current.get_or_insert_with(|| RevisionChanges { revision: at.main, changes: Vec::new() });
            revision.changes.push(kv);
            Ok(true)
        })?;
        found.extend(current.map(Arc::new));
        Ok(found)
    }

    /// The number of watches; it counts up while the guard lives.
    pub fn count_watcher(self: &Arc<Self>) -> WatcherCount {
        self.watchers.fetch_add(1, Ordering::Relaxed);
        WatcherCount(self.clone())
    }

    pub fn watchers(&self) -> usize {
        self.watchers.load(Ordering::Relaxed)
    }
}

/// Counts a watch as long as it lives.
pub struct WatcherCount(Arc<Shared>);

impl Drop for WatcherCount {
    fn drop(&mut self) {
        self.0.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl State {
    /// The revision to read at for a request's; 0 is the newest.
    pub fn readable(&self, requested: i64) -> Result<i64, Error> {
        check_revision(requested, self.revision, self.compacted)
    }

    /// The numbers of the store, of which the file has a copy.
    pub fn meta(&self, shared: &Shared) -> Meta {
        Meta {
            cluster_id: shared.cluster_id,
            member_id: shared.member_id,
            revision: self.revision,
            compacted: self.compacted,
            applied: self.applied,
            alarms: self.alarms,
        }
    }
}

/// The revision to read at, of a store at `current`.
pub fn check_revision(requested: i64, current: i64, compacted: i64) -> Result<i64, Error> {
    let at = if requested > 0 { requested } else { current };
    if at > current {
        return Err(Error::FutureRevision);
    }
    if at < compacted {
        return Err(Error::Compacted);
    }
    Ok(at)
}

/// The change of a row, as watches have it: the mod revision of a deletion is not in its row.
pub fn decode_change(at: Revision, row: &[u8]) -> Result<KeyValue, Error> {
    let kv = KeyValue::decode(row);
    let mut kv = kv.map_err(|error| Error::Storage(format!("revision {}: {error}", at.main)))?;
    kv.mod_revision = at.main;
    Ok(kv)
}

/// The rows of a selection without keys.
struct NoRows;

impl Rows for NoRows {
    fn row(&self, at: Revision) -> Result<KeyValue, Error> {
        Err(Error::Storage(format!("revision {} is read without the file", at.main)))
    }
}
