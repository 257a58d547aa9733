//! An event: new state, previous state, and the encoded forms made so far.
//!
//! An event is immutable and shared by the ring and every queue it waits in. Encoded forms are made on first
//! demand, once, whatever the number of watchers; while the event is in the ring their bytes count against
//! the ring's bound.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::{Entry, Key};

/// How many encoded forms an event can keep: enough for the event's three types in a handful of media types.
pub const SLOTS: usize = 16;

/// One change of one object.
pub struct Event<E> {
    /// The revision at which it happened.
    pub revision: u64,
    /// Which object.
    pub key: Key,
    /// The new state; for a deletion the last state, restamped with the deletion's revision.
    pub entry: Arc<E>,
    /// The state before; `None` for a creation.
    pub previous: Option<Arc<E>>,
    /// Whether the object was deleted.
    pub deleted: bool,
    /// When it was published, on the world's monotonic clock.
    pub at: Duration,
    /// Sizes of the new state and of the memory that the ring holds for this event; see [`Event::new`].
    weights: (usize, usize),
    // Boxed: most events of a quiet type are never encoded, and empty slots are not small.
    encoded: OnceLock<Box<[OnceLock<Bytes>; SLOTS]>>,
    charge: Mutex<Charge>,
}

/// Size of the encoded forms, charged to the ring that holds the event.
#[derive(Default)]
struct Charge {
    /// The ring's sum over its events; `None` while the event is in no ring.
    ledger: Option<Arc<AtomicUsize>>,
    bytes: usize,
}

impl<E: Entry> Event<E> {
    pub(crate) fn new(
        key: Key,
        entry: Arc<E>,
        previous: Option<Arc<E>>,
        deleted: bool,
        at: Duration,
    ) -> Self {
        // Weighed once: sums over events stay right even if an entry comes to weigh more later.
        let weight = entry.weight();
        // The ring alone holds the state this superseded, and a tombstone. A new state is either current or
        // is counted by the event that superseded it.
        let previous_weight = previous.as_ref().map_or(0, |previous| previous.weight());
        let tombstone_weight = if deleted { weight } else { 0 };
        let held = previous_weight + tombstone_weight + size_of::<Self>();
        Self {
            revision: entry.revision(),
            key,
            entry,
            previous,
            deleted,
            at,
            weights: (weight, held),
            encoded: OnceLock::new(),
            charge: Mutex::default(),
        }
    }

    /// The encoded form kept in `slot`, made by `make` on first use. What a slot means is the
    /// callers' agreement. `make` must not ask this event for the same slot. A slot that does not exist is
    /// never kept: the form is made anew each time.
    pub fn encoded(&self, slot: usize, make: impl FnOnce() -> Bytes) -> Bytes {
        let slots = self.encoded.get_or_init(Box::default);
        let Some(slot) = slots.get(slot) else { return make() };
        slot.get_or_init(|| {
            let bytes = make();
            self.charge(bytes.len());
            bytes
        })
        .clone()
    }

    /// The indexed term after and before: watchers of either value must know.
    pub(crate) fn terms(&self) -> (Option<&str>, Option<&str>) {
        (self.entry.term(), self.previous.as_ref().and_then(|previous| previous.term()))
    }

    /// Size of the new state, for the queues.
    pub(crate) fn weight(&self) -> usize {
        self.weights.0
    }

    /// The bytes a ring holds only because it holds this event, encoded forms apart.
    pub(crate) fn held_bytes(&self) -> usize {
        self.weights.1
    }

    fn charge(&self, bytes: usize) {
        let mut charge = self.charge.lock();
        if let Some(ledger) = &charge.ledger {
            ledger.fetch_add(bytes, Ordering::Relaxed);
            charge.bytes += bytes;
        }
    }

    /// From now on encoded forms count in `ledger`.
    pub(crate) fn enter(&self, ledger: &Arc<AtomicUsize>) {
        self.charge.lock().ledger = Some(ledger.clone());
    }

    /// Removes the counted bytes from the ledger.
    pub(crate) fn leave(&self) {
        let Charge { ledger, bytes } = std::mem::take(&mut *self.charge.lock());
        if let Some(ledger) = ledger {
            ledger.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}
