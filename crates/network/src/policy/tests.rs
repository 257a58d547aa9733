use std::collections::BTreeMap;
use std::sync::Arc;

use api::core::v1::Pod;
use api::networking::v1::NetworkPolicy;
use client::Key;

use super::objects::{Direction, PodInfo, PolicyInfo};
use super::rules::{pod_map, table_id};
use super::state::PolicyState;
use crate::netfilter::testing::in_namespace;
use crate::netfilter::{Connection, Element, Family, Ruleset, TableWriter};
use crate::proxy::traffic_tests::Network;

pub(super) const NODE: &str = "node-1";
pub(super) const FAMILIES: [Family; 2] = [Family::Ipv4, Family::Ipv6];

/// A pod: namespace, `app` label, node, addresses, and a port named `web` if it is not 0.
pub(super) fn pod(namespace: &str, app: &str, node: &str, addresses: &[&str], web: u16) -> PodInfo {
    let addresses: Vec<_> = addresses.iter().map(|ip| serde_json::json!({ "ip": ip })).collect();
    let ports = if web == 0 {
        serde_json::json!([])
    } else {
        serde_json::json!([{"name": "web", "containerPort": web}])
    };
    let text = serde_json::json!({
        "metadata": {"namespace": namespace, "name": app, "labels": {"app": app}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "ports": ports}]},
        "status": {"phase": "Running", "podIPs": addresses},
    });
    PodInfo::read(&api::from_json::<Pod>(text.to_string().as_bytes()).unwrap()).unwrap()
}

pub(super) fn policy(namespace: &str, spec: serde_json::Value) -> PolicyInfo {
    let text = serde_json::json!({"metadata": {"namespace": namespace, "name": "p"}, "spec": spec});
    PolicyInfo::read(&api::from_json::<NetworkPolicy>(text.to_string().as_bytes()).unwrap()).unwrap()
}

pub(super) fn labels(name: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_owned(), value.to_owned())])
}

/// A state with the namespaces a and b, a server and a client in a, and a client in b on another node.
fn cluster() -> PolicyState {
    let mut state = PolicyState::new(NODE, &FAMILIES);
    for name in ["a", "b"] {
        state.set_namespace(name, Some(labels("name", name)));
    }
    let pods = [
        ("server", pod("a", "server", NODE, &["10.1.0.2", "fd01::2"], 8080)),
        ("client", pod("a", "client", NODE, &["10.1.0.3", "fd01::3"], 0)),
        ("client", pod("b", "client", "other", &["10.1.1.2", "fd01:1::2"], 9090)),
    ];
    for (name, pod) in pods {
        state.set_pod(&Arc::new(Key::new(pod.namespace.clone(), name)), Some(pod));
    }
    state
}

/// An element in words.
fn words(element: &Element, types: &[crate::netfilter::FieldType]) -> String {
    use crate::netfilter::Field;
    let value = |value: &crate::netfilter::Value| {
        let field = |field: &Field| match field {
            Field::Address(address) => address.to_string(),
            Field::Protocol(protocol) => protocol.0.to_string(),
            Field::Port(port) => port.to_string(),
            field => format!("{field:?}"),
        };
        value.fields(types).unwrap().iter().map(field).collect::<Vec<_>>().join(":")
    };
    let to = element.to.as_ref().map(|to| format!("-{}", value(to)));
    format!("{}{}", value(&element.from), to.unwrap_or_default())
}

/// The sets of a policy in the IPv4 table if it isolates the server in a direction, and the number of its rules.
fn rules(direction: Direction, spec: serde_json::Value) -> Option<String> {
    let mut state = cluster();
    state.set_policy(&Key::new("a", "p"), Some(policy("a", spec)));
    state.sync();
    let ruleset = state.ruleset();
    let table = ruleset.get(&table_id(Family::Ipv4))?;
    let server = Element::value("10.1.0.2".parse::<std::net::IpAddr>().unwrap().into());
    table.sets[&pod_map(direction)].elements.get(&server)?;
    let is_chain = |name: &str| {
        let prefix = if direction == Direction::Ingress { "ingress-" } else { "egress-" };
        name.starts_with(prefix) && !name.contains("-pods-")
    };
    let count = table.chains.iter().find(|(name, _)| is_chain(name)).unwrap().1.rules.len();
    let sets = table.sets.iter().filter(|(name, _)| !name.ends_with("-pods"));
    let text = sets.map(|(name, set)| {
        let elements: Vec<_> = set.elements.keys().map(|it| words(it, &set.set_type.key)).collect();
        format!("{} {}", name.split('-').next().unwrap(), elements.join(","))
    });
    let mut text: Vec<_> = text.collect();
    text.sort();
    text.push(format!("rules {count}"));
    Some(text.join("; "))
}

fn ingress(rules_json: serde_json::Value) -> Option<String> {
    rules(
        Direction::Ingress,
        serde_json::json!({"podSelector": {"matchLabels": {"app": "server"}}, "policyTypes": ["Ingress"], "ingress": rules_json}),
    )
}

#[test]
fn policies_isolate_the_pods_that_they_select() {
    assert_eq!(ingress(serde_json::json!([])).as_deref(), Some("rules 0"));
    assert_eq!(ingress(serde_json::json!([{}])).as_deref(), Some("rules 1"));
    // another direction, other pods
    let other = serde_json::json!({"podSelector": {}, "policyTypes": ["Egress"]});
    assert_eq!(rules(Direction::Ingress, other.clone()), None);
    assert_eq!(rules(Direction::Egress, other).as_deref(), Some("rules 0"));
    let others =
        serde_json::json!({"podSelector": {"matchLabels": {"app": "x"}}, "policyTypes": ["Ingress"]});
    assert_eq!(rules(Direction::Ingress, others), None);
    // without types: ingress, and egress if there are rules for it
    let old = serde_json::json!({"podSelector": {}});
    assert_eq!(rules(Direction::Ingress, old.clone()).as_deref(), Some("rules 0"));
    assert_eq!(rules(Direction::Egress, old), None);
}

#[test]
fn peers_are_pods_and_networks() {
    let from = |peer: serde_json::Value| ingress(serde_json::json!([{"from": peer}])).unwrap();
    // pods of the policy's namespace, of selected ones, and both
    assert_eq!(from(serde_json::json!([{"podSelector": {}}])), "pods 10.1.0.2,10.1.0.3; rules 1");
    assert_eq!(
        from(serde_json::json!([{"podSelector": {"matchLabels": {"app": "client"}}}])),
        "pods 10.1.0.3; rules 1"
    );
    assert_eq!(
        from(serde_json::json!([{"namespaceSelector": {"matchLabels": {"name": "b"}}}])),
        "pods 10.1.1.2; rules 1"
    );
    assert_eq!(
        from(serde_json::json!([{
            "namespaceSelector": {},
            "podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["client"]}]},
        }])),
        "pods 10.1.0.3,10.1.1.2; rules 1"
    );
    assert_eq!(
        from(serde_json::json!([{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}])),
        "networks 10.0.0.0-10.0.255.255,10.2.0.0-10.255.255.255; rules 1"
    );
    // peers of another family, and selectors without pods, allow nothing
    assert_eq!(from(serde_json::json!([{"ipBlock": {"cidr": "fd00::/8"}}])), "rules 0");
    assert_eq!(from(serde_json::json!([{"podSelector": {"matchLabels": {"app": "x"}}}])), "pods ; rules 1");
}

#[test]
fn ports_are_numbers_ranges_and_names() {
    let ports = |ports: serde_json::Value| ingress(serde_json::json!([{"ports": ports}])).unwrap();
    assert_eq!(
        ports(serde_json::json!([{"port": 80}, {"protocol": "UDP", "port": 53}])),
        "ports 6:80,17:53; rules 1"
    );
    assert_eq!(
        ports(serde_json::json!([{"port": 80, "endPort": 90}, {"port": 85, "endPort": 100}, {"port": 101}])),
        "ports 6:80-6:101; rules 1"
    );
    assert_eq!(ports(serde_json::json!([{"protocol": "SCTP"}])), "ports 132:0-132:65535; rules 1");
    // the name is one of the selected pod, with its protocol
    assert_eq!(ports(serde_json::json!([{"port": "web"}])), "endpoints 10.1.0.2:6:8080; rules 1");
    assert_eq!(ports(serde_json::json!([{"port": "web", "protocol": "UDP"}])), "endpoints ; rules 1");
    assert_eq!(ports(serde_json::json!([{"port": "unknown"}])), "endpoints ; rules 1");
    // in the other direction it is one of each peer
    let egress = |to: serde_json::Value| {
        let rule = serde_json::json!([{"ports": [{"port": "web"}], "to": to}]);
        rules(
            Direction::Egress,
            serde_json::json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": rule}),
        )
    };
    let all = serde_json::json!([{"namespaceSelector": {}}]);
    assert_eq!(egress(all).as_deref(), Some("endpoints 10.1.0.2:6:8080,10.1.1.2:6:9090; rules 1"));
}

/// The policies p0, p1, ... in the kernel.
struct Enforcement {
    state: PolicyState,
    writer: TableWriter,
    count: usize,
}

impl Enforcement {
    fn new() -> Self {
        let writer = TableWriter::open(FAMILIES.map(table_id).into()).unwrap();
        Self { state: cluster(), writer, count: 0 }
    }

    fn apply(&mut self, policies: &[PolicyInfo]) {
        for at in 0..self.count.max(policies.len()) {
            self.state.set_policy(&Key::new("a", format!("p{at}")), policies.get(at).cloned());
        }
        self.count = policies.len();
        let batch = self.state.sync();
        self.writer.write(&batch, || self.state.ruleset()).unwrap();
        let desired = self.state.ruleset();
        assert!(Connection::open().unwrap().read(&FAMILIES.map(table_id)).unwrap().0 == desired);
        assert_eq!(desired == Ruleset::new(), policies.is_empty());
    }
}

#[test]
fn policies_are_enforced_between_pods() {
    in_namespace(module_path!(), "policies_are_enforced_between_pods", || {
        let mut network = Network::new();
        let mut enforcement = Enforcement::new();
        for address in ["10.1.0.2", "fd01::2"] {
            network.serve("pod1", "tcp", address, 8080);
            network.serve("pod1", "tcp", address, 9000);
        }
        network.serve("remote", "tcp", "10.1.1.2", 9090);
        network.serve("node", "tcp", "10.1.0.1", 7000);
        let answers = |network: &Network, from: &str, to: &str, port: u16| {
            let answer = network.ask(from, "tcp", to, port);
            answer.starts_with(&format!("{to} saw"))
        };
        assert!(answers(&network, "pod2", "10.1.0.2", 8080));

        // only clients of the namespace, and only the port "web"
        let server = |ingress: serde_json::Value| {
            let spec = serde_json::json!({
                "podSelector": {"matchLabels": {"app": "server"}}, "policyTypes": ["Ingress"], "ingress": ingress,
            });
            policy("a", spec)
        };
        let client = serde_json::json!({"podSelector": {"matchLabels": {"app": "client"}}});
        enforcement.apply(&[server(serde_json::json!([{"from": [client], "ports": [{"port": "web"}]}]))]);
        assert!(answers(&network, "pod2", "10.1.0.2", 8080));
        assert!(answers(&network, "pod2", "fd01::2", 8080));
        assert_eq!(network.ask("pod2", "tcp", "10.1.0.2", 9000), "timeout");
        assert_eq!(network.ask("remote", "tcp", "10.1.0.2", 8080), "timeout");
        assert_eq!(network.ask("remote", "tcp", "fd01::2", 8080), "timeout");
        // the node probes its pods
        assert!(answers(&network, "node", "10.1.0.2", 9000));

        // networks with exceptions, ranges of ports
        let block = serde_json::json!({"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.1.0.0/24"]}});
        let range = serde_json::json!([{"port": 8000, "endPort": 8999}]);
        enforcement.apply(&[server(serde_json::json!([{"from": [block], "ports": range}]))]);
        assert!(answers(&network, "remote", "10.1.0.2", 8080));
        assert!(answers(&network, "outside", "10.1.0.2", 8080));
        assert_eq!(network.ask("outside", "tcp", "10.1.0.2", 9000), "timeout");
        assert_eq!(network.ask("pod2", "tcp", "10.1.0.2", 8080), "timeout");

        // egress: a port that the peer names; the node is a peer like any other
        let spec = |egress: serde_json::Value| {
            policy("a", serde_json::json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": egress}))
        };
        let all = serde_json::json!([{"namespaceSelector": {}}]);
        enforcement.apply(&[spec(serde_json::json!([{"to": all, "ports": [{"port": "web"}]}]))]);
        assert!(answers(&network, "pod2", "10.1.1.2", 9090));
        assert!(answers(&network, "pod2", "10.1.0.2", 8080));
        assert_eq!(network.ask("pod2", "tcp", "10.1.0.2", 9000), "timeout");
        assert_eq!(network.ask("pod2", "tcp", "10.1.0.1", 7000), "timeout");
        enforcement.apply(&[]);
        assert!(answers(&network, "pod2", "10.1.0.1", 7000));
    });
}
