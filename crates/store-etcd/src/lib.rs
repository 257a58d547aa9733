//! A store that is an etcd, which other servers may write to as well.
//!
//! Revisions are the etcd's own: one sequence for all its keys. A write is a transaction on the revision of its key,
//! and is answered once the one watch has told of it and the subscriber has seen it; so what an API server answers is
//! what its caches hold, as with a store of its own. What others write comes by the same way, in the same order.
//!
//! ```text
//! write ──► pending ──► etcd: compare, put ──► answer: revision 7 ─► waits for 7 ─► Ok(7)
//!                         │                                               ▲
//!                         └─► watch: 6 /b (another's), 7 /a ─► handing ───┘ index, notes, subscriber
//! catch_up ─► rounds: the newest revision is 9 ─► waits for 9, of which the watch tells or says that it is nothing
//! ```
//!
//! What always holds: the subscriber sees every change once and in order, and never half a revision, over lost
//! connections; where the etcd has forgotten what changed meanwhile, it sees what has become of it. A write whose
//! outcome is not known is an error that says so, and is never sent twice. An etcd that is another one, or has gone
//! back, is not used any more.
//!
//! The values are in the caches above. Here are the keys with their revisions, what is under way to the subscriber,
//! and nothing else.

mod client;
mod lease;
mod load;
mod messages;
mod pending;
mod prefix;
mod publisher;
mod read_index;
mod shared;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod upkeep;
mod watch;
mod wire;
mod write;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use env::World;
use outbound::Target;
use parking_lot::Mutex;
use store::{BoxFuture, Recovered, Revision, Stats, Store, StoreError, Subscriber, Write};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep, timeout};

use client::{Client, Pause};
use lease::Leases;
use prefix::Prefix;
use publisher::Handing;
use read_index::{Answers, Rounds};
use shared::{Shared, closing};
use watch::Watching;

/// Writes that may be under way at once.
const PLACES: u32 = 4096;
/// Messages of the watch that may wait for the subscriber.
const WAITING: usize = 16;
/// How long writes that are under way may take when the store closes.
const GRACE: Duration = Duration::from_secs(5);

/// Which etcd, and how it is used.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its servers, any of which will do.
    pub servers: Vec<Target>,
    /// What all keys begin with.
    pub prefix: String,
    /// How often history is forgotten; if not at all, somebody else must see to it.
    pub compaction: Option<Duration>,
    /// How often it is asked for its size; if at all.
    pub measured: Option<Duration>,
    /// For how long one lease serves what is to end.
    pub lease_reuse: Duration,
    /// How long it may take to be there at the start.
    pub patience: Duration,
}

impl Options {
    /// How keys are called in the etcd, where that is not how they are called here.
    pub fn renames(&self) -> Option<impl Fn(&str) -> String + Send + Sync + use<>> {
        let prefix = Prefix::new(&self.prefix);
        let renamed = move |key: &str| match prefix.outward(key) {
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
            compaction: Some(Duration::from_secs(300)),
            measured: Some(Duration::from_secs(30)),
            lease_reuse: Duration::from_secs(60),
            patience: Duration::from_secs(20),
        }
    }
}

/// See the crate.
pub struct Etcd {
    shared: Arc<Shared>,
    rounds: Rounds,
    leases: Arc<Leases>,
    places: Arc<Semaphore>,
    runtime: Handle,
    compaction: Option<Duration>,
    measured: Option<Duration>,
    /// Who answers [`Rounds`], until it is started.
    resting: Mutex<Option<Answers>>,
}

/// Connects, and reads all that is there, in the order in which it was written.
pub async fn open(options: Options, world: World) -> Result<(Etcd, Vec<Recovered>), StoreError> {
    let client = Client::new(&options.servers, world.clone())
        .map_err(|why| StoreError::Unavailable(format!("the etcd cannot be called: {why}")))?;
    let prefix = Prefix::new(&options.prefix);
    let at = env::unix_seconds(&world);
    let mut recovered = Vec::new();
    let began = Instant::now();
    let mut pause = Pause::default();
    let header = loop {
        let loaded = load::load(&client, &prefix, |_, pairs| {
            if pairs.is_empty() {
                recovered.clear();
            }
            recovered.extend(pairs.into_iter().filter_map(|pair| {
                Some(Recovered {
                    revision: Revision(pair.mod_revision),
                    key: prefix.inward(&pair.key)?,
                    // not the page that it is a part of
                    value: Some(Bytes::copy_from_slice(&pair.value)),
                    previous: None,
                    at,
                    expires_at: None,
                    history: false,
                })
            }));
        });
        match loaded.await {
            Ok(header) => break header,
            Err(why) if why.is_of_the_server() && began.elapsed() < options.patience => {
                if pause.is_first() {
                    tracing::warn!(%why, patience = ?options.patience, "the etcd is not there yet; trying again");
                }
                sleep(pause.next(&world)).await;
            }
            Err(why) => {
                let servers = client.servers();
                return Err(StoreError::Unavailable(format!("no etcd answers at {servers}: {why}")));
            }
        }
    };
    recovered.sort_by_key(|record| record.revision);
    let index: HashMap<_, _> =
        recovered.iter().map(|record| (record.key.clone(), record.revision.0)).collect();
    let (rounds, answers) = read_index::rounds();
    let etcd = Etcd {
        shared: Arc::new(Shared::new(client, prefix, world, header, index)),
        rounds,
        leases: Arc::new(Leases::new(options.lease_reuse)),
        places: Arc::new(Semaphore::new(PLACES as usize)),
        runtime: Handle::current(),
        compaction: options.compaction,
        measured: options.measured,
        resting: Mutex::new(Some(answers)),
    };
    Ok((etcd, recovered))
}

impl Store for Etcd {
    fn start(&self, subscriber: Subscriber) -> Result<(), StoreError> {
        let Some(answers) = self.resting.lock().take() else {
            return Err(StoreError::Unavailable("it was started or closed before".to_owned()));
        };
        let (sender, items) = mpsc::channel(WAITING);
        let handing = Handing { shared: self.shared.clone(), subscriber, items };
        std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || handing.run())
            .map_err(|error| StoreError::Unavailable(format!("it has no thread: {error}")))?;
        let watching = Watching { shared: self.shared.clone(), items: sender, last: self.shared.oldest };
        self.runtime.spawn(watching.run());
        self.runtime.spawn(answers.run(self.shared.clone()));
        if let Some(interval) = self.compaction {
            self.runtime.spawn(upkeep::compact(self.shared.clone(), interval));
        }
        if let Some(interval) = self.measured {
            self.runtime.spawn(upkeep::measure(self.shared.clone(), interval));
        }
        Ok(())
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Revision, StoreError>> {
        Box::pin(async move {
            let place = self.places.clone().acquire_owned().await.map_err(|_| closing())?;
            self.shared.check()?;
            let (shared, leases) = (self.shared.clone(), self.leases.clone());
            // it goes on when nobody waits for it any more: what it says is still true
            let task = self.runtime.spawn(async move {
                shared.counted.waiting.fetch_add(1, Ordering::Relaxed);
                let written = write::write(shared.clone(), leases, write).await;
                shared.counted.waiting.fetch_sub(1, Ordering::Relaxed);
                drop(place);
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
            let newest = self.rounds.newest().await?;
            self.shared.wait(newest).await
        }))
    }

    fn healthy(&self) -> Result<(), StoreError> {
        self.shared.healthy()
    }

    /// All the way of a write but for the write itself: the etcd answers, the watch tells, the subscriber takes.
    fn probe(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let newest = self.rounds.newest().await?;
            self.shared.wait(newest).await
        })
    }

    /// Nothing is due: the etcd sees to what ends.
    fn tick(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // each has its place back once it is answered; who never started has nothing to wait for
            if self.resting.lock().take().is_none() && self.shared.check().is_ok() {
                let _ = timeout(GRACE, self.places.acquire_many(PLACES)).await;
            }
            self.places.close();
            self.shared.end(closing());
        })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.shared.end(closing());
    }
}
