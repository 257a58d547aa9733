//! Backoff of pod creation: after consecutive failures a job waits before it creates more pods, longer each time.

use super::view::elapsed;
use api::Time;
use client::Key;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(360);

/// Consecutive failures by job. A job without an entry has none; a restart forgets all.
#[derive(Default)]
pub(super) struct Failures {
    by_key: Mutex<HashMap<Key, FailureStreak>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct FailureStreak {
    uid: String,
    count: u32,
    last: Time,
}

impl FailureStreak {
    /// The streak after pods have ended: whether each succeeded, and when.
    fn after(mut self, mut ended: Vec<(bool, Time)>) -> Self {
        ended.sort_by_key(|(_, at)| *at);
        for (succeeded, at) in ended {
            self.count = if succeeded { 0 } else { self.count.saturating_add(1) };
            self.last = at;
        }
        self
    }

    fn pause(&self, now: Time) -> Duration {
        let Some(doubled) = self.count.checked_sub(1) else { return Duration::ZERO };
        let pause = FIRST.saturating_mul(1u32.checked_shl(doubled).unwrap_or(u32::MAX)).min(LONGEST);
        pause.saturating_sub(elapsed(self.last, now))
    }
}

impl Failures {
    /// Records pods of a job that have ended and are in its status.
    pub fn note(&self, key: &Key, uid: &str, ended: Vec<(bool, Time)>) {
        if ended.is_empty() {
            return;
        }
        let streak = self.get(key, uid).after(ended);
        let mut by_key = self.by_key.lock();
        if streak.count > 0 {
            by_key.insert(key.clone(), streak);
        } else {
            by_key.remove(key);
        }
    }

    /// How long no pods are created; `ended` are the pods that have ended and are not in the status yet.
    pub fn pause(&self, key: &Key, uid: &str, ended: Vec<(bool, Time)>, now: Time) -> Duration {
        self.get(key, uid).after(ended).pause(now)
    }

    fn get(&self, key: &Key, uid: &str) -> FailureStreak {
        let known = self.by_key.lock().get(key).filter(|streak| streak.uid == uid).cloned();
        known.unwrap_or_else(|| FailureStreak { uid: uid.to_owned(), ..FailureStreak::default() })
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
        let (failures, key) = (Failures::default(), Key::new("ns", "a"));
        let pause = |now| failures.pause(&key, "u", vec![], Time(now)).as_secs();
        assert_eq!(pause(0), 0);
        failures.note(&key, "u", vec![(false, Time(100))]);
        assert_eq!((pause(100), pause(105), pause(110), pause(200)), (10, 5, 0, 0));
        failures.note(&key, "u", vec![(false, Time(121)), (false, Time(120))]);
        assert_eq!(pause(121), 40);
        failures.note(&key, "u", (0..40).map(|_| (false, Time(130))).collect());
        assert_eq!(pause(130), 360);
        // another job of the same name
        assert_eq!(failures.pause(&key, "v", vec![], Time(130)), Duration::ZERO);
        failures.note(&key, "u", vec![(false, Time(140)), (true, Time(150))]);
        assert_eq!(pause(150), 0);
        failures.note(&key, "u", vec![(true, Time(160)), (false, Time(170))]);
        assert_eq!(pause(170), 10);
        // a pod that is not in the status yet counts too, but only once
        let fresh = || vec![(false, Time(175))];
        assert_eq!(failures.pause(&key, "u", fresh(), Time(175)).as_secs(), 20);
        assert_eq!(failures.pause(&key, "u", fresh(), Time(175)).as_secs(), 20);
        failures.forget(&key);
        assert_eq!(pause(170), 0);
    }
}
