//! The paused world: its clock stands still until it is advanced, and then moves from deadline to deadline, each time
//! that the tasks of its runtime have nothing left to do.
//!
//! ```text
//! advance(1h) ─► tasks run ─► idle ─► next deadline ─► its timers wake tasks ─► tasks run ─► idle ─► ... ─► one hour later
//! ```
//!
//! So every task sees its timers at exactly their time, however long its work takes by a real clock. Work on other
//! threads is waited for if it holds the clock ([`Env::hold`]). The runtime must have one thread, and must call
//! [`Paused::on_idle`] before it parks it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{Mutex, Notify};

use crate::simulated_clock::SimulatedClock;
use crate::timers::Sleep;
use crate::{Env, Hold, World};

/// See the module.
pub struct Paused {
    clock: Arc<SimulatedClock>,
    /// The source of randomness.
    random: World,
    /// The time up to which the clock may move, in nanoseconds.
    target: AtomicU64,
    is_advancing: AtomicBool,
    holds: Arc<AtomicUsize>,
    arrived: Notify,
    /// One caller advances at a time.
    turn: Mutex<()>,
}

impl Paused {
    /// Starts at a time since the epoch, with the randomness of another world.
    pub fn new(start: Duration, random: World) -> Arc<Self> {
        Arc::new(Self {
            clock: Arc::new(SimulatedClock::new(start)),
            random,
            target: AtomicU64::new(0),
            is_advancing: AtomicBool::new(false),
            holds: Arc::default(),
            arrived: Notify::new(),
            turn: Mutex::default(),
        })
    }

    /// Moves the clock forward, and returns once it has arrived and all tasks wait again. The clock stops where it is if
    /// the future is dropped.
    pub async fn advance(&self, by: Duration) {
        let _turn = self.turn.lock().await;
        let mut arrived = pin!(self.arrived.notified());
        arrived.as_mut().enable();
        let target = self.clock.now().saturating_add(by);
        self.target.store(u64::try_from(target.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
        self.is_advancing.store(true, Ordering::SeqCst);
        let _stop = Stop(self);
        arrived.await;
    }

    /// The earliest deadline that a task waits for.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.clock.next_deadline()
    }

    /// Moves the clock to the next deadline if it is being advanced. To be called when no task can run.
    pub fn on_idle(&self) {
        if !self.is_advancing.load(Ordering::SeqCst) || self.holds.load(Ordering::SeqCst) > 0 {
            return;
        }
        let target = Duration::from_nanos(self.target.load(Ordering::SeqCst));
        let next = self.clock.next_deadline().filter(|deadline| *deadline <= target);
        let mut has_woken = false;
        while let Some(waker) = self.clock.step(next.unwrap_or(target)) {
            has_woken = true;
            waker.wake();
        }
        if !has_woken {
            self.is_advancing.store(false, Ordering::SeqCst);
            self.arrived.notify_waiters();
        }
    }
}

/// Ends an advance.
struct Stop<'p>(&'p Paused);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.is_advancing.store(false, Ordering::SeqCst);
    }
}

impl Env for Paused {
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

    fn hold(&self) -> Hold {
        Hold::new(&self.holds)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tokio::runtime::{Builder, Runtime};

    use super::*;
    use crate::{Simulated, sleep};

    const SECOND: Duration = Duration::from_secs(1);

    fn start() -> (Arc<Paused>, World, Runtime) {
        let paused = Paused::new(SECOND * 100, Simulated::new(0, 7));
        let idle = paused.clone();
        let runtime =
            Builder::new_current_thread().enable_all().on_thread_park(move || idle.on_idle()).build();
        (paused.clone(), paused, runtime.unwrap())
    }

    #[test]
    fn tasks_see_their_timers_at_their_time() {
        let (paused, world, runtime) = start();
        runtime.block_on(async {
            let log = Arc::new(parking_lot::Mutex::new(Vec::new()));
            for (name, period) in [("a", 2), ("b", 3)] {
                let (world, log) = (world.clone(), log.clone());
                tokio::spawn(async move {
                    loop {
                        sleep(&world, SECOND * period).await;
                        // a task may take many turns between two timers
                        for _ in 0..50 {
                            tokio::task::yield_now().await;
                        }
                        log.lock().push((name, world.elapsed().as_secs()));
                    }
                });
            }
            paused.advance(Duration::ZERO).await;
            assert!(log.lock().is_empty());
            paused.advance(SECOND * 7).await;
            // the timer that was made first fires first
            assert_eq!(*log.lock(), [("a", 102), ("b", 103), ("a", 104), ("b", 106), ("a", 106)]);
            assert_eq!((world.elapsed(), paused.next_deadline()), (SECOND * 107, Some(SECOND * 108)));
        });
    }

    #[test]
    fn the_clock_waits_for_other_threads_that_hold_it() {
        let (paused, world, runtime) = start();
        runtime.block_on(async {
            let at_end = tokio::spawn({
                let world = world.clone();
                async move {
                    sleep(&world, SECOND).await;
                    let hold = world.hold();
                    let (done, is_done) = tokio::sync::oneshot::channel();
                    let other = thread::spawn(move || {
                        thread::yield_now();
                        done.send(())
                    });
                    is_done.await.unwrap();
                    drop(hold);
                    other.join().unwrap().unwrap();
                    world.elapsed()
                }
            });
            paused.advance(SECOND * 3600).await;
            assert_eq!(at_end.await.unwrap(), SECOND * 101);
            assert_eq!(world.elapsed(), SECOND * 3700);
        });
    }

    #[test]
    fn an_advance_that_is_given_up_stops_the_clock() {
        let (paused, world, runtime) = start();
        runtime.block_on(async {
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let ticking = tokio::spawn({
                let world = world.clone();
                async move {
                    sleep(&world, SECOND * 10).await;
                    drop(stop);
                    std::future::pending::<()>().await;
                }
            });
            tokio::select! {
                () = paused.advance(SECOND * 3600) => panic!("it was not stopped"),
                _ = stopped => {}
            }
            tokio::task::yield_now().await;
            assert_eq!(world.elapsed(), SECOND * 110);
            ticking.abort();
        });
    }
}
