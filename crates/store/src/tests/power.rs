//! Power failures: unsynced writes are lost in part or out of order; acknowledged ones survive.

use std::sync::Arc;
use std::time::Duration;

use super::faults::{Disk, Fault};
use super::{Rng, Running, Seed, forgetful, world};
use crate::{Expect, Options, Revision, StoreError, Write, embedded};

fn open(disk: &Disk, options: &Options) -> Result<Running, StoreError> {
    let (simulated, world) = world();
    let mut recovered = Vec::new();
    let store =
        embedded::open_on(Box::new(disk.clone()), options, world, &mut |record| recovered.push(record))?;
    Ok(Running::new(simulated, Arc::new(store), recovered))
}

#[tokio::test]
async fn no_acknowledged_write_is_lost() {
    for seed in 0..60 {
        let _seed = Seed(seed);
        let mut rng = Rng(seed);
        let options = if rng.chance(50) { Options::default() } else { forgetful() };
        let options = Options { compress_from: [usize::MAX, 4000][seed as usize % 2], ..options };
        let mut disk = Disk::new();
        // for each key the newest acknowledged number, and the newest that was tried
        let mut acknowledged = vec![None; 20];
        let mut tried = 0_u64;
        let mut newest = Revision(0);
        for _ in 0..6 {
            disk.break_after(rng.below(80) as u64, Fault::Power);
            // the power may fail while it opens, too
            if let Ok(run) = open(&disk, &options) {
                while let Some(round) = write_round(&run, &mut rng, &mut tried).await {
                    for (key, number, revision) in round {
                        let latest: &mut Option<u64> = &mut acknowledged[key];
                        *latest = Some(latest.map_or(number, |n| n.max(number)));
                        newest = newest.max(revision);
                    }
                    if rng.chance(30) {
                        // it comes to rest
                        run.world.advance(Duration::from_secs(2));
                        run.store.tick().await;
                    }
                }
                // closing is also something during which there is no power
            }
            disk = disk.after_power_loss(&mut rng);
        }
        let run = open(&disk, &options).unwrap();
        assert!(run.store.revision() >= newest);
        let mut found = vec![None; 20];
        for record in &run.recovered {
            let key: usize = record.key[1..].parse().unwrap();
            found[key] = record.value.as_ref().map(|value| number_in(value));
        }
        for (key, (found, acknowledged)) in found.iter().zip(&acknowledged).enumerate() {
            assert!(found >= acknowledged, "key {key}: {found:?} where {acknowledged:?} was acknowledged");
            assert!(found.is_none_or(|number| number <= tried), "key {key}: {found:?} was never written");
        }
    }
}

/// Some writes at once; what was acknowledged, or `None` when nothing works any more.
async fn write_round(run: &Running, rng: &mut Rng, tried: &mut u64) -> Option<Vec<(usize, u64, Revision)>> {
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..1 + rng.below(6) {
        *tried += 1;
        let (key, number, store) = (rng.below(20), *tried, run.store.clone());
        let mut value = number.to_le_bytes().to_vec();
        value.resize(8 + rng.below(9000), number as u8);
        writers.spawn(async move {
            let revision = store.write(Write::put(format!("/{key}"), Expect::Any, value)).await;
            revision.map(|revision| (key, number, revision))
        });
    }
    let done: Vec<_> = writers.join_all().await.into_iter().flatten().collect();
    (!done.is_empty()).then_some(done)
}

/// The number in a value, whose every byte must be as written.
fn number_in(value: &[u8]) -> u64 {
    let number = u64::from_le_bytes(value[..8].try_into().unwrap());
    assert!(value[8..].iter().all(|byte| *byte == number as u8), "half a write");
    number
}
