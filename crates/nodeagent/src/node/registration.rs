//! The node object as the agent registers it.

use super::machine::architecture;
use super::options::NodeOptions;
use api::core::v1::{Node, NodeSpec, Taint};
use api::meta::v1::ObjectMeta;
use names::labels::{HOSTNAME, TAINT_UNSCHEDULABLE};
use names::node::{
    ARCH, BETA_ARCH, BETA_OS, CONTROLLER_MANAGED_ATTACH, OS, PROVIDED_NODE_IP, TAINT_UNINITIALIZED,
};
use std::collections::BTreeMap;

/// The operating system in labels.
pub const LINUX: &str = "linux";
const NO_SCHEDULE: &str = "NoSchedule";

/// The node object without its status.
pub fn initial_node(options: &NodeOptions) -> Node {
    let mut annotations = BTreeMap::new();
    if options.has_controlled_attach {
        annotations.insert(CONTROLLER_MANAGED_ATTACH.to_owned(), "true".to_owned());
    }
    if let (true, [first, ..]) = (options.has_external_cloud, &*options.addresses.node_ips) {
        annotations.insert(PROVIDED_NODE_IP.to_owned(), first.to_string());
    }
    Node {
        metadata: ObjectMeta {
            name: options.name.clone(),
            labels: labels(options),
            annotations,
            ..ObjectMeta::default()
        },
        spec: NodeSpec {
            provider_id: options.provider_id.clone(),
            unschedulable: !options.is_schedulable,
            taints: taints(options),
            ..NodeSpec::default()
        },
        ..Node::default()
    }
}

fn labels(options: &NodeOptions) -> BTreeMap<String, String> {
    let mut labels = default_labels(options);
    labels.extend(options.labels.iter().map(|(key, value)| (key.clone(), value.clone())));
    labels
}

/// Labels that every node has.
fn default_labels(options: &NodeOptions) -> BTreeMap<String, String> {
    let entries = [
        (HOSTNAME, &*options.addresses.hostname),
        (OS, LINUX),
        (ARCH, architecture()),
        (BETA_OS, LINUX),
        (BETA_ARCH, architecture()),
    ];
    entries.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn taints(options: &NodeOptions) -> Vec<Taint> {
    let taint = |key: &str, value: &str| Taint {
        key: key.to_owned(),
        value: value.to_owned(),
        effect: NO_SCHEDULE.to_owned(),
        ..Taint::default()
    };
    let mut taints = options.taints.clone();
    if !options.is_schedulable && !taints.iter().any(|it| it.key == TAINT_UNSCHEDULABLE) {
        taints.push(taint(TAINT_UNSCHEDULABLE, ""));
    }
    if options.has_external_cloud {
        taints.push(taint(TAINT_UNINITIALIZED, "true"));
    }
    taints
}

/// Brings labels and annotations of a node that exists up to date. Returns whether anything changed. Labels that are
/// neither the agent's own nor set by options stay.
pub fn adopt(existing: &mut Node, options: &NodeOptions) -> bool {
    let initial = initial_node(options);
    let mut is_changed = false;
    let defaults = default_labels(options);
    for (key, value) in initial.metadata.labels {
        let is_own = defaults.contains_key(&key);
        let labels = &mut existing.metadata.labels;
        if labels.get(&key) != Some(&value) && (is_own || !labels.contains_key(&key)) {
            labels.insert(key, value);
            is_changed = true;
        }
    }
    let annotations = &mut existing.metadata.annotations;
    match (options.has_controlled_attach, annotations.contains_key(CONTROLLER_MANAGED_ATTACH)) {
        (true, false) => {
            annotations.insert(CONTROLLER_MANAGED_ATTACH.to_owned(), "true".to_owned());
            is_changed = true;
        }
        (false, true) => {
            annotations.remove(CONTROLLER_MANAGED_ATTACH);
            is_changed = true;
        }
        _ => {}
    }
    is_changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::addresses::AddressOptions;
    use crate::objects::testing::object;

    fn options() -> NodeOptions {
        NodeOptions {
            name: "n".to_owned(),
            addresses: AddressOptions { hostname: "n".to_owned(), ..AddressOptions::default() },
            ..NodeOptions::default()
        }
    }

    #[test]
    fn recorded_flags_give_these_nodes() {
        let node = initial_node(&options());
        let keys: Vec<_> = node.metadata.labels.keys().map(String::as_str).collect();
        assert_eq!(keys, [BETA_ARCH, BETA_OS, ARCH, HOSTNAME, OS]);
        assert_eq!(node.metadata.annotations[CONTROLLER_MANAGED_ATTACH], "true");
        assert!(node.spec.taints.is_empty() && node.spec.provider_id.is_empty());
        let taint: Taint = object(r#"{"key":"a","value":"b","effect":"NoSchedule"}"#);
        let made = initial_node(&NodeOptions {
            labels: BTreeMap::from([("zone".to_owned(), "z".to_owned())]),
            taints: vec![taint],
            provider_id: "x://y/z".to_owned(),
            has_external_cloud: true,
            is_schedulable: false,
            ..options()
        });
        assert_eq!(made.metadata.labels["zone"], "z");
        assert_eq!((&*made.spec.provider_id, made.spec.unschedulable), ("x://y/z", true));
        let taints: Vec<_> = made.spec.taints.iter().map(|it| (&*it.key, &*it.value)).collect();
        assert_eq!(taints, [("a", "b"), (TAINT_UNSCHEDULABLE, ""), (TAINT_UNINITIALIZED, "true")]);
    }

    #[test]
    fn a_node_that_exists_keeps_labels_of_others() {
        let mut node: Node = object(r#"{"metadata":{"name":"n","labels":{"mine":"1","set":"theirs"}}}"#);
        node.metadata.labels.insert(OS.to_owned(), "other".to_owned());
        let labels = [("set", "ours"), ("new", "x")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let options = NodeOptions { labels: BTreeMap::from(labels), ..options() };
        assert!(adopt(&mut node, &options));
        let labels = &node.metadata.labels;
        assert_eq!(
            [&labels["mine"], &labels["set"], &labels["new"], &labels[OS]],
            ["1", "theirs", "x", LINUX]
        );
        assert!(!adopt(&mut node, &options));
        assert!(adopt(&mut node, &NodeOptions { has_controlled_attach: false, ..options }));
        assert!(node.metadata.annotations.is_empty());
    }
}
