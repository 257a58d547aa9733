//! The initial read, and writes of other clients.

use super::*;
use crate::maintenance::Compactor;
use crate::testing::{IN_ORDER, OVERTAKING};
use std::sync::atomic::Ordering;

#[tokio::test]
async fn all_keys_are_recovered_in_order() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    for n in (0..2500).rev() {
        etcd.put(&format!("/mine/things/{n:04}"), &format!("{n}"));
    }
    etcd.put("/mine2/x", "not below the prefix");
    etcd.put("/mine/things/0007", "again");
    etcd.delete("/mine/things/0008");
    let run = run_with(Options { prefix: "mine/".to_owned(), ..options(&etcd) }).await;
    assert_eq!(run.recovered.len(), 2499);
    assert!(run.recovered.windows(2).all(|two| two[0].revision < two[1].revision));
    let last = run.recovered.last().unwrap();
    assert_eq!((&*last.key, last.value.as_deref()), ("/registry/things/0007", Some(&b"again"[..])));
    assert!(run.recovered.iter().all(|it| !it.history && it.previous.is_none()));
    assert_eq!((run.store.revision().0, run.store.oldest().0), (etcd.revision(), etcd.revision()));
    assert_eq!(run.store.stats().live_keys, 2499);
    assert!(etcd.faults().range_requests.load(Ordering::SeqCst) >= 3, "in pages");
    run.put("/things/new", Expect::Absent, "v").await.unwrap();
    assert!(etcd.get("/mine/things/new").is_some());
    run.delete("/things/0007", Expect::Revision(last.revision)).await.unwrap();
}

#[tokio::test]
async fn pages_shrink_where_values_are_large() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let value = "v".repeat(1 << 20);
    for n in 0..70 {
        etcd.put(&format!("/registry/large/{n}"), &value);
    }
    let run = run(&etcd).await;
    assert_eq!(run.recovered.len(), 70);
}

/// For both versions: with reliable watch progress, and without.
async fn others_are_seen(version: &str) {
    let etcd = FakeEtcd::start(1).await.unwrap();
    etcd.set_version(version);
    let run = run(&etcd).await;
    for n in 0..20 {
        etcd.put("/registry/a", &n.to_string());
        run.catch_up().await.unwrap();
        let last = run.seen.lock().last().map(render);
        assert_eq!(last, Some(format!("{} /a={n}", etcd.revision())));
    }
    // nothing of ours happens, and still the revision is reached
    for _ in 0..5 {
        let revision = etcd.put("/elsewhere", "x");
        run.catch_up().await.unwrap();
        assert!(run.store.revision().0 >= revision);
        assert_eq!(run.looked.lock().last(), Some(&revision), "who was handed nothing saw the revision");
    }
    assert_eq!(run.seen.lock().len(), 20, "keys outside the prefix are not published");
    assert_eq!(etcd.faults().progress_requests.load(Ordering::SeqCst) > 0, version == IN_ORDER);
    // pending writes are awaited
    etcd.faults().hold_watches(true);
    etcd.put("/registry/a", "late");
    etcd.put("/elsewhere", "later");
    let waiting = tokio::spawn({
        let store = run.store.clone();
        async move { store.catch_up().unwrap().await }
    });
    let before = etcd.faults().range_requests.load(Ordering::SeqCst);
    eventually("another range request", || etcd.faults().range_requests.load(Ordering::SeqCst) > before)
        .await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!waiting.is_finished());
    etcd.faults().hold_watches(false);
    waiting.await.unwrap().unwrap();
    assert_eq!(run.seen.lock().last().map(|it| it.value.clone().unwrap()), Some("late".into()));
}

#[tokio::test]
async fn writes_of_others_are_read_with_ordered_progress() {
    others_are_seen(IN_ORDER).await;
}

#[tokio::test]
async fn writes_of_others_are_read_with_overtaking_progress() {
    others_are_seen(OVERTAKING).await;
}

#[tokio::test]
async fn concurrent_reads_share_a_request() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let run = run(&etcd).await;
    run.catch_up().await.unwrap();
    let before = etcd.faults().range_requests.load(Ordering::SeqCst);
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..500 {
        let store = run.store.clone();
        all.spawn(async move { store.catch_up().unwrap().await.unwrap() });
    }
    all.join_all().await;
    let requests = etcd.faults().range_requests.load(Ordering::SeqCst) - before;
    assert!(requests < 50, "{requests} range requests for 500 readers");
}

#[tokio::test]
async fn changes_of_one_revision_come_together() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    etcd.faults().fragments.store(true, Ordering::SeqCst);
    let run = run(&etcd).await;
    etcd.faults().hold_watches(true);
    for n in 0..300 {
        let keys = [("/registry/a", Some("x")), ("/elsewhere", Some("y")), ("/registry/b", Some("z"))];
        etcd.together(if n % 2 == 0 { &keys } else { &[("/registry/a", None), ("/registry/b", None)] });
    }
    etcd.faults().hold_watches(false);
    run.catch_up().await.unwrap();
    let seen = run.seen.lock();
    assert_eq!(seen.len(), 600);
    let mut rest = &seen[..];
    for batch in run.batches.lock().iter() {
        let (now, later) = rest.split_at(*batch);
        let ends_whole = later.first().is_none_or(|next| next.revision > now[now.len() - 1].revision);
        assert!(ends_whole, "a revision was cut in two");
        rest = later;
    }
}

#[tokio::test]
async fn of_several_servers_one_compacts() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let (one, two) = (run(&etcd).await, run(&etcd).await);
    let (mut first, mut second) = (Compactor::default(), Compactor::default());
    let again = |who: &'static str, upto: Option<u64>| format!("{who} {upto:?}");
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        one.put("/a", Expect::Any, "x").await.unwrap();
        outcomes.push(again("first", first.compact(&one.store.shared).await.unwrap()));
        outcomes.push(again("second", second.compact(&two.store.shared).await.unwrap()));
    }
    // the first round has no revision to compact; later the first server to come compacts
    let expected =
        ["first None", "second None", "first Some(3)", "second None", "first Some(5)", "second None"];
    assert_eq!(outcomes, expected);
    assert_eq!((etcd.compacted(), etcd.get("compact_rev_key").unwrap().0.as_str()), (5, "5"));
    // the first goes away, and the second goes on
    assert_eq!(second.compact(&two.store.shared).await.unwrap(), Some(7));
}

#[tokio::test]
async fn history_is_compacted_and_size_is_polled() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let often = Some(Duration::from_millis(5));
    let run =
        run_with(Options { compaction_interval: often, size_poll_interval: often, ..options(&etcd) }).await;
    run.put("/a", Expect::Any, "x").await.unwrap();
    eventually("it is compacted", || etcd.compacted() > 2).await;
    eventually("its size is known", || run.store.stats().file_bytes > 4096).await;
    run.catch_up().await.unwrap();
    assert_eq!(run.seen.lock().len(), 1);
}
