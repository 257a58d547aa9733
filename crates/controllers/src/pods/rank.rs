//! The order in which surplus pods are deleted.
//!
//! First the least useful: without a node, not running, not ready, with a low deletion cost, with many related pods on
//! the same node, ready for a short time, often restarted, young. If ages are compared by order of magnitude, it is not
//! always the same generation that is deleted; among equals the uid decides, which is random.

use super::state::{self, is_ready};
use api::Time;
use api::core::v1::Pod;
use names::Names;
use std::cmp::Reverse;

/// The sort key of a pod; the smallest is deleted first.
pub type Rank = (bool, u8, bool, i32, Reverse<usize>, Option<i64>, Reverse<i32>, Option<i64>, String);

/// The precision with which ages of pods are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ages {
    Exactly,
    /// By order of magnitude.
    Roughly,
}

impl Ages {
    fn of(self, since: Time, now: Time) -> i64 {
        match self {
            Ages::Exactly => now.unix_seconds().saturating_sub(since.unix_seconds()),
            Ages::Roughly => magnitude(since, now),
        }
    }
}

/// The sort key of a pod. `on_node` is the number of related pods on its node.
pub fn rank(pod: &Pod, cost: i32, on_node: usize, ages: Ages, now: Time) -> Rank {
    let ready = is_ready(pod);
    (
        node(pod).is_some(),
        match state::phase(pod) {
            "Pending" => 0,
            "Unknown" => 1,
            "Running" => 2,
            _ => 0,
        },
        ready,
        cost,
        Reverse(on_node),
        if ready { state::ready_since(pod).map(|since| ages.of(since, now)) } else { None },
        Reverse(restarts(pod)),
        pod.metadata.creation_timestamp.map(|it| ages.of(it, now)),
        pod.metadata.uid.clone(),
    )
}

/// The node that a pod is bound to.
pub fn node(pod: &Pod) -> Option<&str> {
    Some(&*pod.spec.node_name).filter(|it| !it.is_empty())
}

/// The deletion cost from a pod's annotation; zero if it is absent or invalid.
pub fn deletion_cost(pod: &Pod, names: &Names) -> i32 {
    let text = pod.metadata.annotations.get(&names.well_known_under("controller", "pod-deletion-cost"));
    text.and_then(|text| parse_cost(text)).unwrap_or(0)
}

/// Digits, perhaps after a minus, without leading zeros.
fn parse_cost(text: &str) -> Option<i32> {
    let is_canonical = !text.starts_with('+') && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_canonical)
}

/// The binary logarithm of an age in nanoseconds; -1 for times that have not passed.
fn magnitude(since: Time, now: Time) -> i64 {
    let nanos = now.unix_seconds().saturating_sub(since.unix_seconds()).saturating_mul(1_000_000_000);
    nanos.checked_ilog2().map_or(-1, i64::from)
}

fn restarts(pod: &Pod) -> i32 {
    pod.status.container_statuses.iter().map(|it| it.restart_count).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::{Value, json};

    const NOW: i64 = 1_000_000;

    fn at(seconds: i64) -> String {
        Time(seconds).to_string()
    }

    fn pod(uid: &str, node: &str, phase: &str, ready: Option<i64>, restarts: i32, created: i64) -> Value {
        let status = if ready.is_some() { "True" } else { "False" };
        json!({
            "metadata": {"uid": uid, "creationTimestamp": at(NOW - created)},
            "spec": {"containers": [], "nodeName": node},
            "status": {
                "phase": phase,
                "conditions": [{"type": "Ready", "status": status, "lastTransitionTime": ready.map(|it| at(NOW - it))}],
                "containerStatuses": [{
                    "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": restarts
                }]
            }
        })
    }

    fn ranked(pod: &Value, cost: i32, on_node: usize) -> Rank {
        rank(&object(pod.clone()), cost, on_node, Ages::Roughly, Time(NOW))
    }

    #[test]
    fn the_youngest_is_first_if_ages_are_compared_exactly() {
        let ranked = |uid: &str, created: i64| {
            let pod: Pod = object(pod(uid, "n", "Running", Some(500), 0, created));
            let rank = |ages| rank(&pod, 0, 0, ages, Time(NOW));
            (rank(Ages::Exactly), rank(Ages::Roughly))
        };
        let (young, old) = (ranked("z", 900), ranked("a", 1000));
        assert!(young.0 < old.0 && young.1 > old.1);
    }

    #[test]
    fn the_least_useful_are_first() {
        // each comes before the next for one reason
        let order = [
            ranked(&pod("z", "", "Pending", None, 0, 1000), 0, 0),
            ranked(&pod("y", "n", "Pending", None, 0, 1000), 0, 1),
            ranked(&pod("x", "n", "Unknown", None, 0, 1000), 0, 1),
            ranked(&pod("w", "n", "Running", None, 0, 1000), 9, 1),
            ranked(&pod("v", "n", "Running", Some(5), 0, 1000), -5, 1),
            ranked(&pod("u", "n", "Running", Some(5), 0, 1000), 0, 3),
            ranked(&pod("t", "n", "Running", Some(1), 0, 1000), 0, 1),
            ranked(&pod("s", "n", "Running", Some(500), 9, 1000), 0, 1),
            ranked(&pod("r", "n", "Running", Some(500), 2, 10), 0, 1),
            // the same order of magnitude: by uid
            ranked(&pod("a", "n", "Running", Some(300), 2, 1000), 0, 1),
            ranked(&pod("b", "n", "Running", Some(500), 2, 800), 0, 1),
        ];
        for (at, pair) in order.windows(2).enumerate() {
            assert!(pair[0] < pair[1], "{at}: {pair:?}");
        }
    }

    #[test]
    fn costs_are_canonical_numbers() {
        let of = |text| parse_cost(text);
        assert_eq!(of("12"), Some(12));
        assert_eq!(of("-7"), Some(-7));
        assert_eq!(of("0"), Some(0));
        for odd in ["", "+1", "01", "1.5", "x", "99999999999"] {
            assert_eq!(of(odd), None, "{odd}");
        }
    }

    #[test]
    fn magnitudes_of_extreme_times() {
        let now = Time(NOW);
        assert_eq!(magnitude(Time(NOW + 5), now), -1);
        assert_eq!(magnitude(now, now), -1);
        assert_eq!(magnitude(Time(i64::MIN), now), 62);
    }
}
