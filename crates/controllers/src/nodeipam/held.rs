//! Which node holds which ranges.
//!
//! What always holds: a range belongs to one node from when it is chosen until the node is gone, whether or not anybody
//! knows that it was written; who asks again gets the same ones. What nodes have when the loop begins is theirs.

use super::cidrs::Cidrs;
use super::metrics::CidrMetrics;
use super::options::Options;
use k8s_openapi::api::core::v1::Node;
use kinds::core::service::Network;
use kube::ResourceExt;
use std::collections::{BTreeSet, HashMap};

pub(super) struct Ranges {
    cidrs: Vec<Cidrs>,
    by_node: HashMap<String, NodeRanges>,
    /// Nodes for which nothing was left.
    without: BTreeSet<String>,
    metrics: CidrMetrics,
}

struct NodeRanges {
    uid: Option<String>,
    ranges: Vec<Network>,
}

/// The ranges that a node has, as far as they can be read.
pub(super) fn written(node: &Node) -> Vec<Network> {
    let Some(spec) = &node.spec else { return Vec::new() };
    let all = spec.pod_cidrs.iter().flatten();
    let all: Vec<&String> =
        if spec.pod_cidrs.is_some() { all.collect() } else { spec.pod_cidr.iter().collect() };
    all.into_iter().filter_map(|it| Network::parse(it)).collect()
}

impl Ranges {
    pub fn new(options: &Options, metrics: CidrMetrics) -> Self {
        let mut cidrs: Vec<Cidrs> = options.pools.iter().map(|pool| Cidrs::new(*pool)).collect();
        for cidrs in &mut cidrs {
            for network in &options.services {
                cidrs.take(network);
            }
        }
        Ranges { cidrs, by_node: HashMap::new(), without: BTreeSet::new(), metrics }
    }

    pub fn each(&self, see: impl FnMut(&Cidrs)) {
        self.cidrs.iter().for_each(see);
    }

    /// A node is there. Whether it needs ranges, and who may get some now because of what it let go.
    pub fn see(&mut self, node: &Node) -> (bool, BTreeSet<String>) {
        let (name, written) = (node.name_any(), written(node));
        let same = self.by_node.get(&name).filter(|it| it.uid == node.metadata.uid);
        if written.is_empty() {
            let another = same.is_none() && self.by_node.contains_key(&name);
            return (true, if another { self.gone(&name) } else { BTreeSet::new() });
        }
        if same.is_some_and(|it| it.ranges == written) {
            return (false, BTreeSet::new());
        }
        // first the new ones: most of them may be the same
        for range in &written {
            let here = self.cidrs.iter_mut().filter_map(|it| it.take(range).then_some(())).count();
            if here == 0 {
                tracing::warn!(controller = "nodeipam", node = name, %range, "a node has a range of no known network");
            }
        }
        let freed = self.gone(&name);
        let held = NodeRanges { uid: node.metadata.uid.clone(), ranges: written };
        self.by_node.insert(name, held);
        (false, freed)
    }

    /// A node is gone. Who may get ranges now.
    pub fn gone(&mut self, name: &str) -> BTreeSet<String> {
        self.without.remove(name);
        let Some(held) = self.by_node.remove(name) else { return BTreeSet::new() };
        for cidrs in &mut self.cidrs {
            let pool = cidrs.pool;
            for range in held.ranges.iter().filter(|it| pool.holds(it)) {
                cidrs.give_back(range);
                self.metrics.released(cidrs);
            }
        }
        std::mem::take(&mut self.without)
    }

    /// The ranges of a node, chosen now or before; nothing where nothing is left.
    pub fn choose(&mut self, node: &Node) -> Option<Vec<Network>> {
        let name = node.name_any();
        if let Some(held) = self.by_node.get(&name).filter(|it| it.uid == node.metadata.uid) {
            return Some(held.ranges.clone());
        }
        // one of each network, or none
        if self.cidrs.iter().any(|it| it.free().is_none()) {
            self.without.insert(name);
            return None;
        }
        let mut ranges = Vec::new();
        for cidrs in &mut self.cidrs {
            let (range, tried) = cidrs.take_free()?;
            self.metrics.allocated(cidrs, tried);
            ranges.push(range);
        }
        self.by_node.insert(name, NodeRanges { uid: node.metadata.uid.clone(), ranges: ranges.clone() });
        Some(ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cidrs::Pool;
    use super::*;
    use client::metrics::Metrics;
    use serde_json::json;

    fn network(text: &str) -> Network {
        Network::parse(text).unwrap()
    }

    fn ranges(pools: &[(&str, u8)], services: &[&str]) -> Ranges {
        let options = Options {
            pools: pools.iter().map(|(text, prefix)| Pool::new(network(text), *prefix).unwrap()).collect(),
            services: services.iter().map(|it| network(it)).collect(),
        };
        Ranges::new(&options, CidrMetrics::new(&Metrics::default()))
    }

    fn node(name: &str, uid: &str, cidrs: &[&str]) -> Node {
        let node = json!({
            "metadata": {"name": name, "uid": uid},
            "spec": {"podCIDR": cidrs.first(), "podCIDRs": cidrs}
        });
        serde_json::from_value(node).unwrap()
    }

    fn chosen(ranges: &mut Ranges, name: &str) -> Vec<String> {
        let node = node(name, name, &[]);
        assert!(ranges.see(&node).0);
        ranges.choose(&node).unwrap_or_default().iter().map(ToString::to_string).collect()
    }

    fn names(of: BTreeSet<String>) -> Vec<String> {
        of.into_iter().collect()
    }

    #[test]
    fn what_nodes_have_is_theirs() {
        let mut ranges = ranges(&[("10.0.0.0/22", 24), ("fd00::/62", 64)], &["10.0.1.0/25", "172.16.0.0/16"]);
        assert!(!ranges.see(&node("old", "u", &["10.0.0.0/24", "fd00::/64"])).0);
        // services have the second
        assert_eq!(chosen(&mut ranges, "a"), ["10.0.2.0/24", "fd00:0:0:1::/64"]);
        // asking again gives the same, also when it was written meanwhile
        assert_eq!(chosen(&mut ranges, "a"), ["10.0.2.0/24", "fd00:0:0:1::/64"]);
        assert!(!ranges.see(&node("a", "a", &["10.0.2.0/24", "fd00:0:0:1::/64"])).0);
        assert_eq!(chosen(&mut ranges, "b"), ["10.0.3.0/24", "fd00:0:0:2::/64"]);
        assert_eq!(chosen(&mut ranges, "c"), [""; 0]);
        assert_eq!(names(ranges.gone("old")), ["c"]);
        assert_eq!(chosen(&mut ranges, "c"), ["10.0.0.0/24", "fd00:0:0:3::/64"]);
    }

    #[test]
    fn a_node_of_the_same_name_is_another() {
        let mut ranges = ranges(&[("10.0.0.0/23", 24)], &[]);
        assert_eq!(chosen(&mut ranges, "a"), ["10.0.0.0/24"]);
        assert_eq!(
            (chosen(&mut ranges, "b"), chosen(&mut ranges, "c")),
            (vec!["10.0.1.0/24".to_owned()], vec![])
        );
        let (needs, freed) = ranges.see(&node("a", "another", &[]));
        assert_eq!((needs, names(freed)), (true, vec!["c".to_owned()]));
        assert_eq!(chosen(&mut ranges, "c"), ["10.0.0.0/24"]);
        // somebody else chose for it
        assert!(!ranges.see(&node("b", "b", &["10.9.0.0/24"])).0);
        assert_eq!(chosen(&mut ranges, "d"), ["10.0.1.0/24"]);
    }
}
