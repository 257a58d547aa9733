//! The conformance suite of engines. Each engine calls each test in one line.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use env::World;

use super::{Running, world};
use crate::{
    Engine, Expect, MAX_KEY_BYTES, MAX_VALUE_BYTES, Options, RecoveredRecord, Revision, Store, StoreError,
    Write,
};

/// Opens an engine, possibly not for the first time.
type Open<'a> = &'a dyn Fn(&Options, World, &mut dyn FnMut(RecoveredRecord)) -> Engine;

fn open(open: Open<'_>, options: &Options) -> Running {
    let (simulated, world) = world();
    let mut recovered = Vec::new();
    let store = open(options, world, &mut |record| recovered.push(record));
    Running::new(simulated, Arc::new(store), recovered)
}

impl Running {
    async fn put(&self, key: &str, expect: Expect, value: &str) -> Result<Revision, StoreError> {
        self.store.write(Write::put(key, expect, value.to_owned())).await
    }

    async fn delete(&self, key: &str, expect: Expect) -> Result<Revision, StoreError> {
        self.store.write(Write::delete(key, expect)).await
    }

    async fn advance(&self, secs: u64) {
        self.world.advance(Duration::from_secs(secs));
        self.store.tick().await;
    }

    /// The changes so far as `revision key=value`.
    fn published(&self) -> Vec<String> {
        let show = |value: &Option<Bytes>| match value {
            Some(value) => String::from_utf8_lossy(value).into_owned(),
            None => "gone".to_owned(),
        };
        self.seen.lock().iter().map(|c| format!("{} {}={}", c.revision, c.key, show(&c.value))).collect()
    }
}

fn conflict(key: &str, current: Option<u64>) -> Result<Revision, StoreError> {
    Err(StoreError::Conflict { key: key.into(), current: current.map(Revision) })
}

async fn expectations_decide(engine: Open<'_>) {
    let run = open(engine, &Options::default());
    assert_eq!((run.store.revision(), run.store.oldest()), (Revision(0), Revision(0)));
    assert_eq!(run.put("/a", Expect::Present, "x").await, conflict("/a", None));
    assert_eq!(run.put("/a", Expect::Revision(Revision(1)), "x").await, conflict("/a", None));
    assert_eq!(run.delete("/a", Expect::Any).await, conflict("/a", None));
    assert_eq!(run.delete("/a", Expect::Absent).await, conflict("/a", None));
    assert_eq!(run.put("/a", Expect::Absent, "1").await, Ok(Revision(1)));
    assert_eq!(run.put("/a", Expect::Absent, "x").await, conflict("/a", Some(1)));
    assert_eq!(run.put("/a", Expect::Revision(Revision(1)), "2").await, Ok(Revision(2)));
    assert_eq!(run.put("/a", Expect::Revision(Revision(1)), "x").await, conflict("/a", Some(2)));
    assert_eq!(run.delete("/a", Expect::Revision(Revision(1))).await, conflict("/a", Some(2)));
    assert_eq!(run.put("/b", Expect::Any, "3").await, Ok(Revision(3)));
    assert_eq!(run.put("/a", Expect::Present, "4").await, Ok(Revision(4)));
    assert_eq!(run.delete("/a", Expect::Revision(Revision(4))).await, Ok(Revision(5)));
    assert_eq!(run.put("/a", Expect::Absent, "6").await, Ok(Revision(6)));
    assert_eq!(run.delete("/a", Expect::Present).await, Ok(Revision(7)));
    assert_eq!(run.published(), ["1 /a=1", "2 /a=2", "3 /b=3", "4 /a=4", "5 /a=gone", "6 /a=6", "7 /a=gone"]);
    let previous: Vec<_> = run.seen.lock().iter().map(|c| c.previous.map(|p| p.0)).collect();
    assert_eq!(previous, [None, Some(1), None, Some(2), Some(4), None, Some(6)]);
    let stats = run.store.stats();
    assert_eq!((stats.revision, stats.live_keys, stats.changes, stats.conflicts), (7, 1, 7, 7));
}

async fn one_of_many_creators_wins(engine: Open<'_>) {
    let run = open(engine, &Options::default());
    let mut racers = tokio::task::JoinSet::new();
    for racer in 0..64 {
        let store = run.store.clone();
        racers
            .spawn(async move { store.write(Write::put("/one", Expect::Absent, format!("{racer}"))).await });
    }
    let results = racers.join_all().await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    assert!(results.iter().all(|r| *r == Ok(Revision(1)) || *r == conflict("/one", Some(1))), "{results:?}");
    assert_eq!(run.store.revision(), Revision(1));
}

async fn an_answered_write_has_been_published(engine: Open<'_>) {
    let run = open(engine, &Options::default());
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..16 {
        let (store, seen) = (run.store.clone(), run.seen.clone());
        writers.spawn(async move {
            for n in 0..20 {
                let revision =
                    store.write(Write::put(format!("/{writer}"), Expect::Any, format!("{n}"))).await.unwrap();
                assert!(store.revision() >= revision);
                assert_eq!(
                    seen.lock()[revision.0 as usize - 1].revision,
                    revision,
                    "published in order, with no gap"
                );
            }
        });
    }
    writers.join_all().await;
    assert_eq!(run.seen.lock().len(), 320);
}

async fn queued_writes_become_one_batch(engine: Open<'_>) {
    let (_, world) = world();
    let store = Arc::new(engine(&Options::default(), world, &mut |_| ()));
    let mut writers = tokio::task::JoinSet::new();
    for n in 0..40 {
        let store = store.clone();
        writers
            .spawn(async move { store.write(Write::put(format!("/{}", n % 30), Expect::Absent, "v")).await });
    }
    while store.stats().waiting < 40 {
        tokio::task::yield_now().await;
    }
    store.start(Box::new(|_| ())).unwrap();
    let results = writers.join_all().await;
    assert_eq!(
        results.iter().filter(|r| r.is_err()).count(),
        10,
        "a failed expectation harms no other write"
    );
    let stats = store.stats();
    assert_eq!((stats.commits, stats.largest_batch, stats.revision), (1, 30, 30));
    assert!(store.start(Box::new(|_| ())).is_err(), "there is one subscriber");
}

async fn failed_expectations_alone_commit_nothing(engine: Open<'_>) {
    let run = open(engine, &Options::default());
    for _ in 0..5 {
        assert!(run.put("/a", Expect::Present, "x").await.is_err());
    }
    let stats = run.store.stats();
    assert_eq!((stats.commits, stats.revision, stats.conflicts), (0, 0, 5));
}

async fn a_note_goes_from_writer_to_subscriber(engine: Open<'_>) {
    let run = open(engine, &Options::default());
    let note: Arc<String> = Arc::new("parsed".to_owned());
    run.store.write(Write::put("/a", Expect::Any, "v").with_note(note.clone())).await.unwrap();
    let change = run.seen.lock()[0].clone();
    assert!(Arc::ptr_eq(&change.note.unwrap().downcast::<String>().unwrap(), &note));
    assert_eq!(change.at, super::START as i64);
}

async fn keys_expire(engine: Open<'_>) {
    let run = open(engine, &Options::default());
    let at = |secs: u64| (super::START + secs) as i64;
    for (key, secs) in [("/soon", 10), ("/late", 20), ("/renewed", 10), ("/kept", 10)] {
        run.store.write(Write::put(key, Expect::Any, "v").expiring(at(secs))).await.unwrap();
    }
    run.store.write(Write::put("/renewed", Expect::Any, "w").expiring(at(30))).await.unwrap();
    run.put("/kept", Expect::Any, "for good").await.unwrap();
    run.advance(9).await;
    assert_eq!(run.store.revision(), Revision(6));
    run.advance(1).await;
    assert_eq!(run.published()[6..], ["7 /soon=gone"]);
    run.advance(100).await;
    assert_eq!(run.published()[7..], ["8 /late=gone", "9 /renewed=gone"]);
    run.advance(10_000).await;
    assert_eq!((run.store.revision(), run.store.stats().live_keys), (Revision(9), 1));
}

async fn more_keys_expire_than_fit_a_batch(engine: Open<'_>) {
    let run = open(engine, &Options::default());
    let mut writers = tokio::task::JoinSet::new();
    for n in 0..1500 {
        let store = run.store.clone();
        let write = Write::put(format!("/{n}"), Expect::Any, "v").expiring(super::START as i64 + 5);
        writers.spawn(async move { store.write(write).await.unwrap() });
    }
    writers.join_all().await;
    run.advance(5).await;
    assert_eq!((run.store.revision(), run.store.stats().live_keys), (Revision(3000), 0));
}

async fn history_goes_with_time(engine: Open<'_>) {
    let run = open(engine, &Options { retention: Duration::from_secs(60), ..Options::default() });
    for n in 0..10 {
        run.put("/a", Expect::Any, &n.to_string()).await.unwrap();
        run.advance(10).await;
    }
    // written at 0, 10 .. 90, and it is 100 now: those of 0..=40 are 60 seconds old
    assert_eq!((run.store.oldest(), run.store.stats().history_records), (Revision(5), 5));
    run.delete("/a", Expect::Any).await.unwrap();
    run.advance(60).await;
    let stats = run.store.stats();
    assert_eq!((stats.oldest, stats.revision, stats.live_keys), (11, 11, 0));
    assert_eq!((stats.history_records, stats.history_bytes), (0, 0));
    assert_eq!(run.put("/a", Expect::Absent, "v").await, Ok(Revision(12)));
}

async fn history_goes_with_size(engine: Open<'_>) {
    let run = open(engine, &Options { max_history_bytes: 100_000, ..Options::default() });
    let value = "v".repeat(10_000);
    for _ in 0..50 {
        run.put("/a", Expect::Any, &value).await.unwrap();
        assert!(run.store.stats().history_bytes <= 100_000);
    }
    assert!(run.store.stats().history_records >= 9);
}

async fn trimming_takes_small_steps(engine: Open<'_>) {
    let run = open(engine, &Options { retention: Duration::from_secs(60), ..Options::default() });
    for n in 0..200 {
        run.put("/a", Expect::Any, &n.to_string()).await.unwrap();
    }
    run.world.advance(Duration::from_secs(60));
    let mut oldest = run.store.oldest().0;
    while oldest < 200 {
        run.put("/b", Expect::Any, "v").await.unwrap();
        let next = run.store.oldest().0;
        assert!(next > oldest && next <= oldest + 16, "from {oldest} to {next}");
        oldest = next;
    }
}

async fn oversized_values_are_rejected(engine: Open<'_>) {
    let run = open(engine, &Options::default());
    let key = "k".repeat(MAX_KEY_BYTES + 1);
    assert!(matches!(run.put(&key, Expect::Any, "v").await, Err(StoreError::TooLarge { .. })));
    let value = Bytes::from(vec![0; MAX_VALUE_BYTES + 1]);
    let write = Write::put("/a", Expect::Any, value.slice(..));
    assert!(matches!(run.store.write(write).await, Err(StoreError::TooLarge { .. })));
    let write = Write::put(&key[1..], Expect::Any, value.slice(1..));
    assert_eq!(run.store.write(write).await, Ok(Revision(1)));
}

async fn a_closed_store_finishes_and_refuses(engine: Open<'_>) {
    let run = open(engine, &Options::default());
    let mut writers = tokio::task::JoinSet::new();
    for n in 0..100 {
        let store = run.store.clone();
        writers.spawn(async move { store.write(Write::put(format!("/{n}"), Expect::Any, "v")).await });
    }
    tokio::task::yield_now().await;
    run.store.close().await;
    let done = writers.join_all().await.iter().filter(|result| result.is_ok()).count();
    assert_eq!(done, run.seen.lock().len(), "every published change is answered");
    assert!(matches!(run.put("/a", Expect::Any, "v").await, Err(StoreError::Unavailable(_))));
    assert!(run.store.healthy().is_err());
    run.store.tick().await;
    run.store.close().await;
}

async fn a_store_that_never_started_closes(engine: Open<'_>) {
    let (_, world) = world();
    let store = engine(&Options::default(), world, &mut |_| ());
    store.close().await;
    assert!(store.write(Write::put("/a", Expect::Any, "v")).await.is_err());
}

async fn a_failing_subscriber_stops_the_store(engine: Open<'_>) {
    let (_, world) = world();
    let store = engine(&Options::default(), world, &mut |_| ());
    store.start(Box::new(|_| panic!("for the test"))).unwrap();
    let write = || store.write(Write::put("/a", Expect::Any, "v"));
    assert!(matches!(write().await, Err(StoreError::Unavailable(_))));
    assert!(matches!(write().await, Err(StoreError::Unavailable(_))));
    store.close().await;
    assert!(store.healthy().is_err());
}

async fn a_probe_finds_out_whether_writes_move(engine: Open<'_>) {
    let (_, world) = world();
    let store = Arc::new(engine(&Options::default(), world, &mut |_| ()));
    let (release, held) = std::sync::mpsc::channel::<()>();
    store.start(Box::new(move |_| held.recv().unwrap_or(()))).unwrap();
    store.probe().await.unwrap();
    let writer = tokio::spawn({
        let store = store.clone();
        async move { store.write(Write::put("/a", Expect::Any, "v")).await }
    });
    while store.stats().commits == 0 {
        tokio::task::yield_now().await;
    }
    // the committer is blocked: a cancelled request leaves nothing behind
    for _ in 0..3 {
        assert!(tokio::time::timeout(Duration::from_millis(5), store.probe()).await.is_err());
    }
    release.send(()).unwrap();
    assert_eq!(writer.await.unwrap(), Ok(Revision(1)));
    assert_eq!(store.probe().await, Ok(()));
    store.close().await;
    assert!(store.probe().await.is_err());
}

async fn a_durable_store_goes_on_where_it_was(engine: Open<'_>) {
    let options = Options { retention: Duration::from_secs(60), ..Options::default() };
    let run = open(engine, &options);
    run.put("/a", Expect::Any, "1").await.unwrap();
    run.store.write(Write::put("/b", Expect::Any, "2").expiring(super::START as i64 + 5)).await.unwrap();
    run.put("/a", Expect::Any, "3").await.unwrap();
    run.put("/c", Expect::Any, "4").await.unwrap();
    run.delete("/c", Expect::Any).await.unwrap();
    let published = run.seen.lock().clone();
    drop(run);

    let run = open(engine, &options);
    assert_eq!(run.recovered.len(), published.len());
    for (recovered, change) in run.recovered.iter().zip(&published) {
        assert_eq!(recovered.revision, change.revision);
        assert_eq!((&recovered.key, &recovered.value), (&change.key, &change.value));
        assert_eq!((recovered.previous, recovered.at), (change.previous, change.at));
        assert!(recovered.history);
    }
    assert_eq!(run.put("/a", Expect::Revision(Revision(1)), "x").await, conflict("/a", Some(3)));
    assert_eq!(run.put("/c", Expect::Absent, "6").await, Ok(Revision(6)));
    run.delete("/c", Expect::Any).await.unwrap();
    run.advance(5).await;
    assert_eq!(run.published(), ["6 /c=6", "7 /c=gone", "8 /b=gone"], "expiry survives a restart");
    run.advance(100).await;
    assert_eq!(run.store.oldest(), Revision(8));
    drop(run);

    // the newest records are gone, and still the sequence goes on
    let run = open(engine, &options);
    let kept: Vec<_> = run.recovered.iter().map(|r| (r.revision.0, &*r.key, r.history)).collect();
    assert_eq!(kept, [(3, "/a", false)]);
    assert_eq!((run.store.revision(), run.store.oldest()), (Revision(8), Revision(8)));
    assert_eq!(run.put("/d", Expect::Absent, "9").await, Ok(Revision(9)));
}

fn on_disk(dir: &Path) -> impl Fn(&Options, World, &mut dyn FnMut(RecoveredRecord)) -> Engine {
    move |options, world, visit| crate::embedded::open(dir, options, world, visit).unwrap()
}

macro_rules! suite {
    ($($test:ident)*) => {
        mod memory {
            $(#[tokio::test]
            async fn $test() {
                super::$test(&|options, world, _| crate::memory::open(options, world)).await;
            })*
        }

        mod embedded {
            $(#[tokio::test]
            async fn $test() {
                let dir = tempfile::tempdir().unwrap();
                super::$test(&super::on_disk(dir.path())).await;
            })*

            #[tokio::test]
            async fn a_durable_store_goes_on_where_it_was() {
                let dir = tempfile::tempdir().unwrap();
                super::a_durable_store_goes_on_where_it_was(&super::on_disk(dir.path())).await;
            }
        }
    };
}

suite! {
    expectations_decide
    one_of_many_creators_wins
    an_answered_write_has_been_published
    queued_writes_become_one_batch
    failed_expectations_alone_commit_nothing
    a_note_goes_from_writer_to_subscriber
    keys_expire
    more_keys_expire_than_fit_a_batch
    history_goes_with_time
    history_goes_with_size
    trimming_takes_small_steps
    oversized_values_are_rejected
    a_closed_store_finishes_and_refuses
    a_store_that_never_started_closes
    a_probe_finds_out_whether_writes_move
    a_failing_subscriber_stops_the_store
}
