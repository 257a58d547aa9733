//! The clock of a simulated world: it moves only on demand, and wakes the timers in its queue.
//!
//! A timer enters the queue when it is first polled and leaves it when it fires or is dropped, so the queue holds no more
//! than the timers that tasks wait for. Timers fire in the order of their deadlines; equal deadlines in the order in
//! which the timers were created.
//!
//! A timer of [`Upkeep`] can be put off by whole periods ([`SimulatedClock::coast`]). So its deadline is in the queue
//! alone: the timer itself knows no more than whether it still waits.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use crate::upkeep::Upkeep;

/// Deadline and number of a timer.
type TimerKey = (Duration, u64);

pub(crate) struct SimulatedClock {
    /// Written only while `waiting` is locked.
    nanos: AtomicU64,
    created: AtomicU64,
    pub waiting: Mutex<Queue>,
}

/// The timers that tasks wait for.
#[derive(Default)]
pub(crate) struct Queue {
    ordinary: BTreeMap<TimerKey, Waker>,
    /// The order of the timers of upkeep.
    upkeep_order: BTreeSet<TimerKey>,
    upkeep: HashMap<u64, UpkeepTimer>,
}

struct UpkeepTimer {
    deadline: Duration,
    upkeep: Upkeep,
    waker: Waker,
}

impl Queue {
    /// The timer that fires next.
    fn first(&self) -> Option<(TimerKey, bool)> {
        let ordinary = self.ordinary.first_key_value().map(|(key, _)| (*key, false));
        let upkeep = self.upkeep_order.first().map(|key| (*key, true));
        ordinary.into_iter().chain(upkeep).min()
    }

    fn remove_upkeep(&mut self, number: u64) -> Option<Waker> {
        let timer = self.upkeep.remove(&number)?;
        self.upkeep_order.remove(&(timer.deadline, number));
        Some(timer.waker)
    }

    fn move_upkeep(&mut self, next: impl Fn(Duration, &Upkeep) -> Duration) {
        for (number, timer) in &mut self.upkeep {
            let at = next(timer.deadline, &timer.upkeep);
            if at != timer.deadline {
                self.upkeep_order.remove(&(timer.deadline, *number));
                self.upkeep_order.insert((at, *number));
                timer.deadline = at;
            }
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        assert_eq!(self.upkeep.len(), self.upkeep_order.len());
        self.ordinary.len() + self.upkeep.len()
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A timer that has fired.
pub(crate) struct DueTimer {
    pub waker: Waker,
    pub is_upkeep: bool,
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

    /// The earliest deadline that a task waits for, of any timer.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.waiting.lock().first().map(|((deadline, _), _)| deadline)
    }

    /// The earliest deadline that is not of upkeep.
    pub fn next_ordinary_deadline(&self) -> Option<Duration> {
        self.waiting.lock().ordinary.first_key_value().map(|((deadline, _), _)| *deadline)
    }

    /// A timer that completes at `deadline`.
    pub fn timer(self: &Arc<Self>, deadline: Duration) -> Timer {
        self.new_timer(deadline, None)
    }

    /// A timer of upkeep that completes at `deadline`, or a number of periods later.
    pub fn upkeep_timer(self: &Arc<Self>, deadline: Duration, upkeep: Upkeep) -> Timer {
        self.new_timer(deadline, Some(upkeep))
    }

    fn new_timer(self: &Arc<Self>, deadline: Duration, upkeep: Option<Upkeep>) -> Timer {
        let number = self.created.fetch_add(1, Ordering::Relaxed);
        Timer { clock: self.clone(), key: (deadline, number), upkeep, is_waiting: false }
    }

    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::SeqCst))
    }

    /// Moves forward to `at`; never back.
    fn move_to(&self, at: Duration) {
        self.nanos.fetch_max(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Moves to the first deadline up to `end` and returns its timer; moves to `end` if there is none.
    pub fn step(&self, end: Duration) -> Option<DueTimer> {
        let mut waiting = self.waiting.lock();
        let next = waiting.first().filter(|((deadline, _), _)| *deadline <= end);
        self.move_to(next.map_or(end, |((deadline, _), _)| deadline));
        let (key, is_upkeep) = next?;
        let waker = match is_upkeep {
            true => waiting.remove_upkeep(key.1),
            false => waiting.ordinary.remove(&key),
        };
        waker.map(|waker| DueTimer { waker, is_upkeep })
    }

    /// Puts off the upkeep up to `until`: of the ticks that are due by then each timer keeps the one that
    /// [`Upkeep::remaining_tick`] names. Does not move the clock.
    pub fn coast(&self, until: Duration) {
        self.waiting.lock().move_upkeep(|deadline, upkeep| upkeep.remaining_tick(deadline, until));
    }

    /// Undoes [`SimulatedClock::coast`] for ticks that are still to come.
    pub fn end_coasting(&self) {
        let now = self.now();
        self.waiting.lock().move_upkeep(|deadline, upkeep| upkeep.first_tick(deadline, now));
    }
}

/// A timer of a simulated clock.
pub struct Timer {
    clock: Arc<SimulatedClock>,
    key: TimerKey,
    upkeep: Option<Upkeep>,
    /// Whether the queue may hold this timer.
    is_waiting: bool,
}

impl Timer {
    /// Whether the clock has reached the deadline.
    pub fn is_elapsed(&self) -> bool {
        self.has_fired(&self.clock.waiting.lock())
    }

    fn has_fired(&self, waiting: &Queue) -> bool {
        let deadline = match self.upkeep {
            Some(_) if self.is_waiting => waiting.upkeep.get(&self.key.1).map(|it| it.deadline),
            _ => Some(self.key.0),
        };
        deadline.is_none_or(|deadline| self.clock.now() >= deadline)
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let timer = &mut *self;
        let mut waiting = timer.clock.waiting.lock();
        let has_fired = timer.has_fired(&waiting);
        let before = match (timer.upkeep, has_fired) {
            (None, true) => waiting.ordinary.remove(&timer.key),
            (None, false) => waiting.ordinary.insert(timer.key, context.waker().clone()),
            (Some(_), true) => waiting.remove_upkeep(timer.key.1),
            (Some(upkeep), false) => waiting.wait_for_upkeep(timer.key, upkeep, context.waker()),
        };
        timer.is_waiting = !has_fired;
        drop(waiting);
        // after the lock: a waker may own a task, which may own timers
        drop(before);
        if timer.is_waiting { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Queue {
    /// Adds a timer of upkeep, or replaces its waker, which is returned.
    fn wait_for_upkeep(
        &mut self,
        (deadline, number): TimerKey,
        upkeep: Upkeep,
        waker: &Waker,
    ) -> Option<Waker> {
        if let Some(timer) = self.upkeep.get_mut(&number) {
            return Some(std::mem::replace(&mut timer.waker, waker.clone()));
        }
        self.upkeep.insert(number, UpkeepTimer { deadline, upkeep, waker: waker.clone() });
        self.upkeep_order.insert((deadline, number));
        None
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if self.is_waiting {
            let mut waiting = self.clock.waiting.lock();
            let waker = match self.upkeep {
                None => waiting.ordinary.remove(&self.key),
                Some(_) => waiting.remove_upkeep(self.key.1),
            };
            // dropped after the lock, as above
            drop(waiting);
            drop(waker);
        }
    }
}
