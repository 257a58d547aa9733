//! The pace of a large set's status: counting its pods takes a time that grows with their number, and each of them changes
//! several times while it starts.
//!
//! Always true: a set rests only after a reconciliation that created and deleted nothing, for a multiple of the time that
//! this took and of the number of sets that rest at the same time, so that all large sets together cost a bounded share of
//! a worker, up to the longest rest. The end of one of its pods ends the rest. Under a clock that stands still a
//! reconciliation takes no time, and there are no rests.

use crate::controller_ref::controller_key;
use crate::pods::state::is_active;
use api::Resource;
use api::core::v1::Pod;
use client::{Change, Key};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The number of pods from which on a set rests.
const LARGE: usize = 100;
/// How many times as long as its reconciliation a set rests, for each set that rests.
const FACTOR: u32 = 100;
const LONGEST: Duration = Duration::from_secs(1);

/// The ends of rests, by the key of the set; zero during a reconciliation.
#[derive(Default)]
pub struct Pace(Mutex<HashMap<Key, Duration>>);

impl Pace {
    /// The rest that is left for a set.
    pub fn left(&self, key: &Key, now: Duration) -> Option<Duration> {
        let mut ends = self.0.lock();
        let left = ends.get(key)?.saturating_sub(now);
        if left.is_zero() {
            ends.remove(key);
        }
        Some(left).filter(|it| !it.is_zero())
    }

    /// A reconciliation begins. If something [ends](Self::end) the rest before it has begun, there is none: the
    /// reconciliation may not have seen the reason.
    pub fn begin(&self, key: &Key) {
        self.0.lock().insert(key.clone(), Duration::ZERO);
    }

    /// Begins the rest of a set with this number of pods, after a reconciliation from `began` to `now`.
    pub fn rest(&self, key: &Key, pods: usize, began: Duration, now: Duration) {
        let took = now.saturating_sub(began);
        let mut ends = self.0.lock();
        if pods < LARGE || took.is_zero() {
            ends.remove(key);
            return;
        }
        // a set whose rest is over has not changed since
        ends.retain(|_, end| end.is_zero() || *end > now);
        let others = ends.values().filter(|end| !end.is_zero()).count();
        if let Some(end) = ends.get_mut(key) {
            let sets = u32::try_from(others + 1).unwrap_or(u32::MAX);
            *end = now.saturating_add(took.saturating_mul(FACTOR.saturating_mul(sets)).min(LONGEST));
        }
    }

    /// Ends the rest of a set that is gone or has something to do.
    pub fn end(&self, key: &Key) {
        self.0.lock().remove(key);
    }

    /// A listener that ends the rest of a set when one of its pods ends or is deleted.
    pub fn end_with_pods<O: Resource>(self: &Arc<Self>) -> impl Fn(&Change<'_, Pod>) + use<O> {
        let pace = self.clone();
        move |change| {
            let pod = change.object();
            if change.is_deletion() || !is_active(pod) {
                controller_key::<O>(&**pod).iter().for_each(|key| pace.end(key));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use api::apps::v1::ReplicaSet;
    use serde_json::json;

    fn rest(pace: &Pace, key: &Key, pods: usize, took: Duration) {
        pace.begin(key);
        pace.rest(key, pods, Duration::ZERO, took);
    }

    #[test]
    fn large_sets_rest_for_a_multiple_of_the_time_that_they_took() {
        let (pace, key, ms) = (Pace::default(), Key::new("ns", "a"), Duration::from_millis);
        rest(&pace, &key, LARGE - 1, ms(5));
        assert_eq!((pace.left(&key, ms(5)), pace.0.lock().len()), (None, 0));
        rest(&pace, &key, LARGE, ms(5));
        assert_eq!((pace.left(&key, ms(5)), pace.left(&key, ms(104))), (Some(ms(500)), Some(ms(401))));
        assert_eq!((pace.left(&key, ms(505)), pace.0.lock().len()), (None, 0));
        rest(&pace, &key, LARGE, ms(1000));
        assert_eq!(pace.left(&key, ms(1000)), Some(LONGEST));
    }

    #[test]
    fn large_sets_that_rest_at_once_share_the_time_of_one() {
        let (pace, ms) = (Pace::default(), Duration::from_millis);
        let [a, b, c] = ["a", "b", "c"].map(|name| Key::new("ns", name));
        rest(&pace, &a, LARGE, ms(1));
        rest(&pace, &b, LARGE, ms(1));
        rest(&pace, &c, LARGE, ms(1));
        let left = |key| pace.left(key, ms(1));
        assert_eq!((left(&a), left(&b), left(&c)), (Some(ms(100)), Some(ms(200)), Some(ms(300))));
        // a small set that is reconciled meanwhile has no part in it, nor have sets whose rest is over
        pace.begin(&Key::new("ns", "small"));
        pace.begin(&a);
        pace.rest(&a, LARGE, ms(249), ms(250));
        assert_eq!(pace.left(&a, ms(250)), Some(ms(200)));
        assert!(!pace.0.lock().contains_key(&b));
    }

    #[test]
    fn the_end_of_a_pod_ends_the_rest_of_its_set() {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "u", "controller": true});
        let pod = |phase: &str| -> Arc<Pod> {
            let metadata = json!({"name": "p", "namespace": "ns", "ownerReferences": [owner]});
            Arc::new(object(json!({"metadata": metadata, "status": {"phase": phase}})))
        };
        let (pace, key, now) = (Arc::<Pace>::default(), Key::new("ns", "a"), Duration::from_secs(1));
        let listener = pace.end_with_pods::<ReplicaSet>();
        rest(&pace, &key, LARGE, now);
        listener(&Change::Added(&pod("Running")));
        assert!(pace.left(&key, now).is_some());
        listener(&Change::Added(&pod("Failed")));
        assert!(pace.left(&key, now).is_none());
        // during a reconciliation
        pace.begin(&key);
        listener(&Change::Added(&pod("Failed")));
        pace.rest(&key, LARGE, Duration::ZERO, now);
        assert!(pace.left(&key, now).is_none());
    }

    #[test]
    fn sets_do_not_rest_while_the_clock_stands_still() {
        let (pace, key) = (Pace::default(), Key::new("ns", "a"));
        rest(&pace, &key, LARGE, Duration::ZERO);
        assert_eq!((pace.left(&key, Duration::ZERO), pace.0.lock().len()), (None, 0));
    }
}
