//! When usage may go down.
//!
//! Admission charges a quota, then the object is stored. A count between the two does not find the object: if it replaced
//! the usage, the charge would be lost, and more objects could be made than the quota allows. (Upstream's controller does
//! that.) So a usage that is lower than the charged one is not written at once: what was charged is remembered, and counted
//! again after [`Options::settle`](super::Options), when the requests have ended. Charges from in between are added to the
//! count, whether their objects were counted or not.
//!
//! ```text
//! usage 3, count 2: remember 3 ─► settle ─► usage 4, count 2: write 2 + (4 - 3), remember 3 ─► settle ─► usage 3, count 3
//! ```

use api::core::v1::ResourceQuota;
use api::{Quantity, Resource};
use client::Key;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

type Amounts = BTreeMap<String, Quantity>;

/// See the module.
pub struct Releases {
    settle: Duration,
    /// Usage that may go down.
    charged: Mutex<HashMap<Key, ChargedUsage>>,
}

/// The usage of a quota at some time.
struct ChargedUsage {
    uid: String,
    used: Amounts,
    at: Duration,
}

impl Releases {
    pub fn new(settle: Duration) -> Self {
        Releases { settle, charged: Mutex::default() }
    }

    pub fn forget(&self, key: &Key) {
        self.charged.lock().remove(key);
    }

    /// The usage to be written, by what was counted after `now`, and the time until it must be counted again.
    pub fn usage(
        &self,
        key: &Key,
        quota: &ResourceQuota,
        counted: Amounts,
        now: Duration,
    ) -> (Amounts, Option<Duration>) {
        let before = &quota.status.used;
        let is_lower = |amount: &Quantity, name: &String| before.get(name).is_some_and(|it| amount < it);
        let mut charged = self.charged.lock();
        if !counted.iter().any(|(name, amount)| is_lower(amount, name)) {
            charged.remove(key);
            return (counted, None);
        }
        let known = charged.get(key).filter(|it| it.uid == quota.uid());
        let age = known.map(|it| now.saturating_sub(it.at));
        let settled = known.filter(|_| age >= Some(self.settle));
        let next: Amounts = counted
            .into_iter()
            .map(|(name, amount)| {
                let Some(charge) = before.get(&name).filter(|it| amount < **it) else {
                    return (name, amount);
                };
                let last = settled.and_then(|it| it.used.get(&name)).filter(|it| *it <= charge);
                let most = last.map_or_else(|| charge.clone(), |last| amount.plus(&charge.minus(last)));
                let amount = if most < *charge { most } else { charge.clone() };
                (name, amount)
            })
            .collect();
        let is_unchanged = |it: &ChargedUsage| next.keys().all(|name| it.used.get(name) == before.get(name));
        let is_exact = settled.is_some_and(is_unchanged);
        if is_exact {
            charged.remove(key);
            return (next, None);
        }
        let left = match age.filter(|_| settled.is_none()) {
            Some(age) => self.settle.saturating_sub(age),
            None => {
                let used = next.clone();
                charged.insert(key.clone(), ChargedUsage { uid: quota.uid().to_owned(), used, at: now });
                self.settle
            }
        };
        (next, Some(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::json;

    const SETTLE: Duration = Duration::from_millis(100);

    /// The usage that is written when this one was charged and that one is counted, and whether it is counted again.
    fn usage(releases: &Releases, charged: i64, counted: i64, at: u64) -> (String, bool) {
        let quota: ResourceQuota = object(json!({
            "metadata": {"name": "q", "namespace": "n", "uid": "u"},
            "spec": {"hard": {"pods": "9"}},
            "status": {"hard": {"pods": "9"}, "used": {"pods": charged.to_string()}},
        }));
        let counted = Amounts::from([("pods".to_owned(), Quantity::new(counted))]);
        let (used, again) = releases.usage(&Key::of(&quota), &quota, counted, Duration::from_millis(at));
        (used["pods"].to_string(), again.is_some())
    }

    fn says(used: &str, is_counted_again: bool) -> (String, bool) {
        (used.to_owned(), is_counted_again)
    }

    #[test]
    fn an_object_that_is_charged_and_not_stored_yet_stays_charged() {
        let releases = Releases::new(SETTLE);
        assert_eq!(usage(&releases, 3, 2, 1000), says("3", true));
        // it is there now
        assert_eq!(usage(&releases, 3, 3, 1100), says("3", false));
        // the pause begins again
        assert_eq!(usage(&releases, 3, 2, 1200), says("3", true));
    }

    #[test]
    fn usage_goes_down_once_no_request_can_be_under_way() {
        let releases = Releases::new(SETTLE);
        assert_eq!(usage(&releases, 3, 2, 1000), says("3", true));
        assert_eq!(usage(&releases, 3, 2, 1099), says("3", true), "another change, too early");
        assert_eq!(usage(&releases, 3, 2, 1100), says("2", false));
        assert_eq!(usage(&releases, 2, 5, 1101), says("5", false), "more is written at once");
    }

    #[test]
    fn usage_goes_down_among_new_charges() {
        let releases = Releases::new(SETTLE);
        assert_eq!(usage(&releases, 6, 2, 1000), says("6", true));
        // of the 8, two may not be stored yet; or they are among the three
        assert_eq!(usage(&releases, 8, 3, 1100), says("5", true));
        // what was written, and one more charge
        assert_eq!(usage(&releases, 6, 4, 1200), says("5", true));
        assert_eq!(usage(&releases, 5, 4, 1300), says("4", false));
    }
}
