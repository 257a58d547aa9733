//! The events that wait for one watcher: filled by the publisher, emptied by the watcher's task.
//!
//! Bounded: an event that does not fit cuts the watcher off instead of slowing the publisher or the others.
//! The task's waker lives under the same small lock as the events, so a wake-up can not be lost: either the
//! task sees the event when it looks, or the publisher sees the waker the task left.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use parking_lot::{Mutex, MutexGuard};

use crate::{Entry, Event, Options};

pub(crate) struct Queue<E> {
    /// The watcher knows everything up to this revision already.
    pub(crate) after: u64,
    state: Mutex<QueueState<E>>,
}

pub(crate) struct QueueState<E> {
    pub(crate) phase: Phase,
    events: VecDeque<Arc<Event<E>>>,
    bytes: usize,
    pub(crate) waker: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Events come in.
    Open,
    /// Cut off: events were left out, and none are handed out any more.
    Lagged,
    /// Closed for new events; queued ones are still delivered.
    Closed,
}

/// The outcome of an event that is offered to a queue. The waker is for the publisher to wake when it holds no locks.
pub(crate) enum OfferOutcome {
    Taken(Option<Waker>),
    AlreadySeen,
    Lagged(Option<Waker>),
}

impl<E: Entry> Queue<E> {
    pub(crate) fn new(after: u64, phase: Phase) -> Self {
        let waiting = QueueState { phase, events: VecDeque::new(), bytes: 0, waker: None };
        Self { after, state: Mutex::new(waiting) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, QueueState<E>> {
        self.state.lock()
    }

    pub(crate) fn offer(&self, event: &Arc<Event<E>>, options: &Options) -> OfferOutcome {
        if event.revision <= self.after {
            return OfferOutcome::AlreadySeen;
        }
        let weight = event.weight();
        let mut waiting = self.state.lock();
        // One event always fits, however heavy: otherwise its watchers could never get past it.
        let full = !waiting.events.is_empty()
            && (waiting.events.len() >= options.watcher_events
                || waiting.bytes + weight > options.watcher_bytes);
        if full {
            return OfferOutcome::Lagged(waiting.end(Phase::Lagged));
        }
        waiting.bytes += weight;
        waiting.events.push_back(event.clone());
        OfferOutcome::Taken(waiting.waker.take())
    }

    /// Ends the queue from the publisher's side.
    pub(crate) fn end(&self, phase: Phase) -> Option<Waker> {
        self.state.lock().end(phase)
    }
}

impl<E: Entry> QueueState<E> {
    fn end(&mut self, phase: Phase) -> Option<Waker> {
        self.phase = phase;
        if phase == Phase::Lagged {
            self.events = VecDeque::new();
            self.bytes = 0;
        }
        self.waker.take()
    }

    pub(crate) fn front(&self) -> Option<&Arc<Event<E>>> {
        self.events.front()
    }

    pub(crate) fn pop(&mut self) -> Option<Arc<Event<E>>> {
        // A burst should not leave its room behind in each of thousands of idle watchers.
        const KEPT: usize = 64;
        let event = self.events.pop_front()?;
        self.bytes -= event.weight();
        if self.events.is_empty() && self.events.capacity() > KEPT {
            self.events = VecDeque::new();
        }
        Some(event)
    }
}
