//! The ring of recent events, oldest first, from which watches resume and older states are rebuilt.
//!
//! ```text
//! oldest = 7   [8: put a] [9: put b] [12: delete a]        newest change = 12
//! ```
//! Every event after revision `oldest` is here, so a watch may start after any revision from 7 on, and any
//! state from 7 on is the current one with the later events undone. Dropping event 8 makes `oldest` 8.
//!
//! Bounded by age, count and bytes; the oldest go first. The events are in a persistent vector, so a watch or
//! a read of the past takes the whole ring in a moment and does its walking without the publishing lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use imbl::Vector;

use crate::{Entry, Event, Options};

pub(crate) struct Ring<E> {
    events: Vector<Arc<Event<E>>>,
    /// Superseded payloads and bookkeeping.
    bytes: usize,
    /// Encoded forms, counted by the events themselves as they are made.
    encoded: Arc<AtomicUsize>,
    oldest: u64,
}

/// Events taken out of a ring; dropped by the publisher once it has let go of its lock.
#[must_use]
pub(crate) struct EvictedEvents<E>(
    #[expect(dead_code, reason = "held only to be dropped")] Vec<Arc<Event<E>>>,
);

impl<E: Entry> Ring<E> {
    pub(crate) fn new(oldest: u64) -> Self {
        Self { events: Vector::new(), bytes: 0, encoded: Arc::default(), oldest }
    }

    pub(crate) fn push(&mut self, event: Arc<Event<E>>) {
        self.bytes += event.held_bytes();
        event.enter(&self.encoded);
        self.events.push_back(event);
    }

    /// The smallest revision that a watch can start after, or that can be rebuilt.
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.encoded.load(Ordering::Relaxed)
    }

    /// The events as they are now.
    pub(crate) fn tail(&self) -> Tail<E> {
        Tail(self.events.clone())
    }

    /// Drops events beyond the bounds.
    pub(crate) fn trim(&mut self, now: Duration, options: &Options) -> EvictedEvents<E> {
        let mut dropped = Vec::new();
        while let Some(first) = self.events.front() {
            let expired = now.saturating_sub(first.at) > options.retention;
            let over = self.len() > options.ring_events || self.bytes() > options.ring_bytes;
            if !expired && !over {
                break;
            }
            dropped.extend(self.pop());
        }
        EvictedEvents(dropped)
    }

    /// Drops all events: nothing before `oldest` can be replayed any more.
    pub(crate) fn reset(&mut self, oldest: u64) -> EvictedEvents<E> {
        let dropped = std::iter::from_fn(|| self.pop()).collect();
        self.oldest = oldest;
        EvictedEvents(dropped)
    }

    fn pop(&mut self) -> Option<Arc<Event<E>>> {
        let event = self.events.pop_front()?;
        self.bytes -= event.held_bytes();
        event.leave();
        self.oldest = event.revision;
        Some(event)
    }
}

/// The events of a ring at one moment.
pub(crate) struct Tail<E>(Vector<Arc<Event<E>>>);

impl<E: Entry> Tail<E> {
    /// The events after `revision`, newest first: the end is where the search is free.
    pub(crate) fn back_to(&self, revision: u64) -> impl Iterator<Item = &Arc<Event<E>>> {
        self.0.iter().rev().take_while(move |event| event.revision > revision)
    }
}
