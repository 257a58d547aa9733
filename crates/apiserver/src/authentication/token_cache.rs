//! Cache of verified tokens.
//!
//! Entries are keyed by an HMAC of the token under a key of this process: tokens do not stay in memory after
//! the request, and timing does not reveal how far a guess matches. Bounded: there is a younger and an older
//! generation, and when the younger is full the older is dropped.
//!
//! It does not expire entries: they must hold forever, or be checked on each use.

use env::World;
use metrics::{Buckets, Counter, Gauge, Histogram, seconds};
use parking_lot::Mutex;
use ring::hmac;
use std::collections::HashMap;

const SHARDS: usize = 16;

/// Metrics of token caches.
#[derive(Clone)]
pub struct TokenCacheMetrics {
    pub hits: Counter,
    pub misses: Counter,
    pub failed: Counter,
    /// Requests that wait for a call of a remote authenticator, and calls in progress.
    pub waiting: Gauge,
    pub calls: Gauge,
    /// Latency of those calls.
    pub latency: Histogram,
}

/// Bucket bounds of the latency.
pub const LOOKUP_SECONDS: &[f64] = &SECONDS;
const BOUNDS: &[u64] = &seconds(SECONDS);
const SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

impl Default for TokenCacheMetrics {
    fn default() -> Self {
        TokenCacheMetrics {
            hits: Counter::default(),
            misses: Counter::default(),
            failed: Counter::default(),
            waiting: Gauge::default(),
            calls: Gauge::default(),
            latency: Histogram::new(Buckets { bounds: BOUNDS, unit: 1e9 }),
        }
    }
}

/// Increments a gauge until dropped.
pub struct GaugeGuard(Gauge);

impl GaugeGuard {
    pub fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        GaugeGuard(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The HMAC of a token.
pub type Digest = [u8; 32];

/// The cache.
pub struct TokenCache<T> {
    key: hmac::Key,
    shards: [Mutex<Generations<T>>; SHARDS],
    /// Maximum number of entries in a generation of a shard.
    capacity: usize,
}

struct Generations<T> {
    younger: HashMap<Digest, T>,
    older: HashMap<Digest, T>,
}

impl<T: Clone> TokenCache<T> {
    /// Keeps at least the `capacity` most recently used, and at most about twice as many.
    pub fn new(capacity: usize, world: &World) -> Self {
        let mut secret = [0; 32];
        world.fill(&mut secret);
        let generations = |_| Mutex::new(Generations { younger: HashMap::new(), older: HashMap::new() });
        let capacity = capacity.div_ceil(SHARDS).max(1);
        TokenCache {
            key: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            shards: std::array::from_fn(generations),
            capacity,
        }
    }

    pub fn digest(&self, token: &str) -> Digest {
        let mut out = [0; 32];
        out.copy_from_slice(hmac::sign(&self.key, token.as_bytes()).as_ref());
        out
    }

    pub fn get(&self, digest: &Digest) -> Option<T> {
        let mut generations = self.shard(digest).lock();
        if let Some(value) = generations.younger.get(digest) {
            return Some(value.clone());
        }
        let value = generations.older.remove(digest)?;
        generations.put(*digest, value.clone(), self.capacity);
        Some(value)
    }

    pub fn put(&self, digest: Digest, value: T) {
        self.shard(&digest).lock().put(digest, value, self.capacity);
    }

    fn shard(&self, digest: &Digest) -> &Mutex<Generations<T>> {
        &self.shards[usize::from(digest[0]) % SHARDS]
    }
}

impl<T> Generations<T> {
    fn put(&mut self, digest: Digest, value: T, capacity: usize) {
        if self.younger.len() >= capacity {
            self.older = std::mem::take(&mut self.younger);
        }
        self.younger.insert(digest, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_entries_are_kept_and_others_are_dropped() {
        let world: World = env::Simulated::new(0, 3);
        let value = TokenCache::new(64, &world);
        let used = value.digest("used");
        value.put(used, 0);
        for at in 1..10_000 {
            value.put(value.digest(&at.to_string()), at);
            assert_eq!(value.get(&used), Some(0), "after {at}");
        }
        let left = (1..10_000).filter(|at| value.get(&value.digest(&at.to_string())) == Some(*at)).count();
        assert!((64..=2 * 64 + 2 * SHARDS).contains(&left), "{left}");
        assert_eq!(value.get(&value.digest("other")), None);
    }

    #[test]
    fn digests_are_the_process_s_own() {
        let of = |seed| TokenCache::<()>::new(1, &(env::Simulated::new(0, seed) as World)).digest("t");
        assert_ne!(of(1), of(2));
    }
}
