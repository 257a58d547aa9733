//! Which services get the addresses of which nodes, as a pure function.

use api::Resource;
use api::core::v1::{Node, Service};
use client::Key;
use names::Names;
use names::load_balancers::{NODES, PORTS};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::nodes;

/// A port with the name of its protocol.
type Port = (u16, String);

/// A node, as load balancers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePorts {
    pub name: String,
    pub addresses: Vec<IpAddr>,
    /// The ports that the node offers.
    ports: BTreeSet<Port>,
    /// Whether clients may be sent there.
    is_usable: bool,
}

impl NodePorts {
    pub fn new(node: &Node, names: &Names) -> Self {
        let internal = node.status.addresses.iter().filter(|it| it.type_ == "InternalIP");
        let offered = node.metadata.annotations.get(PORTS).map(String::as_str).unwrap_or_default();
        let is_excluded = node
            .metadata
            .labels
            .contains_key(&names.well_known_under("node", "exclude-from-external-load-balancers"));
        NodePorts {
            name: node.name().to_owned(),
            addresses: internal.filter_map(|it| it.address.parse().ok()).collect(),
            ports: offered.split(',').filter_map(parse_port).collect(),
            is_usable: nodes::ready(node) == Some("True")
                && node.metadata.deletion_timestamp.is_none()
                && !is_excluded,
        }
    }

    fn is_at(&self, text: &str) -> bool {
        text.parse().is_ok_and(|address| self.addresses.contains(&address))
    }
}

/// A port such as `80/TCP`.
fn parse_port(text: &str) -> Option<Port> {
    let (number, protocol) = text.split_once('/')?;
    Some((number.parse().ok()?, protocol.to_owned()))
}

/// What a service should have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Assignment {
    pub addresses: Vec<IpAddr>,
    /// The names of the nodes with these addresses.
    pub nodes: Vec<String>,
}

/// The result for all services of this load balancer.
pub type Assignments = BTreeMap<Key, Assignment>;

/// Assigns the addresses of nodes to services: those of every usable node that offers all ports of the service. Of two
/// services that want the same port of a node the one that has it keeps it, else the older one gets it. `endpoint_nodes`
/// are the nodes with ready endpoints of a service, which a service with the policy `Local` needs.
pub fn assign(
    services: &[Arc<Service>],
    nodes: &[NodePorts],
    endpoint_nodes: impl Fn(&Service) -> BTreeSet<String>,
) -> Assignments {
    let node_ports: BTreeSet<Port> = services
        .iter()
        .flat_map(|service| &service.spec.ports)
        .filter_map(|port| Some((number(port.node_port)?, protocol(&port.protocol))))
        .collect();
    // by name of the node
    let mut taken: BTreeSet<(&str, Port)> = BTreeSet::new();
    for service in services {
        let has = |node: &&NodePorts| service.spec.external_ips.iter().any(|it| node.is_at(it));
        for node in nodes.iter().filter(has) {
            taken.extend(ports(service).map(|port| (&*node.name, port)));
        }
    }
    let mut candidates: Vec<&Arc<Service>> =
        services.iter().filter(|service| is_candidate(service, nodes)).collect();
    candidates.sort_by_key(|service| {
        let metadata = &service.metadata;
        let is_new = service.status.load_balancer.ingress.is_empty();
        (is_new, metadata.creation_timestamp, metadata.namespace.clone(), metadata.name.clone())
    });
    let mut assignments = Assignments::new();
    for service in candidates {
        let ports: BTreeSet<Port> = ports(service).collect();
        let local = (service.spec.external_traffic_policy == "Local").then(|| endpoint_nodes(service));
        let serves = |node: &&NodePorts| {
            node.is_usable
                && local.as_ref().is_none_or(|with| with.contains(&node.name))
                && ports.iter().all(|port| {
                    node.ports.contains(port)
                        && !node_ports.contains(port)
                        && !taken.contains(&(&*node.name, port.clone()))
                })
        };
        let serving: Vec<&NodePorts> = nodes.iter().filter(serves).collect();
        let assignment = Assignment::of(service, &serving);
        for node in serving.iter().filter(|node| assignment.nodes.contains(&node.name)) {
            taken.extend(ports.iter().map(|port| (&*node.name, port.clone())));
        }
        assignments.insert(Key::of(&**service), assignment);
    }
    assignments
}

impl Assignment {
    /// One address of each family of the service at each node; the one that the service asks for, if it does.
    fn of(service: &Service, nodes: &[&NodePorts]) -> Self {
        let requested = service.spec.load_balancer_ip.parse::<IpAddr>().ok();
        let mut assignment = Assignment::default();
        for family in &service.spec.ip_families {
            for node in nodes {
                let fits = |address: &&IpAddr| {
                    address.is_ipv4() == (family == "IPv4") && requested.is_none_or(|it| it == **address)
                };
                if let Some(address) = node.addresses.iter().find(fits) {
                    assignment.addresses.push(*address);
                    if !assignment.nodes.contains(&node.name) {
                        assignment.nodes.push(node.name.clone());
                    }
                }
            }
        }
        assignment
    }
}

/// A service that no other load balancer serves.
fn is_candidate(service: &Service, nodes: &[NodePorts]) -> bool {
    let ingress = &service.status.load_balancer.ingress;
    let is_own = service.metadata.annotations.contains_key(NODES)
        || ingress.iter().all(|it| nodes.iter().any(|node| node.is_at(&it.ip)));
    service.spec.type_ == "LoadBalancer"
        && service.spec.load_balancer_class.is_none()
        && service.metadata.deletion_timestamp.is_none()
        && is_own
}

/// The addresses that a service has.
pub fn current(service: &Service) -> Vec<IpAddr> {
    service.status.load_balancer.ingress.iter().filter_map(|ingress| ingress.ip.parse().ok()).collect()
}

/// The ports that a service wants.
pub fn ports(service: &Service) -> impl Iterator<Item = Port> {
    let ports = service.spec.ports.iter();
    ports.filter_map(|port| Some((number(port.port)?, protocol(&port.protocol))))
}

fn number(port: i32) -> Option<u16> {
    u16::try_from(port).ok().filter(|port| *port != 0)
}

fn protocol(name: &str) -> String {
    if name.is_empty() { "TCP".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::{Value, json};

    fn node(name: &str, addresses: &[&str], ports: &str) -> NodePorts {
        let addresses: Vec<Value> =
            addresses.iter().map(|it| json!({"type": "InternalIP", "address": it})).collect();
        let node: Node = object(json!({
            "metadata": {"name": name, "annotations": {PORTS: ports}},
            "status": {"addresses": addresses, "conditions": [{"type": "Ready", "status": "True"}]},
        }));
        NodePorts::new(&node, &Names::kubernetes())
    }

    fn service(name: &str, port: u16, addresses: &[&str]) -> Service {
        let ingress: Vec<Value> = addresses.iter().map(|ip| json!({ "ip": ip })).collect();
        object(json!({
            "metadata": {"name": name, "namespace": "n"},
            "spec": {"type": "LoadBalancer", "ipFamilies": ["IPv4"], "ports": [{"port": port, "protocol": "TCP"}]},
            "status": {"loadBalancer": {"ingress": ingress}},
        }))
    }

    fn check(services: Vec<Service>, nodes: &[NodePorts], expected: &[(&str, &str)]) {
        let services: Vec<_> = services.into_iter().map(Arc::new).collect();
        let found: Vec<_> = assign(&services, nodes, |_| BTreeSet::from(["b".to_owned()]))
            .into_iter()
            .map(|(key, assignment)| {
                let texts: Vec<_> = assignment.addresses.iter().map(IpAddr::to_string).collect();
                (key.name, texts.join(","))
            })
            .collect();
        let expected: Vec<_> =
            expected.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        assert_eq!(found, expected);
    }

    fn two() -> [NodePorts; 2] {
        [
            node("a", &["10.0.0.1", "fd00::1"], "80/TCP,81/TCP"),
            node("b", &["10.0.0.2", "fd00::2"], "80/TCP,90/TCP"),
        ]
    }

    #[test]
    fn services_get_the_addresses_of_the_nodes_that_offer_their_ports() {
        let services = || vec![service("w", 80, &[]), service("x", 81, &[]), service("y", 22, &[])];
        check(services(), &two(), &[("w", "10.0.0.1,10.0.0.2"), ("x", "10.0.0.1"), ("y", "")]);
        let mut nodes = two();
        nodes[0].is_usable = false;
        check(services(), &nodes, &[("w", "10.0.0.2"), ("x", ""), ("y", "")]);
    }

    #[test]
    fn the_service_that_has_a_port_keeps_it() {
        check(
            vec![service("v", 80, &[]), service("w", 80, &["10.0.0.2"])],
            &two(),
            &[("v", ""), ("w", "10.0.0.1,10.0.0.2")],
        );
        // where another service has the node port or an external address, the port is not free
        let mut taking = service("z", 1, &[]);
        taking.spec.type_ = "NodePort".to_owned();
        taking.spec.ports[0].node_port = 90;
        check(vec![service("w", 90, &[]), taking], &two(), &[("w", "")]);
        let mut taking = service("z", 80, &[]);
        taking.spec.type_ = "ClusterIP".to_owned();
        taking.spec.external_ips = vec!["10.0.0.2".to_owned()];
        check(vec![service("w", 80, &[]), taking], &two(), &[("w", "10.0.0.1")]);
    }

    #[test]
    fn services_of_others_are_left_alone() {
        let mut classed = service("v", 80, &[]);
        classed.spec.load_balancer_class = Some("other".to_owned());
        check(vec![classed, service("w", 81, &["1.2.3.4"])], &two(), &[]);
        // the node with that address was deleted
        let mut marked = service("w", 81, &["10.0.0.9"]);
        marked.metadata.annotations.insert(NODES.to_owned(), "gone".to_owned());
        check(vec![marked], &two(), &[("w", "10.0.0.1")]);
    }

    #[test]
    fn families_requested_addresses_and_local_endpoints_choose_nodes() {
        let mut dual = service("v", 80, &[]);
        dual.spec.ip_families.push("IPv6".to_owned());
        check(vec![dual], &two(), &[("v", "10.0.0.1,10.0.0.2,fd00::1,fd00::2")]);
        let mut requested = service("v", 80, &[]);
        requested.spec.load_balancer_ip = "10.0.0.1".to_owned();
        // the port of the other node is free for the other service
        check(vec![requested, service("w", 80, &[])], &two(), &[("v", "10.0.0.1"), ("w", "10.0.0.2")]);
        let mut local = service("v", 80, &[]);
        local.spec.external_traffic_policy = "Local".to_owned();
        check(vec![local], &two(), &[("v", "10.0.0.2")]);
    }

    #[test]
    fn only_ready_nodes_that_are_not_excluded_are_used() {
        let with = |metadata: Value, status: &str| {
            let mut metadata = metadata;
            metadata["name"] = "a".into();
            let node: Node = object(json!({
                "metadata": metadata,
                "status": {"conditions": [{"type": "Ready", "status": status}]},
            }));
            NodePorts::new(&node, &Names::kubernetes()).is_usable
        };
        assert!(with(json!({}), "True"));
        assert!(!with(json!({}), "Unknown"));
        let label = "node.kubernetes.io/exclude-from-external-load-balancers";
        assert!(!with(json!({"labels": {label: ""}}), "True"));
    }
}
