//! Snapshots, event ring and watcher hub over any store.
//!
//! One [`Cache`] holds the objects of one resource type. All caches of a server share one [`PublishedRevision`]
//! revision. A single publisher (the store's committer, or the task that follows a remote store) feeds them:
//!
//! ```text
//! store ── batch of changes ──▶ Cache::apply (each cache, its own changes, in revision order)
//!                                  1. new contents behind the atomic pointer   → readers see them
//!                                  2. events into the watchers' queues and the ring
//!                              ──▶ Published::raise (once the whole batch is in every cache)
//! ```
//!
//! Invariants:
//! - Readers never lock: a [`Snapshot`] is an immutable, structurally shared map and costs one atomic load.
//! - A snapshot is exact: it holds every change up to its revision and none later (see [`Cache::snapshot`]).
//! - A watcher gets each event that interests it once, in order, with nothing left out between the revision
//!   it started from and the latest event; otherwise it ends with [`Lagged`].
//! - An event costs only the watchers interested in it, and is encoded once for all of them.
//! - Memory is bounded: the ring by age, count and bytes; each watcher's queue by count and bytes.
//!
//! Left out: it knows neither stores nor JSON nor kinds, it makes nothing durable, and it does not
//! apply label or field selectors. It runs no task of its own: the owner's timer calls [`Cache::trim`].
//!
//! Locks and their order: the publishing lock (ring and hub) before a watcher's queue. The lock of the pinned
//! snapshots is taken alone. No lock is held while a task is woken.

mod cache;
mod contents;
mod event;
mod hub;
mod interest;
mod key;
mod pins;
mod published;
mod queue;
mod ring;
mod shared;
mod snapshot;
#[cfg(test)]
mod tests;
mod watcher;

use std::sync::Arc;
use std::time::Duration;

pub use cache::{Cache, Stats};
pub use event::{Event, SLOTS};
pub use interest::Interest;
pub use key::Key;
pub use published::PublishedRevision;
pub use snapshot::Snapshot;
pub use watcher::{TryRecvError, Watcher};

/// An object in the cache. All of it is fixed for the life of the entry.
pub trait Entry: Send + Sync + 'static {
    /// The namespace, empty for cluster-scoped objects.
    fn namespace(&self) -> &str;
    /// The name.
    fn name(&self) -> &str;
    /// The revision of the last modification; for a tombstone, that of the deletion.
    fn revision(&self) -> u64;
    /// The bytes this entry holds, by which ring and queues are bounded.
    fn weight(&self) -> usize;
    /// The value of the one extra indexed field (a pod's node); `None` when the type has no such field.
    /// An empty value is a value: "not on any node yet" can be watched too.
    fn term(&self) -> Option<&str>;
    /// The key. An entry that already holds one gives a clone, which saves the allocation.
    fn key(&self) -> Key {
        Key::new(self.namespace(), self.name())
    }
}

/// One durable change of one object.
pub enum Change<E> {
    /// Created or updated: the new state.
    Put(Arc<E>),
    /// Deleted: the last state, restamped with the revision of the deletion.
    Delete(Arc<E>),
}

impl<E: Entry> Change<E> {
    /// The revision at which it happened.
    pub fn revision(&self) -> u64 {
        match self {
            Change::Put(entry) | Change::Delete(entry) => entry.revision(),
        }
    }
}

/// The bounds of a cache.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long events and pinned snapshots are kept.
    pub retention: Duration,
    /// How many bytes the ring may hold that the current state does not: superseded and deleted payloads,
    /// encoded events, and its own bookkeeping.
    pub ring_bytes: usize,
    /// How many events the ring may hold.
    pub ring_events: usize,
    /// How many events may wait for one watcher before it is cut off.
    pub watcher_events: usize,
    /// How many bytes of entries may wait for one watcher before it is cut off.
    pub watcher_bytes: usize,
    /// How many older snapshots are kept at hand for lists that are being paged through.
    pub pins: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            retention: Duration::from_secs(300),
            ring_bytes: 6 << 20,
            ring_events: 1 << 16,
            // Waiting events are shared with the ring, so a deep queue is cheap; a cut-off is not.
            watcher_events: 4096,
            watcher_bytes: 16 << 20,
            pins: 16,
        }
    }
}

/// The requested revision is older than the retained history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision is no longer available; the oldest is {oldest}")]
pub struct Gone {
    /// The smallest revision that can still be read exactly and watched from.
    pub oldest: u64,
}

/// The watcher did not keep up (or the cache was refilled under it); it has ended, and events were left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the watcher fell behind and was cut off")]
pub struct Lagged;
