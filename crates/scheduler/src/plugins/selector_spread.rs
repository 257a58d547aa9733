//! SelectorSpread: prefers nodes and zones with fewer pods of the same service or workload.
//!
//! Configurations of v1beta2 and v1beta3 may name it; default spread constraints have taken its place.

use std::collections::HashMap;

use crate::framework::MAX_NODE_SCORE;
use crate::node_info::NodeInfo;
use crate::node_tree::zone_of;
use crate::plugins::default_selector::default_selector;
use crate::pod_info::PodInfo;
use crate::snapshot::Snapshot;

/// The share of the zone in the score of a node.
const ZONE_WEIGHT: f64 = 2.0 / 3.0;

/// The normalized scores of nodes; `None` for a pod with spread constraints of its own.
pub fn scores(pod: &PodInfo, snapshot: &Snapshot, nodes: &[&NodeInfo]) -> Option<Vec<i64>> {
    if !pod.pod.spec.topology_spread_constraints.is_empty() {
        return None;
    }
    let selector = default_selector(pod, &snapshot.workloads);
    let is_counted = |other: &PodInfo| {
        other.namespace() == pod.namespace() && !other.is_terminating() && selector.matches(other.labels())
    };
    let count = |node: &&NodeInfo| match selector.is_everything() {
        true => 0,
        false => node.pods.iter().filter(|other| is_counted(other)).count(),
    };
    let counts: Vec<usize> = nodes.iter().map(count).collect();
    let zones: Vec<String> = nodes.iter().map(|node| zone_of(node.labels())).collect();
    Some(normalize(&counts, &zones))
}

/// Scores by the numbers of pods on nodes and in their zones; an empty zone is none.
fn normalize(counts: &[usize], zones: &[String]) -> Vec<i64> {
    let mut by_zone: HashMap<&str, usize> = HashMap::new();
    for (count, zone) in counts.iter().zip(zones).filter(|(_, zone)| !zone.is_empty()) {
        *by_zone.entry(zone).or_default() += count;
    }
    let most = counts.iter().copied().max().unwrap_or(0);
    let most_of_zone = by_zone.values().copied().max().unwrap_or(0);
    let score = |(count, zone): (&usize, &String)| {
        let own = share(*count, most);
        match by_zone.get(&**zone) {
            Some(count) => (own * (1.0 - ZONE_WEIGHT) + ZONE_WEIGHT * share(*count, most_of_zone)) as i64,
            None => own as i64,
        }
    };
    counts.iter().zip(zones).map(score).collect()
}

/// 100 without pods, 0 for the most pods.
fn share(count: usize, most: usize) -> f64 {
    match most {
        0 => MAX_NODE_SCORE as f64,
        most => MAX_NODE_SCORE as f64 * ((most - count) as f64 / most as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_weigh_more_than_nodes() {
        for (counts, zones, expected) in [
            ([0, 0, 0], ["", "", ""], [100, 100, 100]),
            ([2, 1, 0], ["", "", ""], [0, 50, 100]),
            // zone a has 3 pods, zone b none
            ([2, 1, 0], ["a", "a", "b"], [0, 16, 100]),
            ([1, 1, 0], ["a", "b", "b"], [0, 0, 33]),
            ([4, 0, 2], ["a", "", "b"], [0, 100, 50]),
        ] {
            assert_eq!(normalize(&counts, &zones.map(str::to_owned)), expected, "{counts:?} {zones:?}");
        }
    }
}
