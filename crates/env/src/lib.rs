//! The environment of a component: clock, timers and randomness, passed in as [`Env`].
//!
//! Below the binary, all code reads the clock, sleeps and draws random numbers only through an [`Env`]. A point in time
//! is a [`Duration`] of [`Env::elapsed`]. Three kinds of clock exist:
//! - [`TokioClock`] follows tokio's clock: real time in the binary, the paused clock in a test with `start_paused`.
//!   The binary adds the randomness of the operating system, [`Seeded`] adds that of a seed.
//! - [`Simulated`] stands still until [`Simulated::advance`] moves it and wakes the timers in its own queue. It works in
//!   any runtime.
//! - [`Paused`] stands still, too, and is moved by its runtime: a whole cluster whose time its users hold. It leaves out
//!   ticks of [`Upkeep`] while nothing else happens.
//!
//! Waits for a real peer use [`io`] instead, which goes by real time under every world.

mod hold;
mod interval;
pub mod io;
mod maybe_ready;
mod paused;
mod random;
mod seeded;
mod simulated;
mod simulated_clock;
mod timers;
mod tokio_clock;
mod turns;
mod upkeep;

pub use hold::{ExactSteps, Hold};
pub use interval::Interval;
pub use maybe_ready::MaybeReady;
pub use paused::Paused;
pub use random::{new_uid, random_u64};
pub use seeded::Seeded;
pub use simulated::Simulated;
pub use simulated_clock::Timer;
pub use timers::{Elapsed, Sleep, is_elapsed, sleep, sleep_until, sleep_upkeep, timeout};
pub use tokio_clock::TokioClock;
pub use turns::pass_turns;
pub use upkeep::{Rank, Upkeep};

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The clock, its timers, and the source of randomness.
pub trait Env: Send + Sync + 'static {
    /// The wall clock, for timestamps.
    fn now(&self) -> SystemTime;
    /// The monotonic clock, for deadlines and for measuring durations.
    fn elapsed(&self) -> Duration;
    /// Completes once [`Env::elapsed`] has reached `at`.
    fn sleep_until(&self, at: Duration) -> Sleep;
    /// The same for a periodic timer whose ticks a paused clock may leave out.
    fn sleep_upkeep_until(&self, at: Duration, upkeep: Upkeep) -> Sleep {
        let _ = upkeep;
        self.sleep_until(at)
    }
    /// Fills `buf` with unpredictable bytes.
    fn fill(&self, buf: &mut [u8]);
    /// Tells a paused clock of work on another thread, which a task waits for: the clock stands still meanwhile.
    fn hold(&self) -> Hold {
        Hold::default()
    }
    /// How many turns other tasks get in the midst of an operation that waits for nothing: see [`pass_turns`].
    fn turns(&self) -> u32 {
        0
    }
    /// Tells a paused clock of work to which every tick of upkeep matters: none is left out meanwhile.
    fn step_exactly(&self) -> ExactSteps {
        ExactSteps::default()
    }
}

/// An environment whose clocks a test moves.
pub trait ManualClock: Env {
    /// Moves both clocks forward.
    fn advance(&self, by: Duration);
}

/// The shared handle that components hold.
pub type World = Arc<dyn Env>;

/// Whole seconds since the epoch.
pub fn unix_seconds(world: &World) -> i64 {
    match world.now().duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_secs() as i64,
        Err(before) => -(before.duration().as_secs() as i64),
    }
}
