//! The hub of watchers, indexed so that an event touches only the watchers that it interests.
//!
//! Each watcher has one seat, in the one list its interest belongs to. An event goes to the list of all, and to
//! those of its namespace, its object and its term; when the term changed, of both terms. The lists are
//! disjoint, so no watcher gets an event twice. Empty lists are removed: the hub holds nothing for watchers that are gone.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use crate::queue::{OfferOutcome, Phase, Queue};
use crate::{Entry, Event, Interest, Key, Options};

pub(crate) struct Hub<E> {
    all: Vec<Seat<E>>,
    namespaces: HashMap<Arc<str>, Vec<Seat<E>>>,
    objects: HashMap<Key, Vec<Seat<E>>>,
    terms: HashMap<Arc<str>, Vec<Seat<E>>>,
    next_id: u64,
    closed: bool,
    /// How many watchers have a seat, for readers without the lock.
    seated: Arc<AtomicUsize>,
    pub(crate) deliveries: u64,
    pub(crate) lagged: u64,
}

/// A watcher's place among others: those of one group sit side by side, in the order in which they came.
pub(crate) type SeatId = (u64, u64);

/// A watcher's place in a list. Lists are sorted by id.
struct Seat<E> {
    id: SeatId,
    queue: Arc<Queue<E>>,
    /// For an interest that its list alone does not settle.
    namespace: Option<Arc<str>>,
}

/// The tasks to wake once the publisher holds no locks: each once, however many events it got.
#[derive(Default)]
#[must_use]
pub(crate) struct Wakes(Vec<Waker>);

impl Wakes {
    pub(crate) fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

impl<E: Entry> Hub<E> {
    pub(crate) fn new(seated: Arc<AtomicUsize>) -> Self {
        Self {
            all: Vec::new(),
            namespaces: HashMap::new(),
            objects: HashMap::new(),
            terms: HashMap::new(),
            next_id: 0,
            closed: false,
            seated,
            deliveries: 0,
            lagged: 0,
        }
    }

    /// Takes in a watcher that knows everything up to `after`. After [`close`](Self::close) its queue is closed
    /// from the start.
    pub(crate) fn join(&mut self, interest: &Interest, after: u64, group: u64) -> (SeatId, Arc<Queue<E>>) {
        let id = (group, self.next_id);
        self.next_id += 1;
        let phase = if self.closed { Phase::Closed } else { Phase::Open };
        let queue = Arc::new(Queue::new(after, phase));
        if !self.closed {
            let namespace = match interest {
                Interest::TermIn { namespace, .. } => Some(namespace.clone()),
                _ => None,
            };
            let seat = Seat { id, queue: queue.clone(), namespace };
            let seats = match interest {
                Interest::All => &mut self.all,
                Interest::Namespace(namespace) => self.namespaces.entry(namespace.clone()).or_default(),
                Interest::Object(key) => self.objects.entry(key.clone()).or_default(),
                Interest::Term(term) | Interest::TermIn { term, .. } => {
                    self.terms.entry(term.clone()).or_default()
                }
            };
            seats.insert(seats.partition_point(|one| one.id < id), seat);
            self.seated.fetch_add(1, Ordering::Relaxed);
        }
        (id, queue)
    }

    /// Lets a watcher go. One that was cut off or closed has no seat any more; that is fine.
    pub(crate) fn leave(&mut self, id: SeatId, interest: &Interest) {
        let seated = &self.seated;
        let remove = |seats: &mut Vec<Seat<E>>| {
            if let Ok(index) = seats.binary_search_by_key(&id, |seat| seat.id) {
                seats.remove(index);
                seated.fetch_sub(1, Ordering::Relaxed);
            }
        };
        match interest {
            Interest::All => remove(&mut self.all),
            Interest::Namespace(namespace) => in_list(&mut self.namespaces, &**namespace, remove),
            Interest::Object(key) => in_list(&mut self.objects, key, remove),
            Interest::Term(term) | Interest::TermIn { term, .. } => in_list(&mut self.terms, &**term, remove),
        }
    }

    /// Puts `event` into the queue of each watcher it interests, and cuts off those whose queue is full.
    pub(crate) fn publish(&mut self, event: &Arc<Event<E>>, options: &Options, wakes: &mut Wakes) {
        let Self { all, namespaces, objects, terms, deliveries, lagged, seated, .. } = self;
        let mut inform = |seats: &mut Vec<Seat<E>>| {
            seats.retain(|seat| {
                if seat.namespace.as_ref().is_some_and(|wanted| **wanted != *event.key.namespace()) {
                    return true;
                }
                match seat.queue.offer(event, options) {
                    OfferOutcome::AlreadySeen => true,
                    OfferOutcome::Taken(waker) => {
                        *deliveries += 1;
                        wakes.0.extend(waker);
                        true
                    }
                    OfferOutcome::Lagged(waker) => {
                        *lagged += 1;
                        seated.fetch_sub(1, Ordering::Relaxed);
                        wakes.0.extend(waker);
                        false
                    }
                }
            })
        };
        inform(all);
        in_list(namespaces, event.key.namespace(), &mut inform);
        in_list(objects, &event.key, &mut inform);
        let (new, old) = event.terms();
        if let Some(term) = new {
            in_list(terms, term, &mut inform);
        }
        if let Some(term) = old.filter(|_| old != new) {
            in_list(terms, term, &mut inform);
        }
    }

    /// Cuts every watcher off, as when the events between two states are not known.
    pub(crate) fn cut(&mut self, wakes: &mut Wakes) {
        self.lagged += self.end(Phase::Lagged, wakes);
    }

    /// Ends every watcher after its queued events, and every later one.
    pub(crate) fn close(&mut self, wakes: &mut Wakes) {
        self.closed = true;
        self.end(Phase::Closed, wakes);
    }

    /// Ends the watchers of this moment.
    pub(crate) fn dismiss(&mut self, wakes: &mut Wakes) {
        self.end(Phase::Closed, wakes);
    }

    fn end(&mut self, phase: Phase, wakes: &mut Wakes) -> u64 {
        let mut ended = 0;
        let keyed = self.namespaces.drain().map(|(_, seats)| seats);
        let keyed = keyed.chain(self.terms.drain().map(|(_, seats)| seats));
        let keyed = keyed.chain(self.objects.drain().map(|(_, seats)| seats));
        for seat in keyed.flatten().chain(self.all.drain(..)) {
            wakes.0.extend(seat.queue.end(phase));
            ended += 1;
        }
        self.seated.store(0, Ordering::Relaxed);
        ended
    }

    /// How many watchers have a seat.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let keyed = self.namespaces.values().chain(self.terms.values()).chain(self.objects.values());
        self.all.len() + keyed.map(Vec::len).sum::<usize>()
    }

    #[cfg(test)]
    pub(crate) fn lists(&self) -> usize {
        self.namespaces.len() + self.terms.len() + self.objects.len()
    }
}

/// Does `then` with the list under `key`, if there is one, and drops the list if that emptied it.
fn in_list<K, Q, E>(lists: &mut HashMap<K, Vec<Seat<E>>>, key: &Q, then: impl FnOnce(&mut Vec<Seat<E>>))
where
    K: Borrow<Q> + Hash + Eq,
    Q: Hash + Eq + ?Sized,
{
    // Most types have no watcher by object or term; then not even the hash is made.
    if lists.is_empty() {
        return;
    }
    if let Some(seats) = lists.get_mut(key) {
        then(seats);
        if seats.is_empty() {
            lists.remove(key);
        }
    }
}
