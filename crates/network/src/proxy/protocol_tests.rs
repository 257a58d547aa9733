//! SCTP through the rules of services, policies and host ports, and the ways to recognize pods of the node.

use client::Key;

use super::rules::{LocalSource, RuleOptions};
use super::testing::{NODE, ServiceBuilder, endpoint, service, slice};
use super::traffic_tests::Network;
use crate::netfilter::testing::in_namespace;
use crate::netfilter::{Family, Protocol, TableWriter};
use crate::pod_network::attachments::{Attachment, HostPort};
use crate::pod_network::host_ports;
use crate::pod_network::namespace::NamespaceId;
use crate::policy::state::PolicyState;
use crate::policy::{objects, rules};

#[test]
fn sctp_services_reach_their_endpoints() {
    in_namespace(module_path!(), "sctp_services_reach_their_endpoints", || {
        let mut network = Network::new();
        network.serve("pod1", "sctp", "10.1.0.2", 8080);
        let web = service("web", "10.96.0.1", 80, "SCTP").node_port(30080).external_ip("1.2.3.4");
        network.apply(&web, &slice("web", 8080, "SCTP", vec![endpoint("10.1.0.2", NODE, true, false)]));
        assert_eq!(network.ask("pod2", "sctp", "10.96.0.1", 80), "10.1.0.2 saw 10.1.0.3");
        assert_eq!(network.ask("outside", "sctp", "192.168.1.1", 30080), "10.1.0.2 saw 10.1.0.1");
        assert_eq!(network.ask("outside", "sctp", "1.2.3.4", 80), "10.1.0.2 saw 10.1.0.1");
        // ports of other protocols are others
        assert_eq!(network.ask("outside", "tcp", "192.168.1.1", 30080), "refused");
        network.serve("remote", "sctp", "10.1.1.2", 8080);
        let local = service("web", "10.96.0.1", 80, "SCTP").affinity(100);
        let endpoints = vec![endpoint("10.1.1.2", "other", true, false)];
        network.apply(&local, &slice("web", 8080, "SCTP", endpoints));
        assert_eq!(network.ask("pod2", "sctp", "10.96.0.1", 80), "10.1.1.2 saw 10.1.0.3");
    });
}

#[test]
fn sctp_policies_and_host_ports_are_observed() {
    in_namespace(module_path!(), "sctp_policies_and_host_ports_are_observed", || {
        let mut network = Network::new();
        network.serve("pod1", "sctp", "10.1.0.2", 8080);
        network.serve("pod1", "sctp", "10.1.0.2", 9000);
        let pod = serde_json::json!({
            "metadata": {"namespace": "a", "name": "server"},
            "spec": {"nodeName": NODE, "containers": []}, "status": {"phase": "Running", "podIP": "10.1.0.2"},
        });
        let pod: api::core::v1::Pod = api::from_json(pod.to_string().as_bytes()).unwrap();
        let policy = serde_json::json!({
            "metadata": {"namespace": "a", "name": "p"},
            "spec": {"podSelector": {}, "ingress": [{"ports": [{"protocol": "SCTP", "port": 8080}]}]},
        });
        let policy: api::networking::v1::NetworkPolicy =
            api::from_json(policy.to_string().as_bytes()).unwrap();
        let mut state = PolicyState::new(NODE, &[Family::Ipv4]);
        state.set_pod(&Key::of(&pod).into(), objects::PodInfo::read(&pod));
        state.set_policy(&Key::of(&policy), objects::PolicyInfo::read(&policy));
        let mut writer = TableWriter::open(vec![rules::table_id(Family::Ipv4)]).unwrap();
        let batch = state.sync();
        writer.write(&batch, || state.ruleset()).unwrap();
        assert_eq!(network.ask("pod2", "sctp", "10.1.0.2", 8080), "10.1.0.2 saw 10.1.0.3");
        assert_eq!(network.ask("pod2", "sctp", "10.1.0.2", 9000), "timeout");

        let port = |host_port, container_port| HostPort {
            protocol: Protocol::SCTP,
            host_ip: None,
            host_port,
            container_port,
        };
        host_ports::write(&[Attachment {
            container: "c".to_owned(),
            interface: "eth0".to_owned(),
            pod: String::new(),
            namespace: NamespaceId { path: "/run/netns/pod1".into(), device: 0, inode: 0 },
            addresses: vec!["10.1.0.2".parse().unwrap()],
            host_ports: vec![port(7000, 8080), port(7001, 9000)],
        }])
        .unwrap();
        assert_eq!(network.ask("outside", "sctp", "192.168.1.1", 7000), "10.1.0.2 saw 192.168.1.2");
        assert_eq!(network.ask("outside", "sctp", "192.168.1.1", 7001), "timeout");
    });
}

/// What a server sees of its clients, for a way to recognize pods of this node: pods keep their address, others do not.
fn clients(source: Option<LocalSource>) -> [String; 3] {
    let mut network = Network::with(|options: &mut RuleOptions| {
        if options.family == Family::Ipv4 {
            options.local_source.clone_from(&source);
        }
    });
    network.serve("pod1", "tcp", "10.1.0.2", 8080);
    let web = service("web", "10.96.0.1", 80, "TCP");
    network.apply(&web, &slice("web", 8080, "TCP", vec![endpoint("10.1.0.2", NODE, true, false)]));
    ["pod2", "remote", "outside"]
        .map(|from| network.ask(from, "tcp", "10.96.0.1", 80).replace("10.1.0.2 saw ", ""))
}

const MASQUERADED: &str = "10.1.0.1";

#[test]
fn pods_are_recognized_by_the_networks_of_the_cluster() {
    in_namespace(module_path!(), "pods_are_recognized_by_the_networks_of_the_cluster", || {
        let network = LocalSource::Network("10.1.0.0/16".parse().unwrap());
        assert_eq!(clients(Some(network)), ["10.1.0.3", "10.1.1.2", MASQUERADED]);
    });
}

#[test]
fn pods_are_recognized_by_the_networks_of_the_node() {
    in_namespace(module_path!(), "pods_are_recognized_by_the_networks_of_the_node", || {
        let network = LocalSource::Network("10.1.0.0/24".parse().unwrap());
        assert_eq!(clients(Some(network)), ["10.1.0.3", MASQUERADED, MASQUERADED]);
    });
}

#[test]
fn pods_are_recognized_by_their_interface() {
    in_namespace(module_path!(), "pods_are_recognized_by_their_interface", || {
        let bridge = LocalSource::Interface("pod2".to_owned());
        assert_eq!(clients(Some(bridge)), ["10.1.0.3", MASQUERADED, MASQUERADED]);
    });
}

#[test]
fn pods_are_recognized_by_the_prefix_of_their_interface() {
    in_namespace(module_path!(), "pods_are_recognized_by_the_prefix_of_their_interface", || {
        let prefix = LocalSource::InterfacePrefix("po".to_owned());
        assert_eq!(clients(Some(prefix)), ["10.1.0.3", MASQUERADED, MASQUERADED]);
    });
}

#[test]
fn clients_keep_their_address_if_pods_are_not_recognized() {
    in_namespace(module_path!(), "clients_keep_their_address_if_pods_are_not_recognized", || {
        assert_eq!(clients(None), ["10.1.0.3", "10.1.1.2", "192.168.1.2"]);
    });
}
