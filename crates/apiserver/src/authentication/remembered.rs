//! Cache of verified tokens.
//!
//! Kept by a digest of the token under a key of this process: neither are tokens in memory for longer than a
//! request, nor can anybody find out by trying how far a guess agrees with a real one. Bounded: there is a younger
//! and an older half, and when the younger is full the older is forgotten.
//!
//! What it does not do: know when something ceases to hold. What is kept here must be true forever, or be checked
//! each time.

use env::World;
use metrics::{Buckets, Counter, Gauge, Histogram, seconds};
use parking_lot::Mutex;
use ring::hmac;
use std::collections::HashMap;

const SHARDS: usize = 16;

/// How often it was remembered whose a token is, and what came of it where it was not.
#[derive(Clone)]
pub struct Lookups {
    pub remembered: Counter,
    pub found_out: Counter,
    pub failed: Counter,
    /// Requests that wait until it is found out by asking elsewhere, and questions under way for them.
    pub waiting: Gauge,
    pub asking: Gauge,
    /// How long such questions took.
    pub took: Histogram,
}

/// The bounds of what they took.
pub const LOOKUP_SECONDS: &[f64] = &SECONDS;
const BOUNDS: &[u64] = &seconds(SECONDS);
const SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

impl Default for Lookups {
    fn default() -> Self {
        Lookups {
            remembered: Counter::default(),
            found_out: Counter::default(),
            failed: Counter::default(),
            waiting: Gauge::default(),
            asking: Gauge::default(),
            took: Histogram::new(Buckets { bounds: BOUNDS, unit: 1e9 }),
        }
    }
}

/// Counted for as long as it is there.
pub struct Present(Gauge);

impl Present {
    pub fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Present(gauge.clone())
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Stands for a token.
pub type Digest = [u8; 32];

/// See the module.
pub struct Remembered<T> {
    key: hmac::Key,
    shards: [Mutex<Halves<T>>; SHARDS],
    /// How many are in a half of a shard at most.
    room: usize,
}

struct Halves<T> {
    younger: HashMap<Digest, T>,
    older: HashMap<Digest, T>,
}

impl<T: Clone> Remembered<T> {
    /// Keeps at least `capacity` of those used last, and at most about twice as many.
    pub fn new(capacity: usize, world: &World) -> Self {
        let mut secret = [0; 32];
        world.fill(&mut secret);
        let halves = |_| Mutex::new(Halves { younger: HashMap::new(), older: HashMap::new() });
        let room = capacity.div_ceil(SHARDS).max(1);
        Remembered {
            key: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            shards: std::array::from_fn(halves),
            room,
        }
    }

    pub fn digest(&self, token: &str) -> Digest {
        let mut out = [0; 32];
        out.copy_from_slice(hmac::sign(&self.key, token.as_bytes()).as_ref());
        out
    }

    pub fn get(&self, digest: &Digest) -> Option<T> {
        let mut halves = self.shard(digest).lock();
        if let Some(known) = halves.younger.get(digest) {
            return Some(known.clone());
        }
        let known = halves.older.remove(digest)?;
        halves.put(*digest, known.clone(), self.room);
        Some(known)
    }

    pub fn put(&self, digest: Digest, known: T) {
        self.shard(&digest).lock().put(digest, known, self.room);
    }

    fn shard(&self, digest: &Digest) -> &Mutex<Halves<T>> {
        &self.shards[usize::from(digest[0]) % SHARDS]
    }
}

impl<T> Halves<T> {
    fn put(&mut self, digest: Digest, known: T, room: usize) {
        if self.younger.len() >= room {
            self.older = std::mem::take(&mut self.younger);
        }
        self.younger.insert(digest, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_kept_and_the_rest_forgotten() {
        let world: World = env::Simulated::new(0, 3);
        let known = Remembered::new(64, &world);
        let used = known.digest("used");
        known.put(used, 0);
        for at in 1..10_000 {
            known.put(known.digest(&at.to_string()), at);
            assert_eq!(known.get(&used), Some(0), "after {at}");
        }
        let left = (1..10_000).filter(|at| known.get(&known.digest(&at.to_string())) == Some(*at)).count();
        assert!((64..=2 * 64 + 2 * SHARDS).contains(&left), "{left}");
        assert_eq!(known.get(&known.digest("other")), None);
    }

    #[test]
    fn digests_are_the_process_s_own() {
        let of = |seed| Remembered::<()>::new(1, &(env::Simulated::new(0, seed) as World)).digest("t");
        assert_ne!(of(1), of(2));
    }
}
