//! CPU rates from two readings of a counter.

use parking_lot::Mutex;
use std::collections::HashMap;

/// Readings older than this many others are forgotten.
const LIMIT: usize = 4096;

#[derive(Debug, Clone, Copy)]
struct Reading {
    at: i64,
    total: u64,
    rate: Option<u64>,
}

/// The last reading of each counter.
#[derive(Default)]
pub struct Rates(Mutex<HashMap<String, Reading>>);

impl Rates {
    /// Nanocores since the reading before; `None` at the first reading.
    pub fn nano_cores(&self, id: &str, at: i64, total: u64) -> Option<u64> {
        let mut readings = self.0.lock();
        if readings.len() > LIMIT {
            readings.clear();
        }
        let before = readings.get(id).copied();
        let rate = match before {
            Some(before) if at > before.at && total >= before.total => {
                let rate = u128::from(total - before.total) * 1_000_000_000 / (at - before.at) as u128;
                u64::try_from(rate).ok()
            }
            // the same reading again
            Some(before) => return before.rate,
            None => None,
        };
        readings.insert(id.to_owned(), Reading { at, total, rate });
        rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_need_two_readings() {
        let rates = Rates::default();
        assert_eq!(rates.nano_cores("a", 1_000_000_000, 500), None);
        assert_eq!(rates.nano_cores("a", 3_000_000_000, 2_000_000_500), Some(1_000_000_000));
        assert_eq!(rates.nano_cores("a", 3_000_000_000, 2_000_000_500), Some(1_000_000_000));
        assert_eq!(rates.nano_cores("b", 3_000_000_000, 1), None);
    }
}
