//! Allocations: the ranges of each node.
//!
//! Invariants: an allocated range belongs to one node until the node is gone, even if it is unknown whether the write
//! succeeded; a second allocation for the node returns the same ranges. Ranges that nodes have at the start stay
//! theirs.

use super::cidrs::Cidrs;
use super::metrics::CidrMetrics;
use super::options::Options;
use api::Resource;
use api::core::v1::Node;
use apimachinery::net::Network;
use std::collections::{BTreeSet, HashMap};

pub(super) struct Allocations {
    cidrs: Vec<Cidrs>,
    by_node: HashMap<String, NodeRanges>,
    /// Nodes for which no range was left.
    unserved: BTreeSet<String>,
    metrics: CidrMetrics,
}

struct NodeRanges {
    uid: String,
    ranges: Vec<Network>,
}

/// The valid pod CIDRs in the spec of a node.
pub(super) fn pod_cidrs(node: &Node) -> Vec<Network> {
    let spec = &node.spec;
    let all = if spec.pod_cidrs.is_empty() { std::slice::from_ref(&spec.pod_cidr) } else { &spec.pod_cidrs };
    all.iter().filter_map(|it| Network::parse(it)).collect()
}

impl Allocations {
    pub fn new(options: &Options, metrics: CidrMetrics) -> Self {
        let mut cidrs: Vec<Cidrs> = options.pools.iter().map(|pool| Cidrs::new(*pool)).collect();
        for cidrs in &mut cidrs {
            for network in &options.services {
                cidrs.take(network);
            }
        }
        Allocations { cidrs, by_node: HashMap::new(), unserved: BTreeSet::new(), metrics }
    }

    pub fn each(&self, visit: impl FnMut(&Cidrs)) {
        self.cidrs.iter().for_each(visit);
    }

    /// Takes over the ranges that a node has. Returns whether it needs ranges, and the nodes that may get released
    /// ones.
    pub fn observe(&mut self, node: &Node) -> (bool, BTreeSet<String>) {
        let (name, ranges) = (node.name(), pod_cidrs(node));
        let same = self.by_node.get(name).filter(|it| it.uid == node.uid());
        if ranges.is_empty() {
            let another = same.is_none() && self.by_node.contains_key(name);
            return (true, if another { self.release(name) } else { BTreeSet::new() });
        }
        if same.is_some_and(|it| it.ranges == ranges) {
            return (false, BTreeSet::new());
        }
        // before the release of the old ones: some may be the same
        for range in &ranges {
            let here = self.cidrs.iter_mut().filter_map(|it| it.take(range).then_some(())).count();
            if here == 0 {
                tracing::warn!(controller = "nodeipam", node = name, %range, "a node has a range outside of the cluster networks");
            }
        }
        let unserved = self.release(name);
        self.by_node.insert(name.to_owned(), NodeRanges { uid: node.uid().to_owned(), ranges });
        (false, unserved)
    }

    /// Releases the ranges of a node. Returns the nodes that may get them.
    pub fn release(&mut self, name: &str) -> BTreeSet<String> {
        self.unserved.remove(name);
        let Some(held) = self.by_node.remove(name) else { return BTreeSet::new() };
        for cidrs in &mut self.cidrs {
            let pool = cidrs.pool;
            for range in held.ranges.iter().filter(|it| pool.overlaps(it)) {
                cidrs.release(range);
                self.metrics.released(cidrs);
            }
        }
        std::mem::take(&mut self.unserved)
    }

    /// The ranges of a node, allocated now or before; `None` if no range is left.
    pub fn allocate(&mut self, node: &Node) -> Option<Vec<Network>> {
        let name = node.name();
        if let Some(held) = self.by_node.get(name).filter(|it| it.uid == node.uid()) {
            return Some(held.ranges.clone());
        }
        // one of each network, or none
        if self.cidrs.iter().any(|it| it.free().is_none()) {
            self.unserved.insert(name.to_owned());
            return None;
        }
        let mut ranges = Vec::new();
        for cidrs in &mut self.cidrs {
            let (range, tried) = cidrs.take_free()?;
            self.metrics.allocated(cidrs, tried);
            ranges.push(range);
        }
        let held = NodeRanges { uid: node.uid().to_owned(), ranges: ranges.clone() };
        self.by_node.insert(name.to_owned(), held);
        Some(ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cidrs::Pool;
    use super::*;
    use crate::testing::object;
    use client::metrics::Metrics;
    use serde_json::json;

    fn network(text: &str) -> Network {
        Network::parse(text).unwrap()
    }

    fn allocations(pools: &[(&str, u8)], services: &[&str]) -> Allocations {
        let options = Options {
            pools: pools.iter().map(|(text, prefix)| Pool::new(network(text), *prefix).unwrap()).collect(),
            services: services.iter().map(|it| network(it)).collect(),
        };
        Allocations::new(&options, CidrMetrics::new(&Metrics::default()))
    }

    fn node(name: &str, uid: &str, cidrs: &[&str]) -> Node {
        object(json!({
            "metadata": {"name": name, "uid": uid},
            "spec": {"podCIDR": cidrs.first(), "podCIDRs": cidrs}
        }))
    }

    fn allocated(allocations: &mut Allocations, name: &str) -> Vec<String> {
        let node = node(name, name, &[]);
        assert!(allocations.observe(&node).0);
        allocations.allocate(&node).unwrap_or_default().iter().map(ToString::to_string).collect()
    }

    fn names(of: BTreeSet<String>) -> Vec<String> {
        of.into_iter().collect()
    }

    #[test]
    fn nodes_keep_their_ranges() {
        let mut allocations =
            allocations(&[("10.0.0.0/22", 24), ("fd00::/62", 64)], &["10.0.1.0/25", "172.16.0.0/16"]);
        assert!(!allocations.observe(&node("old", "u", &["10.0.0.0/24", "fd00::/64"])).0);
        // the second belongs to services
        assert_eq!(allocated(&mut allocations, "a"), ["10.0.2.0/24", "fd00:0:0:1::/64"]);
        // a second allocation returns the same, also after the write
        assert_eq!(allocated(&mut allocations, "a"), ["10.0.2.0/24", "fd00:0:0:1::/64"]);
        assert!(!allocations.observe(&node("a", "a", &["10.0.2.0/24", "fd00:0:0:1::/64"])).0);
        assert_eq!(allocated(&mut allocations, "b"), ["10.0.3.0/24", "fd00:0:0:2::/64"]);
        assert_eq!(allocated(&mut allocations, "c"), [""; 0]);
        assert_eq!(names(allocations.release("old")), ["c"]);
        assert_eq!(allocated(&mut allocations, "c"), ["10.0.0.0/24", "fd00:0:0:3::/64"]);
    }

    #[test]
    fn a_node_of_the_same_name_and_another_uid_gets_new_ranges() {
        let mut allocations = allocations(&[("10.0.0.0/23", 24)], &[]);
        assert_eq!(allocated(&mut allocations, "a"), ["10.0.0.0/24"]);
        assert_eq!(
            (allocated(&mut allocations, "b"), allocated(&mut allocations, "c")),
            (vec!["10.0.1.0/24".to_owned()], vec![])
        );
        let (needs, freed) = allocations.observe(&node("a", "another", &[]));
        assert_eq!((needs, names(freed)), (true, vec!["c".to_owned()]));
        assert_eq!(allocated(&mut allocations, "c"), ["10.0.0.0/24"]);
        // another writer chose its range
        assert!(!allocations.observe(&node("b", "b", &["10.9.0.0/24"])).0);
        assert_eq!(allocated(&mut allocations, "d"), ["10.0.1.0/24"]);
    }
}
