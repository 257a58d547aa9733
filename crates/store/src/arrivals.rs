//! Arrival times of heartbeats, and whether a batch should wait for more of them.
//!
//! A batch costs one sync however many writes it holds. Heartbeats of many nodes arrive a few milliseconds apart,
//! so a heartbeat that lingers shares its sync with others. A client that renews a lease and waits for the response
//! would linger in vain each time. So heartbeats linger only while they arrive in a row, each of another object
//! than the one before, and while lingering merges writes:
//!
//! ```text
//! now - arrival of the 4th last < 100 ms    heartbeats linger
//! 5 times in a row nothing joined           the next 256 do not
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The number of arrivals within the window that are a row.
const ROW: usize = 4;
const WINDOW: Duration = Duration::from_millis(100);
/// After so many lingers in a row without another heartbeat, heartbeats stop lingering for a while.
const MISSES: u32 = 5;
const PAUSE: u32 = 256;

/// The latest heartbeats.
#[derive(Default)]
pub(crate) struct Arrivals {
    times: VecDeque<Duration>,
    last: Option<Arc<str>>,
    misses: u32,
    /// How many heartbeats still do not linger.
    pause: u32,
}

impl Arrivals {
    /// Records a heartbeat.
    pub(crate) fn note(&mut self, key: &Arc<str>, now: Duration) {
        self.pause = self.pause.saturating_sub(1);
        if self.last.as_ref() == Some(key) {
            return;
        }
        self.last = Some(key.clone());
        if self.times.len() == ROW {
            self.times.pop_front();
        }
        self.times.push_back(now);
    }

    /// Whether more heartbeats are likely to arrive soon.
    pub(crate) fn are_in_a_row(&self, now: Duration) -> bool {
        let first = self.times.front().filter(|_| self.times.len() == ROW);
        self.pause == 0 && first.is_some_and(|first| now.saturating_sub(*first) < WINDOW)
    }

    /// Records how many heartbeats there were after the first had lingered.
    pub(crate) fn note_company(&mut self, heartbeats: usize) {
        self.misses = if heartbeats > 1 { 0 } else { self.misses + 1 };
        if self.misses == MISSES {
            (self.misses, self.pause) = (0, PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY_10_MS: Duration = Duration::from_millis(10);

    /// Notes heartbeats at equal distances, and says whether the last of them would linger.
    fn arrive(arrivals: &mut Arrivals, now: &mut Duration, keys: &[&str], every: Duration) -> bool {
        for key in keys {
            *now += every;
            arrivals.note(&Arc::from(*key), *now);
        }
        arrivals.are_in_a_row(*now)
    }

    #[test]
    fn only_a_row_of_different_objects_lingers() {
        let (mut arrivals, mut now) = (Arrivals::default(), Duration::ZERO);
        assert!(!arrive(&mut arrivals, &mut now, &["a"], EVERY_10_MS), "one alone");
        assert!(!arrive(&mut arrivals, &mut now, &["a"; 100], EVERY_10_MS), "one client in a loop");
        assert!(!arrive(&mut arrivals, &mut now, &["b", "c"], EVERY_10_MS));
        assert!(arrive(&mut arrivals, &mut now, &["d", "e"], EVERY_10_MS));
        assert!(!arrivals.are_in_a_row(now + WINDOW), "the row is over");
        let slowly = ["a", "b", "c", "d", "e"];
        assert!(!arrive(&mut arrivals, &mut now, &slowly, WINDOW / 2), "they are too far apart");
    }

    #[test]
    fn lingering_in_vain_stops_for_a_while() {
        let (mut arrivals, mut now) = (Arrivals::default(), Duration::ZERO);
        let keys = ["a", "b", "c", "d"];
        assert!(arrive(&mut arrivals, &mut now, &keys, EVERY_10_MS));
        for company in [1, 1, 1, 1, 2, 1, 1, 1, 1] {
            arrivals.note_company(company);
            assert!(arrivals.are_in_a_row(now));
        }
        arrivals.note_company(1);
        assert!(!arrivals.are_in_a_row(now));
        for _ in 1..PAUSE / 4 {
            assert!(!arrive(&mut arrivals, &mut now, &keys, EVERY_10_MS));
        }
        assert!(arrive(&mut arrivals, &mut now, &keys, EVERY_10_MS));
    }
}
