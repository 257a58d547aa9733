//! Delays between restarts of a container that ends, and between pulls of an image that fails.
//!
//! The delay doubles with each attempt up to a limit, and begins anew after twice the limit without an attempt. Points
//! in time are those of the world's monotonic clock.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

const FIRST: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    delay: Duration,
    updated: Duration,
}

/// Delays by key.
#[derive(Debug, Clone)]
pub struct BackoffTable<K> {
    entries: HashMap<K, Entry>,
}

impl<K> Default for BackoffTable<K> {
    fn default() -> Self {
        BackoffTable { entries: HashMap::new() }
    }
}

impl<K: Eq + Hash> BackoffTable<K> {
    /// The delay that is in force since an event, with its end.
    pub fn delay_since(&self, key: &K, event: Duration, now: Duration) -> Option<(Duration, Duration)> {
        let entry = self.entries.get(key)?;
        let end = event + entry.delay;
        (!is_expired(entry, event) && now < end).then_some((entry.delay, end))
    }

    /// The delay that is in force since the last attempt, with its end.
    pub fn delay(&self, key: &K, now: Duration) -> Option<(Duration, Duration)> {
        let entry = self.entries.get(key)?;
        let end = entry.updated + entry.delay;
        (now < end).then_some((entry.delay, end))
    }

    /// Counts an attempt after an event.
    pub fn advance(&mut self, key: K, event: Duration, now: Duration) {
        let delay = match self.entries.get(&key) {
            Some(entry) if !is_expired(entry, event) => (entry.delay * 2).min(LIMIT),
            _ => FIRST,
        };
        self.entries.insert(key, Entry { delay, updated: now });
    }

    /// Removes delays that have expired.
    pub fn collect(&mut self, now: Duration) {
        self.entries.retain(|_, entry| !is_expired(entry, now));
    }
}

fn is_expired(entry: &Entry, event: Duration) -> bool {
    event.saturating_sub(entry.updated) > LIMIT * 2
}

/// A duration as Go writes it: `10s`, `1m20s`, `5m0s`, `1.5s`.
pub fn go_duration(time: Duration) -> String {
    let total = time.as_nanos();
    if total == 0 {
        return "0s".into();
    }
    if total < 1_000_000_000 {
        let (unit, name) = match total {
            0..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "µs"),
            _ => (1_000_000, "ms"),
        };
        return format!("{}{name}", decimal(total, unit));
    }
    let seconds = total / 1_000_000_000;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let rest = decimal(total % 60_000_000_000, 1_000_000_000);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

fn decimal(value: u128, unit: u128) -> String {
    let width = unit.ilog10() as usize;
    let text = format!("{}.{:0width$}", value / unit, value % unit);
    if width == 0 {
        (value / unit).to_string()
    } else {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn delays_double_up_to_the_limit_and_begin_anew() {
        let mut table = BackoffTable::default();
        assert_eq!(table.delay_since(&"c", at(0), at(0)), None);
        let mut now = at(0);
        for expected in [10, 20, 40, 80, 160, 300, 300] {
            table.advance("c", now, now);
            assert_eq!(table.delay_since(&"c", now, now), Some((at(expected), now + at(expected))));
            assert_eq!(table.delay_since(&"c", now, now + at(expected)), None);
            now += at(expected);
        }
        table.advance("c", now + at(601), now + at(601));
        assert_eq!(table.delay_since(&"c", now, now), Some((at(10), now + at(10))));
    }

    #[test]
    fn durations_are_written_as_go_does() {
        for (nanos, text) in [
            (10_000_000_000, "10s"),
            (80_000_000_000, "1m20s"),
            (300_000_000_000, "5m0s"),
            (1_500_000_000, "1.5s"),
            (3_723_000_000_000, "1h2m3s"),
            (12_345_678, "12.345678ms"),
            (1_500, "1.5µs"),
            (0, "0s"),
        ] {
            assert_eq!(go_duration(Duration::from_nanos(nanos)), text);
        }
    }
}
