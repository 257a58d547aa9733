//! Which pods go first when there are too many.
//!
//! Those that are of the least use: not on a node, not running, not ready, cheap to delete as their owner says, many on
//! the same node, ready only since lately, often restarted, young. Where ages are compared by their order of magnitude it
//! is not always the same generation that goes; among equals chance decides, by uid.

use super::state::{self, is_ready};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::chrono::{DateTime, Utc};
use names::Names;
use std::cmp::Reverse;

/// A key by which pods are sorted; the smallest go first.
pub type Rank = (bool, u8, bool, i32, Reverse<usize>, Option<i64>, Reverse<i32>, Option<i64>, String);

/// How the ages of pods are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ages {
    Exactly,
    /// By their order of magnitude.
    Roughly,
}

impl Ages {
    fn of(self, since: DateTime<Utc>, now: DateTime<Utc>) -> i64 {
        match self {
            Ages::Exactly => now.signed_duration_since(since).num_milliseconds(),
            Ages::Roughly => magnitude(since, now),
        }
    }
}

/// `on_node` says how many pods like this one there are on its node.
pub fn rank(pod: &Pod, cost: i32, on_node: usize, ages: Ages, now: DateTime<Utc>) -> Rank {
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
        pod.metadata.creation_timestamp.as_ref().map(|it| ages.of(it.0, now)),
        pod.metadata.uid.clone().unwrap_or_default(),
    )
}

pub fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|it| !it.is_empty())
}

/// What a pod's annotation says that it costs to delete it; one that cannot be understood says nothing.
pub fn deletion_cost(pod: &Pod, names: &Names) -> i32 {
    let Some(annotations) = &pod.metadata.annotations else { return 0 };
    let said = annotations.get(&names.well_known_under("controller", "pod-deletion-cost"));
    said.and_then(|text| cost(text)).unwrap_or(0)
}

/// Digits with at most a minus before them, and no zero in front.
fn cost(text: &str) -> Option<i32> {
    let plain = !text.starts_with('+') && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain)
}

/// How long ago something was, to the next smaller power of two.
fn magnitude(since: DateTime<Utc>, now: DateTime<Utc>) -> i64 {
    let passed = now.signed_duration_since(since);
    match passed.num_nanoseconds() {
        Some(nanos) if nanos > 0 => i64::from(nanos.ilog2()),
        // longer than can be counted, or not yet
        None if passed.num_seconds() > 0 => i64::from(i64::MAX.ilog2()),
        _ => -1,
    }
}

fn restarts(pod: &Pod) -> i32 {
    let containers = pod.status.as_ref().and_then(|it| it.container_statuses.as_deref());
    containers.unwrap_or_default().iter().map(|it| it.restart_count).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const NOW: i64 = 1_000_000;

    fn at(seconds: i64) -> String {
        DateTime::<Utc>::from_timestamp(seconds, 0).unwrap().to_rfc3339()
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
        let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
        rank(&pod, cost, on_node, Ages::Roughly, DateTime::from_timestamp(NOW, 0).unwrap())
    }

    #[test]
    fn the_youngest_goes_first_where_ages_are_compared_exactly() {
        let ranked = |uid: &str, created: i64| {
            let pod: Pod = serde_json::from_value(pod(uid, "n", "Running", Some(500), 0, created)).unwrap();
            let now = DateTime::from_timestamp(NOW, 0).unwrap();
            (rank(&pod, 0, 0, Ages::Exactly, now), rank(&pod, 0, 0, Ages::Roughly, now))
        };
        let (young, old) = (ranked("z", 900), ranked("a", 1000));
        assert!(young.0 < old.0 && young.1 > old.1);
    }

    #[test]
    fn the_least_useful_go_first() {
        // each goes before those below, for one reason
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
            // the same order of magnitude: chance
            ranked(&pod("a", "n", "Running", Some(300), 2, 1000), 0, 1),
            ranked(&pod("b", "n", "Running", Some(500), 2, 800), 0, 1),
        ];
        for (at, pair) in order.windows(2).enumerate() {
            assert!(pair[0] < pair[1], "{at}: {pair:?}");
        }
    }

    #[test]
    fn costs_are_plain_numbers() {
        let of = |text| cost(text);
        assert_eq!(of("12"), Some(12));
        assert_eq!(of("-7"), Some(-7));
        assert_eq!(of("0"), Some(0));
        for odd in ["", "+1", "01", "1.5", "x", "99999999999"] {
            assert_eq!(of(odd), None, "{odd}");
        }
    }

    #[test]
    fn times_that_make_no_sense_do_no_harm() {
        let now = DateTime::<Utc>::from_timestamp(NOW, 0).unwrap();
        assert_eq!(magnitude(DateTime::from_timestamp(NOW + 5, 0).unwrap(), now), -1);
        assert_eq!(magnitude(now, now), -1);
        assert_eq!(magnitude(DateTime::<Utc>::MIN_UTC, now), 62);
    }
}
