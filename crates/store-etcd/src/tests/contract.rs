//! The contract of every store.

use super::*;
use std::sync::atomic::Ordering;

#[tokio::test]
async fn one_of_two_creators_of_a_value_wins() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let (options, world): (_, World) = (options(&etcd), Seeded::new(START, 1));
    let key = "/registry/one";
    assert_eq!(single_value::read(&options, key, &world).await, Ok(None));
    assert_eq!(single_value::create(&options, key, "a".into(), &world).await, Ok("a".into()));
    assert_eq!(single_value::create(&options, key, "b".into(), &world).await, Ok("a".into()));
    assert_eq!(single_value::read(&options, key, &world).await, Ok(Some("a".into())));
    assert!(single_value::read(&options, "/elsewhere", &world).await.is_err());
}

#[tokio::test]
async fn expectations_decide() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let run = run(&etcd).await;
    // an etcd begins with revision 1
    assert_eq!((run.store.revision(), run.store.oldest()), (Revision(1), Revision(1)));
    assert_eq!(run.put("/a", Expect::Present, "x").await, conflict("/a", None));
    assert_eq!(run.put("/a", Expect::Revision(Revision(1)), "x").await, conflict("/a", None));
    assert_eq!(run.put("/a", Expect::Revision(Revision(0)), "x").await, conflict("/a", None));
    assert_eq!(run.delete("/a", Expect::Any).await, conflict("/a", None));
    assert_eq!(run.delete("/a", Expect::Absent).await, conflict("/a", None));
    assert_eq!(run.put("/a", Expect::Absent, "1").await, Ok(Revision(2)));
    assert_eq!(run.put("/a", Expect::Absent, "x").await, conflict("/a", Some(2)));
    assert_eq!(run.delete("/a", Expect::Absent).await, conflict("/a", Some(2)));
    assert_eq!(run.put("/a", Expect::Revision(Revision(2)), "2").await, Ok(Revision(3)));
    assert_eq!(run.put("/a", Expect::Revision(Revision(2)), "x").await, conflict("/a", Some(3)));
    assert_eq!(run.delete("/a", Expect::Revision(Revision(2))).await, conflict("/a", Some(3)));
    assert_eq!(run.put("/b", Expect::Any, "3").await, Ok(Revision(4)));
    assert_eq!(run.put("/a", Expect::Present, "4").await, Ok(Revision(5)));
    assert_eq!(run.delete("/a", Expect::Revision(Revision(5))).await, Ok(Revision(6)));
    assert_eq!(run.put("/a", Expect::Absent, "").await, Ok(Revision(7)));
    assert_eq!(run.delete("/a", Expect::Present).await, Ok(Revision(8)));
    assert_eq!(run.changes(), ["2 /a=1", "3 /a=2", "4 /b=3", "5 /a=4", "6 /a=gone", "7 /a=", "8 /a=gone"]);
    let previous: Vec<_> = run.seen.lock().iter().map(|c| c.previous.map(|p| p.0)).collect();
    assert_eq!(previous, [None, Some(2), None, Some(3), Some(5), None, Some(7)]);
    let stats = run.store.stats();
    assert_eq!((stats.revision, stats.live_keys, stats.changes), (8, 1, 7));
    assert_eq!((stats.commits, stats.conflicts, stats.failures, stats.waiting), (7, 9, 0, 0));
}

#[tokio::test]
async fn one_of_many_creators_wins() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let run = run(&etcd).await;
    let mut racers = tokio::task::JoinSet::new();
    for racer in 0..64 {
        let store = run.store.clone();
        let note = Arc::new(racer);
        let write =
            Write::put("/registry/one", Expect::Absent, format!("{}", racer % 4)).with_note(note.clone());
        racers.spawn(async move { (racer, store.write(write).await) });
    }
    let results = racers.join_all().await;
    let winners: Vec<_> = results.iter().filter(|(_, result)| result.is_ok()).collect();
    assert_eq!(winners.len(), 1);
    assert!(results.iter().all(|(_, r)| *r == Ok(Revision(2)) || *r == conflict("/one", Some(2))));
    // four of them would have written the same
    let note = run.seen.lock()[0].note.clone().unwrap().downcast::<i32>().unwrap();
    assert_eq!(*note, winners[0].0);
    assert_eq!(run.store.shared.pending.len(), 0);
}

#[tokio::test]
async fn an_answered_write_has_been_published() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let run = run(&etcd).await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..16 {
        let (store, seen) = (run.store.clone(), run.seen.clone());
        writers.spawn(async move {
            for n in 0..20 {
                let write = Write::put(format!("/registry/{writer}"), Expect::Any, format!("{n}"));
                let revision = store.write(write).await.unwrap();
                assert!(store.revision() >= revision);
                assert_eq!(seen.lock()[revision.0 as usize - 2].revision, revision, "in order, with no gap");
            }
        });
    }
    writers.join_all().await;
    assert_eq!(run.seen.lock().len(), 320);
}

#[tokio::test]
async fn a_note_goes_from_writer_to_subscriber() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let run = run(&etcd).await;
    let write = |value: &str| {
        let note: Arc<String> = Arc::new(format!("parsed {value}"));
        let write = Write::put("/registry/a", Expect::Any, value.to_owned()).with_note(note);
        let store = run.store.clone();
        tokio::spawn(async move { store.write(write).await })
    };
    write("1").await.unwrap().unwrap();
    // the event arrives before the response
    etcd.faults().hold_answers(true);
    let early = write("2");
    eventually("it is written", || etcd.revision() == 3).await;
    etcd.put("/registry/b", "another's");
    assert!(!early.is_finished() && run.seen.lock().len() == 1, "it waits for whose it is");
    etcd.faults().hold_answers(false);
    early.await.unwrap().unwrap();
    // the response arrives before the event
    etcd.faults().hold_watches(true);
    let late = write("3");
    eventually("it is written", || etcd.revision() == 5).await;
    etcd.put("/registry/a", "another's");
    etcd.faults().hold_watches(false);
    late.await.unwrap().unwrap();
    run.catch_up().await.unwrap();
    let notes: Vec<_> = run.seen.lock().iter().map(|it| it.note.clone()).collect();
    let notes: Vec<_> = notes
        .into_iter()
        .map(|it| it.map_or(String::new(), |it| it.downcast_ref::<String>().unwrap().clone()))
        .collect();
    assert_eq!(notes, ["parsed 1", "parsed 2", "", "parsed 3", ""]);
    assert_eq!(run.seen.lock()[0].at, START as i64);
    assert_eq!(run.store.shared.pending.len(), 0);
}

#[tokio::test]
async fn a_conflict_is_reported_once_its_reason_can_be_seen() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    etcd.put("/registry/gone", "x");
    let run = run(&etcd).await;
    etcd.faults().hold_watches(true);
    etcd.put("/registry/a", "another's");
    etcd.delete("/registry/gone");
    let writes = [
        Write::put("/registry/a", Expect::Absent, "mine"),
        Write::put("/registry/gone", Expect::Present, "mine"),
    ];
    let writes = writes.map(|write| {
        let store = run.store.clone();
        tokio::spawn(async move { store.write(write).await })
    });
    eventually("both are refused", || run.store.stats().conflicts == 2).await;
    assert!(writes.iter().all(|write| !write.is_finished()));
    etcd.faults().hold_watches(false);
    let [first, second] = writes;
    assert_eq!(first.await.unwrap(), conflict("/a", Some(3)));
    assert_eq!(second.await.unwrap(), conflict("/gone", None));
    assert_eq!(run.changes(), ["3 /a=another's", "4 /gone=gone"]);
}

#[tokio::test]
async fn writes_before_the_start_wait_for_it() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let (store, _) = crate::open(options(&etcd), Seeded::new(START, 1)).await.unwrap();
    let store = Arc::new(store);
    let early = tokio::spawn({
        let store = store.clone();
        async move { store.write(Write::put("/registry/a", Expect::Any, "v")).await }
    });
    eventually("it is written", || etcd.revision() == 2).await;
    assert!(!early.is_finished() && store.revision() == Revision(1));
    store.start(Box::new(|_| ())).unwrap();
    assert_eq!(early.await.unwrap(), Ok(Revision(2)));
    assert!(store.start(Box::new(|_| ())).is_err(), "there is one subscriber");
}

#[tokio::test]
async fn a_closed_store_finishes_and_refuses() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let run = run(&etcd).await;
    let mut writers = tokio::task::JoinSet::new();
    for n in 0..100 {
        let store = run.store.clone();
        writers
            .spawn(async move { store.write(Write::put(format!("/registry/{n}"), Expect::Any, "v")).await });
    }
    tokio::task::yield_now().await;
    run.store.close().await;
    let done = writers.join_all().await.iter().filter(|result| result.is_ok()).count();
    assert_eq!(done, run.seen.lock().len(), "as many published as answered");
    assert!(matches!(run.put("/a", Expect::Any, "v").await, Err(StoreError::Unavailable(_))));
    assert!(
        run.store.healthy().is_err() && run.store.probe().await.is_err() && run.catch_up().await.is_err()
    );
    run.store.tick().await;
    run.store.close().await;
}

#[tokio::test]
async fn a_store_that_never_started_closes() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let (store, _) = crate::open(options(&etcd), Seeded::new(START, 1)).await.unwrap();
    store.close().await;
    assert!(store.write(Write::put("/registry/a", Expect::Any, "v")).await.is_err());
    assert!(store.start(Box::new(|_| ())).is_err());
}

#[tokio::test]
async fn a_failing_subscriber_stops_the_store() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let (store, _) = crate::open(options(&etcd), Seeded::new(START, 1)).await.unwrap();
    store.start(Box::new(|_| panic!("for the test"))).unwrap();
    let write = || store.write(Write::put("/registry/a", Expect::Any, "v"));
    assert!(matches!(write().await, Err(StoreError::Unavailable(_))));
    assert!(matches!(write().await, Err(StoreError::Unavailable(_))));
    store.close().await;
    let error = store.healthy().unwrap_err().to_string();
    assert!(error.contains("restart the server"), "{error}");
}

#[tokio::test]
async fn a_probe_finds_out_whether_changes_move() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let run = run(&etcd).await;
    run.store.probe().await.unwrap();
    etcd.faults().hold_watches(true);
    etcd.put("/registry/a", "x");
    let probe = run.store.probe();
    assert!(tokio::time::timeout(Duration::from_millis(5), probe).await.is_err());
    etcd.faults().hold_watches(false);
    run.store.probe().await.unwrap();
}

#[tokio::test]
async fn oversized_values_are_rejected() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let run = run(&etcd).await;
    let key = format!("/{}", "k".repeat(store::MAX_KEY_BYTES));
    assert!(matches!(run.put(&key, Expect::Any, "v").await, Err(StoreError::TooLarge { .. })));
    let largest = etcd.faults().largest.load(Ordering::SeqCst);
    let refused = run.put("/a", Expect::Any, &"v".repeat(largest)).await;
    assert!(
        matches!(&refused, Err(StoreError::TooLarge { bytes, limit, .. }) if *bytes == largest && *limit == largest),
        "{refused:?}"
    );
    run.put("/a", Expect::Any, &"v".repeat(largest - 1000)).await.unwrap();
    let elsewhere = run.store.write(Write::put("/elsewhere", Expect::Any, "v")).await;
    assert!(matches!(elsewhere, Err(StoreError::Unavailable(_))));
}

#[tokio::test]
async fn claim_keys_have_one_owner() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let run = run(&etcd).await;
    let claim_keys = |taken: &[&str], freed: &[&str]| store::ClaimKeys {
        taken: taken.iter().map(|key| registry(key).into()).collect(),
        freed: freed.iter().map(|key| registry(key).into()).collect(),
    };
    let put = |key: &str, expect, taken: &[&str], freed: &[&str]| {
        let write = Write::put(registry(key), expect, "v").with_claim_keys(claim_keys(taken, freed));
        let store = run.store.clone();
        async move { store.write(write).await }
    };
    assert_eq!(put("/a", Expect::Absent, &["/h/1", "/h/2"], &["/h/0"]).await, Ok(Revision(2)));
    // the key's own expectation comes first, then the claimed keys
    assert_eq!(put("/a", Expect::Absent, &["/h/1"], &[]).await, conflict("/a", Some(2)));
    assert_eq!(put("/b", Expect::Absent, &["/h/3", "/h/2"], &[]).await, conflict("/h/2", Some(2)));
    assert_eq!(put("/b", Expect::Absent, &["/h/3"], &[]).await, Ok(Revision(3)), "nothing was half done");
    assert_eq!(put("/a", Expect::Present, &["/h/4"], &["/h/1"]).await, Ok(Revision(4)));
    assert_eq!(put("/b", Expect::Present, &["/h/1"], &[]).await, Ok(Revision(5)));
    let gone = Write::delete(registry("/b"), Expect::Any)
        .with_claim_keys(claim_keys(&[], &["/h/1", "/h/3", "/h/9"]));
    assert_eq!(run.store.write(gone).await, Ok(Revision(6)));
    let held: Vec<_> = ["/h/0", "/h/1", "/h/2", "/h/3", "/h/4"]
        .into_iter()
        .filter_map(|key| etcd.get(&registry(key)).map(|(value, _)| (key, value)))
        .collect();
    let of_a = registry("/a");
    assert_eq!(held, [("/h/2", of_a.clone()), ("/h/4", of_a)], "who holds what can be read");
}
