//! Full disks, I/O errors, files that stay bounded, and directories that are taken.

use std::sync::Arc;
use std::time::Duration;

use super::faults::{Disk, Fault};
use super::{Rng, Running, Seed, forgetful, world};
use crate::backend::Backend;
use crate::{Expect, Options, RecoveredRecord, Revision, Store, StoreError, Write, embedded};

fn open(disk: &Disk, options: &Options) -> Result<Running, StoreError> {
    let (simulated, world) = world();
    let mut recovered = Vec::new();
    let store =
        embedded::open_on(Box::new(disk.clone()), options, world, &mut |record| recovered.push(record))?;
    Ok(Running::new(simulated, Arc::new(store), recovered))
}

fn put(n: u64) -> Write {
    Write::put(format!("/{n}"), Expect::Absent, vec![n as u8; 5000])
}

/// Checks that the store recovers exactly the published changes.
fn check_reported(run: Running, disk: &Disk, options: &Options) -> Vec<RecoveredRecord> {
    let (published, revision) = (run.seen.lock().clone(), run.store.revision());
    drop(run);
    let again = open(disk, options).unwrap();
    assert_eq!(again.store.revision(), revision);
    assert_eq!(again.recovered.len(), published.len());
    for (recovered, change) in again.recovered.iter().zip(&published) {
        assert_eq!((recovered.revision, &recovered.key), (change.revision, &change.key));
        assert_eq!(recovered.value, change.value);
    }
    again.recovered.clone()
}

#[tokio::test]
async fn a_full_disk_refuses_writes_until_there_is_space() {
    let disk = Disk::new();
    let run = open(&disk, &Options::default()).unwrap();
    for n in 1..=10 {
        run.store.write(put(n)).await.unwrap();
    }
    disk.leave_space(20);
    let written = fill(&run, 10).await;
    assert_eq!(run.store.healthy(), Err(full()));
    assert!(run.store.stats().full);
    for n in 0..5 {
        assert_eq!(run.store.write(put(1000 + n)).await, Err(full()));
    }
    assert_eq!(run.store.revision(), Revision(written), "no revision is used up");
    assert_eq!(run.store.stats().failures, 0, "the batch that found no space is completed");
    assert_eq!((run.store.stats().conflicts, run.seen.lock().len() as u64), (0, written));
    // other errors of a write come first
    let taken = run.store.write(put(1)).await;
    assert!(matches!(taken, Err(StoreError::Conflict { .. })), "{taken:?}");

    disk.free_space();
    assert_eq!(run.store.write(put(written + 1)).await, Ok(Revision(written + 1)));
    assert_eq!((run.store.healthy(), run.store.stats().full), (Ok(()), false));
    check_live(run, &disk);
}

fn full() -> StoreError {
    StoreError::Full { path: "/data".into() }
}

/// Puts more and more until the disk is full; how many there are then.
async fn fill(run: &Running, mut written: u64) -> u64 {
    loop {
        match run.store.write(put(written + 1)).await {
            Ok(_) => written += 1,
            Err(error) => {
                assert_eq!(error, full());
                return written;
            }
        }
        assert!(written < 100_000, "the disk never fills");
    }
}

/// Checks that the store recovers the last published value of each key.
fn check_live(run: Running, disk: &Disk) {
    let live = |changes: &mut dyn Iterator<Item = (Arc<str>, Option<bytes::Bytes>)>| {
        let mut live = std::collections::BTreeMap::new();
        for (key, value) in changes {
            match value {
                Some(value) => live.insert(key, value),
                None => live.remove(&key),
            };
        }
        live
    };
    let published = live(&mut run.seen.lock().iter().map(|it| (it.key.clone(), it.value.clone())));
    let revision = run.store.revision();
    drop(run);
    let again = open(disk, &Options::default()).unwrap();
    assert_eq!(again.store.revision(), revision);
    let found = live(&mut again.recovered.iter().map(|it| (it.key.clone(), it.value.clone())));
    assert_eq!(found.keys().collect::<Vec<_>>(), published.keys().collect::<Vec<_>>());
    assert!(found == published);
}

#[tokio::test]
async fn a_full_disk_accepts_writes_that_do_not_grow() {
    let disk = Disk::new();
    let run = open(&disk, &Options::default()).unwrap();
    run.store.write(put(1)).await.unwrap();
    disk.leave_space(500);
    let written = fill(&run, 1).await;
    let replace = |bytes| run.store.write(Write::put("/2", Expect::Present, vec![7; bytes]));
    for round in 0..2000 {
        // a renewed lease, a mark that an object is being deleted, its deletion
        replace(5000).await.unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    replace(5100).await.unwrap();
    assert_eq!(replace(9000).await, Err(full()));
    assert_eq!(replace(9000).await, Err(full()), "and is refused again");
    run.store.write(Write::delete("/1", Expect::Any)).await.unwrap();
    assert_eq!(run.store.write(put(written + 1)).await, Err(full()), "one deletion is not enough");
    assert_eq!(run.store.stats().failures, 0);
    check_live(run, &disk);
}

#[tokio::test]
async fn deletions_make_room_on_a_full_disk() {
    let disk = Disk::new();
    let run = open(&disk, &Options::default()).unwrap();
    disk.leave_space(5000);
    let written = fill(&run, 0).await;
    let file_bytes = run.store.stats().file_bytes;
    for round in 0..3 {
        for n in (1 + round..=written).step_by(5) {
            run.store.write(Write::delete(format!("/{n}"), Expect::Any)).await.unwrap();
        }
        for n in (1 + round..=written).step_by(10) {
            assert!(run.store.write(put(n)).await.is_ok(), "round {round}: {n}");
        }
    }
    assert_eq!((run.store.healthy(), run.store.stats().failures), (Ok(()), 0));
    assert!(run.store.stats().file_bytes <= file_bytes, "{:?}", run.store.stats());
    check_live(run, &disk);
}

/// Space comes and goes, with and without something set aside: what was acknowledged is there, also after a crash.
#[tokio::test]
async fn nothing_is_lost_on_disks_that_fill() {
    let (mut taken, mut refused) = (0, 0);
    for seed in 0..40 {
        let _seed = Seed(seed);
        let mut rng = Rng(seed);
        let disk = Disk::new();
        let reserve_bytes = [0, 100 << 10, 2 << 20][rng.below(3)];
        let run = open(&disk, &Options { reserve_bytes, ..Options::default() }).unwrap();
        for _ in 0..6 {
            disk.leave_space(rng.below(100));
            for _ in 0..rng.below(120) {
                let n = rng.below(60);
                let key = format!("/{n}");
                let write = match rng.chance(30) {
                    true => Write::delete(key, Expect::Any),
                    false => Write::put(key, Expect::Any, vec![n as u8; rng.below(9000)]),
                };
                match run.store.write(write).await {
                    Ok(_) => taken += 1,
                    Err(StoreError::Conflict { .. }) => {}
                    Err(error) => {
                        refused += 1;
                        assert_eq!(error, full());
                    }
                }
            }
            if rng.chance(50) {
                disk.free_space();
            }
            run.store.tick().await;
            let published: Vec<u64> = run.seen.lock().iter().map(|change| change.revision.0).collect();
            assert!(published.iter().copied().eq(1..=run.store.revision().0), "{published:?}");
        }
        disk.free_space();
        assert!(run.store.write(Write::put("/end", Expect::Any, "")).await.is_ok());
        let (crashed, revision) = (disk.after_power_loss(&mut rng), run.store.revision());
        check_live(run, &disk);
        assert_eq!(open(&crashed, &Options::default()).unwrap().store.revision(), revision);
    }
    assert!(taken > 1000 && refused > 1000, "{taken} taken, {refused} refused: the test tests nothing");
}

#[tokio::test]
async fn a_store_starts_on_a_full_disk() {
    let disk = Disk::new();
    let run = open(&disk, &Options::default()).unwrap();
    let written = 50;
    for n in 1..=written {
        run.store.write(put(n)).await.unwrap();
    }
    drop(run);
    disk.set_aside(0).unwrap();
    disk.leave_space(10);
    let run = open(&disk, &Options::default()).unwrap();
    assert_eq!(run.store.healthy(), Err(full()));
    assert_eq!(run.store.write(put(written + 1)).await, Err(full()));
    run.store.write(Write::delete("/1", Expect::Any)).await.unwrap();
    disk.free_space();
    run.store.write(put(written + 1)).await.unwrap();
    assert_eq!(run.store.healthy(), Ok(()));
    // what is left of the space that was set aside is kept over a restart
    disk.leave_space(10);
    fill(&run, written + 1).await;
    let aside = disk.aside().unwrap();
    assert!(aside > 0 && aside < Options::default().reserve_bytes, "{aside}");
    drop(run);
    // closing gives pages back, which others take
    disk.leave_space(0);
    let run = open(&disk, &Options::default()).unwrap();
    assert_eq!(run.store.healthy(), Err(full()));
    assert!((1..=aside).contains(&disk.aside().unwrap()), "{aside}, then {}", disk.aside().unwrap());
    run.store.write(Write::put("/2", Expect::Present, vec![2; 5100])).await.unwrap();
}

#[tokio::test]
async fn readiness_returns_without_a_write() {
    let disk = Disk::new();
    let run = open(&disk, &Options::default()).unwrap();
    disk.break_after(0, Fault::Write);
    assert!(run.store.write(put(1)).await.is_err());
    run.store.tick().await;
    assert!(run.store.healthy().is_err());
    disk.heal();
    run.store.tick().await;
    assert_eq!(run.store.healthy(), Ok(()));
    assert_eq!(run.store.write(put(1)).await, Ok(Revision(1)));
}

/// A fault at any point of a commit: the failed write has no effect or, if it became durable, is published. Each
/// revision is assigned once, and writes go on once the disk works.
#[tokio::test]
async fn io_errors_anywhere_leave_the_store_consistent() {
    for seed in 0..60 {
        let _seed = Seed(seed);
        let mut rng = Rng(seed);
        let disk = Disk::new();
        let options = if rng.chance(50) { Options::default() } else { forgetful() };
        let run = open(&disk, &options).unwrap();
        let mut n = 0;
        for _ in 0..8 {
            let fault = [Fault::Write, Fault::Sync, Fault::Sync][rng.below(3)];
            disk.break_after(rng.below(30) as u64, fault);
            for _ in 0..rng.below(12) {
                n += 1;
                let before = run.store.revision();
                match run.store.write(put(n)).await {
                    Ok(revision) => assert!(revision > before),
                    Err(StoreError::Unavailable(_)) => (),
                    Err(other) => panic!("{other}"),
                }
            }
            disk.heal();
            n += 1;
            run.store.write(put(n)).await.unwrap();
            let published: Vec<u64> = run.seen.lock().iter().map(|change| change.revision.0).collect();
            assert!(published.iter().copied().eq(1..=run.store.revision().0), "{published:?}");
        }
        let after_a_crash = disk.after_power_loss(&mut rng);
        check_reported(run, &disk, &options);
        let survivor = open(&after_a_crash, &options).unwrap();
        assert_eq!(survivor.recovered.len() as u64, survivor.store.revision().0, "all was acknowledged");
    }
}

#[tokio::test]
async fn overwriting_for_long_keeps_the_file_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let (simulated, world) = world();
    let options =
        Options { retention: Duration::from_secs(10), max_history_bytes: 4 << 20, ..Options::default() };
    let store = embedded::open(dir.path(), &options, world, &mut |_| ()).unwrap();
    let run = Running::new(simulated, Arc::new(store), Vec::new());
    let mut largest = 0;
    for round in 0..100 {
        let mut writers = tokio::task::JoinSet::new();
        for n in 0..1000 {
            let store = run.store.clone();
            let write = Write::put(format!("/{}", n % 100), Expect::Any, vec![b'v'; 900 + n]);
            writers.spawn(async move { store.write(write).await.unwrap() });
        }
        writers.join_all().await;
        run.seen.lock().clear();
        run.world.advance(Duration::from_secs(1));
        if round == 20 {
            largest = run.store.stats().file_bytes;
        }
    }
    let stats = run.store.stats();
    assert_eq!(stats.revision, 100_000);
    assert!(stats.history_bytes <= 4 << 20);
    // it grows by doubling, and may do so once more; without trimming it would hold 140 MB
    assert!(stats.file_bytes <= 2 * largest, "{largest} bytes after 20 rounds: {stats:?}");
    assert!(stats.file_bytes <= 32 << 20, "{stats:?}");
    let on_disk = std::fs::metadata(dir.path().join("store.redb")).unwrap().len();
    assert_eq!(on_disk, stats.file_bytes);
    drop(run);
    let (_, world) = super::world();
    let mut live = 0;
    let again = embedded::open(dir.path(), &options, world, &mut |record| live += u64::from(!record.history));
    assert_eq!((again.unwrap().revision(), live <= 100), (Revision(100_000), true));
}

#[tokio::test]
async fn a_directory_is_opened_once() {
    let dir = tempfile::tempdir().unwrap();
    let open = || embedded::open(dir.path(), &Options::default(), world().1, &mut |_| ());
    let first = open().unwrap();
    let error = open().err().unwrap();
    assert_eq!(error, StoreError::Locked { path: dir.path().to_owned() });
    assert!(error.to_string().contains("in use by another process"));
    drop(first);
    open().unwrap();
}

#[tokio::test]
async fn a_directory_that_cannot_be_made_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let occupied = dir.path().join("file");
    std::fs::write(&occupied, "not a directory").unwrap();
    let error = embedded::open(&occupied, &Options::default(), world().1, &mut |_| ()).err().unwrap();
    assert!(error.to_string().contains(occupied.to_str().unwrap()), "{error}");
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_may_read_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let _store = embedded::open(&data, &Options::default(), world().1, &mut |_| ()).unwrap();
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&data), mode(&data.join("store.redb"))), (0o700, 0o600));
}
