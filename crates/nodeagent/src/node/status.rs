//! The status of a node: its next state, and the patch that leads there.

use super::addresses::{AddressLookup, node_addresses};
use super::capacity::{allocatable, capacity};
use super::conditions::{self, Pressures};
use super::images::node_images;
use super::machine::{Machine, architecture};
use super::options::NodeOptions;
use super::registration::LINUX;
use crate::local_volumes;
use crate::pod_facts::{CPU, EPHEMERAL_STORAGE, MEMORY};
use crate::resource_managers::devices::DeviceAmounts;
use crate::runtime::{ImageInfo, RuntimeVersion};
use api::Time;
use api::core::v1::{Node, NodeStatus, NodeSystemInfo};
use client::{Note, json_value};
use names::local_volumes::AVAILABLE;
use names::node::{ARCH, OS};
use serde_json::{Map, Value, json};

/// What a status is computed from, besides the options.
pub struct StatusInputs<'a> {
    pub machine: &'a Machine,
    /// Bytes of the filesystem of the agent's directory.
    pub storage: Option<i64>,
    /// Bytes of it that are available.
    pub available_storage: Option<i64>,
    pub lookup: &'a dyn AddressLookup,
    pub runtime: &'a RuntimeVersion,
    pub images: &'a [ImageInfo],
    pub pressures: Pressures,
    /// Resources of device plugins.
    pub devices: &'a DeviceAmounts,
    /// Volumes that must not be detached, sorted; `None` if it is not known yet.
    pub volumes_in_use: Option<&'a [String]>,
    /// Why the node is not ready.
    pub errors: &'a [String],
    pub now: Time,
}

/// The next state of a node, and events about it. Amounts of resources that are not the agent's stay.
pub fn next_status(node: &Node, options: &NodeOptions, inputs: &StatusInputs<'_>) -> (Node, Vec<Note>) {
    let mut next = node.clone();
    let mut notes = Vec::new();
    for (key, value) in [(OS, LINUX), (ARCH, architecture())] {
        next.metadata.labels.insert(key.to_owned(), value.to_owned());
    }
    let annotations = &mut next.metadata.annotations;
    match (options.has_local_volumes, inputs.available_storage, inputs.storage) {
        (true, Some(available), Some(total)) => local_volumes::report(annotations, available, total),
        (true, ..) => {}
        (false, ..) => drop(annotations.remove(AVAILABLE)),
    }
    let status = &mut next.status;
    match node_addresses(&options.addresses, inputs.lookup) {
        Ok(addresses) => status.addresses = addresses,
        Err(error) => tracing::warn!(%error, "the addresses of the node are unknown"),
    }
    set_resources(status, options, inputs);
    notes.extend(set_info(status, options, inputs));
    status.daemon_endpoints.kubelet_endpoint.port = options.port;
    if let Some(volumes) = inputs.volumes_in_use {
        status.volumes_in_use = volumes.to_vec();
    }
    status.images = node_images(inputs.images, options.max_images);
    let mut errors = inputs.errors.to_vec();
    let missing: Vec<&str> =
        [CPU, MEMORY, "pods"].into_iter().filter(|it| !status.capacity.contains_key(*it)).collect();
    if !missing.is_empty() {
        errors.push(format!("missing node capacity for resources: {}", missing.join(", ")));
    }
    let conditions = &mut status.conditions;
    notes.extend(conditions::update(conditions, &options.name, inputs.pressures, &errors, inputs.now));
    (next, notes)
}

fn set_resources(status: &mut NodeStatus, options: &NodeOptions, inputs: &StatusInputs<'_>) {
    let storage = inputs.storage.filter(|_| options.has_storage_isolation);
    let own = capacity(inputs.machine, storage, options.pods);
    // an amount that could not be read now stays
    let is_stale = |name: &str| crate::pod_facts::hugepage_size(name).is_some() && !own.contains_key(name);
    status.capacity.retain(|name, _| !is_stale(name));
    if !options.has_storage_isolation {
        status.capacity.remove(EPHEMERAL_STORAGE);
    }
    status.capacity.extend(own);
    status.capacity.extend(inputs.devices.capacity.clone());
    status.allocatable = allocatable(&status.capacity, &options.reservations);
    status.allocatable.extend(inputs.devices.allocatable.clone());
}

fn set_info(status: &mut NodeStatus, options: &NodeOptions, inputs: &StatusInputs<'_>) -> Option<Note> {
    let machine = inputs.machine;
    let old = std::mem::take(&mut status.node_info);
    let is_rebooted = !old.boot_id.is_empty() && old.boot_id != machine.boot_id;
    status.node_info = NodeSystemInfo {
        machine_id: machine.machine_id.clone(),
        system_uuid: machine.system_uuid.clone(),
        boot_id: machine.boot_id.clone(),
        kernel_version: machine.kernel_version.clone(),
        os_image: machine.os_image.clone(),
        container_runtime_version: match &*inputs.runtime.name {
            "" => old.container_runtime_version,
            name => format!("{name}://{}", plain_version(&inputs.runtime.version)),
        },
        kubelet_version: options.version.clone(),
        kube_proxy_version: options.version.clone(),
        operating_system: LINUX.to_owned(),
        architecture: architecture().to_owned(),
        unknown_fields: old.unknown_fields,
    };
    is_rebooted.then(|| {
        let message = format!("Node {} has been rebooted, boot id: {}", options.name, machine.boot_id);
        Note::warning("Rebooted", message)
    })
}

/// The numbers of a version, with the suffix of a semantic one: `v1.7.0-rc.1`, but not `1.6.20~ds1`.
fn plain_version(text: &str) -> &str {
    let text = text.trim().trim_start_matches('v');
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (numbers, suffix) = text.split_at(end);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-.+".contains(c);
    let is_semantic = numbers.split('.').count() == 3 && suffix.starts_with(['-', '+']);
    match is_semantic && suffix.chars().all(is_plain) {
        true => text,
        false => numbers.trim_end_matches('.'),
    }
}

/// Whether a node changed in more than the heartbeats of its conditions.
pub fn has_changed(old: &Node, new: &Node) -> bool {
    let without_conditions = |node: &Node| NodeStatus { conditions: Vec::new(), ..node.status.clone() };
    old.metadata.labels != new.metadata.labels
        || old.metadata.annotations != new.metadata.annotations
        || conditions::has_changed(&old.status.conditions, &new.status.conditions)
        || without_conditions(old) != without_conditions(new)
}

/// The strategic merge patch from one state to the other. Conditions of others are not in it.
pub fn status_patch(old: &Node, new: &Node) -> Value {
    let (before, after) = (json_value(&old.status), json_value(&new.status));
    let mut status = Map::new();
    let empty = Value::Null;
    for (name, value) in after.as_object().into_iter().flatten() {
        let current = before.get(name).unwrap_or(&empty);
        match &**name {
            _ if current == value => {}
            "capacity" | "allocatable" => drop(status.insert(name.clone(), map_patch(current, value))),
            "conditions" => {
                let known: Vec<&Value> = current.as_array().into_iter().flatten().collect();
                let changed = value.as_array().into_iter().flatten().filter(|it| !known.contains(it));
                status.insert(name.clone(), changed.cloned().collect());
            }
            "addresses" => {
                let entries = value.as_array().into_iter().flatten().cloned();
                status.insert(name.clone(), entries.chain([json!({"$patch": "replace"})]).collect());
            }
            _ => drop(status.insert(name.clone(), value.clone())),
        }
    }
    // lists that became empty
    for name in ["images", "volumesInUse"] {
        if before.get(name).is_some() && after.get(name).is_none() {
            status.insert(name.to_owned(), Value::Null);
        }
    }
    let mut patch = json!({"status": status});
    let maps = |node: &Node| {
        [("labels", json!(node.metadata.labels)), ("annotations", json!(node.metadata.annotations))]
    };
    for ((name, before), (_, after)) in maps(old).into_iter().zip(maps(new)) {
        if before != after {
            patch["metadata"][name] = map_patch(&before, &after);
        }
    }
    patch
}

/// Entries that changed; removed ones are null.
fn map_patch(old: &Value, new: &Value) -> Value {
    let mut patch = Map::new();
    for (key, value) in new.as_object().into_iter().flatten() {
        if old.get(key) != Some(value) {
            patch.insert(key.clone(), value.clone());
        }
    }
    for key in old.as_object().into_iter().flat_map(Map::keys) {
        if new.get(key).is_none() {
            patch.insert(key.clone(), Value::Null);
        }
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::addresses::AddressOptions;
    use crate::objects::testing::object;
    use std::net::IpAddr;

    struct NoLookup;

    impl AddressLookup for NoLookup {
        fn resolve(&self, _: &str) -> Vec<IpAddr> {
            Vec::new()
        }
        fn is_local(&self, ip: IpAddr) -> bool {
            ip.to_string() == "10.77.0.1"
        }
        fn default_source(&self, _: bool) -> Option<IpAddr> {
            None
        }
    }

    fn options() -> NodeOptions {
        let addresses =
            AddressOptions { node_ips: vec!["10.77.0.1".parse().unwrap()], hostname: "n".to_owned() };
        NodeOptions { name: "n".to_owned(), addresses, ..NodeOptions::default() }
    }

    fn machine(boot: &str) -> Machine {
        Machine { cpus: 2, memory: 1 << 30, boot_id: boot.to_owned(), ..Machine::default() }
    }

    fn next(node: &Node, options: &NodeOptions, boot: &str, now: i64) -> (Node, Vec<Note>) {
        let runtime = RuntimeVersion {
            name: "containerd".to_owned(),
            version: "1.6.20".to_owned(),
            ..Default::default()
        };
        let inputs = StatusInputs {
            machine: &machine(boot),
            storage: Some(1 << 40),
            available_storage: Some(1 << 39),
            lookup: &NoLookup,
            runtime: &runtime,
            images: &[],
            pressures: Pressures::default(),
            devices: &DeviceAmounts::default(),
            volumes_in_use: None,
            errors: &[],
            now: Time(now),
        };
        next_status(node, options, &inputs)
    }

    #[test]
    fn amounts_of_others_stay_and_labels_come_back() {
        let node: Node = object(
            r#"{"metadata":{"name":"n","labels":{"mine":"1"}},"status":{"capacity":{"example.com/dongle":"4"},
                "conditions":[{"type":"NetworkUnavailable","status":"False"}]}}"#,
        );
        let (made, _) = next(&node, &options(), "b", 10);
        assert_eq!(made.status.capacity["example.com/dongle"].to_string(), "4");
        assert_eq!(made.status.allocatable["example.com/dongle"].to_string(), "4");
        assert_eq!((&*made.metadata.labels["mine"], &*made.metadata.labels[OS]), ("1", "linux"));
        assert_eq!(made.status.node_info.container_runtime_version, "containerd://1.6.20");
        assert_eq!(made.status.conditions.len(), 5);
        let patch = status_patch(&node, &made);
        assert!(patch["status"]["capacity"].get("example.com/dongle").is_none(), "{patch}");
        assert_eq!(patch["status"]["conditions"].as_array().unwrap().len(), 4);
        assert_eq!(patch["status"]["addresses"][2]["$patch"], "replace");
        assert_eq!(patch["metadata"]["labels"][OS], "linux");
    }

    #[test]
    fn space_for_local_volumes_is_an_annotation() {
        let with_volumes = NodeOptions { has_local_volumes: true, ..options() };
        let (first, _) = next(&Node::default(), &options(), "b", 10);
        assert!(first.metadata.annotations.is_empty());
        let (second, _) = next(&first, &with_volumes, "b", 20);
        assert!(has_changed(&first, &second));
        assert_eq!(
            status_patch(&first, &second)["metadata"],
            json!({"annotations": {AVAILABLE: (1_u64 << 39).to_string()}})
        );
        // an agent without them takes the annotation back
        let (third, _) = next(&second, &options(), "b", 30);
        assert_eq!(status_patch(&second, &third)["metadata"], json!({"annotations": {AVAILABLE: null}}));
    }

    #[test]
    fn heartbeats_are_no_change() {
        let (first, _) = next(&Node::default(), &options(), "b", 10);
        let (second, notes) = next(&first, &options(), "b", 20);
        assert!(!has_changed(&first, &second) && notes.is_empty());
        let patch = status_patch(&first, &second);
        let parts: Vec<_> = patch["status"].as_object().unwrap().keys().collect();
        assert_eq!(parts, ["conditions"]);
        assert!(patch.get("metadata").is_none());
    }

    #[test]
    fn versions_lose_what_packagers_add() {
        let check = |text: &str, expected: &str| assert_eq!(plain_version(text), expected);
        check("1.6.20~ds1", "1.6.20");
        check("v1.7.0-rc.1", "1.7.0-rc.1");
        check("1.24", "1.24");
        check("", "");
    }

    #[test]
    fn a_reboot_is_an_event() {
        let (first, _) = next(&Node::default(), &options(), "b1", 10);
        let (second, notes) = next(&first, &options(), "b2", 20);
        assert!(has_changed(&first, &second));
        assert_eq!(notes, [Note::warning("Rebooted", "Node n has been rebooted, boot id: b2")]);
    }

    #[test]
    fn a_bad_address_leaves_the_node_ready_without_addresses() {
        let mut options = options();
        options.addresses.node_ips = vec!["1.2.3.4".parse().unwrap()];
        let (made, _) = next(&Node::default(), &options, "b", 10);
        assert!(made.status.addresses.is_empty());
        assert_eq!(made.status.conditions[3].status, "True");
    }
}
