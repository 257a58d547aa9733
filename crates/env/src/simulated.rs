//! The simulated world: a clock that moves only on demand, and seeded randomness.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::random::SeededRandom;
use crate::simulated_clock::SimulatedClock;
use crate::timers::Sleep;
use crate::{Env, ManualClock};

/// An environment whose clocks move only on demand and whose randomness follows from a seed.
pub struct Simulated {
    clock: Arc<SimulatedClock>,
    random: SeededRandom,
}

impl Simulated {
    /// Starts at `unix_seconds` with the given seed.
    pub fn new(unix_seconds: u64, seed: u64) -> Arc<Self> {
        let clock = SimulatedClock::new(Duration::from_secs(unix_seconds));
        Arc::new(Self { clock: Arc::new(clock), random: SeededRandom::new(seed) })
    }

    /// Moves both clocks forward and wakes the timers on the way, from any thread.
    pub fn advance(&self, by: Duration) {
        self.advance_to(self.clock.now().saturating_add(by));
    }

    /// Moves both clocks forward until [`Env::elapsed`] is `at`, and wakes the timers on the way: at each deadline the
    /// clock shows that deadline. A task that is woken runs when its runtime polls it; a caller for which the time
    /// between must be seen by tasks advances to one [`Simulated::next_deadline`] after the other.
    pub fn advance_to(&self, at: Duration) {
        while let Some(fired) = self.clock.step(at) {
            fired.waker.wake();
        }
    }

    /// The earliest deadline that a task waits for.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.clock.next_deadline()
    }
}

impl ManualClock for Simulated {
    fn advance(&self, by: Duration) {
        Self::advance(self, by);
    }
}

impl Env for Simulated {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + self.elapsed()
    }

    fn elapsed(&self) -> Duration {
        self.clock.now()
    }

    fn sleep_until(&self, at: Duration) -> Sleep {
        Sleep::Right(self.clock.timer(at))
    }

    fn fill(&self, buf: &mut [u8]) {
        self.random.fill(buf);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Wake, Waker};

    use futures_util::FutureExt;
    use futures_util::stream::{FuturesUnordered, StreamExt};
    use parking_lot::Mutex;

    use super::*;
    use crate::{World, sleep, unix_seconds};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn time_moves_only_when_advanced() {
        let world = Simulated::new(100, 0);
        let shared: World = world.clone();
        assert_eq!(unix_seconds(&shared), 100);
        world.advance(SECOND * 5);
        assert_eq!(unix_seconds(&shared), 105);
        world.advance_to(SECOND);
        assert_eq!(unix_seconds(&shared), 105, "never back");
    }

    /// Writes down its name and the time of each wake.
    struct Witness {
        name: &'static str,
        world: Arc<Simulated>,
        log: Arc<Mutex<Vec<(&'static str, Duration)>>>,
    }

    impl Wake for Witness {
        fn wake(self: Arc<Self>) {
            self.log.lock().push((self.name, self.world.elapsed()));
        }
    }

    #[test]
    fn timers_fire_by_deadline_and_then_by_creation() {
        let (world, log) = (Simulated::new(0, 0), Arc::default());
        let deadlines = [("c", 3), ("a", 1), ("b1", 2), ("b2", 2), ("d", 9)];
        let mut timers = deadlines.map(|(name, at)| (name, Box::pin(world.sleep_until(SECOND * at))));
        // polled from the last to the first: the order of polling does not count
        for (name, timer) in timers.iter_mut().rev() {
            let witness = Witness { name, world: world.clone(), log: Arc::clone(&log) };
            let waker = Waker::from(Arc::new(witness));
            assert!(timer.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        world.advance(SECOND * 5);
        let fired = [("a", 1), ("b1", 2), ("b2", 2), ("c", 3)].map(|(name, at)| (name, SECOND * at));
        assert_eq!(*log.lock(), fired);
        assert_eq!((world.elapsed(), world.next_deadline()), (SECOND * 5, Some(SECOND * 9)));
        for (name, timer) in &mut timers {
            assert_eq!(timer.as_mut().now_or_never().is_some(), *name != "d", "{name}");
        }
    }

    #[test]
    fn a_dropped_timer_leaves_the_queue() {
        let world = Simulated::new(0, 0);
        let mut timers: Vec<_> = (1..=100).map(|at| Box::pin(world.sleep_until(SECOND * at))).collect();
        assert!(world.clock.waiting.lock().is_empty(), "nothing waits yet");
        for _ in 0..2 {
            assert!(timers.iter_mut().all(|timer| timer.as_mut().now_or_never().is_none()));
            assert_eq!(world.clock.waiting.lock().len(), 100);
        }
        timers.truncate(40);
        assert_eq!(world.clock.waiting.lock().len(), 40);
        world.advance(SECOND * 10);
        assert_eq!(world.clock.waiting.lock().len(), 30);
        drop(timers);
        assert!(world.clock.waiting.lock().is_empty());
    }

    #[test]
    fn a_timer_of_the_past_is_ready_at_once() {
        let world = Simulated::new(10, 0);
        assert!(world.sleep_until(SECOND * 10).now_or_never().is_some());
        assert!(world.sleep_until(SECOND * 11).now_or_never().is_none());
        let late = world.sleep_until(SECOND * 12);
        world.advance(SECOND * 2);
        assert!(late.now_or_never().is_some(), "never polled before");
    }

    #[tokio::test]
    async fn another_thread_advances_the_clock() {
        const TIMERS: u32 = 500;
        let world = Simulated::new(0, 0);
        let shared: World = world.clone();
        let waits: FuturesUnordered<_> = (0..TIMERS)
            .map(|at| {
                let timer = sleep(&shared, SECOND * at);
                async move {
                    timer.await;
                    at
                }
            })
            .collect();
        let thread = std::thread::spawn(move || (0..TIMERS).for_each(|_| world.advance(SECOND)));
        let done: Vec<u32> = waits.collect().await;
        thread.join().unwrap();
        assert_eq!(done.len(), TIMERS as usize);
        assert_eq!(shared.elapsed(), SECOND * TIMERS);
    }

    #[tokio::test]
    async fn a_loop_sees_every_deadline_when_stepped() {
        let world = Simulated::new(0, 0);
        let shared: World = world.clone();
        let mut looping = pin!(async {
            for _ in 0..5 {
                sleep(&shared, SECOND).await;
            }
        });
        let mut steps = 0;
        while looping.as_mut().now_or_never().is_none() {
            world.advance_to(world.next_deadline().unwrap());
            steps += 1;
        }
        assert_eq!((steps, world.elapsed()), (5, SECOND * 5));
    }
}
