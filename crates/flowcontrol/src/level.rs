//! A priority level: seats, those who hold them and those who wait.

use crate::demand::{Demand, Demanded};
use crate::queues::{QueueView, Queues, Request, Standing, Width};
use crate::usage::{Fullness, Usage};
use env::World;
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;

/// What happens with requests for which there is no seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// There is always a seat.
    Exempt,
    /// They are refused.
    Refuse,
    /// They wait.
    Queue { queues: u16, hand: u16, longest: u16 },
}

/// Why a request is not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// All seats are taken, and nobody may wait.
    NoSeat,
    /// The queues that it could join are full.
    QueueFull,
}

/// What a request is told.
pub enum Entry {
    Go(Ticket),
    Wait(Waiting),
    Refused(Refused),
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
    /// Seats with nothing lent, and how many may wait.
    nominal: u32,
    room: u32,
    next_id: u64,
}

impl State {
    /// One that is larger than everything may run when nobody else does.
    fn fits(taken: u32, limit: u32, seats: u32) -> bool {
        taken == 0 || taken.saturating_add(seats) <= limit
    }

    fn note_demand(&mut self, now: Duration) {
        let wanted = self.taken.saturating_add(self.queues.waiting_seats());
        self.demand.set(now, wanted);
        let Standing { running, waiting, .. } = self.queues.standing();
        let full = Fullness {
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

    /// Asks for seats on behalf of a flow. Requests that wait are described to an operator by `about`.
    pub fn ask(self: &Arc<Self>, flow: u64, width: Width, about: impl FnOnce() -> Vec<String>) -> Entry {
        let now = self.world.elapsed();
        let mut state = self.state.lock();
        let state = &mut *state;
        let seats = width.most();
        state.queues.advance(now, state.taken + state.queues.waiting_seats(), state.limit);
        let queue = if matches!(self.shape, Shape::Queue { .. }) { state.queues.choose(flow) } else { 0 };
        let at_once = match self.shape {
            Shape::Exempt => true,
            // who comes now does not pass those who wait
            _ => state.queues.nobody_waits() && State::fits(state.taken, state.limit, seats),
        };
        if at_once {
            state.queues.start(queue, seats);
            state.taken += seats;
            state.note_demand(now);
            return Entry::Go(self.ticket(queue, width, now, Duration::ZERO));
        }
        if self.shape == Shape::Refuse {
            return Entry::Refused(Refused::NoSeat);
        }
        if !state.queues.has_room(queue) {
            return Entry::Refused(Refused::QueueFull);
        }
        let id = state.next_id;
        state.next_id += 1;
        let (tell, told) = oneshot::channel();
        let length = state.queues.add(queue, Request { id, width, came: now, about: about(), tell });
        state.note_demand(now);
        Entry::Wait(Waiting { level: self.clone(), queue, id, length, told })
    }

    fn ticket(self: &Arc<Self>, queue: usize, width: Width, started: Duration, waited: Duration) -> Ticket {
        Ticket { level: self.clone(), queue, width, started, waited, held: true }
    }

    /// Gives seats to those whose turn it is, as far as there are free ones.
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
                going.push((request.tell, self.ticket(queue, request.width, now, waited)));
            }
            state.taken = taken;
            state.note_demand(now);
        }
        // outside of the lock: who has gone away gives the seats back at once, which takes it again
        for (tell, ticket) in going {
            let _ = tell.send(ticket);
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
            if state.queues.nobody_waits() {
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
        // it may have been what the next in turn had to wait for
        self.dispatch();
    }

    /// From now on there are so many seats. Those who hold more keep them until they are done.
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

    /// From now on there are so many seats with nothing lent, and just these at first.
    pub fn set_nominal(self: &Arc<Self>, seats: u32) {
        self.state.lock().nominal = seats.max(1);
        self.set_limit(seats);
    }

    /// How full it was, until now.
    pub fn usage(&self) -> Usage {
        let now = self.world.elapsed();
        let mut state = self.state.lock();
        state.usage.pass(now);
        state.usage.clone()
    }

    pub fn limit(&self) -> u32 {
        self.state.lock().limit
    }

    /// What was wanted since the last call.
    pub fn look_at_demand(&self) -> Demanded {
        self.state.lock().demand.look(self.world.elapsed())
    }

    /// The queues with all that wait in them; none where nobody waits.
    pub fn queues(&self) -> Vec<QueueView> {
        match self.shape {
            Shape::Queue { .. } => self.state.lock().queues.view(),
            Shape::Exempt | Shape::Refuse => Vec::new(),
        }
    }

    /// The clock by which the queues take turns.
    pub fn virtual_time(&self) -> f64 {
        self.state.lock().queues.virtual_time()
    }

    /// How many wait and run, and how many seats those have.
    pub fn standing(&self) -> (Standing, u32) {
        let state = self.state.lock();
        (state.queues.standing(), state.taken)
    }
}

/// The right to run. Seats come back when it is dropped.
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

    /// What the request leaves to do, and how long that takes: keep it so long, then drop it.
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

/// A place in a queue, which is left when it is dropped.
pub struct Waiting {
    level: Arc<Level>,
    queue: usize,
    id: u64,
    length: usize,
    told: oneshot::Receiver<Ticket>,
}

impl Waiting {
    /// How long its queue was when it had joined.
    pub fn queue_length(&self) -> usize {
        self.length
    }
}

impl Future for Waiting {
    /// Absent only when the level itself is gone.
    type Output = Option<Ticket>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Ticket>> {
        Pin::new(&mut self.told).poll(context).map(Result::ok)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.level.clone().leave(self.queue, self.id);
    }
}

#[cfg(test)]
mod tests;
