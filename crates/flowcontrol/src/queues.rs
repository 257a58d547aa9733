//! The fair queues of a priority level.
//!
//! Each queue has a virtual start time: the service that it has received, and at least the service of an active
//! queue with an equal share. The queue that is furthest behind is served next. A request is charged an estimate
//! when it starts, and its actual time when it ends. An idle queue accumulates no credit.

use crate::hand;
use std::collections::VecDeque;
use std::time::Duration;

/// The estimated duration of a request, in seconds, charged when it starts.
const ESTIMATE: f64 = 0.003;

/// The seats that a request occupies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Width {
    /// Seats while it executes.
    pub seats: u32,
    /// Seats for the work that remains after the response.
    pub after_seats: u32,
    /// How long that work takes.
    pub after: Duration,
}

impl Default for Width {
    fn default() -> Self {
        Width { seats: 1, after_seats: 0, after: Duration::ZERO }
    }
}

impl Width {
    /// The largest number of seats at any time.
    pub fn most(&self) -> u32 {
        self.seats.max(self.after_seats).max(1)
    }
}

/// A queued request.
pub(crate) struct Request<T> {
    pub id: u64,
    pub width: Width,
    /// Its arrival time.
    pub came: Duration,
    /// Its description for debug endpoints.
    pub about: Vec<String>,
    /// Notifies its waiter.
    pub notify: T,
}

struct Queue<T> {
    waiting: VecDeque<Request<T>>,
    waiting_seats: u32,
    running: u32,
    running_seats: u32,
    /// Service received, in seat-seconds of virtual time.
    served: f64,
}

impl<T> Queue<T> {
    fn is_active(&self) -> bool {
        self.running > 0 || !self.waiting.is_empty()
    }

    fn start(&mut self, seats: u32) {
        self.running += 1;
        self.running_seats += seats;
        self.served += ESTIMATE * f64::from(seats);
    }
}

/// All queues of a level; without queues no request waits.
pub(crate) struct Queues<T> {
    queues: Vec<Queue<T>>,
    hand: u16,
    longest: usize,
    /// Where the search for the next queue begins, so that equal queues take turns.
    turn: usize,
    /// Virtual time: the service of an active queue with its equal share so far.
    now: f64,
    at: Duration,
    /// Totals over all queues, because every request reads them.
    standing: QueueTotals,
    waiting_seats: u32,
}

/// A queue, for debug endpoints.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueView {
    pub running: u32,
    pub running_seats: u32,
    /// Service received, in seat-seconds of virtual time.
    pub served: f64,
    pub waiting: Vec<RequestView>,
}

/// A queued request, for debug endpoints.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestView {
    pub width: Width,
    pub came: Duration,
    pub about: Vec<String>,
}

/// The totals of a level's queues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueTotals {
    pub waiting: u32,
    pub running: u32,
    pub active_queues: u32,
}

impl<T> Queues<T> {
    pub fn new(count: u16, hand: u16, longest: usize) -> Self {
        let queue = || Queue {
            waiting: VecDeque::new(),
            waiting_seats: 0,
            running: 0,
            running_seats: 0,
            served: 0.0,
        };
        let queues = (0..count.max(1)).map(|_| queue()).collect();
        Queues {
            queues,
            hand: hand.max(1),
            longest,
            turn: 0,
            now: 0.0,
            at: Duration::ZERO,
            standing: QueueTotals::default(),
            waiting_seats: 0,
        }
    }

    /// Advances virtual time: each active queue gets its share of the service.
    pub fn advance(&mut self, at: Duration, seats_wanted: u32, limit: u32) {
        let passed = at.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(at);
        let active = self.standing.active_queues;
        if active > 0 {
            self.now += passed * f64::from(seats_wanted.min(limit)) / f64::from(active);
        }
    }

    /// The queue of a flow: the one of its hand with the least work.
    pub fn choose(&self, hash: u64) -> usize {
        let deck = u16::try_from(self.queues.len()).unwrap_or(u16::MAX);
        let load = |at: &usize| {
            let queue = &self.queues[*at];
            queue.waiting_seats + queue.running_seats
        };
        hand::deal(hash, deck, self.hand).min_by_key(load).unwrap_or(0)
    }

    /// Whether a queue has room for a request.
    pub fn has_room(&self, queue: usize) -> bool {
        self.queues.get(queue).is_some_and(|queue| queue.waiting.len() < self.longest)
    }

    /// Queues a request; returns the length of its queue.
    pub fn add(&mut self, queue: usize, request: Request<T>) -> usize {
        let Some(queue) = self.begun(queue) else { return 0 };
        let seats = request.width.most();
        queue.waiting_seats += seats;
        queue.waiting.push_back(request);
        let length = queue.waiting.len();
        self.waiting_seats += seats;
        self.standing.waiting += 1;
        length
    }

    /// Activates a queue, whatever service it had before.
    fn begun(&mut self, queue: usize) -> Option<&mut Queue<T>> {
        let queue = self.queues.get_mut(queue)?;
        if !queue.is_active() {
            queue.served = self.now;
            self.standing.active_queues += 1;
        }
        Some(queue)
    }

    fn left(&mut self, seats: u32, active: bool) {
        self.waiting_seats -= seats;
        self.standing.waiting -= 1;
        self.standing.active_queues -= u32::from(!active);
    }

    /// Removes a request that no longer waits.
    pub fn remove(&mut self, queue: usize, id: u64) -> Option<Request<T>> {
        let queue = self.queues.get_mut(queue)?;
        let at = queue.waiting.iter().position(|request| request.id == id)?;
        let request = queue.waiting.remove(at)?;
        let seats = request.width.most();
        queue.waiting_seats -= seats;
        let active = queue.is_active();
        self.left(seats, active);
        Some(request)
    }

    /// The next request, if it fits into the free seats; `None` if none waits or the next one does not fit.
    pub fn next(&mut self, fits: impl Fn(u32) -> bool) -> Option<(usize, Request<T>)> {
        let count = self.queues.len();
        let mut best: Option<(usize, f64)> = None;
        for step in 1..=count {
            let at = (self.turn + step) % count;
            let queue = &self.queues[at];
            let Some(first) = queue.waiting.front() else { continue };
            let finish = queue.served + ESTIMATE * f64::from(first.width.most());
            if best.is_none_or(|(_, least)| finish < least) {
                best = Some((at, finish));
            }
        }
        let (at, _) = best?;
        // a smaller request does not overtake the next one, which might starve otherwise
        let width = self.queues[at].waiting.front()?.width.most();
        if !fits(width) {
            return None;
        }
        self.turn = at;
        let queue = &mut self.queues[at];
        let request = queue.waiting.pop_front()?;
        queue.waiting_seats -= width;
        // the queue counts as active until the request has started
        self.left(width, true);
        self.queues[at].start(width);
        self.standing.running += 1;
        Some((at, request))
    }

    /// Counts a request of this width as executing for a queue.
    pub fn start(&mut self, queue: usize, seats: u32) {
        let Some(queue) = self.begun(queue) else { return };
        queue.start(seats);
        self.standing.running += 1;
    }

    /// Charges the actual time of a request.
    pub fn finish(&mut self, queue: usize, seats: u32, took: Duration) {
        let Some(queue) = self.queues.get_mut(queue) else { return };
        queue.running -= 1;
        queue.running_seats -= seats;
        queue.served += (took.as_secs_f64() - ESTIMATE) * f64::from(seats);
        self.standing.running -= 1;
        self.standing.active_queues -= u32::from(!queue.is_active());
    }

    pub fn is_empty_of_waiters(&self) -> bool {
        self.standing.waiting == 0
    }

    pub fn waiting_seats(&self) -> u32 {
        self.waiting_seats
    }

    pub fn view(&self) -> Vec<QueueView> {
        let request =
            |it: &Request<T>| RequestView { width: it.width, came: it.came, about: it.about.clone() };
        let queue = |it: &Queue<T>| QueueView {
            running: it.running,
            running_seats: it.running_seats,
            served: it.served,
            waiting: it.waiting.iter().map(request).collect(),
        };
        self.queues.iter().map(queue).collect()
    }

    /// The service of an active queue with its equal share so far, in seat-seconds.
    pub fn virtual_time(&self) -> f64 {
        self.now
    }

    pub fn standing(&self) -> QueueTotals {
        self.standing
    }
}
