//! Damaged files: the store returns the written data, or an error that names the file.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use super::faults::Disk;
use super::{Rng, Running, Seed, world};
use crate::{BuildId, Expect, Options, RecoveredRecord, Store, StoreError, Write, embedded};

fn options() -> Options {
    // of the sample's values one in four is compressed, and every other one of these stays so
    let retention = Duration::from_secs(60);
    Options { retention, compress_from: 9000, leave_packed: true, ..Options::default() }
}

/// Opens it, and waits until all of it is verified.
async fn open(disk: &Disk) -> Result<Running, StoreError> {
    let (simulated, world) = world();
    let mut recovered = Vec::new();
    let store =
        embedded::open_on(Box::new(disk.clone()), &options(), world, &mut |record| recovered.push(record))?;
    let run = Running::new(simulated, Arc::new(store), recovered);
    run.store.probe().await?;
    Ok(run)
}

/// A file with some of everything: small and large values, deletions, history and trimmed history. Returned
/// as it is while in use, at rest, and after closing.
async fn sample() -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let disk = Disk::new();
    let run = open(&disk).await.unwrap();
    for round in 0..4 {
        for n in 0..60_usize {
            let value = vec![n as u8; [20, 700, 3000, 9000][(n + round) % 4]];
            let mut write = Write::put(format!("/registry/{n}"), Expect::Any, value);
            if (n / 4) % 2 == 0 {
                write.encoded_by = NonZeroU64::new(n as u64 + 1).map(BuildId);
                write.summary = vec![n as u8; n + 1].into();
            }
            run.store.write(write).await.unwrap();
        }
        for n in 0..10 {
            run.store.write(Write::delete(format!("/registry/{}", n * 5), Expect::Any)).await.unwrap();
        }
        run.world.advance(Duration::from_secs(25));
        run.store.tick().await;
    }
    assert!(run.store.oldest().0 > 0 && run.store.stats().history_records > 0);
    let in_use = disk.bytes();
    run.world.advance(Duration::from_secs(2));
    run.store.tick().await;
    let at_rest = disk.bytes();
    assert!(at_rest != in_use);
    run.store.close().await;
    (in_use, at_rest, disk.bytes())
}

async fn read(bytes: &[u8]) -> Vec<RecoveredRecord> {
    open(&Disk::holding(bytes.to_vec())).await.unwrap().recovered.clone()
}

fn harm(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.below(bytes.len());
    let page = at / 4096 * 4096;
    match rng.below(10) {
        0..=3 => bytes[at] ^= 1 << rng.below(8),
        4 => bytes[at] = rng.next() as u8,
        5 => bytes[rng.below(320)] ^= 1 << rng.below(8),
        6 => bytes[at / 512 * 512..].iter_mut().take(512).for_each(|byte| *byte = 0),
        7 => {
            let other = rng.below(bytes.len() / 4096) * 4096;
            let copy = bytes[other..other + 4096].to_vec();
            bytes[page..page + 4096].copy_from_slice(&copy);
        }
        8 => bytes.truncate(at),
        _ => bytes.truncate(page),
    }
}

#[tokio::test]
async fn a_harmed_file_is_right_or_refused() {
    let (_, at_rest, closed) = sample().await;
    let expected = read(&closed).await;
    assert!(expected.iter().any(|it| it.encoded_by.as_ref().is_some_and(|by| by.is_packed)));
    assert_eq!(read(&at_rest).await, expected);
    let (mut right, mut refused) = (0, 0);
    for seed in 300..550 {
        let _seed = Seed(seed);
        let mut harmed = if seed % 2 == 0 { closed.clone() } else { at_rest.clone() };
        harm(&mut harmed, &mut Rng(seed));
        let disk = Disk::holding(harmed);
        match open(&disk).await {
            Ok(run) => {
                right += 1;
                assert_eq!(run.recovered, expected);
                // and it can be gone on with: no page in use is taken for free
                let mut writers = tokio::task::JoinSet::new();
                for n in 0..40 {
                    let store = run.store.clone();
                    let write = Write::put(format!("/more/{n}"), Expect::Absent, vec![1; 9000]);
                    writers.spawn(async move { store.write(write).await.unwrap() });
                }
                writers.join_all().await;
                drop(run);
                let again = open(&disk).await.unwrap().recovered.clone();
                assert_eq!((&again[..expected.len()], again.len()), (&expected[..], expected.len() + 40));
            }
            Err(error) => {
                refused += 1;
                assert!(matches!(error, StoreError::Corrupt { .. } | StoreError::Format { .. }), "{error:?}");
                assert!(error.to_string().starts_with("/data/store.redb: "), "{error}");
            }
        }
    }
    assert!(right > 10 && refused > 10, "{right} right, {refused} refused: the test tests nothing");
}

/// Harm to a file that was not closed may look like a last batch that was cut short, and only like that.
#[tokio::test]
async fn a_harmed_file_in_use_loses_at_most_the_last_batch() {
    let (in_use, ..) = sample().await;
    let expected = read(&in_use).await;
    let mut refused = 0;
    for seed in 1000..1120 {
        let _seed = Seed(seed);
        let mut harmed = in_use.clone();
        harm(&mut harmed, &mut Rng(seed));
        match open(&Disk::holding(harmed)).await {
            Ok(run) => {
                // the last batch of the sample is one that only trims: without it there is more history
                let newest = |records: &[RecoveredRecord]| records.last().map(|record| record.revision);
                assert_eq!(newest(&run.recovered), newest(&expected));
                assert!(run.recovered.len() >= expected.len());
                assert!(expected.iter().all(|record| {
                    run.recovered.iter().any(|r| r.revision == record.revision && r.value == record.value)
                }));
            }
            Err(error) => {
                refused += 1;
                assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
            }
        }
    }
    assert!(refused > 10);
}

#[tokio::test]
async fn a_refused_file_is_left_as_it_was() {
    let (_, at_rest, closed) = sample().await;
    let mut refused = 0;
    for seed in 0..60 {
        let _seed = Seed(seed);
        let mut harmed = if seed % 2 == 0 { closed.clone() } else { at_rest.clone() };
        harm(&mut harmed, &mut Rng(seed));
        let disk = Disk::holding(harmed.clone());
        if open(&disk).await.is_err() {
            refused += 1;
            // redb notes in its first page that the file is in use
            assert!(disk.bytes().get(4096..) == harmed.get(4096..), "something was written");
            assert!(open(&disk).await.is_err(), "refused once, refused again");
        }
    }
    assert!(refused > 10);
}

#[tokio::test]
async fn an_empty_file_is_not_a_new_store() {
    let dir = tempfile::tempdir().unwrap();
    let open = || embedded::open(dir.path(), &options(), world().1, &mut |_| ());
    let file = dir.path().join("store.redb");
    drop(open().unwrap());
    assert!(file.metadata().unwrap().len() > 0);
    for content in [b"".as_slice(), b"not a store", &[0; 10_000]] {
        std::fs::write(&file, content).unwrap();
        let error = open().err().unwrap();
        assert!(matches!(&error, StoreError::Corrupt { path, .. } if *path == file), "{error:?}");
    }
    // an unfinished new store has no data to lose
    std::fs::remove_file(&file).unwrap();
    std::fs::write(dir.path().join("store.redb.new"), "unfinished").unwrap();
    assert_eq!(open().unwrap().revision().0, 0);
}
