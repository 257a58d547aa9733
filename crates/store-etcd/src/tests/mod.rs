//! Tests of the store against the fake etcd.

mod authentication;
mod contract;
mod faults;
mod leases;
mod random;
mod reading;
mod snapshots;

use std::sync::Arc;
use std::time::Duration;

use env::{Seeded, World};
use parking_lot::Mutex;
use store::{Change, Expect, RecoveredRecord, Revision, Store, StoreError, Write};

use crate::testing::FakeEtcd;
use crate::{Etcd, Options, single_value};

/// When all tests begin, in Unix seconds.
const START: u64 = 1_700_000_000;

/// A store on a fake etcd, and the changes of its subscriber.
struct Running {
    store: Arc<Etcd>,
    recovered: Vec<RecoveredRecord>,
    seen: Arc<Mutex<Vec<Change>>>,
    /// How many changes came at once.
    batches: Arc<Mutex<Vec<usize>>>,
    /// The revision that the subscriber read at each empty batch.
    looked: Arc<Mutex<Vec<u64>>>,
}

fn options(etcd: &FakeEtcd) -> Options {
    Options {
        servers: etcd.targets(),
        compaction_interval: None,
        size_poll_interval: None,
        open_timeout: Duration::ZERO,
        ..Options::default()
    }
}

async fn run(etcd: &FakeEtcd) -> Running {
    run_with(options(etcd)).await
}

async fn run_with(options: Options) -> Running {
    let (store, recovered) = crate::open(options, Seeded::new(START, 1)).await.unwrap();
    let store = Arc::new(store);
    let running = Running {
        store: store.clone(),
        recovered,
        seen: Arc::default(),
        batches: Arc::default(),
        looked: Arc::default(),
    };
    let (seen, batches, looked) = (running.seen.clone(), running.batches.clone(), running.looked.clone());
    let itself = Arc::downgrade(&store);
    let take = move |changes: &[Change]| {
        seen.lock().extend_from_slice(changes);
        match changes.len() {
            0 => looked.lock().extend(itself.upgrade().map(|store| store.revision().0)),
            count => batches.lock().push(count),
        }
    };
    store.start(Box::new(take)).unwrap();
    running
}

impl Running {
    async fn put(&self, key: &str, expect: Expect, value: &str) -> Result<Revision, StoreError> {
        self.store.write(Write::put(registry(key), expect, value.to_owned())).await
    }

    async fn delete(&self, key: &str, expect: Expect) -> Result<Revision, StoreError> {
        self.store.write(Write::delete(registry(key), expect)).await
    }

    async fn catch_up(&self) -> Result<(), StoreError> {
        self.store.catch_up().unwrap().await
    }

    /// The changes so far as `revision key=value`.
    fn changes(&self) -> Vec<String> {
        self.seen.lock().iter().map(render).collect()
    }
}

fn render(change: &Change) -> String {
    let value = change.value.as_ref().map_or("gone".into(), |value| String::from_utf8_lossy(value));
    format!("{} {}={value}", change.revision, change.key.trim_start_matches("/registry"))
}

fn registry(key: &str) -> String {
    format!("/registry{key}")
}

fn conflict(key: &str, current: Option<u64>) -> Result<Revision, StoreError> {
    Err(StoreError::Conflict { key: registry(key).into(), current: current.map(Revision) })
}

/// Waits until a condition holds, and fails if it never does.
async fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("never: {what}");
}
