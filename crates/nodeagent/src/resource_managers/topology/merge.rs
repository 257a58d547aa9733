//! Merging of hints: one set of NUMA nodes for all resources of a container or pod.
//!
//! Every choice of one hint per resource gives a candidate: the common nodes of its hints, preferred if all of them are
//! and name the same nodes. The best candidate wins. The number of choices is a product, but few candidates are
//! different: [`candidates`] adds one resource after the other and keeps each candidate once.

use super::hint::{ProviderHints, TopologyHint};
use super::numa_mask::NumaMask;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// What the machine's nodes are, and how far they are from each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NumaInfo {
    pub nodes: Vec<u32>,
    /// Distances to the nodes `0..`, by node. Empty unless the closest nodes are preferred.
    pub distances: BTreeMap<u32, Vec<u64>>,
}

impl NumaInfo {
    pub fn mask(&self) -> NumaMask {
        self.nodes.iter().copied().collect()
    }

    /// The mean distance between the nodes of a set, each to itself included.
    fn mean_distance(&self, mask: NumaMask) -> f64 {
        let distance = |from: u32, to: u32| {
            let row = self.distances.get(&from);
            row.and_then(|row| row.get(usize::try_from(to).ok()?)).copied().unwrap_or(0)
        };
        let pairs = mask.nodes().flat_map(|from| mask.nodes().map(move |to| (from, to)));
        let sum: u64 = pairs.map(|(from, to)| distance(from, to)).sum();
        let count = f64::from(mask.count());
        // a handful of distances below 256
        sum as f64 / (count * count).max(1.0)
    }
}

/// Which merged hints a pod is admitted with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TopologyPolicy {
    /// Hints are not used.
    #[default]
    None,
    BestEffort,
    Restricted,
    SingleNumaNode,
}

/// Merges the hints of all providers. Says whether the policy admits the result.
pub fn merge(policy: TopologyPolicy, info: &NumaInfo, providers: &[ProviderHints]) -> (TopologyHint, bool) {
    if policy == TopologyPolicy::None {
        return (TopologyHint::default(), true);
    }
    let is_single = policy == TopologyPolicy::SingleNumaNode;
    let mut lists = resource_hints(providers);
    if is_single {
        let is_single_node = |hint: &TopologyHint| hint.affinity.is_none_or(|mask| mask.count() == 1);
        lists.iter_mut().for_each(|list| list.retain(|hint| hint.is_preferred && is_single_node(hint)));
    }
    let whole = info.mask();
    let by_distance = !is_single && !info.distances.is_empty();
    let largest_minimum = largest_minimum(&lists);
    let order = |a: &(NumaMask, bool), b: &(NumaMask, bool)| {
        rank(*a, largest_minimum).cmp(&rank(*b, largest_minimum)).then_with(|| {
            let distances = match by_distance {
                true => info.mean_distance(a.0).total_cmp(&info.mean_distance(b.0)),
                false => Ordering::Equal,
            };
            distances.then(a.0.cmp(&b.0))
        })
    };
    let best = candidates(whole, &lists).into_iter().filter(|(mask, _)| !mask.is_empty()).min_by(order);
    let (mask, is_preferred) = best.unwrap_or((whole, false));
    let is_any = is_single && mask == whole;
    let hint = TopologyHint { affinity: (!is_any).then_some(mask), is_preferred };
    (hint, policy == TopologyPolicy::BestEffort || is_preferred)
}

/// One list of hints per resource. No preference is a preferred hint for any node; hints that cannot be satisfied are
/// one that is not preferred.
fn resource_hints(providers: &[ProviderHints]) -> Vec<Vec<TopologyHint>> {
    let any = |is_preferred| vec![TopologyHint { affinity: None, is_preferred }];
    let mut lists = Vec::new();
    for provider in providers {
        if provider.is_empty() {
            lists.push(any(true));
        }
        for hints in provider.values() {
            lists.push(match hints {
                None => any(true),
                Some(hints) if hints.is_empty() => any(false),
                Some(hints) => hints.clone(),
            });
        }
    }
    lists
}

/// The nodes that the resource needs that needs most, at its narrowest hint.
fn largest_minimum(lists: &[Vec<TopologyHint>]) -> u32 {
    let narrowest =
        |list: &Vec<TopologyHint>| list.iter().filter_map(|it| it.affinity).map(NumaMask::count).min();
    lists.iter().filter_map(narrowest).max().unwrap_or(0)
}

/// Lower is better. A preferred candidate needs few nodes. One that is not preferred has as many as the neediest
/// resource needs, else fewer, else more.
fn rank((mask, is_preferred): (NumaMask, bool), largest_minimum: u32) -> (u8, u32) {
    let count = mask.count();
    match is_preferred {
        true => (0, count),
        false if count <= largest_minimum => (1, largest_minimum - count),
        false => (2, count),
    }
}

/// The different candidates: common nodes, and whether they are preferred.
fn candidates(whole: NumaMask, lists: &[Vec<TopologyHint>]) -> BTreeSet<(NumaMask, bool)> {
    // the affinity that all hints have so far, while the choice is preferred
    let mut preferred: BTreeSet<Option<NumaMask>> = BTreeSet::from([None]);
    let mut others: BTreeSet<NumaMask> = BTreeSet::new();
    for list in lists {
        let (mut next_preferred, mut next_others) = (BTreeSet::new(), BTreeSet::new());
        for hint in list {
            for &common in &preferred {
                let is_same = common.is_none() || hint.affinity.is_none() || common == hint.affinity;
                if hint.is_preferred && is_same {
                    next_preferred.insert(common.or(hint.affinity));
                } else {
                    let mask = common.unwrap_or(whole).intersection(hint.affinity.unwrap_or(whole));
                    next_others.insert(mask);
                }
            }
            let affinity = hint.affinity.unwrap_or(whole);
            next_others.extend(others.iter().map(|mask| mask.intersection(affinity)));
        }
        (preferred, others) = (next_preferred, next_others);
    }
    let preferred = preferred.into_iter().map(|common| (common.unwrap_or(whole).intersection(whole), true));
    preferred.chain(others.into_iter().map(|mask| (mask.intersection(whole), false))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// A row of results of upstream: policy, nodes, distances, hints by provider and resource, affinity, whether it is
    /// preferred, whether the pod is admitted.
    fn check(row: &Value) -> Result<(), String> {
        let policy = match row[0].as_str().unwrap() {
            "best-effort" => TopologyPolicy::BestEffort,
            "restricted" => TopologyPolicy::Restricted,
            _ => TopologyPolicy::SingleNumaNode,
        };
        let nodes: Vec<u32> = (0..u32::try_from(row[1].as_u64().unwrap()).unwrap()).collect();
        let distances = row[2].as_array().into_iter().flatten().enumerate().map(|(node, row)| {
            (
                u32::try_from(node).unwrap(),
                row.as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).collect(),
            )
        });
        let info = NumaInfo { nodes, distances: distances.collect() };
        let hint = |it: &Value| {
            TopologyHint::new(NumaMask::from_bits(it[0].as_u64().unwrap()), it[1].as_bool().unwrap())
        };
        let provider = |resources: &Value| -> ProviderHints {
            let resources = resources.as_array().unwrap().iter().enumerate();
            let hints = |list: &Value| list.as_array().map(|list| list.iter().map(hint).collect());
            resources.map(|(at, list)| (at.to_string(), hints(list))).collect()
        };
        let providers: Vec<ProviderHints> = row[3].as_array().unwrap().iter().map(provider).collect();
        let (hint, is_admitted) = merge(policy, &info, &providers);
        let found = (hint.affinity.map(NumaMask::bits), hint.is_preferred, is_admitted);
        let expected = (row[4].as_u64(), row[5].as_bool().unwrap(), row[6].as_bool().unwrap());
        if found == expected { Ok(()) } else { Err(format!("{row}: {found:?}")) }
    }

    #[test]
    fn hints_are_merged_as_upstream_does() {
        let rows = include_str!("merged_hints.jsonl").lines();
        let wrong: Vec<String> =
            rows.filter_map(|row| check(&serde_json::from_str(row).unwrap()).err()).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn many_hints_of_many_resources_are_merged_at_once() {
        let nodes: Vec<u32> = (0..8).collect();
        let info = NumaInfo { nodes: nodes.clone(), ..NumaInfo::default() };
        let hints: Vec<_> =
            NumaMask::all_of(&nodes).into_iter().map(|it| TopologyHint::new(it, it.count() == 2)).collect();
        // 255 to the power of 12 choices
        let provider: ProviderHints = (0..12).map(|at| (at.to_string(), Some(hints.clone()))).collect();
        let (hint, is_admitted) = merge(TopologyPolicy::Restricted, &info, &[provider]);
        assert_eq!((hint.affinity.map(NumaMask::bits), is_admitted), (Some(3), true));
    }

    #[test]
    fn without_a_policy_any_node_will_do() {
        let merged = merge(TopologyPolicy::None, &NumaInfo::default(), &[]);
        assert_eq!(merged, (TopologyHint::default(), true));
    }
}
