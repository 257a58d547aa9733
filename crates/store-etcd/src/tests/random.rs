//! Two stores on one etcd with random writes and faults: in the end both hold the same state, both have received
//! every change in order, and no acknowledged write is lost.

use super::*;
use crate::testing::{IN_ORDER, OVERTAKING};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;

/// Prints the seed of a failed run.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed was {}", self.0);
        }
    }
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % bound
    }
}

/// The outcome of a write: its key and value, and its revision if it was acknowledged.
type WriteOutcome = (String, Option<String>, Result<Revision, StoreError>);

async fn writer(
    store: Arc<Etcd>,
    seen: Arc<Mutex<Vec<Change>>>,
    name: String,
    seed: u64,
) -> Vec<WriteOutcome> {
    let mut rng = Rng(seed);
    let mut fates = Vec::new();
    for n in 0..60 {
        let key = format!("/registry/things/{}", rng.below(8));
        let known =
            seen.lock().iter().rev().find(|it| *it.key == *key).map(|it| (it.revision, it.value.is_some()));
        let expect = match (rng.below(4), known) {
            (0, _) => Expect::Any,
            (1, _) => Expect::Present,
            (_, Some((revision, true))) => Expect::Revision(revision),
            _ => Expect::Absent,
        };
        let value = (rng.below(4) > 0).then(|| format!("{name} {n}"));
        let write = match &value {
            Some(value) => Write::put(key.as_str(), expect, value.clone()),
            None => Write::delete(key.as_str(), expect),
        };
        let written = store.write(write.with_note(Arc::new(value.clone()))).await;
        if let Ok(revision) = written {
            assert!(store.revision() >= revision);
        }
        fates.push((key, value, written));
    }
    fates
}

async fn trouble(etcd: Arc<FakeEtcd>, seed: u64, over: Arc<std::sync::atomic::AtomicBool>) {
    let mut rng = Rng(seed);
    let faults = etcd.faults();
    while !over.load(Ordering::SeqCst) {
        match rng.below(8) {
            0 => etcd.cut(),
            1 => etcd.cut_one(rng.below(2)),
            2 => faults.lose_answers.store(1, Ordering::SeqCst),
            3 => faults.lose_questions.store(1, Ordering::SeqCst),
            4 => faults.unavailable.store(2, Ordering::SeqCst),
            5 => faults.hold_watches(true),
            6 => faults.fragments.store(rng.below(2) == 0, Ordering::SeqCst),
            _ => {
                etcd.put("/elsewhere", "x");
            }
        }
        tokio::time::sleep(Duration::from_millis(5 + rng.below(60) as u64)).await;
        faults.hold_watches(false);
        if rng.below(10) == 0 {
            etcd.compact(etcd.revision());
        }
    }
    faults.lose_answers.store(0, Ordering::SeqCst);
    faults.lose_questions.store(0, Ordering::SeqCst);
    faults.unavailable.store(0, Ordering::SeqCst);
}

/// Checks that the subscriber's changes are in order, and returns the state that they lead to.
fn state(changes: &[Change]) -> BTreeMap<String, (u64, String)> {
    let mut state: BTreeMap<String, (u64, String)> = BTreeMap::new();
    let mut last = 0;
    for change in changes {
        assert!(change.revision.0 >= last, "{} after {last}", render(change));
        last = change.revision.0;
        let key = change.key.to_string();
        let before = match &change.value {
            Some(value) => state.insert(key, (last, String::from_utf8_lossy(value).into_owned())),
            None => state.remove(&key),
        };
        assert_eq!(before.map(|(revision, _)| Revision(revision)), change.previous, "{}", render(change));
        if let Some(note) = &change.note {
            let said = note.downcast_ref::<Option<String>>().unwrap();
            let value = change.value.as_ref().map(|value| String::from_utf8_lossy(value).into_owned());
            assert_eq!(said, &value, "a note went to another's change");
        }
    }
    state
}

async fn round(seed: u64, version: &str) {
    let _seed = Seed(seed);
    let etcd = Arc::new(FakeEtcd::start(2).await.unwrap());
    etcd.set_version(version);
    let stores = [run(&etcd).await, run(&etcd).await];
    let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let troubled = tokio::spawn(trouble(etcd.clone(), seed, over.clone()));
    let mut writers = tokio::task::JoinSet::new();
    for (at, run) in stores.iter().enumerate() {
        for n in 0..3 {
            let (store, seen, name) = (run.store.clone(), run.seen.clone(), format!("{at}.{n}"));
            writers.spawn(writer(store, seen, name, seed * 31 + at as u64 * 7 + n));
        }
    }
    let fates: Vec<WriteOutcome> = writers.join_all().await.into_iter().flatten().collect();
    over.store(true, Ordering::SeqCst);
    troubled.await.unwrap();
    let acknowledged: Vec<_> = fates.iter().filter(|(.., written)| written.is_ok()).collect();
    assert!(acknowledged.len() > 10, "of {} writes {} went well", fates.len(), acknowledged.len());
    let mut revisions = HashMap::new();
    for (key, value, written) in acknowledged {
        let revision = written.clone().unwrap().0;
        let before = revisions.insert(revision, (key, value));
        assert!(before.is_none(), "two writes have revision {revision}");
        assert!(etcd.happened(key, value.as_deref(), revision), "{key} {value:?} at {revision} is lost");
    }
    for run in &stores {
        run.catch_up().await.unwrap();
        let seen = run.seen.lock();
        let state = state(&seen);
        let there = |key: &String| etcd.get(key).map(|(value, revision)| (revision, value));
        assert!(state.iter().all(|(key, held)| there(key).as_ref() == Some(held)));
        assert_eq!(state.len() as u64, run.store.stats().live_keys);
        let below = etcd.keys() - usize::from(etcd.get("/elsewhere").is_some());
        assert_eq!(state.len(), below);
        assert_eq!(run.store.shared.pending.len(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_stores_end_with_the_same_state() {
    for seed in 1..=4 {
        round(seed, if seed % 2 == 0 { IN_ORDER } else { OVERTAKING }).await;
    }
}
