//! A world for tests with timers: tokio's clock and seeded randomness.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::random::SeededRandom;
use crate::{Env, ManualClock, Sleep, TokioClock};

/// An environment whose timers follow tokio's clock (real or paused) and whose randomness follows from a seed.
///
/// Its wall clock moves only by [`Seeded::advance`], so that timestamps do not depend on the speed of the machine.
/// `advance` moves the monotonic clock too, for code that compares points in time; it does not shorten running timers.
pub struct Seeded {
    clock: TokioClock,
    start: Duration,
    advanced_nanos: AtomicU64,
    random: SeededRandom,
}

impl Seeded {
    /// Starts at `unix_seconds` with the given seed.
    pub fn new(unix_seconds: u64, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            clock: TokioClock::start(),
            start: Duration::from_secs(unix_seconds),
            advanced_nanos: AtomicU64::new(0),
            random: SeededRandom::new(seed),
        })
    }

    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        self.advanced_nanos.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
    }

    fn offset(&self) -> Duration {
        self.start + Duration::from_nanos(self.advanced_nanos.load(Ordering::SeqCst))
    }
}

impl ManualClock for Seeded {
    fn advance(&self, by: Duration) {
        Self::advance(self, by);
    }
}

impl Env for Seeded {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + self.offset()
    }

    fn elapsed(&self) -> Duration {
        self.offset() + self.clock.elapsed()
    }

    fn sleep_until(&self, at: Duration) -> Sleep {
        self.clock.sleep_until(at.saturating_sub(self.offset()))
    }

    fn fill(&self, buf: &mut [u8]) {
        self.random.fill(buf);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{World, sleep, unix_seconds};

    #[tokio::test(start_paused = true)]
    async fn the_wall_clock_moves_only_when_advanced() {
        let seeded = Seeded::new(100, 0);
        let world: World = seeded.clone();
        sleep(&world, Duration::from_secs(10)).await;
        assert_eq!(unix_seconds(&world), 100);
        seeded.advance(Duration::from_secs(5));
        assert_eq!((unix_seconds(&world), world.elapsed()), (105, Duration::from_secs(115)));
        sleep(&world, Duration::from_secs(1)).await;
        assert_eq!(world.elapsed(), Duration::from_secs(116));
    }
}
