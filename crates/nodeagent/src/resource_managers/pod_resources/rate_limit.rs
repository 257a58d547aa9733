//! A token bucket for calls.

use env::World;
use parking_lot::Mutex;
use std::time::Duration;

/// Calls per second, and at once.
const PER_SECOND: f64 = 100.0;
const BURST: f64 = 10.0;

/// See the module.
pub struct RateLimit {
    world: World,
    /// Tokens, and when they were counted.
    bucket: Mutex<(f64, Duration)>,
}

impl RateLimit {
    pub fn new(world: World) -> Self {
        let now = world.elapsed();
        RateLimit { world, bucket: Mutex::new((BURST, now)) }
    }

    /// Takes a token, if there is one.
    pub fn try_take(&self) -> bool {
        let now = self.world.elapsed();
        let mut bucket = self.bucket.lock();
        let (tokens, counted) = *bucket;
        let tokens = (tokens + now.saturating_sub(counted).as_secs_f64() * PER_SECOND).min(BURST);
        let has_token = tokens >= 1.0;
        *bucket = (if has_token { tokens - 1.0 } else { tokens }, now);
        has_token
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Simulated;

    #[tokio::test]
    async fn tokens_return_with_time() {
        let clock = Simulated::new(1_000_000_000, 1);
        let limit = RateLimit::new(clock.clone());
        assert_eq!((0..20).filter(|_| limit.try_take()).count(), 10);
        clock.advance(Duration::from_millis(30));
        assert_eq!((0..20).filter(|_| limit.try_take()).count(), 3);
        clock.advance(Duration::from_secs(60));
        assert_eq!((0..20).filter(|_| limit.try_take()).count(), 10);
    }
}
