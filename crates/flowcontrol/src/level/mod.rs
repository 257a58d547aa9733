//! A priority level: its seats, the executing requests and the queued ones.

use crate::demand::{Demand, DemandStats};
use crate::queues::{QueueTotals, QueueView, Queues, Request, Width};
use crate::usage::{Usage, Utilization};
use env::World;
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;

/// How a level handles requests for which no seat is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Exempt: there is always a seat.
    Exempt,
    /// They are rejected.
    Refuse,
    /// They are queued.
    Queue { queues: u16, hand: u16, longest: u16 },
}

/// Why a request is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectReason {
    /// All seats are occupied, and the level does not queue.
    NoSeat,
    /// All queues of its hand are full.
    QueueFull,
}

/// The result of a request for seats.
pub enum Entry {
    Go(Ticket),
    Wait(QueuedTicket),
    Rejected(RejectReason),
}

/// See the module.
pub struct Level {
    world: World,
    shape: Shape,
    state: Mutex<State>,
}

struct State {
    limit: u32,
    taken: u32,
    queues: Queues<oneshot::Sender<Ticket>>,
    demand: Demand,
    usage: Usage,
    /// Nominal seats, and the queue capacity.
    nominal: u32,
    room: u32,
    next_id: u64,
}

impl State {
    /// A request larger than the limit may execute when no other does.
    fn fits(taken: u32, limit: u32, seats: u32) -> bool {
        taken == 0 || taken.saturating_add(seats) <= limit
    }

    fn note_demand(&mut self, now: Duration) {
        let wanted = self.taken.saturating_add(self.queues.waiting_seats());
        self.demand.set(now, wanted);
        let QueueTotals { running, waiting, .. } = self.queues.standing();
        let full = Utilization {
            seats: self.taken,
            limit: self.limit,
            running,
            waiting,
            room: self.room,
            demand: wanted,
            nominal: self.nominal,
        };
        self.usage.set(now, &full);
    }
}

impl Level {
    pub fn new(shape: Shape, limit: u32, world: World) -> Arc<Self> {
        let queues = match shape {
            Shape::Queue { queues, hand, longest } => Queues::new(queues, hand, longest.into()),
            Shape::Exempt | Shape::Refuse => Queues::new(1, 1, 0),
        };
        let room = match shape {
            Shape::Queue { queues, longest, .. } => u32::from(queues) * u32::from(longest),
            Shape::Exempt | Shape::Refuse => 1,
        };
        let (limit, usage) = (limit.max(1), Usage::new(world.elapsed()));
        let (nominal, demand) = (limit, Demand::default());
        let state = State { limit, taken: 0, queues, demand, usage, nominal, room, next_id: 0 };
        Arc::new(Level { world, shape, state: Mutex::new(state) })
    }

    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Requests seats on behalf of a flow. `about` describes a queued request on debug endpoints.
    pub fn ask(self: &Arc<Self>, flow: u64, width: Width, about: impl FnOnce() -> Vec<String>) -> Entry {
        let now = self.world.elapsed();
        let mut state = self.state.lock();
        let state = &mut *state;
        let seats = width.most();
        state.queues.advance(now, state.taken + state.queues.waiting_seats(), state.limit);
        let queue = if matches!(self.shape, Shape::Queue { .. }) { state.queues.choose(flow) } else { 0 };
        let at_once = match self.shape {
            Shape::Exempt => true,
            // a new request does not overtake queued ones
            _ => state.queues.is_empty_of_waiters() && State::fits(state.taken, state.limit, seats),
        };
        if at_once {
            state.queues.start(queue, seats);
            state.taken += seats;
            state.note_demand(now);
            return Entry::Go(self.ticket(queue, width, now, Duration::ZERO));
        }
        if self.shape == Shape::Refuse {
            return Entry::Rejected(RejectReason::NoSeat);
        }
        if !state.queues.has_room(queue) {
            return Entry::Rejected(RejectReason::QueueFull);
        }
        let id = state.next_id;
        state.next_id += 1;
        let (notify, notified) = oneshot::channel();
        let length = state.queues.add(queue, Request { id, width, came: now, about: about(), notify });
        state.note_demand(now);
        Entry::Wait(QueuedTicket { level: self.clone(), queue, id, length, notified })
    }

    fn ticket(self: &Arc<Self>, queue: usize, width: Width, started: Duration, waited: Duration) -> Ticket {
        Ticket { level: self.clone(), queue, width, started, waited, held: true }
    }

    /// Gives free seats to the next requests.
    fn dispatch(self: &Arc<Self>) {
        let now = self.world.elapsed();
        let mut going = Vec::new();
        {
            let mut state = self.state.lock();
            let state = &mut *state;
            let (mut taken, limit) = (state.taken, state.limit);
            while let Some((queue, request)) = state.queues.next(|seats| State::fits(taken, limit, seats)) {
                taken += request.width.most();
                let waited = now.saturating_sub(request.came);
                going.push((request.notify, self.ticket(queue, request.width, now, waited)));
            }
            state.taken = taken;
            state.note_demand(now);
        }
        // outside of the lock: a cancelled waiter returns its seats at once, which takes the lock again
        for (notify, ticket) in going {
            let _ = notify.send(ticket);
        }
    }

    fn release(self: &Arc<Self>, queue: usize, seats: u32, took: Duration) {
        let now = self.world.elapsed();
        {
            let mut state = self.state.lock();
            let state = &mut *state;
            state.queues.advance(now, state.taken + state.queues.waiting_seats(), state.limit);
            state.taken = state.taken.saturating_sub(seats);
            state.queues.finish(queue, seats, took);
            state.note_demand(now);
            if state.queues.is_empty_of_waiters() {
                return;
            }
        }
        self.dispatch();
    }

    fn leave(self: &Arc<Self>, queue: usize, id: u64) {
        let now = self.world.elapsed();
        {
            let mut state = self.state.lock();
            let state = &mut *state;
            if state.queues.remove(queue, id).is_none() {
                return;
            }
            state.note_demand(now);
        }
        // the removed request may have blocked the next one
        self.dispatch();
    }

    /// Sets the limit. Requests that already execute keep their seats until they end.
    pub fn set_limit(self: &Arc<Self>, limit: u32) {
        let now = self.world.elapsed();
        {
            let mut state = self.state.lock();
            let state = &mut *state;
            state.queues.advance(now, state.taken + state.queues.waiting_seats(), state.limit);
            state.limit = limit.max(1);
        }
        self.dispatch();
    }

    /// Sets the nominal limit, and resets the current limit to it.
    pub fn set_nominal(self: &Arc<Self>, seats: u32) {
        self.state.lock().nominal = seats.max(1);
        self.set_limit(seats);
    }

    /// The utilization so far.
    pub fn usage(&self) -> Usage {
        let now = self.world.elapsed();
        let mut state = self.state.lock();
        state.usage.pass(now);
        state.usage.clone()
    }

    pub fn limit(&self) -> u32 {
        self.state.lock().limit
    }

    /// The demand since the last call.
    pub fn look_at_demand(&self) -> DemandStats {
        self.state.lock().demand.look(self.world.elapsed())
    }

    /// The queues with their requests; empty for a level without queues.
    pub fn queues(&self) -> Vec<QueueView> {
        match self.shape {
            Shape::Queue { .. } => self.state.lock().queues.view(),
            Shape::Exempt | Shape::Refuse => Vec::new(),
        }
    }

    /// The virtual time of the queues.
    pub fn virtual_time(&self) -> f64 {
        self.state.lock().queues.virtual_time()
    }

    /// How many requests wait and execute, and the seats of the latter.
    pub fn standing(&self) -> (QueueTotals, u32) {
        let state = self.state.lock();
        (state.queues.standing(), state.taken)
    }
}

/// The right to execute. Its seats are returned when it is dropped.
pub struct Ticket {
    level: Arc<Level>,
    queue: usize,
    width: Width,
    started: Duration,
    waited: Duration,
    held: bool,
}

impl Ticket {
    /// How long its holder waited for it.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// The seats and the time of the work after the response: keep it for that time, then drop it.
    pub fn answered(self) -> Option<(Duration, Ticket)> {
        if self.width.after_seats == 0 || self.width.after.is_zero() {
            return None;
        }
        Some((self.width.after, self))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if std::mem::take(&mut self.held) {
            let took = self.level.world.elapsed().saturating_sub(self.started);
            self.level.clone().release(self.queue, self.width.most(), took);
        }
    }
}

/// A place in a queue; dropping it leaves the queue.
pub struct QueuedTicket {
    level: Arc<Level>,
    queue: usize,
    id: u64,
    length: usize,
    notified: oneshot::Receiver<Ticket>,
}

impl QueuedTicket {
    /// The length of its queue when it joined.
    pub fn queue_length(&self) -> usize {
        self.length
    }
}

impl Future for QueuedTicket {
    /// `None` only if the level itself is gone.
    type Output = Option<Ticket>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Ticket>> {
        Pin::new(&mut self.notified).poll(context).map(Result::ok)
    }
}

impl Drop for QueuedTicket {
    fn drop(&mut self) {
        self.level.clone().leave(self.queue, self.id);
    }
}

#[cfg(test)]
mod tests;
