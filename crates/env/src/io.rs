//! Timers of real input and output, which go by real time under every world.
//!
//! A peer (a client's connection, a webhook, etcd, a key service) lives in real time. A server with a simulated clock
//! that stands still must still end a stalled handshake, request or call, and must repeat a failed call while the peer
//! waits. A wait for a peer uses this module; everything else (loops, leases, expiry, intervals) goes by the
//! [`World`](crate::World).

use std::time::Duration;

use futures_util::TryFutureExt;
use tokio::time::Instant;

use crate::Elapsed;
use crate::tokio_clock::instant_after;

/// A future that completes at a point in real time.
pub type Sleep = tokio::time::Sleep;

/// Waits for `duration` of real time.
pub fn sleep(duration: Duration) -> Sleep {
    tokio::time::sleep(duration)
}

/// Runs `future` for at most `limit` of real time.
pub fn timeout<F: Future>(
    limit: Duration,
    future: F,
) -> impl Future<Output = Result<F::Output, Elapsed>> + use<F> {
    tokio::time::timeout(limit, future).map_err(|_| Elapsed)
}

/// A point in real time: a deadline of a wait for a peer, or the age of a peer's response. Unlike a simulated clock it
/// orders two requests that are sent one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RealInstant(Instant);

impl RealInstant {
    /// The present.
    pub fn now() -> Self {
        Self(Instant::now())
    }

    /// The point `duration` from now.
    pub fn after(duration: Duration) -> Self {
        Self::now() + duration
    }

    /// The point `duration` before now, or now if the clock does not reach back so far.
    pub fn ago(duration: Duration) -> Self {
        let now = Instant::now();
        Self(now.checked_sub(duration).unwrap_or(now))
    }

    /// The time since this point; zero if it is in the future.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// The time from `earlier` to this point; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// Waits until this point.
    pub fn sleep(self) -> Sleep {
        tokio::time::sleep_until(self.0)
    }

    /// Runs `future` until this point at most.
    pub fn timeout<F: Future>(self, future: F) -> impl Future<Output = Result<F::Output, Elapsed>> + use<F> {
        tokio::time::timeout_at(self.0, future).map_err(|_| Elapsed)
    }
}

impl std::ops::Add<Duration> for RealInstant {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        Self(instant_after(self.0, by))
    }
}
