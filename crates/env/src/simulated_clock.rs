//! The clock of a simulated world: it moves only on demand, and wakes the timers in its queue.
//!
//! A timer enters the queue when it is first polled and leaves it when it fires or is dropped, so the queue holds no more
//! than the timers that tasks wait for. Timers fire in the order of their deadlines; equal deadlines in the order in
//! which the timers were created.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;

/// Deadline and number of a timer.
type TimerKey = (Duration, u64);

pub(crate) struct SimulatedClock {
    /// Written only while `waiting` is locked.
    nanos: AtomicU64,
    created: AtomicU64,
    pub waiting: Mutex<BTreeMap<TimerKey, Waker>>,
}

impl SimulatedClock {
    pub fn new(start: Duration) -> Self {
        let clock = SimulatedClock {
            nanos: AtomicU64::new(0),
            created: AtomicU64::new(0),
            waiting: Mutex::default(),
        };
        clock.move_to(start);
        clock
    }

    /// The earliest deadline that a task waits for.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.waiting.lock().first_key_value().map(|((deadline, _), _)| *deadline)
    }

    /// A timer that completes at `deadline`.
    pub fn timer(self: &Arc<Self>, deadline: Duration) -> Timer {
        let number = self.created.fetch_add(1, Ordering::Relaxed);
        Timer { clock: self.clone(), key: (deadline, number), is_waiting: false }
    }

    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::SeqCst))
    }

    /// Moves forward to `at`; never back.
    fn move_to(&self, at: Duration) {
        self.nanos.fetch_max(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Moves to the first deadline up to `end` and returns the waker of its timer; moves to `end` if there is none.
    pub fn step(&self, end: Duration) -> Option<Waker> {
        let mut waiting = self.waiting.lock();
        let next = waiting.first_entry().filter(|entry| entry.key().0 <= end);
        self.move_to(next.as_ref().map_or(end, |entry| entry.key().0));
        next.map(|entry| entry.remove())
    }
}

/// A timer of a simulated clock.
pub struct Timer {
    clock: Arc<SimulatedClock>,
    key: TimerKey,
    /// Whether the queue may hold this timer.
    is_waiting: bool,
}

impl Timer {
    /// Whether the clock has reached the deadline.
    pub fn is_elapsed(&self) -> bool {
        self.clock.now() >= self.key.0
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let timer = &mut *self;
        let mut waiting = timer.clock.waiting.lock();
        timer.is_waiting = !timer.is_elapsed();
        let before = match timer.is_waiting {
            true => waiting.insert(timer.key, context.waker().clone()),
            false => waiting.remove(&timer.key),
        };
        drop(waiting);
        // after the lock: a waker may own a task, which may own timers
        drop(before);
        if timer.is_waiting { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if self.is_waiting {
            // dropped after the lock, as above
            let waker = self.clock.waiting.lock().remove(&self.key);
            drop(waker);
        }
    }
}
