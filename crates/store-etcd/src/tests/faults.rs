//! Lost connections, lost responses, compacted history, and a cluster with other data than before.

use super::*;
use std::sync::atomic::Ordering;

#[tokio::test]
async fn changes_during_a_lost_connection_are_reported_afterwards() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let run = run(&etcd).await;
    for n in 0..10 {
        run.put("/a", Expect::Any, &n.to_string()).await.unwrap();
        etcd.cut();
        etcd.put("/registry/b", &n.to_string());
        etcd.put("/registry/b", "again");
        run.catch_up().await.unwrap();
    }
    let revisions: Vec<_> = run.seen.lock().iter().map(|it| it.revision.0).collect();
    assert_eq!(revisions, (2..=31).collect::<Vec<_>>(), "everything, once and in order");
    eventually("it is well again", || run.store.healthy().is_ok()).await;
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_not_sent_again() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let run = run(&etcd).await;
    etcd.faults().lose_answers.store(1, Ordering::SeqCst);
    let note = Arc::new("parsed".to_owned());
    let write = Write::put("/registry/a", Expect::Any, "1").with_note(note);
    let error = run.store.write(write).await.unwrap_err().to_string();
    assert!(error.contains("may have been applied"), "{error}");
    run.catch_up().await.unwrap();
    assert_eq!(run.changes(), ["2 /a=1"], "it happened, once");
    assert_eq!(etcd.revision(), 2);
    assert_eq!((run.store.stats().failures, run.store.shared.pending.len()), (1, 0));
    etcd.faults().lose_questions.store(1, Ordering::SeqCst);
    let error = run.put("/a", Expect::Any, "2").await.unwrap_err().to_string();
    assert!(error.contains("may have been applied"), "{error}");
    run.catch_up().await.unwrap();
    assert_eq!(etcd.revision(), 2, "the write was not applied");
    run.put("/a", Expect::Revision(Revision(2)), "3").await.unwrap();
}

#[tokio::test]
async fn reads_are_retried_and_writes_are_not() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let run = run(&etcd).await;
    run.catch_up().await.unwrap();
    etcd.faults().unavailable.store(2, Ordering::SeqCst);
    run.catch_up().await.unwrap();
    etcd.faults().unavailable.store(1, Ordering::SeqCst);
    assert!(matches!(run.put("/a", Expect::Any, "1").await, Err(StoreError::Unavailable(_))));
    run.put("/a", Expect::Any, "1").await.unwrap();
}

#[tokio::test]
async fn another_server_takes_over() {
    let etcd = FakeEtcd::start(3).await.unwrap();
    let run = run(&etcd).await;
    for round in 0..6 {
        let gone = round % 3;
        etcd.set_open(gone, false);
        // the first may have been on its way
        let first = run.put("/a", Expect::Any, "1").await;
        assert!(first.is_ok() || matches!(first, Err(StoreError::Unavailable(_))));
        run.put("/a", Expect::Any, "2").await.unwrap();
        etcd.put("/registry/b", "x");
        run.catch_up().await.unwrap();
        etcd.set_open(gone, true);
    }
    let revisions: Vec<_> = run.seen.lock().iter().map(|it| it.revision.0).collect();
    assert_eq!(revisions, (2..=etcd.revision()).collect::<Vec<_>>());
}

#[tokio::test]
async fn compacted_changes_are_reported_as_their_result() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    for key in ["a", "b", "c", "d"] {
        etcd.put(&format!("/registry/{key}"), "1");
    }
    let run = run(&etcd).await;
    etcd.faults().hold_watches(true);
    etcd.set_open(0, false);
    etcd.put("/registry/a", "2");
    etcd.put("/registry/a", "3");
    etcd.delete("/registry/b");
    etcd.put("/registry/e", "1");
    etcd.together(&[("/registry/c", None), ("/registry/f", Some("1"))]);
    etcd.put("/registry/g", "1");
    etcd.delete("/registry/g");
    etcd.put("/elsewhere", "x");
    etcd.compact(etcd.revision());
    etcd.faults().hold_watches(false);
    etcd.set_open(0, true);
    run.catch_up().await.unwrap();
    // a was 7, e is 9, f is 10; of b and c only is known that they went
    assert_eq!(run.changes(), ["6 /b=gone", "7 /a=3", "8 /c=gone", "9 /e=1", "10 /f=1"]);
    let previous: Vec<_> = run.seen.lock().iter().map(|c| c.previous.map(|p| p.0)).collect();
    assert_eq!(previous, [Some(3), Some(2), Some(4), None, None]);
    assert_eq!(run.store.revision().0, etcd.revision());
    run.put("/a", Expect::Revision(Revision(7)), "4").await.unwrap();
    assert_eq!(run.store.stats().live_keys, 4);
}

#[tokio::test]
async fn a_write_of_ones_own_survives_lost_history() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let run = run(&etcd).await;
    etcd.faults().hold_watches(true);
    let write = Write::put("/registry/a", Expect::Any, "1").with_note(Arc::new(1));
    let store = run.store.clone();
    let writing = tokio::spawn(async move { store.write(write).await });
    eventually("it is written", || run.store.stats().commits == 1).await;
    etcd.compact(etcd.revision());
    etcd.faults().hold_watches(false);
    assert_eq!(writing.await.unwrap(), Ok(Revision(2)));
    assert!(run.seen.lock()[0].note.is_some());
}

#[tokio::test]
async fn an_etcd_that_went_back_is_not_used() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let run = run(&etcd).await;
    for n in 0..5 {
        run.put("/a", Expect::Any, &n.to_string()).await.unwrap();
    }
    etcd.go_back(3);
    etcd.cut();
    eventually("it is found out", || run.store.healthy().is_err_and(|why| is_final(&why))).await;
    let error = run.put("/a", Expect::Any, "x").await.unwrap_err();
    assert!(error.to_string().contains("went back from revision 6 to 3") && is_final(&error), "{error}");
    assert!(run.catch_up().await.is_err());
    assert_eq!(etcd.revision(), 3, "nothing is written any more");
    let again = super::run(&etcd).await;
    again.put("/a", Expect::Any, "x").await.unwrap();
}

#[tokio::test]
async fn a_write_finds_out_that_the_etcd_went_back() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let run = run(&etcd).await;
    for n in 0..5 {
        run.put("/a", Expect::Any, &n.to_string()).await.unwrap();
    }
    etcd.go_back(3);
    assert!(is_final(&run.catch_up().await.unwrap_err()));
}

#[tokio::test]
async fn another_etcd_is_not_used() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let run = run(&etcd).await;
    etcd.set_cluster(7);
    let error = run.put("/a", Expect::Any, "x").await.unwrap_err();
    assert!(error.to_string().contains("cluster id") && is_final(&error), "{error}");
    assert_eq!(run.store.healthy(), Err(error));
}

fn is_final(why: &StoreError) -> bool {
    why.to_string().contains("restart the server")
}

#[tokio::test]
async fn an_etcd_without_space_is_reported_until_it_takes_writes_again() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let run = run(&etcd).await;
    for key in ["/a", "/b"] {
        run.put(key, Expect::Absent, "1").await.unwrap();
    }
    let is_full = |is_full: bool| {
        let health = run.store.healthy().map_err(|why| why.to_string());
        assert_eq!(run.store.stats().full, is_full, "{health:?}");
        assert_eq!(health.is_err_and(|why| why.contains("disarm the alarm")), is_full);
    };
    is_full(false);
    etcd.faults().no_space.store(true, Ordering::SeqCst);
    let expiring = Write::put("/registry/c", Expect::Any, "1").expiring(START as i64 + 60);
    for write in [Write::put("/registry/a", Expect::Any, "2"), expiring] {
        let refused = run.store.write(write).await.unwrap_err().to_string();
        assert!(refused.contains("the etcd has reached its quota"), "{refused}");
    }
    is_full(true);
    // a deletion needs no space, and gives none back before the history is compacted
    run.delete("/b", Expect::Any).await.unwrap();
    run.catch_up().await.unwrap();
    is_full(true);
    etcd.faults().no_space.store(false, Ordering::SeqCst);
    run.put("/a", Expect::Any, "3").await.unwrap();
    is_full(false);
}

#[tokio::test]
async fn the_alarm_of_an_etcd_without_space_is_seen_without_a_write() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    etcd.faults().no_space.store(true, Ordering::SeqCst);
    let polled = Options { size_poll_interval: Some(Duration::from_secs(3600)), ..options(&etcd) };
    let run = run_with(polled).await;
    eventually("it is known", || run.store.stats().full).await;
    etcd.faults().no_space.store(false, Ordering::SeqCst);
    eventually("it is well again", || run.store.healthy().is_ok()).await;
}

#[tokio::test]
async fn without_an_etcd_there_is_no_store() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    etcd.set_open(0, false);
    let refused = crate::open(options(&etcd), Seeded::new(START, 1)).await.err().unwrap().to_string();
    assert!(refused.contains(&format!("etcd is not reachable at {}", etcd.targets()[0].url)), "{refused}");
    let none = Options { servers: Vec::new(), ..options(&etcd) };
    assert!(crate::open(none, Seeded::new(START, 1)).await.is_err());
    // `open` waits for a cluster that starts late
    let patient = Options { open_timeout: Duration::from_secs(20), ..options(&etcd) };
    let opening = tokio::spawn(crate::open(patient, Seeded::new(START, 1)));
    tokio::task::yield_now().await;
    etcd.set_open(0, true);
    assert!(opening.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_store_closes_without_its_etcd() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let run = run(&etcd).await;
    run.put("/a", Expect::Any, "x").await.unwrap();
    etcd.set_open(0, false);
    let error = run.put("/a", Expect::Any, "y").await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)));
    eventually("it is known", || run.store.healthy().is_err()).await;
    run.store.close().await;
    assert!(run.store.write(Write::put("/registry/a", Expect::Any, "v")).await.is_err());
}
