//! Random operations on an engine and on a plain map with a counter: both must agree on everything.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use env::{Simulated, World};

use super::faults::Disk;
use super::{Rng, Running, START, Seed};
use crate::{BuildId, Engine, Expect, Op, Options, RecoveredRecord, Revision, StoreError, Write};

const RETENTION: i64 = 30;

/// The model of a store, without disk, threads or batches.
#[derive(Default)]
struct Model {
    keys: BTreeMap<Arc<str>, (u64, Bytes, Option<i64>)>,
    /// Every change ever: revision − 1 is the place.
    changes: Vec<AppliedWrite>,
}

/// A change: its key, value, previous revision and time.
type AppliedWrite = (Arc<str>, Option<Bytes>, Option<Revision>, i64);

impl Model {
    fn write(&mut self, write: &Write, now: i64) -> Result<Revision, StoreError> {
        let current = self.keys.get(&write.key).map(|(revision, ..)| Revision(*revision));
        let holds = match write.expect {
            Expect::Absent => current.is_none(),
            Expect::Present => current.is_some(),
            Expect::Revision(revision) => current == Some(revision),
            Expect::Any => true,
        };
        let revision = self.changes.len() as u64 + 1;
        let value = match &write.op {
            _ if !holds => return Err(StoreError::Conflict { key: write.key.clone(), current }),
            Op::Delete if current.is_none() => {
                return Err(StoreError::Conflict { key: write.key.clone(), current });
            }
            Op::Delete => {
                self.keys.remove(&write.key);
                None
            }
            Op::Put { value, expires_at } => {
                self.keys.insert(write.key.clone(), (revision, value.clone(), *expires_at));
                Some(value.clone())
            }
        };
        self.changes.push((write.key.clone(), value, current, now));
        Ok(Revision(revision))
    }

    fn expire(&mut self, now: i64) {
        let mut due: Vec<_> = self
            .keys
            .iter()
            .filter_map(|(key, (revision, _, at))| {
                at.filter(|at| *at <= now).map(|at| (at, *revision, key.clone()))
            })
            .collect();
        due.sort();
        for (_, _, key) in due {
            self.write(&Write::delete(key, Expect::Present), now).unwrap();
        }
    }

    /// The newest revision that is history no more.
    fn oldest(&self, now: i64) -> u64 {
        self.changes.iter().take_while(|(.., at)| at + RETENTION <= now).count() as u64
    }

    /// The records that a store that has trimmed up to `oldest` still holds.
    fn log(&self, oldest: u64) -> Vec<RecoveredRecord> {
        let mut replaced = vec![None; self.changes.len()];
        for (index, (_, value, previous, _)) in self.changes.iter().enumerate() {
            let revision = index as u64 + 1;
            if let Some(previous) = previous {
                replaced[previous.0 as usize - 1] = Some(revision);
            }
            if value.is_none() {
                replaced[index] = Some(revision);
            }
        }
        let kept = |(index, _): &(usize, _)| replaced[*index].is_none_or(|at: u64| at > oldest);
        let recovered = |(index, (key, value, previous, at)): (usize, &AppliedWrite)| RecoveredRecord {
            revision: Revision(index as u64 + 1),
            key: key.clone(),
            value: value.clone(),
            previous: *previous,
            at: *at,
            expires_at: None,
            encoded_by: None,
            history: index as u64 + 1 > oldest,
        };
        self.changes.iter().enumerate().filter(kept).map(recovered).collect()
    }
}

fn random_write(rng: &mut Rng, model: &Model, now: i64) -> Write {
    let key = format!("/registry/things/{}", rng.below(12));
    let current = model.keys.get(key.as_str()).map_or(0, |(revision, ..)| *revision);
    let expect = match rng.below(6) {
        0 => Expect::Absent,
        1 => Expect::Present,
        2 => Expect::Any,
        3 => Expect::Revision(Revision(rng.below(model.changes.len() + 2) as u64)),
        _ => Expect::Revision(Revision(current)),
    };
    if rng.chance(25) {
        return Write::delete(key, expect);
    }
    let size = [0, 10, 300, 5000, 20_000][rng.below(5)];
    let mut write = Write::put(key, expect, vec![rng.next() as u8; size]);
    if rng.chance(50) {
        write.encoded_by = NonZeroU64::new(7).map(BuildId);
        write.summary = Bytes::copy_from_slice(write.key.as_bytes());
    }
    if rng.chance(30) { write.expiring(now + 1 + rng.below(60) as i64) } else { write }
}

/// Opens the engine, and says whether it remembers.
type Open<'a> = &'a dyn Fn(World, &mut dyn FnMut(RecoveredRecord)) -> Engine;

fn start(open: Open<'_>, world: &Arc<Simulated>) -> Running {
    let mut recovered = Vec::new();
    let store = open(world.clone(), &mut |record| recovered.push(record));
    Running::new(world.clone(), Arc::new(store), recovered)
}

async fn compare(seed: u64, steps: usize, durable: bool, open: Open<'_>) {
    let _seed = Seed(seed);
    let mut rng = Rng(seed);
    let world = Simulated::new(START, seed);
    let mut now = START as i64;
    let mut model = Model::default();
    let mut run = start(open, &world);
    let mut published_before = 0;
    for _ in 0..steps {
        match rng.below(20) {
            0..=15 => {
                let write = random_write(&mut rng, &model, now);
                let expected = model.write(&write, now);
                model.expire(now);
                assert_eq!(run.store.write(write).await, expected);
            }
            16..=18 => {
                let secs = rng.below(15) as u64;
                world.advance(Duration::from_secs(secs));
                now += secs as i64;
                model.expire(now);
                run.store.tick().await;
                assert_eq!(run.store.oldest().0, model.oldest(now));
            }
            _ if durable => {
                let oldest = run.store.oldest().0;
                drop(run);
                published_before = model.changes.len();
                run = start(open, &world);
                assert_eq!(run.store.oldest().0, oldest);
                let mut recovered = run.recovered.clone();
                for record in &mut recovered {
                    record.unpack().unwrap();
                    record.expires_at = None;
                    let summary = record.encoded_by.take().map(|it| it.summary);
                    assert!(summary.is_none_or(|it| *it == *record.key.as_bytes()));
                }
                assert_eq!(recovered, model.log(oldest));
            }
            _ => (),
        }
        assert_eq!(run.store.revision().0, model.changes.len() as u64);
        assert_eq!(run.store.stats().live_keys, model.keys.len() as u64);
    }
    let seen = run.seen.lock();
    assert_eq!(seen.len(), model.changes.len() - published_before);
    for (change, (key, value, previous, at)) in seen.iter().zip(&model.changes[published_before..]) {
        assert_eq!((&change.key, &change.value, change.previous, change.at), (key, value, *previous, *at));
    }
}

fn options() -> Options {
    let retention = Duration::from_secs(RETENTION as u64);
    Options { retention, compress_from: 64, leave_packed: true, ..Options::default() }
}

#[tokio::test]
async fn memory_agrees_with_the_model() {
    for seed in 0..20 {
        compare(seed, 400, false, &|world, _| crate::memory::open(&options(), world)).await;
    }
}

#[tokio::test]
async fn embedded_agrees_with_the_model() {
    for seed in 100..115 {
        let disk = Disk::new();
        let open = |world: World, visit: &mut dyn FnMut(RecoveredRecord)| {
            crate::embedded::open_on(Box::new(disk.clone()), &options(), world, visit).unwrap()
        };
        compare(seed, 400, true, &open).await;
    }
}
