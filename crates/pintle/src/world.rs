//! The production `World`: the only place that reads the clock and draws randomness.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use env::{Env, Paused, Simulated, Sleep, TokioClock, World};
use rustls::crypto::SecureRandom;

use crate::options::{ClockFlags, ClockMode};

struct Real {
    clock: TokioClock,
    random: &'static dyn SecureRandom,
}

/// Creates the production world. Fails if the operating system provides no randomness.
pub fn real() -> anyhow::Result<World> {
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut [0; 16]).ok().context("the operating system provides no randomness")?;
    Ok(Arc::new(Real { clock: TokioClock::start(), random }))
}

/// The world of a cluster.
pub enum ClusterWorld {
    Real(World),
    /// Its clock stands still until users move it.
    Manual(Arc<Paused>),
}

/// The world of `pintle up`. A manual clock begins at `start`, in Unix seconds, or now.
pub fn of_cluster(flags: &ClockFlags, start: Option<i64>) -> anyhow::Result<ClusterWorld> {
    let real = real()?;
    if flags.clock == ClockMode::Real {
        anyhow::ensure!(
            flags.seed.is_none(),
            "--seed needs --clock manual: only tests may have names that are known"
        );
        return Ok(ClusterWorld::Real(real));
    }
    // whole seconds: what was made at the start is then no younger than it
    let start = start.unwrap_or_else(|| env::unix_seconds(&real));
    let start = Duration::from_secs(u64::try_from(start).unwrap_or(0));
    let random = match flags.seed {
        Some(seed) => Simulated::new(0, seed),
        None => real,
    };
    Ok(ClusterWorld::Manual(Paused::new(start, random)))
}

impl Env for Real {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    fn sleep_until(&self, at: Duration) -> Sleep {
        self.clock.sleep_until(at)
    }

    fn fill(&self, buf: &mut [u8]) {
        let filled = self.random.fill(buf).is_ok();
        // it worked when the world was made; going on with predictable names and keys is worse than ending
        assert!(filled, "the operating system no longer provides randomness");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_forward_and_randomness_differs() {
        let world = real().unwrap();
        let before = world.elapsed();
        assert!(world.elapsed() >= before);
        assert_ne!(env::random_u64(&world), env::random_u64(&world));
        assert!(env::unix_seconds(&world) > 1_700_000_000);
    }
}
