use std::collections::BTreeMap;

use api::core::v1::Pod;
use api::networking::v1::NetworkPolicy;

use super::objects::{Direction, NamespaceLabels, PodInfo, PolicyInfo};
use super::resolve::ClusterView;
use super::rules::{ruleset, table_id};
use crate::netfilter::testing::in_namespace;
use crate::netfilter::{Connection, Family, Ruleset, diff};
use crate::proxy::traffic_tests::Network;

const NODE: &str = "node-1";

/// A pod: namespace, `app` label, node, addresses, and a port named `web` if it is not 0.
fn pod(namespace: &str, app: &str, node: &str, addresses: &[&str], web: u16) -> PodInfo {
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

fn policy(namespace: &str, spec: serde_json::Value) -> PolicyInfo {
    let text = serde_json::json!({"metadata": {"namespace": namespace, "name": "p"}, "spec": spec});
    PolicyInfo::read(&api::from_json::<NetworkPolicy>(text.to_string().as_bytes()).unwrap()).unwrap()
}

fn namespaces() -> NamespaceLabels {
    ["a", "b"].map(|name| (name.to_owned(), BTreeMap::from([("name".to_owned(), name.to_owned())]))).into()
}

fn cluster() -> Vec<PodInfo> {
    vec![
        pod("a", "server", NODE, &["10.1.0.2", "fd01::2"], 8080),
        pod("a", "client", NODE, &["10.1.0.3", "fd01::3"], 0),
        pod("b", "client", "other", &["10.1.1.2", "fd01:1::2"], 9090),
    ]
}

/// The rules of the server for IPv4, as text.
fn rules(direction: Direction, spec: serde_json::Value) -> Option<String> {
    let (pods, namespaces) = (cluster(), namespaces());
    let pods: Vec<_> = pods.iter().collect();
    let view = ClusterView { namespaces: &namespaces, pods: &pods };
    let policy = policy("a", spec);
    let rules = view.rules_for(pods[0], direction, Family::Ipv4, [&policy])?;
    let text = rules.iter().map(|rule| {
        let peers = rule.peers.as_ref().map(|peers| {
            peers.iter().map(|range| format!("{}-{}", range.first, range.last)).collect::<Vec<_>>().join(",")
        });
        let ports = rule.ports.as_ref().map(|ports| {
            let text = ports.iter().map(|it| format!("{}:{}-{}", it.protocol.0, it.first, it.last));
            text.collect::<Vec<_>>().join(",")
        });
        let endpoints =
            rule.endpoints.iter().map(|(ip, protocol, port)| format!(" {ip}:{}:{port}", protocol.0));
        format!("{peers:?} {ports:?}{}", endpoints.collect::<String>())
    });
    Some(text.collect::<Vec<_>>().join("; ").replace("Some(\"", "").replace("\")", ""))
}

fn ingress(rules_json: serde_json::Value) -> Option<String> {
    rules(
        Direction::Ingress,
        serde_json::json!({"podSelector": {"matchLabels": {"app": "server"}}, "policyTypes": ["Ingress"], "ingress": rules_json}),
    )
}

#[test]
fn policies_isolate_the_pods_that_they_select() {
    assert_eq!(ingress(serde_json::json!([])).as_deref(), Some(""));
    assert_eq!(ingress(serde_json::json!([{}])).as_deref(), Some("None None"));
    // another direction, other pods
    let other = serde_json::json!({"podSelector": {}, "policyTypes": ["Egress"]});
    assert_eq!(rules(Direction::Ingress, other.clone()), None);
    assert_eq!(rules(Direction::Egress, other).as_deref(), Some(""));
    let others =
        serde_json::json!({"podSelector": {"matchLabels": {"app": "x"}}, "policyTypes": ["Ingress"]});
    assert_eq!(rules(Direction::Ingress, others), None);
    // without types: ingress, and egress if there are rules for it
    let old = serde_json::json!({"podSelector": {}});
    assert_eq!(rules(Direction::Ingress, old.clone()).as_deref(), Some(""));
    assert_eq!(rules(Direction::Egress, old), None);
}

#[test]
fn peers_are_pods_and_networks() {
    let from = |peer: serde_json::Value| ingress(serde_json::json!([{"from": peer}])).unwrap();
    // pods of the policy's namespace, of selected ones, and both
    assert_eq!(from(serde_json::json!([{"podSelector": {}}])), "10.1.0.2-10.1.0.3 None");
    assert_eq!(
        from(serde_json::json!([{"podSelector": {"matchLabels": {"app": "client"}}}])),
        "10.1.0.3-10.1.0.3 None"
    );
    assert_eq!(
        from(serde_json::json!([{"namespaceSelector": {"matchLabels": {"name": "b"}}}])),
        "10.1.1.2-10.1.1.2 None"
    );
    assert_eq!(
        from(serde_json::json!([{
            "namespaceSelector": {},
            "podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["client"]}]},
        }])),
        "10.1.0.3-10.1.0.3,10.1.1.2-10.1.1.2 None"
    );
    assert_eq!(
        from(serde_json::json!([{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}])),
        "10.0.0.0-10.0.255.255,10.2.0.0-10.255.255.255 None"
    );
    // peers of another family, and selectors without pods, allow nothing
    assert_eq!(from(serde_json::json!([{"ipBlock": {"cidr": "fd00::/8"}}])), "");
    assert_eq!(from(serde_json::json!([{"podSelector": {"matchLabels": {"app": "x"}}}])), "");
}

#[test]
fn ports_are_numbers_ranges_and_names() {
    let ports = |ports: serde_json::Value| ingress(serde_json::json!([{"ports": ports}])).unwrap();
    assert_eq!(
        ports(serde_json::json!([{"port": 80}, {"protocol": "UDP", "port": 53}])),
        "None 6:80-80,17:53-53"
    );
    assert_eq!(
        ports(serde_json::json!([{"port": 80, "endPort": 90}, {"port": 85, "endPort": 100}, {"port": 101}])),
        "None 6:80-101"
    );
    assert_eq!(ports(serde_json::json!([{"protocol": "SCTP"}])), "None 132:0-65535");
    // the name is one of the selected pod, with its protocol
    assert_eq!(ports(serde_json::json!([{"port": "web"}])), "None 6:8080-8080");
    assert_eq!(ports(serde_json::json!([{"port": "web", "protocol": "UDP"}])), "");
    assert_eq!(ports(serde_json::json!([{"port": "unknown"}])), "");
    // in the other direction it is one of each peer
    let egress = |to: serde_json::Value| {
        let rule = serde_json::json!([{"ports": [{"port": "web"}], "to": to}]);
        rules(
            Direction::Egress,
            serde_json::json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": rule}),
        )
    };
    let all = serde_json::json!([{"namespaceSelector": {}}]);
    assert_eq!(
        egress(all).as_deref(),
        Some("10.1.0.2-10.1.0.3,10.1.1.2-10.1.1.2  10.1.0.2:6:8080 10.1.1.2:6:9090")
    );
}

fn apply(connection: &mut Connection, policies: &[PolicyInfo]) {
    let (pods, namespaces) = (cluster(), namespaces());
    let pods: Vec<_> = pods.iter().collect();
    let policies: Vec<_> = policies.iter().collect();
    let desired = ruleset(NODE, &[Family::Ipv4, Family::Ipv6], &policies, &namespaces, &pods);
    let ids = [Family::Ipv4, Family::Ipv6].map(table_id);
    let (current, generation) = connection.read(&ids).unwrap();
    connection.commit_at(&diff(&current, &desired), Some(generation)).unwrap();
    assert!(connection.read(&ids).unwrap().0 == desired);
    assert_eq!(desired == Ruleset::new(), policies.is_empty());
}

#[test]
fn policies_are_enforced_between_pods() {
    in_namespace(module_path!(), "policies_are_enforced_between_pods", || {
        let mut network = Network::new();
        let mut connection = Connection::open().unwrap();
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
        apply(
            &mut connection,
            &[server(serde_json::json!([{"from": [client], "ports": [{"port": "web"}]}]))],
        );
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
        apply(&mut connection, &[server(serde_json::json!([{"from": [block], "ports": range}]))]);
        assert!(answers(&network, "remote", "10.1.0.2", 8080));
        assert!(answers(&network, "outside", "10.1.0.2", 8080));
        assert_eq!(network.ask("outside", "tcp", "10.1.0.2", 9000), "timeout");
        assert_eq!(network.ask("pod2", "tcp", "10.1.0.2", 8080), "timeout");

        // egress: a port that the peer names; the node is a peer like any other
        let spec = |egress: serde_json::Value| {
            policy("a", serde_json::json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": egress}))
        };
        let all = serde_json::json!([{"namespaceSelector": {}}]);
        apply(&mut connection, &[spec(serde_json::json!([{"to": all, "ports": [{"port": "web"}]}]))]);
        assert!(answers(&network, "pod2", "10.1.1.2", 9090));
        assert!(answers(&network, "pod2", "10.1.0.2", 8080));
        assert_eq!(network.ask("pod2", "tcp", "10.1.0.2", 9000), "timeout");
        assert_eq!(network.ask("pod2", "tcp", "10.1.0.1", 7000), "timeout");
        apply(&mut connection, &[]);
        assert!(answers(&network, "pod2", "10.1.0.1", 7000));
    });
}
