//! The queues of a level, and whose turn it is.
//!
//! Each queue has a point on a clock of its own kind: how much service it has had, with the service that it
//! would have had at the least. The queue that is furthest behind is next. A request is charged an estimate when
//! it starts, and what it really took when it ends. An idle queue gathers no claim to more later.

use crate::hand;
use std::collections::VecDeque;
use std::time::Duration;

/// What a request is charged when it starts, before it is known how long it takes, in seconds.
const ESTIMATE: f64 = 0.003;

/// How much of a level a request takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Width {
    /// Seats while it runs.
    pub seats: u32,
    /// Seats for what it leaves to do when it has been answered.
    pub after_seats: u32,
    /// How long that takes.
    pub after: Duration,
}

impl Default for Width {
    fn default() -> Self {
        Width { seats: 1, after_seats: 0, after: Duration::ZERO }
    }
}

impl Width {
    /// The most seats that it takes at a time.
    pub fn most(&self) -> u32 {
        self.seats.max(self.after_seats).max(1)
    }
}

/// A request that waits.
pub(crate) struct Request<T> {
    pub id: u64,
    pub width: Width,
    /// When it came.
    pub came: Duration,
    /// Words that describe it to an operator.
    pub about: Vec<String>,
    /// Whom to tell.
    pub tell: T,
}

struct Queue<T> {
    waiting: VecDeque<Request<T>>,
    waiting_seats: u32,
    running: u32,
    running_seats: u32,
    /// Service had, in seat-seconds of virtual time.
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

/// All queues of a level; without queues nobody waits.
pub(crate) struct Queues<T> {
    queues: Vec<Queue<T>>,
    hand: u16,
    longest: usize,
    /// Where the search for the next queue begins, so that none is preferred among equals.
    turn: usize,
    /// Virtual time: the service that an active queue would have had by now with its equal share.
    now: f64,
    at: Duration,
    /// Kept beside the queues, since every request asks for them.
    standing: Standing,
    waiting_seats: u32,
}

/// A queue as an operator sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueView {
    pub running: u32,
    pub running_seats: u32,
    /// Service had, in seat-seconds of virtual time.
    pub served: f64,
    pub waiting: Vec<RequestView>,
}

/// A request that waits, as an operator sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestView {
    pub width: Width,
    pub came: Duration,
    pub about: Vec<String>,
}

/// How a level's queues stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
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
            standing: Standing::default(),
            waiting_seats: 0,
        }
    }

    /// Lets virtual time pass: each active queue gets its share of what was served.
    pub fn advance(&mut self, at: Duration, seats_wanted: u32, limit: u32) {
        let passed = at.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(at);
        let active = self.standing.active_queues;
        if active > 0 {
            self.now += passed * f64::from(seats_wanted.min(limit)) / f64::from(active);
        }
    }

    /// The queue of a flow: of its hand the one with the least to do.
    pub fn choose(&self, hash: u64) -> usize {
        let deck = u16::try_from(self.queues.len()).unwrap_or(u16::MAX);
        let load = |at: &usize| {
            let queue = &self.queues[*at];
            queue.waiting_seats + queue.running_seats
        };
        hand::deal(hash, deck, self.hand).min_by_key(load).unwrap_or(0)
    }

    /// Whether a queue can take one more.
    pub fn has_room(&self, queue: usize) -> bool {
        self.queues.get(queue).is_some_and(|queue| queue.waiting.len() < self.longest)
    }

    /// Gives how many wait in that queue now.
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

    /// A queue that has something to do from now on, whatever it had before.
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

    /// Takes out one that no longer waits.
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

    /// The next in turn, if it fits into what is free; `None` when nobody waits or the next must wait on.
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
        // the next in turn is not passed over for a smaller one, or it might wait for ever
        let width = self.queues[at].waiting.front()?.width.most();
        if !fits(width) {
            return None;
        }
        self.turn = at;
        let queue = &mut self.queues[at];
        let request = queue.waiting.pop_front()?;
        queue.waiting_seats -= width;
        // it counts as active until it has started
        self.left(width, true);
        self.queues[at].start(width);
        self.standing.running += 1;
        Some((at, request))
    }

    /// Counts a request of this width among those that run for a queue.
    pub fn start(&mut self, queue: usize, seats: u32) {
        let Some(queue) = self.begun(queue) else { return };
        queue.start(seats);
        self.standing.running += 1;
    }

    /// Charges what a request really took.
    pub fn finish(&mut self, queue: usize, seats: u32, took: Duration) {
        let Some(queue) = self.queues.get_mut(queue) else { return };
        queue.running -= 1;
        queue.running_seats -= seats;
        queue.served += (took.as_secs_f64() - ESTIMATE) * f64::from(seats);
        self.standing.running -= 1;
        self.standing.active_queues -= u32::from(!queue.is_active());
    }

    pub fn nobody_waits(&self) -> bool {
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

    /// The service that an active queue would have had by now with its equal share, in seat-seconds.
    pub fn virtual_time(&self) -> f64 {
        self.now
    }

    pub fn standing(&self) -> Standing {
        self.standing
    }
}
