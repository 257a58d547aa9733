//! The MVCC store: keys, bytes and one sequence of revisions.
//!
//! Every write of the whole cluster takes the next [`Revision`], which the API calls `resourceVersion`. A write
//! states an expectation of its key, so that of two racing writers one fails with [`StoreError::Conflict`]. A write
//! is acknowledged and published only once it is durable.
//!
//! The store keeps no values in memory and serves no reads: a cache above it is filled while the store opens (each
//! [`RecoveredRecord`] record) and from then on by the subscriber (each [`Change`]). It never decodes a value, and knows
//! neither JSON nor kinds.
//!
//! # The log, as data
//!
//! The log of an engine is the state at revision [`Store::oldest`] followed by *every* change after it.
//!
//! ```text
//! put    /a = x      revision 1      log: 1 /a=x
//! put    /b = y      revision 2      log: 1 /a=x   2 /b=y
//! put    /a = z      revision 3      log: 1 /a=x   2 /b=y   3 /a=z (previous 1)
//! delete /b          revision 4      log: 1 /a=x   2 /b=y   3 /a=z (previous 1)   4 /b gone (previous 2)
//!   retention passes for 1..=3: oldest becomes 3, and what revision 3 replaced goes
//!                                    log:            2 /b=y   3 /a=z               4 /b gone (previous 2)
//!   retention passes for 4: oldest becomes 4; the value it deleted goes, and so does the deletion
//!                                    log:                     3 /a=z
//! put    /c = w      revision 5      revisions never go back, also after a restart
//! ```
//!
//! So a record that was replaced or deleted at revision *r* is there exactly as long as *r* > `oldest`,
//! and every change after `oldest` can be shown together with the value it replaced.
//!
//! # Engines
//!
//! [`embedded::open`] keeps the log in one file and survives crashes; [`memory::open`] keeps nothing.
//! Both give an [`Engine`]: one committer thread that groups whatever is waiting into one durable batch.

mod arrivals;
mod backend;
mod committer;
pub mod embedded;
mod engine;
mod error;
mod guarded_storage;
mod log;
mod log_reader;
pub mod memory;
pub mod packed;
mod queue;
pub mod quiet;
mod read_ahead;
mod record;
mod recover;
mod reserve;
mod scan;
pub mod snapshot;
mod state;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub use backend::{Backend, Directory, OpenFile, StorageBackend};
pub use engine::Engine;
pub use error::StoreError;
pub use snapshot::{Snapshot, SnapshotRecord};

/// The longest accepted key.
pub const MAX_KEY_BYTES: usize = 4096;
/// The largest accepted value; the API's own limit on objects is far below.
pub const MAX_VALUE_BYTES: usize = 16 << 20;

/// A boxed future, so that [`Store`] can be used as a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The position of a write in the sequence of all writes. The first write is 1; 0 is before any write.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A value that a writer passes to the subscriber of the same process, such as the decoded object, so that the
/// cache need not decode the bytes again. It is not stored.
pub type Note = Arc<dyn Any + Send + Sync>;

/// Identifies the program that encoded a value. The very same program need not check that a value has the form in which
/// it would write it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct BuildId(pub NonZeroU64);

/// The program that encoded a value, and what it noted for its next start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedBy {
    pub build: BuildId,
    /// See [`Write::summary`].
    pub summary: Bytes,
    /// The value of the record is [packed](mod@packed): see [`Options::leave_packed`].
    pub is_packed: bool,
}

impl EncodedBy {
    /// Without a summary.
    pub fn new(build: BuildId) -> Self {
        Self { build, summary: Bytes::new(), is_packed: false }
    }
}

/// The precondition of a write.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The key does not exist.
    Absent,
    /// The key exists, and this is the revision of its last write.
    Revision(Revision),
    /// The key exists.
    Present,
    /// None. (A delete still requires that the key exists.)
    Any,
}

/// The operation of a write.
#[derive(Clone, Debug)]
pub enum Op {
    /// Sets the value. At `expires_at` (Unix seconds) the key is deleted, unless it was written again.
    Put { value: Bytes, expires_at: Option<i64> },
    /// Deletes the key; for an absent key it is a [`StoreError::Conflict`].
    Delete,
}

/// One write of one key.
#[derive(Clone)]
pub struct Write {
    pub key: Arc<str>,
    pub expect: Expect,
    pub op: Op,
    pub note: Option<Note>,
    /// Claims that are written with it, for stores with several writers.
    pub claim_keys: Option<Box<ClaimKeys>>,
    pub priority: Priority,
    /// Stored with the value by the embedded engine.
    pub encoded_by: Option<BuildId>,
    /// What that program needs to know of the value when it starts, in a form of its own: stored beside the value, and
    /// never read by the store. Empty for none. Left out where the program is not named, or the summary is too long.
    pub summary: Bytes,
}

/// The priority of a write among the queued ones.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    #[default]
    Normal,
    /// Before all normal writes.
    Urgent,
    /// Like an urgent write, but while nothing else is queued it may wait a moment for others of its kind, to share
    /// a sync.
    Heartbeat,
}

/// Keys that are written together with another, or not at all. They record the owner of something unique, such as a
/// cluster IP. A store with a single writer does not need them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimKeys {
    /// Created; if one exists already, the whole write is a [`StoreError::Conflict`] about it.
    pub taken: Vec<Arc<str>>,
    /// Deleted, if they exist.
    pub freed: Vec<Arc<str>>,
}

impl Write {
    /// A write that sets `key` without expiry.
    pub fn put(key: impl Into<Arc<str>>, expect: Expect, value: impl Into<Bytes>) -> Self {
        let op = Op::Put { value: value.into(), expires_at: None };
        Self {
            key: key.into(),
            expect,
            op,
            note: None,
            claim_keys: None,
            priority: Priority::Normal,
            encoded_by: None,
            summary: Bytes::new(),
        }
    }

    /// A write that deletes `key`.
    pub fn delete(key: impl Into<Arc<str>>, expect: Expect) -> Self {
        Self {
            key: key.into(),
            expect,
            op: Op::Delete,
            note: None,
            claim_keys: None,
            priority: Priority::Normal,
            encoded_by: None,
            summary: Bytes::new(),
        }
    }

    /// The same write with an expiry; only for a put.
    #[must_use]
    pub fn expiring(mut self, at: i64) -> Self {
        if let Op::Put { expires_at, .. } = &mut self.op {
            *expires_at = Some(at);
        }
        self
    }

    /// The same write with a note for the subscriber.
    #[must_use]
    pub fn with_note(mut self, note: Note) -> Self {
        self.note = Some(note);
        self
    }

    /// The same write with a priority.
    #[must_use]
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// The same write with claims.
    #[must_use]
    pub fn with_claim_keys(mut self, claim_keys: ClaimKeys) -> Self {
        self.claim_keys = Some(Box::new(claim_keys));
        self
    }
}

/// A committed write, as the subscriber receives it.
#[derive(Clone)]
pub struct Change {
    pub revision: Revision,
    pub key: Arc<str>,
    /// `None`: the key was deleted.
    pub value: Option<Bytes>,
    /// The revision of the write of this key that this one replaced or deleted.
    pub previous: Option<Revision>,
    pub note: Option<Note>,
    /// When it was committed, in Unix seconds.
    pub at: i64,
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Change")
            .field("revision", &self.revision.0)
            .field("key", &self.key)
            .field("bytes", &self.value.as_ref().map(Bytes::len))
            .field("previous", &self.previous)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

/// A record read while opening. Records come in revision order: applied in order they give the current state, and
/// each `history` record finds the value that it replaced in the state so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredRecord {
    pub revision: Revision,
    pub key: Arc<str>,
    /// `None`: the key was deleted. May be packed, as `encoded_by` says.
    pub value: Option<Bytes>,
    pub previous: Option<Revision>,
    pub at: i64,
    pub expires_at: Option<i64>,
    pub encoded_by: Option<EncodedBy>,
    /// Whether this is a change after [`Store::oldest`]: a recent event, not only state.
    pub history: bool,
}

/// Receives each durable batch, in revision order, on the store's own thread, before its writers are answered. It
/// may block, but must not wait for a write to the same store.
pub type Subscriber = Box<dyn FnMut(&[Change]) + Send>;

/// The retention of history, and the memory limits of the engine.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a replaced or deleted record is kept, by the time of the write that replaced it.
    pub retention: Duration,
    /// Beyond this many bytes of replaced and deleted records, history goes earlier.
    pub max_history_bytes: u64,
    /// The page cache of the embedded engine. Values are cached above the store, so this stays small.
    pub cache_bytes: usize,
    /// The space reserved on the disk, so that writes that free space succeed when it is full.
    pub reserve_bytes: u64,
    /// Values from this size on are compressed in the file, where that is worth it.
    pub compress_from: usize,
    /// Values with a summary are recovered as they are in the file, packed where they are.
    pub leave_packed: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            retention: Duration::from_secs(300),
            max_history_bytes: 256 << 20,
            cache_bytes: 2 << 20,
            reserve_bytes: 8 << 20,
            compress_from: usize::MAX,
            leave_packed: false,
        }
    }
}

/// Statistics of an engine, for metrics.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub revision: u64,
    pub oldest: u64,
    pub live_keys: u64,
    /// Changes after `oldest`.
    pub history_records: u64,
    /// Bytes of replaced and deleted records.
    pub history_bytes: u64,
    pub file_bytes: u64,
    /// Durable batches, and the changes in them.
    pub commits: u64,
    pub changes: u64,
    pub largest_batch: u64,
    /// Time spent making batches durable.
    pub commit_nanos: u64,
    /// Writes whose expectation failed.
    pub conflicts: u64,
    /// Batches that could not be made durable.
    pub failures: u64,
    /// Writes that are queued for the committer.
    pub waiting: u64,
    /// Whether the disk is full: see [`StoreError::Full`].
    pub full: bool,
}

/// A store of one sequence of revisions.
pub trait Store: Send + Sync + 'static {
    /// Attaches the one subscriber and starts accepting writes. Earlier writes wait for it.
    fn start(&self, subscriber: Subscriber) -> Result<(), StoreError>;

    /// Resolves once the write is durable *and* the subscriber has received it. A write whose future is dropped
    /// after its first poll may still happen.
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Revision, StoreError>>;

    /// The newest revision that is durable and published to the subscriber.
    fn revision(&self) -> Revision;

    /// The state at this revision and every change after it are kept; earlier history is gone.
    fn oldest(&self) -> Revision;

    fn stats(&self) -> Stats;

    /// For stores with other writers: resolves once every write that preceded this call has been published to the
    /// subscriber. `None` for a store with a single writer, where this always holds.
    fn catch_up(&self) -> Option<BoxFuture<'_, Result<(), StoreError>>> {
        None
    }

    /// Whether the value of a key would be stored in another form if it were written now, so that an unchanged
    /// write of it is not a no-op.
    fn is_stale(&self, key: &str) -> bool {
        let _ = key;
        false
    }

    /// For stores with other writers: a value that this process cannot decrypt, and why.
    fn unreadable(&self) -> Option<String> {
        None
    }

    /// Whether writes are expected to succeed: an error tells why the last one could not be made durable.
    fn healthy(&self) -> Result<(), StoreError>;

    /// The health of each server of a store that has several, in the order of its options; of the store itself otherwise.
    fn members(&self) -> BoxFuture<'_, Vec<Result<(), StoreError>>> {
        Box::pin(async { vec![self.healthy()] })
    }

    /// Resolves once the committer has processed it: with an error if writes fail, and not at all while the
    /// committer hangs. It changes nothing.
    fn probe(&self) -> BoxFuture<'_, Result<(), StoreError>>;

    /// The values of all keys at the newest revision, read while writes go on.
    fn snapshot(&self) -> BoxFuture<'_, Result<Snapshot, StoreError>>;

    /// Performs due maintenance (expiry, trimming of history) now; engines do so by themselves about every second of a
    /// clock that is not paused.
    fn tick(&self) -> BoxFuture<'_, ()>;

    /// Accepts no more writes, finishes the queued ones, and closes the files.
    fn close(&self) -> BoxFuture<'_, ()>;
}
