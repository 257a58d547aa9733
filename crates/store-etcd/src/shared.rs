//! The state that the tasks of the store share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use env::World;
use parking_lot::Mutex;
use store::{Stats, StoreError};
use tokio::sync::watch;

use crate::client::Client;
use crate::header::Header;
use crate::pending::PendingWrites;
use crate::prefix::Prefix;

pub(crate) struct Shared {
    pub client: Client,
    pub prefix: Prefix,
    pub world: World,
    pub pending: Arc<PendingWrites>,
    /// The mod revision of every key, as published to the subscriber. Only the publisher changes it.
    pub index: Mutex<HashMap<Arc<str>, u64>>,
    /// The cluster id.
    pub cluster: u64,
    /// The revision of the initial read.
    pub oldest: u64,
    /// The same as [`State::published`], but raised before an empty batch is published instead of after.
    pub revision: AtomicU64,
    pub state: watch::Sender<State>,
    /// The newest revision that a caller waits for.
    pub awaited: watch::Sender<u64>,
    /// Why the watch is currently failing.
    watch_error: Mutex<Option<String>>,
    /// Whether etcd refuses puts because its quota was reached.
    is_full: watch::Sender<bool>,
    pub counters: Counters,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// The subscriber has received every change up to this revision.
    pub published: u64,
    /// Why the store has stopped.
    pub stop_reason: Option<StoreError>,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub file_bytes: AtomicU64,
    pub writes: AtomicU64,
    pub write_nanos: AtomicU64,
    pub changes: AtomicU64,
    pub largest_batch: AtomicU64,
    pub conflicts: AtomicU64,
    pub failures: AtomicU64,
    pub waiting: AtomicU64,
}

/// What the errors of refused writes, the health check and the log say while the quota is reached.
const FULL: &str = "the etcd has reached its quota: compact its history, defragment each member and disarm the alarm \
                    NOSPACE (etcdctl compact, defrag, alarm disarm); deletions are taken";

pub(crate) fn full() -> StoreError {
    StoreError::Unavailable(FULL.to_owned())
}

pub(crate) fn closing() -> StoreError {
    StoreError::Unavailable("it is closing".to_owned())
}

impl Shared {
    pub(crate) fn new(
        client: Client,
        prefix: Prefix,
        world: World,
        header: Header,
        index: HashMap<Arc<str>, u64>,
    ) -> Self {
        let revision = header.revision;
        Shared {
            client,
            prefix,
            world,
            pending: Arc::default(),
            index: Mutex::new(index),
            cluster: header.cluster,
            oldest: revision,
            revision: AtomicU64::new(revision),
            state: watch::Sender::new(State { published: revision, stop_reason: None }),
            awaited: watch::Sender::new(revision),
            watch_error: Mutex::new(None),
            is_full: watch::Sender::new(false),
            counters: Counters::default(),
        }
    }

    /// Stops the store; the first reason is kept.
    pub(crate) fn end(&self, why: StoreError) {
        self.state.send_if_modified(|state| {
            let first = state.stop_reason.is_none();
            if first {
                state.stop_reason = Some(why);
            }
            first
        });
    }

    /// Resolves when the store has stopped.
    pub(crate) async fn ended(&self) {
        // an error is impossible: `self` owns the sender
        let _ = self.state.subscribe().wait_for(|state| state.stop_reason.is_some()).await;
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.state.borrow().stop_reason.clone().map_or(Ok(()), Err)
    }

    pub(crate) fn published(&self) -> u64 {
        self.state.borrow().published
    }

    /// Waits until the subscriber has received every change up to a revision.
    pub(crate) async fn wait(&self, revision: u64) -> Result<(), StoreError> {
        if self.published() >= revision {
            return Ok(());
        }
        self.awaited.send_if_modified(|awaited| {
            let more = *awaited < revision;
            *awaited = (*awaited).max(revision);
            more
        });
        let mut state = self.state.subscribe();
        let seen = state.wait_for(|state| state.published >= revision || state.stop_reason.is_some()).await;
        let Ok(seen) = seen else { return Err(closing()) };
        match &seen.stop_reason {
            Some(why) if seen.published < revision => Err(why.clone()),
            _ => Ok(()),
        }
    }

    /// Checks that a response comes from the same cluster, and that its revision is not below `known`. Otherwise
    /// the published state is invalid, and the store stops.
    pub(crate) fn check_header(&self, header: Header, known: u64) -> Result<(), StoreError> {
        let what = if header.cluster != self.cluster {
            format!("the etcd cluster id is {:x} instead of {:x}", header.cluster, self.cluster)
        } else if header.revision < known {
            format!("etcd went back from revision {known} to {}", header.revision)
        } else {
            return Ok(());
        };
        let fault = StoreError::Unavailable(format!("{what}: restart the server"));
        tracing::error!(%fault, "etcd does not hold the data that was read from it before; the store stops");
        self.end(fault.clone());
        Err(fault)
    }

    pub(crate) fn set_unhealthy(&self, why: String) {
        *self.watch_error.lock() = Some(why);
    }

    pub(crate) fn set_healthy(&self) {
        self.watch_error.lock().take();
    }

    /// Whether the quota of etcd is reached, as a refused or accepted put or an alarm has shown.
    pub(crate) fn set_full(&self, is_full: bool) {
        let has_changed = self.is_full.send_if_modified(|known| std::mem::replace(known, is_full) != is_full);
        match (has_changed, is_full) {
            (true, true) => tracing::error!(why = FULL, "the etcd has no space: writes are refused"),
            (true, false) => tracing::info!("the etcd has space again"),
            (false, _) => {}
        }
    }

    /// Resolves when the quota of etcd is reached.
    pub(crate) async fn became_full(&self) {
        // an error is impossible: `self` owns the sender
        let _ = self.is_full.subscribe().wait_for(|it| *it).await;
    }

    /// Whether changes arrive.
    pub(crate) fn is_watching(&self) -> bool {
        self.check().is_ok() && self.watch_error.lock().is_none()
    }

    pub(crate) fn healthy(&self) -> Result<(), StoreError> {
        self.check()?;
        if let Some(why) = self.watch_error.lock().clone() {
            return Err(StoreError::Unavailable(why));
        }
        if *self.is_full.borrow() { Err(full()) } else { Ok(()) }
    }

    pub(crate) fn stats(&self) -> Stats {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let counters = &self.counters;
        Stats {
            revision: read(&self.revision),
            oldest: self.oldest,
            live_keys: self.index.lock().len() as u64,
            file_bytes: read(&counters.file_bytes),
            commits: read(&counters.writes),
            changes: read(&counters.changes),
            largest_batch: read(&counters.largest_batch),
            commit_nanos: read(&counters.write_nanos),
            conflicts: read(&counters.conflicts),
            failures: read(&counters.failures),
            waiting: read(&counters.waiting),
            full: *self.is_full.borrow(),
            ..Stats::default()
        }
    }
}
