//! After failures in a row a job waits before it makes more pods, longer each time.

use client::Key;
use k8s_openapi::chrono::{DateTime, Utc};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(360);

/// Failures in a row, by job. What is not here has none: a restart forgets them.
#[derive(Default)]
pub(super) struct Failures {
    by_key: Mutex<HashMap<Key, InARow>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct InARow {
    uid: String,
    count: u32,
    last: DateTime<Utc>,
}

impl InARow {
    /// The same after pods have ended: whether well, and when.
    fn after(mut self, mut ended: Vec<(bool, DateTime<Utc>)>) -> Self {
        ended.sort_by_key(|(_, at)| *at);
        for (succeeded, at) in ended {
            self.count = if succeeded { 0 } else { self.count.saturating_add(1) };
            self.last = at;
        }
        self
    }

    fn pause(&self, now: DateTime<Utc>) -> Duration {
        let Some(doubled) = self.count.checked_sub(1) else { return Duration::ZERO };
        let pause = FIRST.saturating_mul(1u32.checked_shl(doubled).unwrap_or(u32::MAX)).min(LONGEST);
        pause.saturating_sub(now.signed_duration_since(self.last).to_std().unwrap_or_default())
    }
}

impl Failures {
    /// Pods of a job have ended, and are written down.
    pub fn note(&self, key: &Key, uid: &str, ended: Vec<(bool, DateTime<Utc>)>) {
        if ended.is_empty() {
            return;
        }
        let row = self.of(key, uid).after(ended);
        let mut by_key = self.by_key.lock();
        if row.count > 0 {
            by_key.insert(key.clone(), row);
        } else {
            by_key.remove(key);
        }
    }

    /// How long no pods are made, with those that have ended and are not written down yet.
    pub fn pause(
        &self,
        key: &Key,
        uid: &str,
        ended: Vec<(bool, DateTime<Utc>)>,
        now: DateTime<Utc>,
    ) -> Duration {
        self.of(key, uid).after(ended).pause(now)
    }

    fn of(&self, key: &Key, uid: &str) -> InARow {
        let there = self.by_key.lock().get(key).filter(|row| row.uid == uid).cloned();
        there.unwrap_or_else(|| InARow { uid: uid.to_owned(), ..InARow::default() })
    }

    pub fn forget(&self, key: &Key) {
        self.by_key.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_until_something_succeeds() {
        let at = |seconds| DateTime::from_timestamp(seconds, 0).unwrap();
        let (failures, key) = (Failures::default(), Key::new("ns", "a"));
        let pause = |now| failures.pause(&key, "u", vec![], at(now)).as_secs();
        assert_eq!(pause(0), 0);
        failures.note(&key, "u", vec![(false, at(100))]);
        assert_eq!((pause(100), pause(105), pause(110), pause(200)), (10, 5, 0, 0));
        failures.note(&key, "u", vec![(false, at(121)), (false, at(120))]);
        assert_eq!(pause(121), 40);
        failures.note(&key, "u", (0..40).map(|_| (false, at(130))).collect());
        assert_eq!(pause(130), 360);
        // another job of that name
        assert_eq!(failures.pause(&key, "v", vec![], at(130)), Duration::ZERO);
        failures.note(&key, "u", vec![(false, at(140)), (true, at(150))]);
        assert_eq!(pause(150), 0);
        failures.note(&key, "u", vec![(true, at(160)), (false, at(170))]);
        assert_eq!(pause(170), 10);
        // one that is not written down yet counts, too, but only once
        let fresh = || vec![(false, at(175))];
        assert_eq!(failures.pause(&key, "u", fresh(), at(175)).as_secs(), 20);
        assert_eq!(failures.pause(&key, "u", fresh(), at(175)).as_secs(), 20);
        failures.forget(&key);
        assert_eq!(pause(170), 0);
    }
}
