//! After failures in a row a job waits before it makes more pods, longer each time.

use crate::Key;
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

impl Failures {
    /// Pods of a job have ended: whether well, and when.
    pub fn note(&self, key: &Key, uid: &str, mut ended: Vec<(bool, DateTime<Utc>)>) {
        if ended.is_empty() {
            return;
        }
        ended.sort_by_key(|(_, at)| *at);
        let mut by_key = self.by_key.lock();
        let mut row = by_key.remove(key).filter(|row| row.uid == uid).unwrap_or_default();
        for (succeeded, at) in ended {
            row.count = if succeeded { 0 } else { row.count + 1 };
            row.last = at;
        }
        if row.count > 0 {
            by_key.insert(key.clone(), InARow { uid: uid.to_owned(), ..row });
        }
    }

    /// How long no pods are made.
    pub fn pause(&self, key: &Key, uid: &str, now: DateTime<Utc>) -> Duration {
        let by_key = self.by_key.lock();
        let Some(row) = by_key.get(key).filter(|row| row.uid == uid) else { return Duration::ZERO };
        let pause = FIRST.saturating_mul(1u32.checked_shl(row.count - 1).unwrap_or(u32::MAX)).min(LONGEST);
        pause.saturating_sub(now.signed_duration_since(row.last).to_std().unwrap_or_default())
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
        let pause = |now| failures.pause(&key, "u", at(now)).as_secs();
        assert_eq!(pause(0), 0);
        failures.note(&key, "u", vec![(false, at(100))]);
        assert_eq!((pause(100), pause(105), pause(110), pause(200)), (10, 5, 0, 0));
        failures.note(&key, "u", vec![(false, at(121)), (false, at(120))]);
        assert_eq!(pause(121), 40);
        failures.note(&key, "u", (0..40).map(|_| (false, at(130))).collect());
        assert_eq!(pause(130), 360);
        // another job of that name
        assert_eq!(failures.pause(&key, "v", at(130)), Duration::ZERO);
        failures.note(&key, "u", vec![(false, at(140)), (true, at(150))]);
        assert_eq!(pause(150), 0);
        failures.note(&key, "u", vec![(true, at(160)), (false, at(170))]);
        assert_eq!(pause(170), 10);
        failures.forget(&key);
        assert_eq!(pause(170), 0);
    }
}
