//! Snapshots while writes go on, and stores that are restored from them.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;

use super::{Rng, Running, Seed, forgetful, world};
use crate::snapshot::{Encoder, Pages, Reader, SnapshotError};
use crate::{
    BuildId, Expect, Options, RecoveredRecord, Revision, Snapshot, SnapshotRecord, StoreError, Write,
    embedded,
};

fn open(dir: &std::path::Path, options: &Options) -> Running {
    let (simulated, world) = world();
    let mut recovered = Vec::new();
    let store = embedded::open(dir, options, world, &mut |record| recovered.push(record)).unwrap();
    Running::new(simulated, Arc::new(store), recovered)
}

async fn next(pages: &mut Pages) -> Option<Result<Vec<SnapshotRecord>, StoreError>> {
    std::future::poll_fn(|cx| Pin::new(&mut *pages).poll_next(cx)).await
}

async fn all(snapshot: Snapshot) -> Vec<SnapshotRecord> {
    let (mut pages, mut records) = (snapshot.pages, Vec::new());
    while let Some(page) = next(&mut pages).await {
        records.extend(page.unwrap());
    }
    records
}

/// The keys with values and revisions.
type Contents = BTreeMap<String, (Bytes, u64)>;

fn contents(records: &[SnapshotRecord]) -> Contents {
    assert!(records.is_sorted_by(|a, b| a.revision < b.revision));
    records.iter().map(|it| (it.key.to_string(), (it.value.clone(), it.revision.0))).collect()
}

/// Writes at random; the model follows.
async fn write_some(run: &Running, rng: &mut Rng, model: &mut Contents) {
    for _ in 0..rng.below(60) {
        let key = format!("/registry/{}", rng.below(20));
        if rng.chance(25) && model.contains_key(&key) {
            run.store.write(Write::delete(&*key, Expect::Any)).await.unwrap();
            model.remove(&key);
        } else {
            let value = Bytes::from(vec![b'v'; rng.below(40_000)]);
            let mut write = Write::put(&*key, Expect::Any, value.clone());
            if rng.chance(50) {
                (write.encoded_by, write.summary) = (NonZeroU64::new(7).map(BuildId), "summary".into());
            }
            let revision = run.store.write(write).await.unwrap();
            model.insert(key, (value, revision.0));
        }
        if rng.chance(20) {
            run.world.advance(Duration::from_secs(1));
            run.store.tick().await;
        }
    }
}

#[tokio::test]
async fn a_snapshot_is_the_state_of_its_revision() {
    for seed in 0..12 {
        let _seed = Seed(seed);
        let mut rng = Rng(seed);
        let dir = tempfile::tempdir().unwrap();
        let options = if rng.chance(50) { forgetful() } else { Options::default() };
        let options = Options { compress_from: [usize::MAX, 64][rng.below(2)], ..options };
        let run = open(dir.path(), &options);
        let mut model = Contents::new();
        for _ in 0..4 {
            write_some(&run, &mut rng, &mut model).await;
            let (then, revision) = (model.clone(), run.store.revision());
            let mut snapshot = run.store.snapshot().await.unwrap();
            assert_eq!(snapshot.revision, revision);
            let first = next(&mut snapshot.pages).await;
            write_some(&run, &mut rng, &mut model).await;
            let mut records = first.transpose().unwrap().unwrap_or_default();
            records.extend(all(snapshot).await);
            assert_eq!(contents(&records), then);
        }
    }
}

fn restore(dir: &std::path::Path, newest: u64, records: Vec<SnapshotRecord>) -> Result<u64, StoreError> {
    embedded::restore(dir, Revision(newest), &mut records.into_iter().map(Ok), &world().1)
}

#[tokio::test]
async fn a_restored_store_continues_after_its_revision() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = open(from.path(), &Options::default());
    for (key, value) in [("/a", "1"), ("/b", "2"), ("/a", "3"), ("/c", "4")] {
        run.store.write(Write::put(key, Expect::Any, value)).await.unwrap();
    }
    run.store.write(Write::delete("/c", Expect::Any)).await.unwrap();
    let expires = super::START as i64 + 50;
    run.store.write(Write::put("/e", Expect::Any, "6").expiring(expires)).await.unwrap();
    let snapshot = run.store.snapshot().await.unwrap();
    let (revision, records) = (snapshot.revision.0, all(snapshot).await);
    assert_eq!(restore(to.path(), revision + 100, records.clone()), Ok(3));
    assert!(
        restore(to.path(), revision, records).unwrap_err().to_string().contains("exists: remove it first")
    );

    let restored = open(to.path(), &Options::default());
    assert_eq!((restored.store.revision(), restored.store.oldest()), (Revision(106), Revision(106)));
    let show = |it: &RecoveredRecord| {
        format!("{} {}={}", it.revision, it.key, String::from_utf8_lossy(it.value.as_ref().unwrap()))
    };
    assert_eq!(restored.recovered.iter().map(show).collect::<Vec<_>>(), ["2 /b=2", "3 /a=3", "6 /e=6"]);
    let write = Write::put("/a", Expect::Revision(Revision(3)), "x");
    assert_eq!(restored.store.write(write).await, Ok(Revision(107)));
    restored.world.advance(Duration::from_secs(60));
    restored.store.tick().await;
    assert_eq!(restored.store.stats().live_keys, 2, "expiry is kept");
}

#[tokio::test]
async fn records_of_one_revision_and_of_any_order_are_restored() {
    let dir = tempfile::tempdir().unwrap();
    let record = |revision, key: &str| SnapshotRecord {
        revision: Revision(revision),
        key: key.into(),
        value: Bytes::from(key.to_owned()),
        at: 0,
        expires_at: None,
    };
    let records = vec![record(9, "/a"), record(4, "/b"), record(9, "/c"), record(9, "/d"), record(2, "/e")];
    assert_eq!(restore(dir.path(), 20, records), Ok(5));
    let run = open(dir.path(), &Options::default());
    let found: Vec<_> = run.recovered.iter().map(|it| format!("{} {}", it.revision, it.key)).collect();
    assert_eq!(found, ["2 /e", "4 /b", "9 /a", "21 /c", "22 /d"]);
    assert_eq!(run.store.revision(), Revision(22));
}

#[tokio::test]
async fn a_failed_restore_leaves_no_store() {
    let dir = tempfile::tempdir().unwrap();
    let record = SnapshotRecord {
        revision: Revision(1),
        key: "/a".into(),
        value: Bytes::from_static(b"x"),
        at: 0,
        expires_at: None,
    };
    let broken = StoreError::Unavailable("the file is cut off".to_owned());
    let mut records = [Ok(record), Err(broken.clone())].into_iter();
    assert_eq!(embedded::restore(dir.path(), Revision(5), &mut records, &world().1), Err(broken));
    let run = open(dir.path(), &Options::default());
    assert_eq!((run.store.revision(), run.recovered.len()), (Revision(0), 0));
}

#[tokio::test]
async fn a_snapshot_that_is_not_read_does_not_hold_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let run = open(dir.path(), &forgetful());
    let value = Bytes::from(vec![b'v'; 100 << 10]);
    for n in 0..8 {
        run.store.write(Write::put(format!("/{n}"), Expect::Any, value.clone())).await.unwrap();
    }
    let mut stalled = run.store.snapshot().await.unwrap().pages;
    next(&mut stalled).await.unwrap().unwrap();
    run.world.advance(Duration::from_secs(59));
    run.store.write(Write::put("/0", Expect::Any, value.clone())).await.unwrap();
    next(&mut stalled).await.unwrap().unwrap();
    run.world.advance(Duration::from_secs(61));
    run.store.write(Write::put("/0", Expect::Any, value)).await.unwrap();
    let error = next(&mut stalled).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("take another"), "{error}");
    assert!(next(&mut stalled).await.is_none());
}

#[tokio::test]
async fn a_file_of_a_snapshot_restores_the_store() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = open(from.path(), &Options::default());
    let (mut rng, mut model) = (Rng(7), Contents::new());
    write_some(&run, &mut rng, &mut model).await;
    let mut snapshot = run.store.snapshot().await.unwrap();
    let (mut encoder, header) = Encoder::new(snapshot.revision, 0);
    let mut file = header.to_vec();
    while let Some(page) = next(&mut snapshot.pages).await {
        file.extend_from_slice(&encoder.page(&page.unwrap()));
    }
    file.extend_from_slice(&encoder.finish());

    let restore = |file: &[u8], to: &std::path::Path| -> Result<u64, io::Error> {
        let mut reader = Reader::new(file).map_err(io::Error::other)?;
        let revision = reader.revision();
        let mut records = std::iter::from_fn(|| reader.next_record().transpose())
            .map(|it| it.map_err(|why: SnapshotError| StoreError::Unavailable(why.to_string())));
        embedded::restore(to, revision, &mut records, &world().1).map_err(io::Error::other)
    };
    let half = file.len() / 2;
    assert!(restore(&file[..half], to.path()).is_err());
    assert_eq!(restore(&file, to.path()).unwrap(), model.len() as u64);
}
