//! The environment of a component: clock and randomness, passed in as [`Env`].
//!
//! Below the binary, all code reads the clock and draws random numbers only through an [`Env`] that it was given.
//! Tests pass a [`Simulated`] one, so that time, expiry and generated names follow from a seed.

mod maybe_ready;

pub use maybe_ready::MaybeReady;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The clock and the source of randomness.
pub trait Env: Send + Sync + 'static {
    /// The wall clock, for timestamps.
    fn now(&self) -> SystemTime;
    /// A monotonic clock, for measuring durations.
    fn elapsed(&self) -> Duration;
    /// Fills `buf` with unpredictable bytes.
    fn fill(&self, buf: &mut [u8]);
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

/// Eight random bytes as a number.
pub fn random_u64(world: &World) -> u64 {
    let mut bytes = [0; 8];
    world.fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// A random (version 4) uid.
pub fn new_uid(world: &World) -> String {
    let mut bytes = [0u8; 16];
    world.fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut uid = String::with_capacity(36);
    for (at, byte) in bytes.into_iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            uid.push('-');
        }
        for digit in [byte >> 4, byte & 15] {
            uid.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
    uid
}

/// An environment whose clocks move only on demand and whose randomness follows from a seed.
pub struct Simulated {
    nanos: AtomicU64,
    random: AtomicU64,
}

impl Simulated {
    /// Starts at `unix_seconds` with the given seed.
    pub fn new(unix_seconds: u64, seed: u64) -> Arc<Self> {
        Arc::new(Self { nanos: AtomicU64::new(unix_seconds * 1_000_000_000), random: AtomicU64::new(seed) })
    }

    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        self.nanos.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Env for Simulated {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + self.elapsed()
    }

    fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::SeqCst))
    }

    fn fill(&self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            // splitmix64: small, well distributed, and each step depends on the counter alone
            let mut z = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let bytes = (z ^ (z >> 31)).to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_world() {
        let (a, b) = (Simulated::new(10, 7), Simulated::new(10, 7));
        let (mut x, mut y) = ([0u8; 20], [0u8; 20]);
        a.fill(&mut x);
        b.fill(&mut y);
        assert_eq!(x, y);
        a.fill(&mut y);
        assert_ne!(x, y);
    }

    #[test]
    fn time_moves_only_when_advanced() {
        let world = Simulated::new(100, 0);
        let shared: World = world.clone();
        assert_eq!(unix_seconds(&shared), 100);
        world.advance(Duration::from_secs(5));
        assert_eq!(unix_seconds(&shared), 105);
    }
}
