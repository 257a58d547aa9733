//! The sources whose queries are answered: pods and nodes, so that the server is no open resolver.
//!
//! Sources are the pod ranges and addresses of all nodes, loopback, and ranges of the options. Where a node has no pod
//! range, because an address plugin has ranges of its own, the ranges of pods are not known: then private addresses are
//! answered too.

use api::Resource;
use api::core::v1::Node;
use apimachinery::net::Network;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The addresses of a node and its pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeNetwork {
    pod_ranges: Vec<Network>,
    addresses: Vec<IpAddr>,
}

impl NodeNetwork {
    pub fn new(node: &Node) -> Self {
        let ranges = match node.spec.pod_cidrs.is_empty() {
            true => std::slice::from_ref(&node.spec.pod_cidr),
            false => &node.spec.pod_cidrs,
        };
        NodeNetwork {
            pod_ranges: ranges.iter().filter_map(|it| Network::parse(it)).collect(),
            addresses: node.status.addresses.iter().filter_map(|it| it.address.parse().ok()).collect(),
        }
    }
}

/// See the module.
pub struct AllowedSources {
    /// Ranges of the options.
    always: Vec<Network>,
    nodes: Mutex<HashMap<String, NodeNetwork>>,
    rules: ArcSwap<Rules>,
}

#[derive(Default)]
struct Rules {
    addresses: HashSet<IpAddr>,
    /// By length of the prefix and address of the network.
    ranges: HashSet<(u8, IpAddr)>,
    /// The lengths of prefixes that occur: a source is looked up once for each.
    prefixes: BTreeSet<u8>,
    allows_private: bool,
}

impl Rules {
    fn new<'a>(always: &[Network], nodes: impl Iterator<Item = &'a NodeNetwork> + Clone) -> Self {
        let ranges = always.iter().chain(nodes.clone().flat_map(|it| &it.pod_ranges));
        let ranges: HashSet<_> = ranges.map(|it| (it.prefix(), it.base())).collect();
        let mut nodes_with_ranges = nodes.clone().map(|it| !it.pod_ranges.is_empty());
        Rules {
            addresses: nodes.clone().flat_map(|it| it.addresses.iter().copied()).collect(),
            prefixes: ranges.iter().map(|(prefix, _)| *prefix).collect(),
            ranges,
            allows_private: nodes.count() == 0 || !nodes_with_ranges.all(|it| it),
        }
    }

    fn allows(&self, source: IpAddr) -> bool {
        let in_range =
            |prefix: &u8| self.ranges.contains(&(*prefix, Network::around(source, *prefix).base()));
        source.is_loopback()
            || self.addresses.contains(&source)
            || self.prefixes.iter().any(in_range)
            || self.allows_private && is_private(source)
    }
}

/// Whether an address is one that the Internet does not route.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(it) => {
            let shared = Network::around(Ipv4Addr::new(100, 64, 0, 0).into(), 10);
            it.is_private() || it.is_link_local() || Network::around(it.into(), 10) == shared
        }
        IpAddr::V6(it) => it.is_unique_local() || it.is_unicast_link_local(),
    }
}

impl AllowedSources {
    pub fn new(always: Vec<Network>) -> Self {
        let rules = Rules::new(&always, [].iter());
        AllowedSources { always, nodes: Mutex::default(), rules: ArcSwap::from_pointee(rules) }
    }

    pub fn allows(&self, source: IpAddr) -> bool {
        self.rules.load().allows(source)
    }

    /// A node as it is now; `None` if it is gone.
    pub fn set_node(&self, name: &str, node: Option<NodeNetwork>) {
        let mut nodes = self.nodes.lock();
        let old = match &node {
            Some(node) => nodes.insert(name.to_owned(), node.clone()),
            None => nodes.remove(name),
        };
        // most changes of nodes are heartbeats
        if old != node {
            self.rules.store(Arc::new(Rules::new(&self.always, nodes.values())));
        }
    }

    /// Whether a node of this name exists.
    pub fn has_node(&self, name: &str) -> bool {
        self.nodes.lock().contains_key(name)
    }
}

/// The name and network of a node.
pub fn node_network(node: &Node) -> (String, NodeNetwork) {
    (node.name().to_owned(), NodeNetwork::new(node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::core::v1::NodeAddress;

    fn node(ranges: &[&str], address: &str) -> NodeNetwork {
        let mut node = Node::default();
        node.spec.pod_cidrs = ranges.iter().map(|&it| it.to_owned()).collect();
        let address = NodeAddress { address: address.to_owned(), ..NodeAddress::default() };
        node.status.addresses = vec![address];
        NodeNetwork::new(&node)
    }

    #[test]
    fn pods_and_nodes_are_answered() {
        let sources = AllowedSources::new(vec![Network::parse("172.20.0.0/16").unwrap()]);
        sources.set_node("a", Some(node(&["10.244.0.0/24", "fd00:1::/64"], "192.0.2.1")));
        sources.set_node("b", Some(node(&["10.244.1.0/24"], "192.0.2.2")));
        let allowed = |text: &str| sources.allows(text.parse().unwrap());
        for source in
            ["10.244.0.9", "10.244.1.255", "fd00:1::9", "192.0.2.2", "127.0.0.53", "::1", "172.20.3.4"]
        {
            assert!(allowed(source), "{source}");
        }
        for source in ["10.244.2.1", "fd00:2::1", "192.0.2.3", "192.168.1.1", "8.8.8.8", "172.21.0.1"] {
            assert!(!allowed(source), "{source}");
        }
        sources.set_node("b", None);
        assert!(!allowed("10.244.1.255") && !allowed("192.0.2.2") && allowed("10.244.0.9"));
    }

    #[test]
    fn private_addresses_are_answered_while_ranges_are_unknown() {
        let sources = AllowedSources::new(Vec::new());
        let allowed = |text: &str| sources.allows(text.parse().unwrap());
        assert!(allowed("10.1.2.3") && allowed("100.64.0.1") && allowed("fd12::1"));
        assert!(!allowed("8.8.8.8") && !allowed("100.128.0.1") && !allowed("2001:db8::1"));
        sources.set_node("a", Some(node(&["10.244.0.0/24"], "192.0.2.1")));
        assert!(!allowed("10.1.2.3"));
        sources.set_node("b", Some(node(&[], "192.0.2.2")));
        assert!(allowed("10.1.2.3") && !allowed("8.8.8.8"));
    }
}
