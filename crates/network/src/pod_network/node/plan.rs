//! The ways to the pods of other nodes, as a pure function of the nodes and of the machine's routes to them.
//!
//! A node that is on a link of this machine is the next hop for its pods. To a node behind a router packets go inside
//! of VXLAN packets: the router does not know the ranges of pods. All that a VXLAN entry needs follows from the Node:
//! its hardware address from the name, the inner address from the pod range, the outer one from the InternalIP.

use super::super::derived::mac_address;
use super::super::netlink::{MacAddress, Neighbour, Route, RouteLookup, Vxlan};
use api::core::v1::Node;
use apimachinery::net::{Family, Network};
use std::collections::HashMap;
use std::net::IpAddr;

/// Marks the routes of this module, among those that other programs have made.
pub const ROUTE_PROTOCOL: u8 = 112;

/// The identifier and port of the VXLAN; the port is the kernel's default.
const VXLAN_ID: u32 = 7050;
const VXLAN_PORT: u16 = 8472;

/// The part of a Node that routes depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeNetwork {
    pub name: String,
    /// Its InternalIPs.
    pub addresses: Vec<IpAddr>,
    /// The ranges of its pods.
    pub ranges: Vec<Network>,
}

impl NodeNetwork {
    pub fn of(node: &Node) -> Self {
        let internal = node.status.addresses.iter().filter(|it| it.type_ == "InternalIP");
        let one = Some(&node.spec.pod_cidr).filter(|it| !it.is_empty() && node.spec.pod_cidrs.is_empty());
        NodeNetwork {
            name: node.metadata.name.clone(),
            addresses: internal.filter_map(|it| it.address.parse().ok()).collect(),
            ranges: node.spec.pod_cidrs.iter().chain(one).filter_map(|it| Network::parse(it)).collect(),
        }
    }

    fn address(&self, family: Family) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|it| Family::of(it) == family)
    }

    fn range(&self, family: Family) -> Option<&Network> {
        self.ranges.iter().find(|it| it.family() == family)
    }

    /// The hardware address of its end of the VXLAN.
    fn mac(&self) -> MacAddress {
        mac_address(&["vxlan", &self.name])
    }

    /// The address of its end of the VXLAN: IPv4, if it has one.
    pub fn tunnel_address(&self) -> Option<IpAddr> {
        self.address(Family::V4).or_else(|| self.address(Family::V6))
    }
}

/// What the machine knows about the ways to nodes.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// The ways to the addresses of nodes; those without are absent.
    pub lookups: HashMap<IpAddr, RouteLookup>,
    /// The MTU of the link with this node's address.
    pub mtu: u32,
}

/// What the kernel should have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Routes to nodes on links of this machine.
    pub routes: Vec<Route>,
    pub tunnel: Option<Tunnel>,
    /// The MTU of pods.
    pub pod_mtu: u32,
    /// Nodes whose pods cannot be reached.
    pub unreachable: Vec<String>,
}

/// The VXLAN link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnel {
    pub vxlan: Vxlan,
    pub mac: MacAddress,
    pub mtu: u32,
    /// Addresses of this machine on the link: packets of the node itself have a source that is answered by this way.
    pub addresses: Vec<IpAddr>,
    pub neighbours: Vec<Neighbour>,
    pub forwarding: Vec<Neighbour>,
    /// Destinations and gateways.
    pub routes: Vec<(Network, IpAddr)>,
}

impl Tunnel {
    /// The routes through the link, once its index is known.
    pub fn routes_on(&self, link: u32) -> impl Iterator<Item = Route> {
        self.routes.iter().map(move |(destination, gateway)| Route {
            destination: *destination,
            gateway: Some(*gateway),
            is_onlink: true,
            link,
            source: self.addresses.iter().copied().find(|it| Family::of(it) == destination.family()),
            protocol: ROUTE_PROTOCOL,
        })
    }
}

/// The bytes that VXLAN adds to a packet: headers of Ethernet, VXLAN, UDP and IP.
fn overhead(outer: Family) -> u32 {
    match outer {
        Family::V4 => 14 + 8 + 8 + 20,
        Family::V6 => 14 + 8 + 8 + 40,
    }
}

/// See the module.
pub fn plan(own: &NodeNetwork, nodes: &[NodeNetwork], machine: &Machine) -> Plan {
    let mut plan = Plan { pod_mtu: machine.mtu, ..Plan::default() };
    for node in nodes.iter().filter(|node| node.name != own.name) {
        for range in &node.ranges {
            if let Some(route) = direct_route(node, range, machine) {
                plan.routes.push(route);
            } else if !add_to_tunnel(&mut plan.tunnel, own, node, range, machine) {
                plan.unreachable.push(node.name.clone());
            }
        }
    }
    if let Some(tunnel) = &plan.tunnel {
        plan.pod_mtu = tunnel.mtu;
    }
    plan.unreachable.dedup();
    plan
}

/// The route to a node that shares a link with this machine.
fn direct_route(node: &NodeNetwork, range: &Network, machine: &Machine) -> Option<Route> {
    let gateway = node.address(range.family())?;
    let way = machine.lookups.get(&gateway).filter(|way| !way.has_gateway && !way.is_local)?;
    Some(Route {
        destination: *range,
        gateway: Some(gateway),
        is_onlink: false,
        link: way.link,
        source: None,
        protocol: ROUTE_PROTOCOL,
    })
}

/// Adds a range of a node to the tunnel; false if no address of the node can be reached.
fn add_to_tunnel(
    tunnel: &mut Option<Tunnel>,
    own: &NodeNetwork,
    node: &NodeNetwork,
    range: &Network,
    machine: &Machine,
) -> bool {
    let Some(local) = own.tunnel_address() else { return false };
    let remote = node.address(Family::of(&local));
    let Some(remote) = remote.filter(|it| machine.lookups.get(it).is_some_and(|way| !way.is_local)) else {
        return false;
    };
    let tunnel = tunnel.get_or_insert_with(|| Tunnel {
        vxlan: Vxlan { id: VXLAN_ID, port: VXLAN_PORT, local: Some(local) },
        mac: own.mac(),
        mtu: machine.mtu.saturating_sub(overhead(Family::of(&local))),
        addresses: [Family::V4, Family::V6]
            .iter()
            .filter_map(|it| own.range(*it))
            .map(Network::base)
            .collect(),
        neighbours: Vec::new(),
        forwarding: Vec::new(),
        routes: Vec::new(),
    });
    // no pod has the first address of a range: it is that of the node's end
    let gateway = range.base();
    tunnel.routes.push((*range, gateway));
    tunnel.neighbours.push(Neighbour { address: gateway, mac: node.mac() });
    let way = Neighbour { address: remote, mac: node.mac() };
    if !tunnel.forwarding.contains(&way) {
        tunnel.forwarding.push(way);
    }
    true
}

/// What is to be removed and what is to be written so that `current` becomes `desired`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes<T> {
    pub removed: Vec<T>,
    pub written: Vec<T>,
}

/// The difference of two lists. An entry with the key of a desired one is not removed: writing replaces it.
pub fn changes<T: Clone + PartialEq, K: PartialEq>(
    current: &[T],
    desired: &[T],
    key: impl Fn(&T) -> K,
) -> Changes<T> {
    let is_replaced = |entry: &T| desired.iter().any(|it| key(it) == key(entry));
    Changes {
        removed: current.iter().filter(|it| !is_replaced(it)).cloned().collect(),
        written: desired.iter().filter(|it| !current.contains(it)).cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn network(text: &str) -> Network {
        Network::parse(text).unwrap()
    }

    fn node(name: &str, addresses: &[&str], ranges: &[&str]) -> NodeNetwork {
        NodeNetwork {
            name: name.to_owned(),
            addresses: addresses.iter().map(|it| address(it)).collect(),
            ranges: ranges.iter().map(|it| network(it)).collect(),
        }
    }

    fn machine(ways: &[(&str, bool)]) -> Machine {
        let way = |has_gateway| RouteLookup { link: 2, has_gateway, is_local: false };
        let lookups = ways.iter().map(|(text, has_gateway)| (address(text), way(*has_gateway)));
        Machine { lookups: lookups.collect(), mtu: 1500 }
    }

    const OWN: [&str; 2] = ["10.244.0.0/24", "fd00:244::/64"];

    #[test]
    fn a_node_on_the_same_link_is_the_next_hop() {
        let own = node("a", &["192.168.0.1", "2001:db8::1"], &OWN);
        let other = node("b", &["192.168.0.2", "2001:db8::2"], &["10.244.1.0/24", "fd00:244:0:1::/64"]);
        let machine = machine(&[("192.168.0.2", false), ("2001:db8::2", false)]);
        let plan = plan(&own, &[own.clone(), other], &machine);
        assert_eq!((plan.tunnel.is_none(), plan.pod_mtu, plan.unreachable.len()), (true, 1500, 0));
        let shown: Vec<_> = plan.routes.iter().map(Route::to_string).collect();
        assert_eq!(
            shown,
            ["10.244.1.0/24 via 192.168.0.2 on link 2", "fd00:244:0:1::/64 via 2001:db8::2 on link 2"]
        );
    }

    #[test]
    fn a_node_behind_a_router_is_reached_by_vxlan() {
        let own = node("a", &["192.168.0.1"], &OWN);
        let other = node("b", &["192.168.9.2"], &["10.244.1.0/24", "fd00:244:0:1::/64"]);
        let plan = plan(&own, std::slice::from_ref(&other), &machine(&[("192.168.9.2", true)]));
        assert_eq!((plan.routes.len(), plan.pod_mtu), (0, 1450));
        let tunnel = plan.tunnel.unwrap();
        assert_eq!((tunnel.mac, tunnel.mtu), (own.mac(), 1450));
        assert_eq!(tunnel.vxlan.local, Some(address("192.168.0.1")));
        assert_eq!(tunnel.addresses, [address("10.244.0.0"), address("fd00:244::")]);
        let mac = other.mac();
        assert_ne!(mac, own.mac());
        assert_eq!(
            tunnel.neighbours,
            [address("10.244.1.0"), address("fd00:244:0:1::")].map(|address| Neighbour { address, mac })
        );
        assert_eq!(tunnel.forwarding, [Neighbour { address: address("192.168.9.2"), mac }]);
        let routes: Vec<_> = tunnel.routes_on(9).collect();
        assert_eq!(routes[0].to_string(), "10.244.1.0/24 via 10.244.1.0 on link 9");
        assert_eq!(routes[1].source, Some(address("fd00:244::")));
        assert!(routes.iter().all(|route| route.is_onlink));
    }

    #[test]
    fn families_without_a_next_hop_use_vxlan() {
        // both nodes are on one link, and have IPv4 addresses only
        let own = node("a", &["192.168.0.1"], &OWN);
        let other = node("b", &["192.168.0.2"], &["10.244.1.0/24", "fd00:244:0:1::/64"]);
        let plan = plan(&own, &[other], &machine(&[("192.168.0.2", false)]));
        assert_eq!(plan.routes.len(), 1);
        let tunnel = plan.tunnel.unwrap();
        assert_eq!(tunnel.routes, [(network("fd00:244:0:1::/64"), address("fd00:244:0:1::"))]);
    }

    #[test]
    fn vxlan_packets_can_be_ipv6() {
        let own = node("a", &["2001:db8::1"], &OWN);
        let other = node("b", &["2001:db8:9::2"], &["10.244.1.0/24"]);
        let plan = plan(&own, &[other], &machine(&[("2001:db8:9::2", true)]));
        let tunnel = plan.tunnel.unwrap();
        assert_eq!((plan.pod_mtu, tunnel.vxlan.local), (1430, Some(address("2001:db8::1"))));
    }

    #[test]
    fn nodes_without_a_way_are_named() {
        let own = node("a", &["192.168.0.1"], &OWN);
        let nodes = [
            node("no-route", &["172.16.0.1"], &["10.244.1.0/24", "fd00:244:0:1::/64"]),
            node("no-address", &[], &["10.244.2.0/24"]),
            node("other-family", &["2001:db8::2"], &["10.244.3.0/24"]),
            node("no-range", &["192.168.0.9"], &[]),
            // this machine has its address: a node of an earlier name
            node("self", &["192.168.0.1"], &["10.244.4.0/24"]),
        ];
        let mut machine = machine(&[("2001:db8::2", false)]);
        let local = RouteLookup { link: 1, has_gateway: false, is_local: true };
        machine.lookups.insert(address("192.168.0.1"), local);
        let plan = plan(&own, &nodes, &machine);
        assert_eq!(plan.unreachable, ["no-route", "no-address", "other-family", "self"]);
        assert!(plan.routes.is_empty() && plan.tunnel.is_none());
    }

    #[test]
    fn only_differences_are_written() {
        let route = |destination: &str, link| Route {
            destination: network(destination),
            gateway: None,
            is_onlink: false,
            link,
            source: None,
            protocol: ROUTE_PROTOCOL,
        };
        let current = [route("10.1.0.0/24", 1), route("10.2.0.0/24", 1), route("10.3.0.0/24", 1)];
        let desired = [route("10.1.0.0/24", 1), route("10.2.0.0/24", 2), route("10.4.0.0/24", 1)];
        let changes = changes(&current, &desired, |it| it.destination);
        assert_eq!(changes.removed, [route("10.3.0.0/24", 1)]);
        assert_eq!(changes.written, [route("10.2.0.0/24", 2), route("10.4.0.0/24", 1)]);
    }

    #[test]
    fn nodes_are_read() {
        let mut node = Node::default();
        node.metadata.name = "a".to_owned();
        node.spec.pod_cidr = "10.1.0.0/24".to_owned();
        let address = |type_: &str, address: &str| api::core::v1::NodeAddress {
            type_: type_.to_owned(),
            address: address.to_owned(),
            ..Default::default()
        };
        node.status.addresses = vec![
            address("Hostname", "a"),
            address("InternalIP", "10.0.0.1"),
            address("InternalIP", "fd00::1"),
        ];
        assert_eq!(
            NodeNetwork::of(&node),
            super::tests::node("a", &["10.0.0.1", "fd00::1"], &["10.1.0.0/24"])
        );
        node.spec.pod_cidrs = vec!["10.1.0.0/24".to_owned(), "fd01::/64".to_owned()];
        assert_eq!(NodeNetwork::of(&node).ranges.len(), 2);
    }
}
