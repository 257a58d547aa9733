//! The seat demand of a priority level over an interval, by which seats are lent.

use std::time::Duration;

/// The weight of the old estimate at each step: it halves within five minutes of ten-second steps.
const KEPT: f64 = 0.977;

/// The demand of a level in the current interval, and a smoothed estimate.
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

/// The seat demand of one interval.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DemandStats {
    pub most: u32,
    pub mean: f64,
    pub deviation: f64,
    /// The smoothed estimate.
    pub smooth: f64,
}

impl Demand {
    /// Records the demand from `at` on.
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

    /// The demand since the last call; starts a new interval.
    pub fn look(&mut self, at: Duration) -> DemandStats {
        self.pass(at);
        let whole = at.saturating_sub(self.began).as_secs_f64();
        let (mean, deviation) = if whole > 0.0 {
            let mean = self.sum / whole;
            (mean, (self.sum_of_squares / whole - mean * mean).max(0.0).sqrt())
        } else {
            (f64::from(self.now), 0.0)
        };
        // it rises at once and falls slowly
        let envelope = mean + deviation;
        self.smooth = envelope.max(KEPT * self.smooth + (1.0 - KEPT) * envelope);
        let seen = DemandStats { most: self.most, mean, deviation, smooth: self.smooth };
        (self.began, self.most, self.sum, self.sum_of_squares) = (at, self.now, 0.0, 0.0);
        seen
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
        let seen = demand.look(at(10));
        assert_eq!(seen, DemandStats { most: 10, mean: 5.0, deviation: 5.0, smooth: 10.0 });
        let seen = demand.look(at(20));
        assert!(seen.most == 0 && (9.0..10.0).contains(&seen.smooth), "{seen:?}");
        let after = (3..200).map(|step| demand.look(at(step * 10)).smooth).last();
        assert!(after.is_some_and(|smooth| smooth < 0.2), "{after:?}");
    }
}
