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
//!
//! A clock that has seen nothing but [`Upkeep`] for [`QUIET`] coasts to shortly before the next ordinary deadline: it leaves
//! out ticks of upkeep. An ordinary timer, a request ([`Paused::note_event`]) or [`Env::step_exactly`] ends that.
//!
//! ```text
//! event        QUIET        coasting                              LANDING  next event
//! ├─┴─┴─┴─┴─┴─┴─┴─┤·····································├─┴─┴─┴─┤
//! ```

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{Mutex, Notify};

use crate::simulated_clock::SimulatedClock;
use crate::timers::Sleep;
use crate::upkeep::LANDING;
use crate::{Env, ExactSteps, Hold, Upkeep, World};

/// So long after an event no tick of upkeep is left out: what upkeep does about the event it does at the usual time.
/// By then a node without heartbeats is lost, and what was deleted by mistake is back.
const QUIET: Duration = Duration::from_secs(60);

/// See the module.
pub struct Paused {
    clock: Arc<SimulatedClock>,
    /// The source of randomness.
    random: World,
    /// The time up to which the clock may move, in nanoseconds.
    target: AtomicU64,
    is_advancing: AtomicBool,
    /// The deadlines at which the clock has stopped since its caller has waited for it, and the limit of them.
    steps: AtomicUsize,
    step_limit: AtomicUsize,
    /// Whether ticks of upkeep may have been put off.
    has_coasted: AtomicBool,
    /// The time of the last event that was not upkeep, in nanoseconds.
    last_event: AtomicU64,
    holds: Arc<AtomicUsize>,
    exact_steps: Arc<AtomicUsize>,
    varies_turns: AtomicBool,
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
            steps: AtomicUsize::new(0),
            step_limit: AtomicUsize::new(0),
            has_coasted: AtomicBool::new(false),
            last_event: AtomicU64::new(0),
            holds: Arc::default(),
            exact_steps: Arc::default(),
            varies_turns: AtomicBool::new(false),
            arrived: Notify::new(),
            turn: Mutex::default(),
        })
    }

    /// Moves the clock forward, and returns once it has arrived and all tasks wait again. The clock stops where it is if
    /// the future is dropped.
    pub async fn advance(&self, by: Duration) {
        self.note_event();
        self.advance_in_part(self.clock.now().saturating_add(by), usize::MAX).await;
    }

    /// Moves the clock forward to `target`, but by no more than so many deadlines, and after one of them it does not
    /// coast for longer than [`QUIET`]. The caller goes on until it has arrived; meanwhile it looks at what has changed.
    pub async fn advance_in_part(&self, target: Duration, deadlines: usize) {
        let _turn = self.turn.lock().await;
        let mut arrived = pin!(self.arrived.notified());
        arrived.as_mut().enable();
        self.target.store(nanos(target.max(self.clock.now())), Ordering::SeqCst);
        self.steps.store(0, Ordering::SeqCst);
        self.step_limit.store(deadlines, Ordering::SeqCst);
        self.is_advancing.store(true, Ordering::SeqCst);
        let _stop = Stop(self);
        arrived.await;
    }

    /// Lets other tasks run in the midst of writes from now on, for random numbers of turns.
    pub fn vary_turns(&self) {
        self.varies_turns.store(true, Ordering::SeqCst);
    }

    /// Tells the clock of something that is not upkeep, such as a request of a user.
    pub fn note_event(&self) {
        self.last_event.fetch_max(nanos(self.clock.now()), Ordering::SeqCst);
    }

    /// The earliest deadline that a task waits for, other than for upkeep.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.clock.next_ordinary_deadline()
    }

    /// Moves the clock to the next deadline if it is being advanced. To be called when no task can run.
    pub fn on_idle(&self) {
        if !self.is_advancing.load(Ordering::SeqCst) || self.holds.load(Ordering::SeqCst) > 0 {
            return;
        }
        let target = Duration::from_nanos(self.target.load(Ordering::SeqCst));
        let coasts_until = self.coasts_until(target);
        if self.is_part_over(coasts_until) {
            return self.arrive();
        }
        match coasts_until {
            Some(until) => {
                self.has_coasted.store(true, Ordering::SeqCst);
                self.clock.coast(until);
            }
            None if self.has_coasted.swap(false, Ordering::SeqCst) => self.clock.end_coasting(),
            None => {}
        }
        let next = self.clock.next_deadline().filter(|deadline| *deadline <= target);
        let mut has_woken = false;
        while let Some(fired) = self.clock.step(next.unwrap_or(target)) {
            has_woken = true;
            if !fired.is_upkeep {
                self.note_event();
            }
            fired.waker.wake();
        }
        match has_woken {
            true => drop(self.steps.fetch_add(1, Ordering::SeqCst)),
            false => self.arrive(),
        }
    }

    /// Whether the caller looks at the changes before the clock steps, or coasts to `leap`.
    fn is_part_over(&self, leap: Option<Duration>) -> bool {
        let (steps, limit) = (self.steps.load(Ordering::SeqCst), self.step_limit.load(Ordering::SeqCst));
        let is_far = leap.is_some_and(|at| at.saturating_sub(self.clock.now()) > QUIET);
        limit < usize::MAX && (steps >= limit || steps > 0 && is_far)
    }

    /// The time up to which upkeep is left out.
    fn coasts_until(&self, target: Duration) -> Option<Duration> {
        let quiet_since = Duration::from_nanos(self.last_event.load(Ordering::SeqCst));
        let now = self.clock.now();
        if self.exact_steps.load(Ordering::SeqCst) > 0 || now < quiet_since.saturating_add(QUIET) {
            return None;
        }
        let stop = self.clock.next_ordinary_deadline().map_or(target, |deadline| deadline.min(target));
        stop.checked_sub(LANDING).filter(|until| *until > now)
    }

    fn arrive(&self) {
        self.is_advancing.store(false, Ordering::SeqCst);
        self.arrived.notify_waiters();
    }
}

fn nanos(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
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

    fn sleep_upkeep_until(&self, at: Duration, upkeep: Upkeep) -> Sleep {
        Sleep::Right(self.clock.upkeep_timer(at, upkeep))
    }

    fn fill(&self, buf: &mut [u8]) {
        self.random.fill(buf);
    }

    fn hold(&self) -> Hold {
        Hold::new(&self.holds)
    }

    fn turns(&self) -> u32 {
        if !self.varies_turns.load(Ordering::SeqCst) {
            return 0;
        }
        // mostly none, and now and then so many that other requests are served from begin to end
        match crate::random_u64(&self.random) % 64 {
            0 => 200,
            turns @ 1..16 => turns as u32,
            _ => 0,
        }
    }

    fn step_exactly(&self) -> ExactSteps {
        ExactSteps::new(&self.exact_steps)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tokio::runtime::{Builder, Runtime};

    use super::*;
    use crate::{Interval, Simulated, sleep};

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

    /// Writes down the times of the ticks of upkeep, in seconds.
    fn log_ticks(world: &World, upkeep: Upkeep, log: &Arc<parking_lot::Mutex<Vec<u64>>>) {
        let (world, log) = (world.clone(), log.clone());
        tokio::spawn(async move {
            let mut interval = Interval::upkeep(&world, upkeep);
            loop {
                interval.tick().await;
                log.lock().push(world.elapsed().as_secs());
            }
        });
    }

    #[test]
    fn ticks_of_upkeep_are_left_out_between_events() {
        let (paused, world, runtime) = start();
        runtime.block_on(async {
            let [renewals, checks, rare] = <[Arc<parking_lot::Mutex<Vec<u64>>>; 3]>::default();
            log_ticks(&world, Upkeep::check(SECOND * 15), &checks);
            log_ticks(&world, Upkeep::renewal(SECOND * 30), &renewals);
            log_ticks(&world, Upkeep::check(SECOND * 1000), &rare);
            let ordinary = tokio::spawn({
                let world = world.clone();
                async move {
                    sleep(&world, SECOND * 3600).await;
                    world.elapsed().as_secs()
                }
            });
            // from 100 to 3700, where a timer is
            paused.advance(SECOND * 3610).await;
            assert_eq!(ordinary.await.unwrap(), 3700);
            // all of a minute, then the last one up to 3680, then all
            assert_eq!(*renewals.lock(), [100, 130, 160, 3670, 3700]);
            assert_eq!(*checks.lock(), [100, 115, 130, 145, 160, 3685, 3700]);
            // the ticks of 1100, 2100 and 3100 are one, and the next one is not late
            assert_eq!(*rare.lock(), [100, 3680]);
            paused.advance(SECOND * 390).await;
            assert_eq!(*rare.lock(), [100, 3680, 4100]);
        });
    }

    #[test]
    fn upkeep_has_its_usual_times_after_any_movement() {
        let ticks = |movements: &[u32]| {
            let (paused, world, runtime) = start();
            runtime.block_on(async {
                let [renewals, checks] = <[Arc<parking_lot::Mutex<Vec<u64>>>; 2]>::default();
                log_ticks(&world, Upkeep::renewal(SECOND * 7), &renewals);
                log_ticks(&world, Upkeep::check(SECOND * 11), &checks);
                for by in movements {
                    paused.advance(SECOND * *by).await;
                }
                // as many as there are in a landing
                let last = |log: &parking_lot::Mutex<Vec<u64>>, count: usize| {
                    log.lock().iter().rev().take(count).copied().collect::<Vec<_>>()
                };
                let all = [last(&renewals, 2), last(&checks, 1)];
                (paused.clock.now().as_secs(), all)
            })
        };
        let exact = ticks(&[50; 20]);
        for movements in [&[1000][..], &[200, 500, 300], &[10, 990], &[990, 10]] {
            assert_eq!(ticks(movements), exact, "{movements:?}");
        }
    }

    #[test]
    fn no_tick_is_left_out_while_steps_are_exact() {
        let (paused, world, runtime) = start();
        runtime.block_on(async {
            let ticks = Arc::default();
            log_ticks(&world, Upkeep::check(SECOND * 10), &ticks);
            let exact = world.step_exactly();
            paused.advance(SECOND * 1000).await;
            assert_eq!(ticks.lock().len(), 101);
            drop(exact);
            paused.advance(SECOND * 1000).await;
            // for a minute, and for the last 20 s
            assert_eq!(ticks.lock().len(), 101 + 6 + 2);
        });
    }

    #[test]
    fn an_advance_in_part_goes_on_where_it_stopped() {
        let (paused, world, runtime) = start();
        runtime.block_on(async {
            let ticks = Arc::default();
            log_ticks(&world, Upkeep::renewal(SECOND * 10), &ticks);
            let target = SECOND * 10_000;
            let mut parts = 0;
            while world.elapsed() < target {
                paused.advance_in_part(target, 4).await;
                parts += 1;
            }
            // 100 and what is due at once; 9980, 9990, 10000
            assert_eq!((parts, ticks.lock().len()), (1, 4));
            paused.note_event();
            paused.advance_in_part(target + SECOND * 1000, 4).await;
            assert_eq!(world.elapsed(), SECOND * 10_040);
            paused.advance_in_part(target + SECOND * 1000, 4).await;
            assert_eq!(world.elapsed(), SECOND * 10_060, "before a gap");
        });
    }

    #[test]
    fn an_event_while_the_clock_coasts_brings_upkeep_back() {
        let (paused, world, runtime) = start();
        runtime.block_on(async {
            let [checks, rare] = <[Arc<parking_lot::Mutex<Vec<u64>>>; 2]>::default();
            log_ticks(&world, Upkeep::check(SECOND * 10), &checks);
            log_ticks(&world, Upkeep::renewal(SECOND * 1000), &rare);
            // the last renewal remains, and the clock stops there
            while rare.lock().len() < 2 {
                paused.advance_in_part(SECOND * 5000, 1).await;
            }
            assert_eq!((world.elapsed(), checks.lock().len()), (SECOND * 4100, 1));
            paused.note_event();
            paused.advance_in_part(SECOND * 4120, usize::MAX).await;
            assert_eq!(*checks.lock(), [100, 4110, 4120]);
        });
    }

    #[test]
    fn a_tick_that_was_left_out_wakes_no_task_that_looks_at_it() {
        let (paused, world, runtime) = start();
        runtime.block_on(async {
            let woken = Arc::new(Notify::new());
            let waiting = tokio::spawn({
                let (world, woken) = (world.clone(), woken.clone());
                async move {
                    let mut tick = pin!(world.sleep_upkeep_until(SECOND * 110, Upkeep::renewal(SECOND * 10)));
                    loop {
                        tokio::select! {
                            () = &mut tick => return world.elapsed(),
                            () = woken.notified() => assert!(!crate::is_elapsed(&tick)),
                        }
                    }
                }
            });
            let at = SECOND * 500;
            tokio::spawn({
                let world = world.clone();
                async move {
                    crate::sleep_until(&world, at).await;
                    woken.notify_one();
                }
            });
            // nothing has happened for long
            paused.clock.step(SECOND * 105);
            paused.last_event.store(0, Ordering::SeqCst);
            tokio::task::yield_now().await;
            paused.advance_in_part(at, usize::MAX).await;
            assert_eq!(waiting.await.unwrap(), SECOND * 480);
        });
    }

    #[test]
    fn tasks_run_in_the_midst_of_others_when_turns_vary() {
        let (paused, world, runtime) = start();
        let turns = || {
            let passed = Arc::new(AtomicUsize::new(0));
            runtime.block_on(async {
                let other = tokio::spawn({
                    let passed = passed.clone();
                    async move {
                        loop {
                            passed.fetch_add(1, Ordering::SeqCst);
                            crate::turns::turn().await;
                        }
                    }
                });
                let world = world.clone();
                let varied = async move {
                    for _ in 0..200 {
                        crate::pass_turns(&world).await;
                    }
                };
                tokio::spawn(varied).await.unwrap();
                other.abort();
            });
            passed.load(Ordering::SeqCst)
        };
        let few = turns();
        paused.vary_turns();
        let many = turns();
        assert!(few < 100 && many > 200, "{few} by default, {many} when they vary");
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
