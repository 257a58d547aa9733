//! The receiving end of a watch.
//!
//! First the backlog (what the ring held after the starting revision), then what the publisher puts into the
//! queue. Dropping the watcher gives up its seat in the hub at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::hub::SeatId;
use crate::queue::{Phase, Queue};
use crate::shared::Shared;
use crate::{Entry, Event, Interest, Lagged};

/// A stream of events, in revision order. It ends when the cache is closed, or after a final [`Lagged`].
pub struct Watcher<E: Entry> {
    shared: Arc<Shared<E>>,
    id: SeatId,
    interest: Interest,
    queue: Arc<Queue<E>>,
    backlog: VecDeque<Arc<Event<E>>>,
    /// The revision of the last event handed out.
    handed_out: u64,
    ended: bool,
}

/// Why [`Watcher::try_recv`] gave no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TryRecvError {
    /// There is none yet.
    #[error("no event is waiting")]
    Empty,
    /// Events were left out. Said once; then it has ended.
    #[error(transparent)]
    Lagged(#[from] Lagged),
    /// There will be no more.
    #[error("the watch has ended")]
    Ended,
}

impl<E: Entry> Watcher<E> {
    pub(crate) fn new(
        shared: Arc<Shared<E>>,
        (id, queue): (SeatId, Arc<Queue<E>>),
        interest: Interest,
        backlog: VecDeque<Arc<Event<E>>>,
    ) -> Self {
        Self { shared, id, interest, queue, backlog, handed_out: 0, ended: false }
    }

    /// The next event; `None` when the watch has ended.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Arc<Event<E>>, Lagged>>> {
        let mut next = None;
        let taken = self.take(1, Some(cx), |event| next = Some(event));
        match taken {
            Ok(_) => Poll::Ready(next.map(Ok)),
            Err(TryRecvError::Empty) => Poll::Pending,
            Err(TryRecvError::Lagged(lagged)) => Poll::Ready(Some(Err(lagged))),
            Err(TryRecvError::Ended) => Poll::Ready(None),
        }
    }

    /// Appends the events that wait, at least one and at most `max`, to `into`, and gives their number; `None`
    /// when the watch has ended.
    pub fn poll_batch(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut Vec<Arc<Event<E>>>,
        max: usize,
    ) -> Poll<Option<Result<usize, Lagged>>> {
        match self.take(max.max(1), Some(cx), |event| into.push(event)) {
            Ok(count) => Poll::Ready(Some(Ok(count))),
            Err(TryRecvError::Empty) => Poll::Pending,
            Err(TryRecvError::Lagged(lagged)) => Poll::Ready(Some(Err(lagged))),
            Err(TryRecvError::Ended) => Poll::Ready(None),
        }
    }

    /// The next event; `None` when the watch has ended. Safe to cancel: an event is taken only when returned.
    pub async fn recv(&mut self) -> Option<Result<Arc<Event<E>>, Lagged>> {
        std::future::poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// The batch form of [`recv`](Self::recv).
    pub async fn recv_batch(
        &mut self,
        into: &mut Vec<Arc<Event<E>>>,
        max: usize,
    ) -> Option<Result<usize, Lagged>> {
        std::future::poll_fn(|cx| self.poll_batch(cx, into, max)).await
    }

    /// The next event if one waits.
    pub fn try_recv(&mut self) -> Result<Arc<Event<E>>, TryRecvError> {
        let mut next = None;
        self.take(1, None, |event| next = Some(event))?;
        next.ok_or(TryRecvError::Empty)
    }

    /// The revision R up to which this watcher has been handed every event that interests it, as a bookmark
    /// may promise. Never goes back, and is never less than the revision of an event handed out. `None` when
    /// there is no such promise to make: the watch has ended or is about to, or the last event's batch is not
    /// wholly published yet.
    ///
    /// With events waiting, R is just before the first of them, since they are in order. With none, R is the
    /// published revision *as read before looking*: the publisher queues the events of a batch before it
    /// raises that revision, so each event up to it was in the queue by then, and an empty queue means it has
    /// been handed out. Read the other way round, an event could be queued and published in between.
    pub fn delivered_up_to(&self) -> Option<u64> {
        let published = self.shared.published.get();
        let waiting = self.queue.lock();
        if self.ended || waiting.phase != Phase::Open {
            return None;
        }
        let up_to = match self.backlog.front().or_else(|| waiting.front()) {
            Some(event) => event.revision.saturating_sub(1),
            None => published.max(self.queue.after),
        };
        (up_to >= self.handed_out).then_some(up_to)
    }

    /// The interest of this watcher.
    pub fn interest(&self) -> &Interest {
        &self.interest
    }

    /// Hands up to `max` events to `sink`: `Ok` means at least one. Leaves the waker when there are none yet.
    fn take(
        &mut self,
        max: usize,
        cx: Option<&mut Context<'_>>,
        mut sink: impl FnMut(Arc<Event<E>>),
    ) -> Result<usize, TryRecvError> {
        if self.ended {
            return Err(TryRecvError::Ended);
        }
        // Declared before the guard, so that a waker we replace is dropped after the lock is released: its
        // task may hold any lock.
        let mut _replaced = None;
        let mut waiting = self.queue.lock();
        if waiting.phase == Phase::Lagged {
            drop(waiting);
            self.ended = true;
            self.backlog = VecDeque::new();
            return Err(Lagged.into());
        }
        let mut count = 0;
        while count < max {
            let Some(event) = self.backlog.pop_front().or_else(|| waiting.pop()) else { break };
            self.handed_out = event.revision;
            sink(event);
            count += 1;
        }
        if count > 0 {
            return Ok(count);
        }
        if waiting.phase == Phase::Closed {
            self.ended = true;
            return Err(TryRecvError::Ended);
        }
        if let Some(cx) = cx
            && !waiting.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()))
        {
            _replaced = waiting.waker.replace(cx.waker().clone());
        }
        Err(TryRecvError::Empty)
    }
}

impl<E: Entry> Drop for Watcher<E> {
    fn drop(&mut self) {
        self.shared.leave(self.id, &self.interest);
    }
}
