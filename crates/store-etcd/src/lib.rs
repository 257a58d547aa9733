//! A [`Store`] backed by an etcd cluster, which other API servers may use at the same time.
//!
//! Revisions are etcd's own: one sequence for all keys. A write is a transaction that compares the key's mod
//! revision. It returns once the single watch has delivered its event and the subscriber has received it, so an API
//! server's responses agree with its caches, as with the embedded store. Writes of other servers arrive through the
//! same watch, in the same order.
//!
//! ```text
//! write ──► pending ──► etcd: compare, put ──► answer: revision 7 ─► waits for 7 ─► Ok(7)
//!                         │                                               ▲
//!                         └─► watch: 6 /b (another's), 7 /a ─► publisher ─┘ index, notes, subscriber
//! catch_up ─► read index: the newest revision is 9 ─► waits until the watch has delivered 9 or reported progress to 9
//! ```
//!
//! Invariants: the subscriber receives every change once and in order, and never part of a revision, across lost
//! connections. Where etcd has compacted the missing history, the subscriber receives the difference between the
//! two states. A write with an unknown outcome returns an error that says so, and is never sent twice. The store
//! stops when the cluster id changes or the revision goes back.
//!
//! The caches above hold the values. This crate holds the keys with their revisions and the changes that are on
//! their way to the subscriber, and nothing else.

mod client;
mod header;
mod lease;
mod load;
mod maintenance;
mod pending;
mod prefix;
mod publisher;
mod read_index;
mod shared;
pub mod single_value;
mod snapshot;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod txn;
mod watch;
mod write;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use env::World;
use env::io::{RealInstant, sleep, timeout};
use outbound::Target;
use parking_lot::Mutex;
use store::{BoxFuture, RecoveredRecord, Revision, Snapshot, Stats, Store, StoreError, Subscriber, Write};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};

use client::{Backoff, Client, ClientError};
use lease::Leases;
use prefix::Prefix;
use publisher::Publisher;
use read_index::{ReadIndex, ReadIndexWorker};
use shared::{Shared, closing};
use watch::Watcher;

/// Writes that may be in flight at once.
const MAX_INFLIGHT_WRITES: u32 = 4096;
/// Watch messages that may wait for the subscriber.
const MAX_QUEUED_MESSAGES: usize = 16;
/// How long writes in flight may take when the store closes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Which etcd cluster to use, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Client endpoints of the cluster; any of them serves every request.
    pub servers: Vec<Target>,
    /// The prefix of all keys in etcd.
    pub prefix: String,
    /// The compaction interval. `None` leaves compaction to another process.
    pub compaction_interval: Option<Duration>,
    /// How often the database size is polled, if at all.
    pub size_poll_interval: Option<Duration>,
    /// How much longer than requested a lease may be granted, so that later keys can share it.
    pub lease_reuse: Duration,
    /// How long [`open`] retries while the cluster is unreachable.
    pub open_timeout: Duration,
}

impl Options {
    /// The mapping from keys of this store to keys in etcd; `None` if they are equal.
    pub fn renames(&self) -> Option<impl Fn(&str) -> String + Send + Sync + use<>> {
        let prefix = Prefix::new(&self.prefix);
        let renamed = move |key: &str| match prefix.etcd_key(key) {
            Some(there) => String::from_utf8_lossy(&there).into_owned(),
            None => key.to_owned(),
        };
        let probe = "/registry/x";
        (renamed(probe) != probe).then_some(renamed)
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            servers: Vec::new(),
            prefix: "/registry".to_owned(),
            compaction_interval: Some(Duration::from_secs(300)),
            size_poll_interval: Some(Duration::from_secs(30)),
            lease_reuse: Duration::from_secs(60),
            open_timeout: Duration::from_secs(20),
        }
    }
}

/// The etcd store. See the crate documentation.
pub struct Etcd {
    shared: Arc<Shared>,
    read_index: ReadIndex,
    leases: Arc<Leases>,
    permits: Arc<Semaphore>,
    runtime: Handle,
    compaction_interval: Option<Duration>,
    size_poll_interval: Option<Duration>,
    /// The read index's worker until [`Store::start`] runs it.
    unstarted: Mutex<Option<ReadIndexWorker>>,
}

/// Connects, and reads all keys in the order of their revisions.
pub async fn open(options: Options, world: World) -> Result<(Etcd, Vec<RecoveredRecord>), StoreError> {
    let client = connect(&options, &world)?;
    let prefix = Prefix::new(&options.prefix);
    let at = env::unix_seconds(&world);
    let load = || async {
        let mut recovered = Vec::new();
        let header = load::load(&client, &prefix, |_, pairs| {
            if pairs.is_empty() {
                recovered.clear();
            }
            recovered.extend(pairs.into_iter().filter_map(|pair| {
                Some(RecoveredRecord {
                    revision: Revision(header::revision(pair.mod_revision)),
                    key: prefix.store_key(&pair.key)?,
                    // a copy, so that the value does not keep its whole page alive
                    value: Some(Bytes::copy_from_slice(&pair.value)),
                    previous: None,
                    at,
                    expires_at: None,
                    encoded_by: None,
                    history: false,
                })
            }));
        });
        let header = header.await?;
        Ok((header, recovered))
    };
    let (header, mut recovered) = when_reachable(&client, &options, &world, load).await?;
    recovered.sort_by_key(|record| record.revision);
    let index: HashMap<_, _> =
        recovered.iter().map(|record| (record.key.clone(), record.revision.0)).collect();
    let (read_index, worker) = read_index::channel();
    let etcd = Etcd {
        shared: Arc::new(Shared::new(client, prefix, world, header, index)),
        read_index,
        leases: Arc::new(Leases::new(options.lease_reuse)),
        permits: Arc::new(Semaphore::new(MAX_INFLIGHT_WRITES as usize)),
        runtime: Handle::current(),
        compaction_interval: options.compaction_interval,
        size_poll_interval: options.size_poll_interval,
        unstarted: Mutex::new(Some(worker)),
    };
    Ok((etcd, recovered))
}

fn connect(options: &Options, world: &World) -> Result<Client, StoreError> {
    Client::new(&options.servers, world.clone())
        .map_err(|why| StoreError::Unavailable(format!("the etcd client cannot be configured: {why}")))
}

/// Repeats a call while the cluster is unreachable, for as long as the options say.
async fn when_reachable<T, F>(
    client: &Client,
    options: &Options,
    world: &World,
    call: impl Fn() -> F,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, ClientError>>,
{
    let began = RealInstant::now();
    let mut pause = Backoff::default();
    loop {
        match call().await {
            Ok(result) => return Ok(result),
            Err(why) if why.is_retriable() && began.elapsed() < options.open_timeout => {
                if pause.is_first() {
                    tracing::warn!(%why, open_timeout = ?options.open_timeout, "etcd is not reachable yet; retrying");
                }
                sleep(pause.next(world)).await;
            }
            Err(why) => {
                let servers = client.servers();
                return Err(StoreError::Unavailable(format!("etcd is not reachable at {servers}: {why}")));
            }
        }
    }
}

impl Store for Etcd {
    fn start(&self, subscriber: Subscriber) -> Result<(), StoreError> {
        let Some(worker) = self.unstarted.lock().take() else {
            return Err(StoreError::Unavailable("it has already been started or closed".to_owned()));
        };
        let (sender, items) = mpsc::channel(MAX_QUEUED_MESSAGES);
        let publisher = Publisher { shared: self.shared.clone(), subscriber, items };
        std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || publisher.run())
            .map_err(|error| StoreError::Unavailable(format!("its thread cannot be started: {error}")))?;
        let watcher = Watcher { shared: self.shared.clone(), items: sender, last: self.shared.oldest };
        self.runtime.spawn(watcher.run());
        self.runtime.spawn(worker.run(self.shared.clone()));
        if let Some(interval) = self.compaction_interval {
            self.runtime.spawn(maintenance::compact(self.shared.clone(), interval));
        }
        self.runtime.spawn(maintenance::await_space(self.shared.clone()));
        if let Some(interval) = self.size_poll_interval {
            self.runtime.spawn(maintenance::measure(self.shared.clone(), interval));
        }
        Ok(())
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Revision, StoreError>> {
        Box::pin(async move {
            let permit = self.permits.clone().acquire_owned().await.map_err(|_| closing())?;
            self.shared.check()?;
            let (shared, leases) = (self.shared.clone(), self.leases.clone());
            // the task survives a caller that stops waiting: the write may already be in etcd
            let task = self.runtime.spawn(async move {
                shared.counters.waiting.fetch_add(1, Ordering::Relaxed);
                let written = write::write(shared.clone(), leases, write).await;
                shared.counters.waiting.fetch_sub(1, Ordering::Relaxed);
                drop(permit);
                written
            });
            task.await.unwrap_or_else(|_| Err(closing()))
        })
    }

    fn revision(&self) -> Revision {
        Revision(self.shared.revision.load(Ordering::Acquire))
    }

    fn oldest(&self) -> Revision {
        Revision(self.shared.oldest)
    }

    fn stats(&self) -> Stats {
        self.shared.stats()
    }

    fn catch_up(&self) -> Option<BoxFuture<'_, Result<(), StoreError>>> {
        Some(Box::pin(async move {
            let newest = self.read_index.newest().await?;
            self.shared.wait(newest).await
        }))
    }

    fn healthy(&self) -> Result<(), StoreError> {
        self.shared.healthy()
    }

    fn members(&self) -> BoxFuture<'_, Vec<Result<(), StoreError>>> {
        Box::pin(async move {
            let members = self.shared.client.members().await;
            members.into_iter().map(|it| it.map_err(|why| StoreError::Unavailable(why.to_string()))).collect()
        })
    }

    /// Takes the path of a write without writing: etcd answers, the watch delivers, the subscriber receives.
    fn probe(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let newest = self.read_index.newest().await?;
            self.shared.wait(newest).await
        })
    }

    fn snapshot(&self) -> BoxFuture<'_, Result<Snapshot, StoreError>> {
        Box::pin(snapshot::take(self.shared.clone()))
    }

    /// Does nothing: etcd expires keys by their leases.
    fn tick(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // a write returns its permit once it is answered; a store that never started has none in flight
            if self.unstarted.lock().take().is_none() && self.shared.check().is_ok() {
                let _ = timeout(CLOSE_TIMEOUT, self.permits.acquire_many(MAX_INFLIGHT_WRITES)).await;
            }
            self.permits.close();
            self.shared.end(closing());
        })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.shared.end(closing());
    }
}
