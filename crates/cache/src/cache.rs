//! The cache of one resource type: publishing, reading and watching.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use env::World;
use parking_lot::Mutex;

use crate::contents::Contents;
use crate::hub::{Hub, Wakes};
use crate::pins::Pins;
use crate::ring::{Ring, Tail};
use crate::shared::{PublishState, Shared};
use crate::{Change, Entry, Event, Gone, Interest, Key, Options, PublishedRevision, Snapshot, Watcher};

/// The objects of one resource type, their recent events and their watchers.
///
/// Dropping the cache closes it: its watchers end.
pub struct Cache<E: Entry> {
    shared: Arc<Shared<E>>,
}

/// Numbers about a cache, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Objects now.
    pub objects: usize,
    /// The revision of the newest change.
    pub newest: u64,
    /// The smallest revision that can be read exactly and watched from.
    pub oldest: u64,
    /// Events in the ring.
    pub ring_events: usize,
    /// Bytes that the ring holds and the current state does not.
    pub ring_bytes: usize,
    /// Snapshots pinned.
    pub pins: usize,
    /// Watchers now.
    pub watchers: usize,
    /// Events put into watchers' queues since the start.
    pub deliveries: u64,
    /// Watchers cut off since the start.
    pub lagged: u64,
}

impl<E: Entry> Cache<E> {
    /// An empty cache, complete up to the published revision.
    pub fn new(published: Arc<PublishedRevision>, options: Options, world: World) -> Self {
        let revision = published.get();
        let watchers = Arc::<AtomicUsize>::default();
        let hub = Hub::new(watchers.clone());
        let shared = Shared {
            contents: ArcSwap::from_pointee(Contents::new(revision)),
            publishing: Mutex::new(PublishState { ring: Ring::new(revision), hub }),
            watchers,
            pins: Mutex::new(Pins::new()),
            published,
            options,
            world,
        };
        Self { shared: Arc::new(shared) }
    }

    /// How many events are kept at most, whatever they hold: of a longer history, the beginning can be loaded as state.
    pub fn most_events(&self) -> usize {
        let options = &self.shared.options;
        options.ring_events.min(options.ring_bytes / size_of::<Event<E>>())
    }

    /// Fills the cache with the state at `revision`, without events: history starts there.
    ///
    /// At start, a store that retained some history loads the state at the oldest retained revision and then
    /// [applies](Self::apply) the changes since, which refills the ring and shares each payload. Later, a
    /// follower of a remote store that lost its place loads the new state; present watchers are then cut off
    /// as lagged, since the events in between are unknown.
    pub fn load(&self, entries: impl IntoIterator<Item = Arc<E>>, revision: u64) {
        let contents = Arc::new(Contents::of(entries, revision));
        let newest = contents.newest;
        let mut wakes = Wakes::default();
        let mut publishing = self.shared.publishing.lock();
        let old = self.shared.contents.swap(contents);
        let dropped = publishing.ring.reset(newest);
        publishing.hub.cut(&mut wakes);
        drop(publishing);
        self.shared.pins.lock().clear();
        wakes.wake();
        drop((old, dropped));
    }

    /// Publishes changes of this type: readers see them, then watchers receive them.
    ///
    /// One caller at a time, in revision order; changes of one revision come in one call. Changes that are not
    /// newer than the state are skipped, so that a watcher of a remote store may resume a little earlier. The
    /// caller raises [`PublishedRevision`] once the batch is in every cache that it concerns.
    pub fn apply(&self, changes: Vec<Change<E>>) {
        if changes.is_empty() {
            return;
        }
        let shared = &*self.shared;
        let now = shared.world.elapsed();
        let mut wakes = Wakes::default();
        let mut publishing = shared.publishing.lock();
        let mut next = Contents::clone(&shared.contents.load());
        let known = next.newest;
        let mut events = Vec::with_capacity(changes.len());
        for change in changes {
            let revision = change.revision();
            if revision > known && revision >= next.newest {
                events.extend(next.change(change, now).map(Arc::new));
            }
        }
        // Before watchers are notified, so that a read after an event includes that event.
        let old = shared.contents.swap(Arc::new(next));
        let PublishState { ring, hub } = &mut *publishing;
        for event in events {
            hub.publish(&event, &shared.options, &mut wakes);
            ring.push(event);
        }
        let dropped = ring.trim(now, &shared.options);
        drop(publishing);
        wakes.wake();
        drop((old, dropped));
    }

    /// The current state, without locking.
    ///
    /// Its revision is the greater of the published one, *read before* the contents, and that of the newest
    /// change within. That is exact. Publication is in order, so contents whose newest change is N hold all
    /// changes of this type up to N and none later. If P was published before we looked, the contents hold
    /// all up to P as well. So with N >= P they are the state at N; with N < P no change of this type lies
    /// between N and P, and they are the state at P. Read after the contents, P could belong to a batch that
    /// these contents miss.
    pub fn snapshot(&self) -> Snapshot<E> {
        let published = self.shared.published.get();
        let contents = self.shared.contents.load_full();
        Snapshot::new(published.max(contents.newest), contents)
    }

    /// The revision of the newest change of this type: a result computed from an earlier state stays valid until
    /// this changes.
    pub fn newest(&self) -> u64 {
        self.shared.contents.load().newest
    }

    /// The current state of one object: a [`snapshot`](Self::snapshot) read that shares nothing else.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<E>> {
        let contents = self.shared.contents.load();
        crate::key::with_path(namespace, name, |path| contents.objects.get(path).cloned())
    }

    /// The state at exactly `revision`: a pinned one, or the current one with the later events undone (and
    /// then pinned). The caller waits for a future revision; otherwise the result is
    /// the current state under its own revision.
    pub fn at(&self, revision: u64) -> Result<Snapshot<E>, Gone> {
        let shared = &*self.shared;
        let current = self.snapshot();
        if revision >= current.contents.newest {
            return Ok(Snapshot::new(revision.min(current.revision()), current.contents));
        }
        let now = shared.world.elapsed();
        if let Some(contents) = shared.pins.lock().get(revision, now, &shared.options) {
            return Ok(Snapshot::new(revision, contents));
        }
        let (contents, tail) = {
            let publishing = shared.publishing.lock();
            let oldest = publishing.ring.oldest();
            if revision < oldest {
                return Err(Gone { oldest });
            }
            (shared.contents.load_full(), publishing.ring.tail())
        };
        let snapshot = Snapshot::new(revision, Arc::new(undone(&contents, &tail, revision)));
        self.pin(&snapshot);
        Ok(snapshot)
    }

    /// Keeps `snapshot` at hand for [`at`](Self::at): for a list that hands out a continue token.
    pub fn pin(&self, snapshot: &Snapshot<E>) {
        let shared = &*self.shared;
        let (now, contents) = (shared.world.elapsed(), snapshot.contents.clone());
        shared.pins.lock().put(snapshot.revision(), contents, now, &shared.options);
    }

    /// Watches from just after `revision`: past events first, then new ones.
    pub fn watch_after(&self, revision: u64, interest: Interest) -> Result<Watcher<E>, Gone> {
        self.watch_after_in(0, revision, interest)
    }

    /// The same for one of a group of watchers, which receive an event one right after the other: watchers that
    /// share a connection can then share the cost of sending.
    pub fn watch_after_in(&self, group: u64, revision: u64, interest: Interest) -> Result<Watcher<E>, Gone> {
        let (seat, tail) = {
            let mut publishing = self.shared.publishing.lock();
            let oldest = publishing.ring.oldest();
            if revision < oldest {
                return Err(Gone { oldest });
            }
            (publishing.hub.join(&interest, revision, group), publishing.ring.tail())
        };
        let mut backlog = VecDeque::new();
        for event in tail.back_to(revision).filter(|event| interest.matches(event)) {
            backlog.push_front(event.clone());
        }
        Ok(Watcher::new(self.shared.clone(), seat, interest, backlog))
    }

    /// Watches from now: the state, and exactly the events after it.
    pub fn watch_now(&self, interest: Interest) -> (Watcher<E>, Snapshot<E>) {
        self.watch_now_in(0, interest)
    }

    /// The same for one of a group of watchers.
    pub fn watch_now_in(&self, group: u64, interest: Interest) -> (Watcher<E>, Snapshot<E>) {
        let mut publishing = self.shared.publishing.lock();
        let snapshot = self.snapshot();
        let seat = publishing.hub.join(&interest, snapshot.revision(), group);
        drop(publishing);
        (Watcher::new(self.shared.clone(), seat, interest, VecDeque::new()), snapshot)
    }

    /// Drops expired events, for times without writes. Called by the owner's timer.
    pub fn trim(&self) {
        let shared = &*self.shared;
        let now = shared.world.elapsed();
        let dropped = shared.publishing.lock().ring.trim(now, &shared.options);
        shared.pins.lock().trim(now, &shared.options);
        drop(dropped);
    }

    /// Ends all watchers, present and later ones, after the events that already wait for them. Reading and
    /// publishing go on.
    pub fn close(&self) {
        let mut wakes = Wakes::default();
        self.shared.publishing.lock().hub.close(&mut wakes);
        wakes.wake();
    }

    /// Ends the present watchers, after the events that already wait for them; later ones are welcome.
    pub fn end_watchers(&self) {
        let mut wakes = Wakes::default();
        self.shared.publishing.lock().hub.dismiss(&mut wakes);
        wakes.wake();
    }

    /// The smallest revision that can be read exactly and watched from.
    pub fn oldest(&self) -> u64 {
        self.shared.publishing.lock().ring.oldest()
    }

    /// How many watchers there are, without locking.
    pub fn watchers(&self) -> usize {
        self.shared.watchers.load(Ordering::Relaxed)
    }

    /// Numbers about the cache.
    pub fn stats(&self) -> Stats {
        let pins = self.shared.pins.lock().len();
        let publishing = self.shared.publishing.lock();
        let contents = self.shared.contents.load();
        Stats {
            objects: contents.objects.len(),
            newest: contents.newest,
            oldest: publishing.ring.oldest(),
            ring_events: publishing.ring.len(),
            ring_bytes: publishing.ring.bytes(),
            pins,
            watchers: self.watchers(),
            deliveries: publishing.hub.deliveries,
            lagged: publishing.hub.lagged,
        }
    }

    #[cfg(test)]
    pub(crate) fn lists(&self) -> usize {
        self.shared.publishing.lock().hub.lists()
    }

    /// The same number as [`watchers`](Self::watchers), counted.
    #[cfg(test)]
    pub(crate) fn counted_watchers(&self) -> usize {
        self.shared.publishing.lock().hub.len()
    }
}

impl<E: Entry> Drop for Cache<E> {
    fn drop(&mut self) {
        self.close();
    }
}

/// `contents` as they were at `revision`.
fn undone<E: Entry>(contents: &Contents<E>, tail: &Tail<E>, revision: u64) -> Contents<E> {
    // Going back, the last event seen of an object is its first after `revision`: what was there before that
    // one is what was there at `revision`, and the ones in between need no undoing.
    let mut first: HashMap<&Key, _> = HashMap::new();
    for event in tail.back_to(revision) {
        first.insert(&event.key, event);
    }
    let mut then = contents.clone();
    for event in first.values() {
        then.undo(event);
    }
    then.newest = revision;
    then
}
