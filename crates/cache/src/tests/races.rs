//! One publisher against readers and watchers on threads of their own.
//!
//! Revision r changes object `(r / 2) % OBJECTS`, in cache `r % 2`. So what a snapshot must hold, and which
//! event must come next, follows from the revision alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use env::{Simulated, World, random_u64};

use super::{Doc, doc, put};
use crate::{Cache, Interest, Key, Options, PublishedRevision, Snapshot, Watcher};

const OBJECTS: u64 = 37;
const LAST: u64 = 200_000;

fn path(revision: u64) -> String {
    let object = revision / 2 % OBJECTS;
    format!("ns{}/o{object}", object % 3)
}

/// The newest revision up to `limit` that changed `object` in cache `parity`.
fn newest(object: u64, parity: u64, limit: u64) -> Option<u64> {
    let first = 2 * object + parity;
    // revision 0 changes nothing
    let first = if first == 0 { 2 * OBJECTS } else { first };
    (first <= limit).then(|| limit - (limit - first) % (2 * OBJECTS))
}

fn check_exact(snapshot: &Snapshot<Doc>, parity: u64) {
    let mut expected: Vec<(String, u64)> = (0..OBJECTS)
        .filter_map(|object| newest(object, parity, snapshot.revision()))
        .map(|revision| (path(revision), revision))
        .collect();
    expected.sort();
    assert_eq!(super::listed(snapshot), expected, "at {} of cache {parity}", snapshot.revision());
}

/// The two places where a state that is not exact would show first: the newest change at its revision, and the
/// next one after it. Cheap, so that there are many looks at a moving target.
fn check_edges(snapshot: &Snapshot<Doc>, parity: u64) {
    let Some(last) = snapshot.revision().checked_sub((snapshot.revision() % 2).abs_diff(parity)) else {
        return assert!(snapshot.is_empty());
    };
    for edge in [last, last + 2] {
        let (namespace, name) =
            path(edge).split_once('/').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        let found = snapshot.get(&namespace, &name).map(|entry| entry.revision);
        assert_eq!(
            found,
            newest(edge / 2 % OBJECTS, parity, snapshot.revision()),
            "at {}",
            snapshot.revision()
        );
    }
}

fn options() -> Options {
    // no watcher may lag here: losing events would be right then
    Options { watcher_events: usize::MAX, watcher_bytes: usize::MAX, ring_events: 3000, ..Options::default() }
}

struct Server {
    published: Arc<PublishedRevision>,
    caches: [Cache<Doc>; 2],
    done: AtomicBool,
}

/// Lets the other threads end, also when the publisher fails.
struct Done<'a>(&'a Server);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.caches.iter().for_each(Cache::close);
        self.0.done.store(true, Ordering::Release);
    }
}

impl Server {
    fn new() -> Self {
        let published = Arc::new(PublishedRevision::new(0));
        let world: World = Simulated::new(0, 0);
        let cache = || Cache::new(published.clone(), options(), world.clone());
        Self { caches: [cache(), cache()], published, done: AtomicBool::new(false) }
    }

    fn publish_all(&self, random: &World) {
        let _done = Done(self);
        let mut next = 1;
        while next <= LAST {
            let end = (next + random_u64(random) % 12).min(LAST);
            for (parity, cache) in (0..).zip(&self.caches) {
                cache.apply((next..=end).filter(|r| r % 2 == parity).map(|r| put(&path(r), r)).collect());
            }
            self.published.raise(end);
            next = end + 1;
        }
    }

    fn read(&self, random: &World) {
        let mut last = [0; 2];
        while !self.done.load(Ordering::Acquire) {
            let parity = random_u64(random) % 2;
            let cache = &self.caches[parity as usize];
            let published = self.published.get();
            let snapshot = cache.snapshot();
            assert!(snapshot.revision() >= published && snapshot.revision() >= last[parity as usize]);
            last[parity as usize] = snapshot.revision();
            let past = cache.at(snapshot.revision().saturating_sub(1 + random_u64(random) % 30));
            let check = if random_u64(random).is_multiple_of(16) { check_exact } else { check_edges };
            check(&snapshot, parity);
            if let Ok(past) = past {
                check(&past, parity);
            }
        }
    }

    /// Watches from random places until the publisher is done, then checks that nothing was left out.
    fn watch(&self, random: &World) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut finished = false;
            while !finished {
                // looked at first: the last watch then starts after all was published
                finished = self.done.load(Ordering::Acquire);
                let parity = random_u64(random) % 2;
                let cache = &self.caches[parity as usize];
                let object = random_u64(random) % OBJECTS;
                let (interest, step) = match random_u64(random) % 3 {
                    0 => (Interest::All, 2),
                    // an object's namespace follows from its number, but their order does not
                    1 => (Interest::Namespace(format!("ns{}", object % 3).into()), 0),
                    _ => (Interest::Object(Key::new(&format!("ns{}", object % 3), &format!("o{object}"))), 1),
                };
                let (watcher, from) = if random_u64(random).is_multiple_of(2) {
                    let (watcher, snapshot) = cache.watch_now(interest);
                    check_edges(&snapshot, parity);
                    (watcher, snapshot.revision())
                } else {
                    let back = if random_u64(random).is_multiple_of(8) { 2000 } else { 16 };
                    let from = self.published.get().saturating_sub(random_u64(random) % back);
                    match cache.watch_after(from, interest) {
                        Ok(watcher) => (watcher, from),
                        Err(_) => continue,
                    }
                };
                // mostly short: the seam between ring and queue is where an event could be lost or come twice
                let batches = if random_u64(random).is_multiple_of(16) { 1000 } else { 4 };
                follow(watcher, from, parity, object, step, batches).await;
            }
        });
    }
}

/// The next revision after `from` that a watch of cache `parity` must receive.
fn next(from: u64, parity: u64, object: u64, step: u64) -> u64 {
    let interested = |revision: &u64| match step {
        2 => true,
        1 => revision / 2 % OBJECTS == object,
        _ => revision / 2 % OBJECTS % 3 == object % 3,
    };
    (from + 1..).filter(|revision| revision % 2 == parity).find(interested).unwrap_or(u64::MAX)
}

async fn follow(mut watcher: Watcher<Doc>, from: u64, parity: u64, object: u64, step: u64, batches: u64) {
    let mut expected = next(from, parity, object, step);
    let mut batch = Vec::new();
    for _ in 0..batches {
        if let Some(promised) = watcher.delivered_up_to() {
            assert!(promised < expected, "promised {promised}, but {expected} is yet to come");
        }
        match watcher.recv_batch(&mut batch, 7).await {
            Some(Ok(count)) => assert!(count == batch.len() && (1..=7).contains(&count)),
            Some(Err(lagged)) => panic!("{lagged}"),
            None => {
                assert!(expected > LAST, "ended before {expected}");
                return;
            }
        }
        for event in batch.drain(..) {
            assert_eq!(event.revision, expected);
            expected = next(expected, parity, object, step);
        }
    }
}

#[test]
fn every_watcher_receives_each_event_once_in_order() {
    let seed = 7;
    println!("seed {seed}");
    let server = Server::new();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let server = &server;
            scope.spawn(move || server.read(&(Simulated::new(0, seed + thread) as World)));
        }
        for thread in 0..3 {
            let server = &server;
            scope.spawn(move || server.watch(&(Simulated::new(0, seed + 10 + thread) as World)));
        }
        server.publish_all(&(Simulated::new(0, seed + 20) as World));
    });
    for (parity, cache) in (0..).zip(&server.caches) {
        check_exact(&cache.snapshot(), parity);
        assert_eq!((cache.stats().watchers, cache.lists()), (0, 0));
    }
}

#[test]
fn an_event_is_encoded_once_for_all() {
    let bench = super::Bench::new(Options::default());
    let (mut watcher, _) = bench.cache.watch_now(Interest::All);
    bench.publish(vec![put("a/x", 1)]);
    let event = watcher.try_recv().unwrap();
    let made = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for slot in [0, 3, crate::SLOTS - 1] {
                    let bytes = event.encoded(slot, || {
                        made.fetch_add(1, Ordering::Relaxed);
                        format!("form {slot}").into()
                    });
                    assert_eq!(bytes, format!("form {slot}"));
                }
            });
        }
    });
    assert_eq!(made.load(Ordering::Relaxed), 3);
    // a slot that does not exist is no reason to fail
    assert_eq!(event.encoded(crate::SLOTS, || "x".into()), "x");
    assert_eq!(event.at, Duration::from_secs(1000));
    assert_eq!(*event.entry, *doc("a/x", 1, None));
}
