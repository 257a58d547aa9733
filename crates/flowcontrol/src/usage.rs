//! Time-weighted histograms of a level's utilization, in nanoseconds.

use std::time::Duration;

const SEATS: &[f64] = &[0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];
const REQUESTS: &[f64] = &[0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0];
const DEMAND: &[f64] = &[0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0, 2.8, 4.0, 6.0];

/// A time-weighted histogram of a ratio.
#[derive(Debug, Clone, PartialEq)]
pub struct TimedHistogram {
    /// The upper bounds of the buckets; an unbounded bucket follows.
    pub bounds: &'static [f64],
    /// Nanoseconds per bucket.
    pub nanoseconds: Box<[u64]>,
    /// The integral of the ratio over nanoseconds.
    pub sum: f64,
    now: f64,
    at: usize,
}

impl TimedHistogram {
    fn new(bounds: &'static [f64]) -> Self {
        let nanoseconds = vec![0; bounds.len() + 1].into();
        TimedHistogram { bounds, nanoseconds, sum: 0.0, now: 0.0, at: 0 }
    }

    fn pass(&mut self, nanoseconds: u64) {
        self.nanoseconds[self.at] += nanoseconds;
        self.sum += self.now * nanoseconds as f64;
    }

    fn set(&mut self, part: u32, whole: u32) {
        let ratio = f64::from(part) / f64::from(whole.max(1));
        if ratio != self.now {
            self.now = ratio;
            self.at = self.bounds.partition_point(|bound| *bound < ratio);
        }
    }
}

/// The utilization of a level over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Usage {
    since: Duration,
    /// Seats in use, as a ratio of the current limit.
    pub seats: TimedHistogram,
    /// Executing requests, as a ratio of the current limit.
    pub running: TimedHistogram,
    /// Queued requests, as a ratio of the queue capacity.
    pub waiting: TimedHistogram,
    /// Seat demand, as a ratio of the nominal limit.
    pub demand: TimedHistogram,
}

/// The utilization of a level at one time.
pub(crate) struct Utilization {
    pub seats: u32,
    pub limit: u32,
    pub running: u32,
    pub waiting: u32,
    pub room: u32,
    pub demand: u32,
    pub nominal: u32,
}

impl Usage {
    pub(crate) fn new(now: Duration) -> Self {
        Usage {
            since: now,
            seats: TimedHistogram::new(SEATS),
            running: TimedHistogram::new(REQUESTS),
            waiting: TimedHistogram::new(REQUESTS),
            demand: TimedHistogram::new(DEMAND),
        }
    }

    /// Advances to now.
    pub(crate) fn pass(&mut self, now: Duration) {
        let passed = u64::try_from(now.saturating_sub(self.since).as_nanos()).unwrap_or(u64::MAX);
        self.since = self.since.max(now);
        for timed in [&mut self.seats, &mut self.running, &mut self.waiting, &mut self.demand] {
            timed.pass(passed);
        }
    }

    /// Sets the utilization from now on.
    pub(crate) fn set(&mut self, now: Duration, full: &Utilization) {
        self.pass(now);
        self.seats.set(full.seats, full.limit);
        self.running.set(full.running, full.limit);
        self.waiting.set(full.waiting, full.room);
        self.demand.set(full.demand, full.nominal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_recorded_by_fullness() {
        let at = Duration::from_nanos;
        let mut usage = Usage::new(at(10));
        let full = |seats| Utilization {
            seats,
            limit: 10,
            running: 1,
            waiting: 0,
            room: 50,
            demand: seats,
            nominal: 5,
        };
        usage.set(at(15), &full(5));
        usage.set(at(18), &full(10));
        usage.pass(at(20));
        let found: Vec<_> = SEATS.iter().chain(&[f64::INFINITY]).zip(&usage.seats.nanoseconds).collect();
        let some: Vec<_> = found.into_iter().filter(|(_, time)| **time > 0).collect();
        assert_eq!(some, [(&0.0, &5), (&0.5, &3), (&1.0, &2)]);
        assert_eq!((usage.seats.sum, usage.demand.sum), (0.5 * 3.0 + 2.0, 3.0 + 2.0 * 2.0));
        assert_eq!(usage.waiting.nanoseconds.iter().sum::<u64>(), 10);
    }
}
