//! `kill -9` at random moments: every acknowledged write survives.
//!
//! The test runs its own binary again as the process to be killed, which says on its standard output what
//! was acknowledged to it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write as _};
use std::num::NonZeroU64;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Rng, Seed, forgetful, world};
use crate::{BuildId, Expect, Options, Store, StoreError, Write, embedded};

const DIR: &str = "PINTLE_STORE_TEST_DIR";
const NAME: &str = "tests::kill::acknowledged_writes_survive";
const WRITERS: usize = 8;
const KEYS: usize = 25;

#[test]
fn acknowledged_writes_survive() {
    if let Some(dir) = std::env::var_os(DIR) {
        return write_until_killed(Path::new(&dir));
    }
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let _seed = Seed(seed);
    let mut rng = Rng(seed);
    let dir = tempfile::tempdir().unwrap();
    let mut latest = HashMap::new();
    let mut newest = 0;
    let mut acknowledged = 0;
    for _ in 0..20 {
        let mut child = spawn(dir.path());
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (moment, patience) = (1 + rng.below(400), Duration::from_micros(rng.next() % 5000));
        let mut heard = 0;
        for line in lines.map_while(Result::ok) {
            let Some((key, number, revision)) = parse(&line) else { continue };
            acknowledged += 1;
            newest = newest.max(revision);
            latest.insert(key, number);
            heard += 1;
            if heard == moment {
                if rng.chance(10) {
                    let taken = embedded::open(dir.path(), &forgetful(), world().1, &mut |_| ()).err();
                    assert!(matches!(taken, Some(StoreError::Locked { .. })), "{taken:?}");
                }
                // somewhere within a commit, not just after an answer
                std::thread::sleep(patience);
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        newest = check(dir.path(), &latest, newest);
    }
    assert!(acknowledged >= 20, "only {acknowledged} writes were acknowledged");
}

fn spawn(dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture", "--test-threads=1"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn parse(line: &str) -> Option<(String, u64, u64)> {
    let mut words = line.strip_prefix("acknowledged ")?.split(' ');
    let (key, number, revision) = (words.next()?, words.next()?, words.next()?);
    // the last line may be cut short by the kill; a full one ends with a dot
    Some((key.to_owned(), number.parse().ok()?, revision.strip_suffix('.')?.parse().ok()?))
}

fn check(dir: &Path, latest: &HashMap<String, u64>, newest: u64) -> u64 {
    let mut found = HashMap::new();
    let mut visit = |mut record: crate::RecoveredRecord| {
        record.unpack().unwrap();
        assert!(record.encoded_by.is_none_or(|by| *by.summary == *record.key.as_bytes()), "another summary");
        let value = record.value.unwrap();
        let number = u64::from_le_bytes(value[..8].try_into().unwrap());
        assert!(value[8..].iter().all(|byte| *byte == number as u8), "half a write");
        found.insert(record.key.to_string(), number);
    };
    let options = Options { leave_packed: true, ..forgetful() };
    let store = embedded::open(dir, &options, world().1, &mut visit).unwrap();
    assert!(store.revision().0 >= newest, "revisions went back to {}", store.revision());
    for (key, number) in latest {
        let found = found.get(key);
        assert!(found.is_some_and(|found| found >= number), "{key}: {found:?}, {number} was acknowledged");
    }
    store.revision().0
}

/// The process to be killed: several writers, each with keys of its own and ever larger numbers.
fn write_until_killed(dir: &Path) {
    let mut numbers: HashMap<String, u64> = HashMap::new();
    let mut visit = |record: crate::RecoveredRecord| {
        let number = u64::from_le_bytes(record.value.unwrap()[..8].try_into().unwrap());
        numbers.insert(record.key.to_string(), number);
    };
    let options = Options { cache_bytes: 1 << 20, compress_from: 2000, ..forgetful() };
    let store = Arc::new(embedded::open(dir, &options, world().1, &mut visit).unwrap());
    store.start(Box::new(|_| ())).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let local = async {
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let (store, numbers) = (store.clone(), numbers.clone());
            writers.spawn(async move {
                let mut number = numbers.values().copied().max().unwrap_or(0);
                loop {
                    number += 1;
                    let key = format!("/{writer}/{}", number as usize % KEYS);
                    let mut value = number.to_le_bytes().to_vec();
                    value.resize(8 + (number as usize * 997) % 12_000, number as u8);
                    let mut write = Write::put(key.as_str(), Expect::Any, value);
                    if number.is_multiple_of(2) {
                        write.encoded_by = NonZeroU64::new(number).map(BuildId);
                        write.summary = key.clone().into();
                    }
                    let revision = store.write(write).await.unwrap();
                    let mut out = std::io::stdout().lock();
                    // the parent is gone
                    if writeln!(out, "acknowledged {key} {number} {revision}.").is_err() {
                        std::process::exit(0);
                    }
                }
            });
        }
        writers.join_all().await;
    };
    runtime.block_on(local);
}
