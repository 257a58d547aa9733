//! The object of a simulated node: as a shape makes it, and its status. Pure.
//!
//! A field that the object has already stays: it is that of its author. The agent owns the conditions.

use crate::node_settings::NodeSettings;
use crate::profile::NodeShape;
use api::Time;
use api::core::v1::{Node, NodeAddress};
use client::Note;
use names::simulation::{NODE, PREFIX, VERSION_SUFFIX, ZONE};
use nodeagent::node::conditions;
use nodeagent::node::registration::initial_node;
use nodeagent::node::{AddressOptions, NodeOptions};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The addresses of simulated nodes: shared address space (RFC 6598), which is no machine's own.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([100, 64, 0, 1]);
const INTERNAL_IP: &str = "InternalIP";

/// The name of a node of a shape.
pub fn name(shape: &NodeShape, nth: u32) -> String {
    format!("{}-{nth}", shape.name)
}

/// The object of a node of a shape, with its first status.
pub fn of_shape(shape: &NodeShape, nth: u32, number: u32, now: Time) -> Node {
    let name = name(shape, nth);
    let mut labels = BTreeMap::from([(NODE.to_owned(), "true".to_owned())]);
    if let Some(zone) = shape.zones.get(nth as usize % shape.zones.len().max(1)) {
        labels.insert(ZONE.to_owned(), zone.clone());
    }
    labels.extend(shape.labels.clone());
    let mut node = initial_node(&NodeOptions {
        addresses: AddressOptions { hostname: name.clone(), ..AddressOptions::default() },
        labels,
        taints: shape.taints.clone(),
        name,
        ..NodeOptions::default()
    });
    let settings = shape.set.iter().map(|(name, value)| (format!("{PREFIX}{name}"), value.clone()));
    node.metadata.annotations.extend(shape.annotations.clone());
    node.metadata.annotations.extend(settings);
    node.status.capacity.clone_from(&shape.capacity);
    next_status(&node, number, &NodeSettings::default(), now).0
}

/// The number of a node whose address is that of a simulated one.
pub fn number(node: &Node) -> Option<u32> {
    let address = node.status.addresses.iter().find(|it| it.type_ == INTERNAL_IP)?;
    let address = u32::from(address.address.parse::<Ipv4Addr>().ok()?);
    address.checked_sub(FIRST_ADDRESS).filter(|it| *it < crate::profile::MAX_NODES)
}

/// The addresses of a node.
pub fn internal_ips(node: &Node) -> Vec<String> {
    let internal = node.status.addresses.iter().filter(|it| it.type_ == INTERNAL_IP);
    internal.map(|it| it.address.clone()).collect()
}

/// The first address of a node, which it may still have to report.
pub fn internal_ip(node: &Node, number: u32) -> String {
    let reported = internal_ips(node).into_iter().next();
    reported.unwrap_or_else(|| Ipv4Addr::from(FIRST_ADDRESS.saturating_add(number)).to_string())
}

/// The next state of a node, and events about it.
pub fn next_status(node: &Node, number: u32, settings: &NodeSettings, now: Time) -> (Node, Vec<Note>) {
    let mut next = node.clone();
    let name = &node.metadata.name;
    let status = &mut next.status;
    if status.addresses.is_empty() {
        let address = |kind: &str, address: String| NodeAddress {
            type_: kind.to_owned(),
            address,
            ..NodeAddress::default()
        };
        let ip = Ipv4Addr::from(FIRST_ADDRESS.saturating_add(number)).to_string();
        status.addresses = vec![address(INTERNAL_IP, ip), address("Hostname", name.clone())];
    }
    if status.capacity.is_empty() {
        status.capacity = NodeShape::default().capacity;
    }
    if status.allocatable.is_empty() {
        status.allocatable.clone_from(&status.capacity);
    }
    let defaults = NodeOptions::default();
    let version = format!("{}{VERSION_SUFFIX}", defaults.version);
    let info = &mut status.node_info;
    for (field, text) in [
        (&mut info.kubelet_version, &*version),
        (&mut info.kube_proxy_version, &version),
        (&mut info.container_runtime_version, "simulated://1"),
        (&mut info.os_image, "simulated"),
        (&mut info.kernel_version, "simulated"),
        (&mut info.operating_system, "linux"),
        (&mut info.architecture, nodeagent::node::machine::architecture()),
        (&mut info.machine_id, name),
        (&mut info.system_uuid, name),
        (&mut info.boot_id, name),
    ] {
        if field.is_empty() {
            text.clone_into(field);
        }
    }
    let port = &mut status.daemon_endpoints.kubelet_endpoint.port;
    if *port == 0 {
        *port = defaults.port;
    }
    let errors: Vec<String> = settings.not_ready.iter().cloned().collect();
    let notes = conditions::update(&mut status.conditions, name, settings.pressures, &errors, now);
    (next, notes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeagent::node::status::has_changed;

    fn now() -> Time {
        Time(1_577_836_800)
    }

    fn ready(node: &Node) -> (&str, &str) {
        let ready = node.status.conditions.iter().find(|it| it.type_ == "Ready").unwrap();
        (&ready.status, &ready.message)
    }

    #[test]
    fn a_shape_makes_a_ready_node_that_says_that_it_is_simulated() {
        let shape = NodeShape {
            name: "small".to_owned(),
            zones: vec!["a".to_owned(), "b".to_owned()],
            set: BTreeMap::from([("silent-after".to_owned(), "1m".to_owned())]),
            ..NodeShape::default()
        };
        let node = of_shape(&shape, 3, 300, now());
        assert_eq!(node.metadata.name, "small-3");
        assert_eq!(node.metadata.labels[ZONE], "b");
        assert!(crate::node::is_simulated(&node));
        assert_eq!(node.metadata.annotations["simulation.pintle.io/silent-after"], "1m");
        assert!(node.status.node_info.kubelet_version.ends_with(VERSION_SUFFIX));
        assert_eq!(node.status.allocatable["pods"].to_string(), "110");
        assert_eq!((number(&node), internal_ips(&node)), (Some(300), vec!["100.64.1.45".to_owned()]));
        assert_eq!(ready(&node).0, "True");
        assert!(!has_changed(&node, &next_status(&node, 300, &NodeSettings::default(), now()).0));
    }

    #[test]
    fn fields_of_the_author_stay() {
        let text = r#"{"metadata":{"name":"n","annotations":{"kwok.x-k8s.io/node":"fake"}},
            "status":{"capacity":{"cpu":"32"},"addresses":[{"type":"InternalIP","address":"192.168.0.9"}],
                      "nodeInfo":{"kubeletVersion":"fake","architecture":"arm64"}}}"#;
        let node: Node = api::from_json(text.as_bytes()).unwrap();
        assert!(crate::node::is_simulated(&node));
        let next = next_status(&node, 0, &NodeSettings::default(), now()).0;
        assert_eq!(next.status.allocatable["cpu"].to_string(), "32");
        assert_eq!(next.status.allocatable.len(), 1);
        let info = &next.status.node_info;
        assert_eq!((&*info.kubelet_version, &*info.architecture), ("fake", "arm64"));
        assert_eq!((number(&next), internal_ips(&next)), (None, vec!["192.168.0.9".to_owned()]));
    }

    #[test]
    fn settings_show_in_the_conditions() {
        let mut settings = NodeSettings { not_ready: Some("broken".to_owned()), ..NodeSettings::default() };
        settings.pressures.has_disk_pressure = true;
        let node = of_shape(&NodeShape::default(), 0, 0, now());
        let (next, notes) = next_status(&node, 0, &settings, now());
        assert_eq!(ready(&next), ("False", "broken"));
        let reasons: Vec<&str> = notes.iter().map(|it| it.reason).collect();
        assert_eq!(reasons, ["NodeHasDiskPressure", "NodeNotReady"]);
        assert!(has_changed(&node, &next));
    }
}
