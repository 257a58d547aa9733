//! What all parts of the store know together.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use env::World;
use parking_lot::Mutex;
use store::{Stats, StoreError};
use tokio::sync::watch;

use crate::client::Client;
use crate::messages::Header;
use crate::pending::Pending;
use crate::prefix::Prefix;

pub(crate) struct Shared {
    pub client: Client,
    pub prefix: Prefix,
    pub world: World,
    pub pending: Arc<Pending>,
    /// The last write of every key, as the subscriber knows it. Only who hands changes out changes it.
    pub index: Mutex<HashMap<Arc<str>, u64>>,
    /// The etcd that this is.
    pub cluster: u64,
    /// The revision at which everything was read at the start.
    pub oldest: u64,
    /// The same as [`State::handed`], raised before an empty hand rather than after it.
    pub revision: AtomicU64,
    pub state: watch::Sender<State>,
    /// The newest revision that somebody waits for.
    pub wanted: watch::Sender<u64>,
    /// What keeps the etcd from being asked at the moment.
    trouble: Mutex<Option<String>>,
    pub counted: Counted,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// Everything up to this revision has been handed to the subscriber.
    pub handed: u64,
    /// Why nothing goes on.
    pub over: Option<StoreError>,
}

#[derive(Default)]
pub(crate) struct Counted {
    pub file_bytes: AtomicU64,
    pub writes: AtomicU64,
    pub write_nanos: AtomicU64,
    pub changes: AtomicU64,
    pub largest_batch: AtomicU64,
    pub conflicts: AtomicU64,
    pub failures: AtomicU64,
    pub waiting: AtomicU64,
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
            state: watch::Sender::new(State { handed: revision, over: None }),
            wanted: watch::Sender::new(revision),
            trouble: Mutex::new(None),
            counted: Counted::default(),
        }
    }

    /// Nothing goes on from here; the first reason counts.
    pub(crate) fn end(&self, why: StoreError) {
        self.state.send_if_modified(|state| {
            let first = state.over.is_none();
            if first {
                state.over = Some(why);
            }
            first
        });
    }

    /// Resolves when nothing goes on.
    pub(crate) async fn ended(&self) {
        // it lasts as long as whoever could send
        let _ = self.state.subscribe().wait_for(|state| state.over.is_some()).await;
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.state.borrow().over.clone().map_or(Ok(()), Err)
    }

    pub(crate) fn handed(&self) -> u64 {
        self.state.borrow().handed
    }

    /// Waits until the subscriber has seen everything up to a revision.
    pub(crate) async fn wait(&self, revision: u64) -> Result<(), StoreError> {
        if self.handed() >= revision {
            return Ok(());
        }
        self.wanted.send_if_modified(|wanted| {
            let more = *wanted < revision;
            *wanted = (*wanted).max(revision);
            more
        });
        let mut state = self.state.subscribe();
        let seen = state.wait_for(|state| state.handed >= revision || state.over.is_some()).await;
        let Ok(seen) = seen else { return Err(closing()) };
        match &seen.over {
            Some(why) if seen.handed < revision => Err(why.clone()),
            _ => Ok(()),
        }
    }

    /// Whether an answer comes from the same etcd, which cannot have gone back to before `known`. Where it has, or
    /// where it is another one, nothing that was handed out is true any more.
    pub(crate) fn recognize(&self, header: Header, known: u64) -> Result<(), StoreError> {
        let what = if header.cluster != self.cluster {
            format!("it is another etcd now (cluster {:x}, not {:x})", header.cluster, self.cluster)
        } else if header.revision < known {
            format!("it went back from revision {known} to {}", header.revision)
        } else {
            return Ok(());
        };
        let fault = StoreError::Unavailable(format!("{what}: restart to go on"));
        tracing::error!(%fault, "the etcd cannot be used any more");
        self.end(fault.clone());
        Err(fault)
    }

    pub(crate) fn is_in_trouble(&self, why: String) {
        *self.trouble.lock() = Some(why);
    }

    pub(crate) fn is_well(&self) {
        self.trouble.lock().take();
    }

    pub(crate) fn healthy(&self) -> Result<(), StoreError> {
        self.check()?;
        self.trouble.lock().clone().map_or(Ok(()), |why| Err(StoreError::Unavailable(why)))
    }

    pub(crate) fn stats(&self) -> Stats {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let counted = &self.counted;
        Stats {
            revision: read(&self.revision),
            oldest: self.oldest,
            live_keys: self.index.lock().len() as u64,
            file_bytes: read(&counted.file_bytes),
            commits: read(&counted.writes),
            changes: read(&counted.changes),
            largest_batch: read(&counted.largest_batch),
            commit_nanos: read(&counted.write_nanos),
            conflicts: read(&counted.conflicts),
            failures: read(&counted.failures),
            waiting: read(&counted.waiting),
            ..Stats::default()
        }
    }
}
