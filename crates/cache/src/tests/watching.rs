//! Watchers and their events: the hub's index, lag, ends and removal.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::{Bench, Doc, delete, put, put_term};
use crate::{Change, Gone, Interest, Key, Options, TryRecvError, Watcher};

fn namespace(name: &str) -> Interest {
    Interest::Namespace(name.into())
}

fn term(value: &str) -> Interest {
    Interest::Term(value.into())
}

/// The queued events of a watcher: `+revision` for a new state, `-revision` for a deletion.
fn waiting(watcher: &mut Watcher<Doc>) -> Vec<i64> {
    std::iter::from_fn(|| watcher.try_recv().ok())
        .map(|event| if event.deleted { -(event.revision as i64) } else { event.revision as i64 })
        .collect()
}

#[test]
fn an_event_visits_only_interested_watchers() {
    let bench = Bench::new(Options::default());
    let watch = |interest| bench.cache.watch_now(interest).0;
    let mut all = watch(Interest::All);
    let (mut in_a, mut in_b) = (watch(namespace("a")), watch(namespace("b")));
    let (mut x, mut y) =
        (watch(Interest::Object(Key::new("a", "x"))), watch(Interest::Object(Key::new("a", "y"))));
    let (mut n1, mut n2) = (watch(term("n1")), watch(term("n2")));
    let mut n1_in_b = watch(Interest::TermIn { namespace: "b".into(), term: "n1".into() });
    bench.publish(vec![put_term("a/x", 1, "n1")]);
    assert_eq!(bench.cache.stats().deliveries, 4);
    bench.publish(vec![put_term("b/x", 2, "n1"), put("c/x", 3)]);
    assert_eq!(bench.cache.stats().deliveries, 4 + 4 + 1);
    assert_eq!(waiting(&mut all), [1, 2, 3]);
    assert_eq!((waiting(&mut in_a), waiting(&mut in_b)), (vec![1], vec![2]));
    assert_eq!((waiting(&mut x), waiting(&mut y)), (vec![1], vec![]));
    assert_eq!((waiting(&mut n1), waiting(&mut n2)), (vec![1, 2], vec![]));
    assert_eq!(waiting(&mut n1_in_b), [2]);
}

#[test]
fn a_changed_term_concerns_the_watchers_of_both() {
    let bench = Bench::new(Options::default());
    let mut watchers = ["", "n1", "n2"].map(|value| bench.cache.watch_now(term(value)).0);
    bench.publish(vec![put_term("a/x", 1, ""), put_term("a/x", 2, "n1"), put_term("a/x", 3, "n1")]);
    bench.publish(vec![put("a/x", 4), put_term("a/x", 5, "n2")]);
    bench.publish(vec![Change::Delete(super::doc("a/x", 6, Some("n2")))]);
    let expected: [&[i64]; 3] = [&[1, 2], &[2, 3, 4], &[5, -6]];
    for (watcher, expected) in watchers.iter_mut().zip(expected) {
        assert_eq!(waiting(watcher), expected);
    }
    // a late watcher receives the same from the ring
    for (value, expected) in ["", "n1", "n2"].into_iter().zip(expected) {
        assert_eq!(waiting(&mut bench.cache.watch_after(0, term(value)).unwrap()), expected);
    }
}

#[test]
fn events_have_the_previous_state() {
    let bench = Bench::new(Options::default());
    let (mut watcher, _) = bench.cache.watch_now(Interest::All);
    bench.publish(vec![put("a/x", 1), put("a/x", 2), delete("a/x", 3), put("a/x", 4)]);
    let seen: Vec<_> = std::iter::from_fn(|| watcher.try_recv().ok())
        .map(|event| {
            (event.entry.revision, event.previous.as_ref().map(|entry| entry.revision), event.deleted)
        })
        .collect();
    assert_eq!(seen, [(1, None, false), (2, Some(1), false), (3, Some(2), true), (4, None, false)]);
}

#[test]
fn stale_changes_and_deletions_of_absent_keys_are_ignored() {
    let bench = Bench::new(Options::default());
    let (mut watcher, _) = bench.cache.watch_now(Interest::All);
    bench.publish(vec![put("a/x", 3), delete("a/y", 4)]);
    bench.publish(vec![put("a/x", 2), put("a/x", 3), delete("a/x", 4), put("a/z", 5)]);
    assert_eq!(waiting(&mut watcher), [3, 5]);
    assert_eq!(super::listed(&bench.cache.snapshot()), [("a/x".to_owned(), 3), ("a/z".to_owned(), 5)]);
    // several changes of one revision, as of a transaction, stay together
    bench.publish(vec![put("a/p", 6), put("a/q", 6)]);
    assert_eq!(waiting(&mut watcher), [6, 6]);
}

#[test]
fn a_slow_watcher_is_cut_off_and_the_others_go_on() {
    let bench = Bench::new(Options { watcher_events: 3, ..Options::default() });
    let (mut slow, _) = bench.cache.watch_now(Interest::All);
    let (mut quick, _) = bench.cache.watch_now(namespace("a"));
    for revision in 1..=5 {
        bench.publish(vec![put("a/x", revision)]);
        assert_eq!(waiting(&mut quick), [revision as i64]);
    }
    let stats = bench.cache.stats();
    assert_eq!((stats.watchers, stats.lagged, stats.deliveries), (1, 1, 3 + 5));
    assert_eq!(slow.delivered_up_to(), None);
    assert!(matches!(slow.try_recv(), Err(TryRecvError::Lagged(_))));
    assert!(matches!(slow.try_recv(), Err(TryRecvError::Ended)));
    drop(slow);
    assert_eq!(bench.cache.stats().watchers, 1);
    // what it missed is in the ring, however much that is: the backlog is not the queue
    assert_eq!(waiting(&mut bench.cache.watch_after(0, Interest::All).unwrap()), [1, 2, 3, 4, 5]);
}

#[test]
fn waiting_bytes_are_bounded_but_one_event_always_fits() {
    let bench = Bench::new(Options { watcher_bytes: 50, ..Options::default() });
    let (mut watcher, _) = bench.cache.watch_now(Interest::All);
    bench.publish(vec![put("a/x", 1)]);
    assert_eq!(waiting(&mut watcher), [1]);
    bench.publish(vec![put("a/x", 2), put("a/x", 3)]);
    assert!(matches!(watcher.try_recv(), Err(TryRecvError::Lagged(_))));
}

#[test]
fn a_dropped_watcher_leaves_nothing_behind() {
    let bench = Bench::new(Options::default());
    let interests = [
        Interest::All,
        namespace("a"),
        Interest::Object(Key::new("a", "x")),
        term("n1"),
        Interest::TermIn { namespace: "a".into(), term: "n1".into() },
    ];
    let mut watchers: Vec<_> =
        interests.iter().cycle().take(50).map(|interest| bench.cache.watch_now(interest.clone()).0).collect();
    bench.publish(vec![put_term("a/x", 1, "n1")]);
    let event = Arc::downgrade(&watchers[0].try_recv().unwrap());
    for left in (0..50).rev() {
        // from the middle, so that the lists are not only popped
        watchers.swap_remove(left / 2);
        assert_eq!(bench.cache.stats().watchers, left);
    }
    assert_eq!(bench.cache.lists(), 0);
    bench.advance(301);
    bench.cache.trim();
    assert!(event.upgrade().is_none(), "the event outlived ring and queues");
}

#[test]
fn closing_ends_watchers_after_queued_events() {
    let bench = Bench::new(Options::default());
    let (mut watcher, _) = bench.cache.watch_now(Interest::All);
    let (mut other, _) = bench.cache.watch_now(namespace("a"));
    bench.publish(vec![put("a/x", 1)]);
    bench.cache.close();
    bench.publish(vec![put("a/x", 2)]);
    for watcher in [&mut watcher, &mut other] {
        assert_eq!(waiting(watcher), [1]);
        assert!(matches!(watcher.try_recv(), Err(TryRecvError::Ended)));
        assert_eq!(watcher.delivered_up_to(), None);
    }
    let mut late = bench.cache.watch_after(0, Interest::All).unwrap();
    assert_eq!(waiting(&mut late), [1, 2]);
    assert!(matches!(late.try_recv(), Err(TryRecvError::Ended)));
    assert_eq!(bench.cache.stats().watchers, 0);
}

#[tokio::test]
async fn dropping_the_cache_wakes_and_ends_its_watchers() {
    let bench = Bench::new(Options::default());
    let (mut watcher, _) = bench.cache.watch_now(Interest::All);
    let waiting = tokio::spawn(async move { watcher.recv().await.is_none() });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    drop(bench);
    assert!(waiting.await.unwrap());
}

#[test]
fn loading_again_cuts_watchers_off() {
    let bench = Bench::new(Options::default());
    bench.cache.load([super::doc("a/x", 3, None), super::doc("a/y", 5, Some("n1"))], 7);
    bench.published.raise(7);
    assert_eq!(bench.cache.snapshot().revision(), 7);
    let mut watcher = bench.cache.watch_after(7, Interest::All).unwrap();
    bench.publish(vec![put("a/x", 8)]);
    bench.cache.load([super::doc("a/z", 12, None)], 20);
    assert!(matches!(watcher.try_recv(), Err(TryRecvError::Lagged(_))));
    assert_eq!(bench.cache.watch_after(19, Interest::All).err(), Some(Gone { oldest: 20 }));
    assert_eq!(bench.cache.at(8).err(), Some(Gone { oldest: 20 }));
    assert_eq!(super::listed(&bench.cache.snapshot()), [("a/z".to_owned(), 12)]);
    assert_eq!(bench.cache.snapshot().with_term("n1").count(), 0);
    // changes that the new state includes are not sent again
    bench.publish(vec![put("a/z", 12), put("a/z", 21)]);
    assert_eq!(waiting(&mut bench.cache.watch_after(20, Interest::All).unwrap()), [21]);
}

#[test]
fn a_watch_of_the_future_waits_for_it() {
    let bench = Bench::new(Options::default());
    let mut watcher = bench.cache.watch_after(2, Interest::All).unwrap();
    assert_eq!(watcher.delivered_up_to(), Some(2));
    bench.publish(vec![put("a/x", 1), put("a/x", 2), put("a/x", 3)]);
    assert_eq!(waiting(&mut watcher), [3]);
}

#[test]
fn progress_is_promised_only_when_it_is_true() {
    let bench = Bench::new(Options::default());
    let (mut watcher, _) = bench.cache.watch_now(Interest::All);
    bench.published.raise(4);
    assert_eq!(watcher.delivered_up_to(), Some(4));
    bench.cache.apply(vec![put("a/x", 6), put("a/x", 9)]);
    assert_eq!(watcher.delivered_up_to(), Some(5));
    watcher.try_recv().unwrap();
    assert_eq!(watcher.delivered_up_to(), Some(8));
    watcher.try_recv().unwrap();
    // 9 was handed out, but whether it was all of 9 is known only once 9 is published
    assert_eq!(watcher.delivered_up_to(), None);
    bench.published.raise(10);
    assert_eq!(watcher.delivered_up_to(), Some(10));
    assert_eq!(bench.cache.watch_after(5, Interest::All).unwrap().delivered_up_to(), Some(5));
    assert_eq!(bench.cache.watch_after(5, namespace("b")).unwrap().delivered_up_to(), Some(10));
}

/// Counts how often a task is woken.
#[derive(Default)]
struct Woken(std::sync::atomic::AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn a_task_is_woken_once_for_a_batch_and_only_when_it_waits() {
    let bench = Bench::new(Options::default());
    let (mut watcher, _) = bench.cache.watch_now(namespace("a"));
    let woken = Arc::new(Woken::default());
    let count = || woken.0.load(std::sync::atomic::Ordering::SeqCst);
    let waker = Waker::from(woken.clone());
    let mut cx = Context::from_waker(&waker);
    bench.publish(vec![put("a/x", 1)]);
    assert_eq!(count(), 0);
    assert!(matches!(watcher.poll_recv(&mut cx), Poll::Ready(Some(Ok(event))) if event.revision == 1));
    assert!(watcher.poll_recv(&mut cx).is_pending());
    bench.publish(vec![put("b/x", 2)]);
    assert_eq!(count(), 0);
    bench.publish(vec![put("a/x", 3), put("a/y", 4), put("a/x", 5)]);
    bench.publish(vec![put("a/x", 6)]);
    assert_eq!(count(), 1);
    let mut batch = Vec::new();
    assert!(matches!(watcher.poll_batch(&mut cx, &mut batch, 3), Poll::Ready(Some(Ok(3)))));
    assert!(matches!(watcher.poll_batch(&mut cx, &mut batch, 0), Poll::Ready(Some(Ok(1)))));
    assert_eq!(batch.iter().map(|event| event.revision).collect::<Vec<_>>(), [3, 4, 5, 6]);
    assert!(watcher.poll_batch(&mut cx, &mut batch, 3).is_pending());
    bench.cache.close();
    assert_eq!(count(), 2);
    assert!(matches!(watcher.poll_batch(&mut cx, &mut batch, 3), Poll::Ready(None)));
}
