//! Bounds of the ring and of pins: age, count and bytes.

use super::{Bench, delete, listed, put};
use crate::{Gone, Interest, Options};

#[test]
fn the_ring_forgets_by_age_without_writes() {
    let bench = Bench::new(Options::default());
    bench.publish(vec![put("a/x", 1)]);
    bench.advance(200);
    bench.publish(vec![put("a/x", 2)]);
    bench.advance(101);
    bench.cache.trim();
    let stats = bench.cache.stats();
    assert_eq!((stats.oldest, stats.ring_events), (1, 1));
    assert_eq!(bench.cache.watch_after(0, Interest::All).err(), Some(Gone { oldest: 1 }));
    assert!(bench.cache.watch_after(1, Interest::All).is_ok());
    assert_eq!(listed(&bench.cache.at(1).unwrap()), [("a/x".to_owned(), 1)]);
    bench.advance(200);
    bench.cache.trim();
    let stats = bench.cache.stats();
    assert_eq!((stats.oldest, stats.ring_events, stats.ring_bytes), (2, 0, 0));
    assert_eq!(listed(&bench.cache.at(2).unwrap()), [("a/x".to_owned(), 2)]);
}

#[test]
fn the_ring_is_bounded_by_count() {
    let bench = Bench::new(Options { ring_events: 10, ..Options::default() });
    for revision in 1..=100 {
        bench.publish(vec![put("a/x", revision)]);
    }
    let stats = bench.cache.stats();
    assert_eq!((stats.oldest, stats.ring_events), (90, 10));
}

#[test]
fn the_ring_is_bounded_by_the_bytes_that_it_alone_holds() {
    // creations hold nothing but their bookkeeping: what they made is current
    let creating = Bench::new(Options::default());
    creating.publish((1..=100).map(|revision| put(&format!("a/{revision}"), revision)).collect());
    let bookkeeping = creating.cache.stats().ring_bytes;
    // updates hold what they superseded as well, 100 bytes each
    creating.publish((101..=200).map(|revision| put(&format!("a/{}", revision - 100), revision)).collect());
    assert_eq!(creating.cache.stats().ring_bytes, 2 * bookkeeping + 100 * 100);
    // deletions the last state and the tombstone
    creating
        .publish((201..=300).map(|revision| delete(&format!("a/{}", revision - 200), revision)).collect());
    assert_eq!(creating.cache.stats().ring_bytes, 3 * bookkeeping + 300 * 100);

    let bound = 5 * (bookkeeping / 100 + 100);
    let bench = Bench::new(Options { ring_bytes: bound, ..Options::default() });
    for revision in 1..=100 {
        bench.publish(vec![put("a/x", revision)]);
        assert!(bench.cache.stats().ring_bytes <= bound);
    }
    assert_eq!(bench.cache.stats().ring_events, 5);
}

#[test]
fn encoded_forms_count_toward_the_ring_size() {
    let bench = Bench::new(Options { ring_bytes: 10_000, ..Options::default() });
    let (mut watcher, _) = bench.cache.watch_now(Interest::All);
    bench.publish(vec![put("a/x", 1), put("a/y", 2)]);
    let before = bench.cache.stats().ring_bytes;
    let (first, second) = (watcher.try_recv().unwrap(), watcher.try_recv().unwrap());
    let big = || vec![b'x'; 6_000].into();
    first.encoded(0, big);
    first.encoded(0, big);
    assert_eq!(bench.cache.stats().ring_bytes, before + 6_000);
    second.encoded(1, big);
    bench.cache.trim();
    // one had to go, with what was encoded of it
    assert_eq!(bench.cache.stats().ring_events, 1);
    assert_eq!(bench.cache.stats().ring_bytes, before / 2 + 6_000);
    // outside the ring it costs the ring nothing
    first.encoded(1, big);
    assert_eq!(bench.cache.stats().ring_bytes, before / 2 + 6_000);
}

#[test]
fn a_pinned_snapshot_outlives_the_ring_but_not_the_retention() {
    let bench = Bench::new(Options { ring_events: 2, pins: 2, ..Options::default() });
    bench.publish(vec![put("a/x", 1), put("a/y", 2)]);
    bench.cache.pin(&bench.cache.snapshot());
    bench.publish((3..=50).map(|revision| put("a/x", revision)).collect());
    let expected = [("a/x".to_owned(), 1), ("a/y".to_owned(), 2)];
    assert_eq!(listed(&bench.cache.at(2).unwrap()), expected);
    assert_eq!(bench.cache.at(3).err(), Some(Gone { oldest: 48 }));
    // what is rebuilt is pinned too; the least recently used gives way
    bench.cache.at(49).unwrap();
    bench.cache.at(2).unwrap();
    bench.cache.at(48).unwrap();
    assert_eq!(bench.cache.stats().pins, 2);
    assert_eq!(listed(&bench.cache.at(2).unwrap()), expected);
    bench.advance(301);
    assert!(bench.cache.at(2).is_err());
    bench.cache.trim();
    assert_eq!(bench.cache.stats().pins, 0);
}

#[test]
fn a_page_after_any_text_is_well_formed() {
    let bench = Bench::new(Options::default());
    let paths = ["a-b/x", "a.b/x", "a/x", "a/y", "b/x"];
    bench.publish(paths.iter().zip(1..).map(|(path, revision)| put(path, revision)).collect());
    let snapshot = bench.cache.snapshot();
    let page =
        |namespace, after| snapshot.range(namespace, after).map(|(key, _)| key.path()).collect::<Vec<_>>();
    assert_eq!(page(None, None), paths);
    assert_eq!(page(None, Some("a/")), paths[2..]);
    assert_eq!(page(None, Some("a/x\0")), paths[3..]);
    assert_eq!(page(Some("a"), None), paths[2..4]);
    assert_eq!(page(Some("a"), Some("a/x")), paths[3..4]);
    assert_eq!(page(Some("a"), Some("a/")), paths[2..4]);
    for (after, found) in [("", 2), ("a-b/x", 2), ("a/y", 0), ("a0", 0), ("b/x", 0), ("\u{10ffff}", 0)] {
        assert_eq!(page(Some("a"), Some(after)).len(), found, "after {after:?}");
    }
    assert_eq!(page(Some("nowhere"), None), [""; 0]);
    assert_eq!(page(Some(""), None), [""; 0]);
}

#[test]
fn history_replayed_over_an_older_state_fills_the_ring() {
    let bench = Bench::new(Options::default());
    bench.cache.load([super::doc("a/x", 3, None), super::doc("a/y", 4, None)], 5);
    bench.cache.apply(vec![put("a/x", 6), delete("a/y", 8), put("a/z", 9)]);
    bench.published.raise(9);
    assert_eq!(listed(&bench.cache.at(7).unwrap()), [("a/x".to_owned(), 6), ("a/y".to_owned(), 4)]);
    assert_eq!(listed(&bench.cache.at(5).unwrap()), [("a/x".to_owned(), 3), ("a/y".to_owned(), 4)]);
    assert_eq!(bench.cache.at(4).err(), Some(Gone { oldest: 5 }));
    let future = bench.cache.at(99).unwrap();
    assert_eq!(future.revision(), 9);
}
