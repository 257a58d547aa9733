//! How many seats a level could have used, over a while: what lending is decided by.

use std::time::Duration;

/// How much of the old estimate is kept every time: half of it is forgotten in five minutes of ten-second steps.
const KEPT: f64 = 0.977;

/// The demand of a level since it was last looked at, and a smooth estimate of what it will be.
#[derive(Debug, Clone, Default)]
pub struct Demand {
    now: u32,
    since: Duration,
    began: Duration,
    most: u32,
    sum: f64,
    sum_of_squares: f64,
    smooth: f64,
}

impl Demand {
    /// From `at` on this many seats are wanted.
    pub fn set(&mut self, at: Duration, seats: u32) {
        self.pass(at);
        self.now = seats;
        self.most = self.most.max(seats);
    }

    fn pass(&mut self, at: Duration) {
        let passed = at.saturating_sub(self.since).as_secs_f64();
        let seats = f64::from(self.now);
        self.sum += seats * passed;
        self.sum_of_squares += seats * seats * passed;
        self.since = self.since.max(at);
    }

    /// The most that was wanted since the last call, and the estimate. Begins a new while.
    pub fn look(&mut self, at: Duration) -> (u32, f64) {
        self.pass(at);
        let whole = at.saturating_sub(self.began).as_secs_f64();
        let (mean, deviation) = if whole > 0.0 {
            let mean = self.sum / whole;
            (mean, (self.sum_of_squares / whole - mean * mean).max(0.0).sqrt())
        } else {
            (f64::from(self.now), 0.0)
        };
        // up at once, down slowly
        let envelope = mean + deviation;
        self.smooth = envelope.max(KEPT * self.smooth + (1.0 - KEPT) * envelope);
        let most = self.most;
        (self.began, self.most, self.sum, self.sum_of_squares) = (at, self.now, 0.0, 0.0);
        (most, self.smooth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_rises_at_once_and_falls_slowly() {
        let at = Duration::from_secs;
        let mut demand = Demand::default();
        demand.set(at(0), 10);
        demand.set(at(5), 0);
        let (most, smooth) = demand.look(at(10));
        // a mean of five, and a deviation of five
        assert_eq!((most, smooth), (10, 10.0));
        let (most, smooth) = demand.look(at(20));
        assert!(most == 0 && (9.0..10.0).contains(&smooth), "{smooth}");
        let after = (3..200).map(|step| demand.look(at(step * 10)).1).last();
        assert!(after.is_some_and(|smooth| smooth < 0.2), "{after:?}");
    }
}
