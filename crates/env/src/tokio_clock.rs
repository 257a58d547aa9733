//! The monotonic clock that follows tokio's.

use std::time::Duration;

use tokio::time::Instant;

use crate::Sleep;

/// A point so far away that no process reaches it, for deadlines beyond the range of tokio's clock.
const FAR_FUTURE: Duration = Duration::from_secs(30 * 365 * 86_400);

/// tokio's clock, counted from the creation of this value: real time, or the paused clock of a test.
pub struct TokioClock {
    start: Instant,
}

impl TokioClock {
    /// Starts counting now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Completes once [`TokioClock::elapsed`] has reached `at`. Must be called inside a tokio runtime.
    pub fn sleep_until(&self, at: Duration) -> Sleep {
        Sleep::Left(tokio::time::sleep_until(instant_after(self.start, at)))
    }
}

/// The point in time `by` after `start`; a point beyond tokio's range is [`FAR_FUTURE`].
pub(crate) fn instant_after(start: Instant, by: Duration) -> Instant {
    start + by.min(FAR_FUTURE)
}
