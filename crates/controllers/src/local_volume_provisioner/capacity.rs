//! The capacities of nodes, as the scheduler reads them.

use api::core::v1::Node;
use api::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use api::storage::v1::{CSIStorageCapacity, StorageClass};
use api::{Kinded, Quantity, Resource};
use names::labels::HOSTNAME;
use names::local_volumes::{AVAILABLE, DRIVER_LABEL, PROVISIONER};
use ring::digest::{SHA256, digest};
use std::collections::BTreeMap;

/// The bytes that a node's agent reports as available for folders.
pub fn available(node: &Node) -> Option<i64> {
    node.metadata.annotations.get(AVAILABLE)?.parse().ok().filter(|it| *it >= 0)
}

/// The host name label of a node whose agent makes folders.
pub fn hostname_with_space(node: &Node) -> Option<&str> {
    available(node)?;
    node.metadata.labels.get(HOSTNAME).map(String::as_str).filter(|it| !it.is_empty())
}

/// The node of a capacity of this provisioner.
pub fn node_of(capacity: &CSIStorageCapacity) -> Option<String> {
    let metadata = &capacity.metadata;
    metadata.labels.get(DRIVER_LABEL).filter(|it| *it == PROVISIONER)?;
    metadata.owner_references.iter().find(|it| it.kind == "Node").map(|it| it.name.clone())
}

/// The capacity of a class on a node, which the garbage collector deletes with the node.
pub fn object(
    node: &Node,
    class: &StorageClass,
    available: i64,
    namespace: &str,
) -> Option<CSIStorageCapacity> {
    let hostname = hostname_with_space(node)?;
    let owner = OwnerReference {
        api_version: Node::api_version(),
        kind: Node::kind().name.to_string(),
        name: node.name().to_owned(),
        uid: node.uid().to_owned(),
        ..OwnerReference::default()
    };
    let selector = LabelSelector {
        match_labels: BTreeMap::from([(HOSTNAME.to_owned(), hostname.to_owned())]),
        ..LabelSelector::default()
    };
    Some(CSIStorageCapacity {
        metadata: ObjectMeta {
            name: name(node, class),
            namespace: namespace.to_owned(),
            labels: BTreeMap::from([(DRIVER_LABEL.to_owned(), PROVISIONER.to_owned())]),
            owner_references: vec![owner],
            ..ObjectMeta::default()
        },
        node_topology: Some(Box::new(selector)),
        storage_class_name: class.name().to_owned(),
        capacity: Some(Quantity::new(available)),
        ..CSIStorageCapacity::default()
    })
}

/// Node and class have no characters below the slash, so that no two pairs have the same text. The uid makes the
/// capacity of a node that was created again a new one: what it selects cannot be changed.
fn name(node: &Node, class: &StorageClass) -> String {
    let labels = node.metadata.labels.get(HOSTNAME).map(String::as_str).unwrap_or_default();
    let text = [node.name(), node.uid(), labels, class.name()].join("/");
    let hex: String =
        digest(&SHA256, text.as_bytes()).as_ref()[..10].iter().map(|it| format!("{it:02x}")).collect();
    format!("local-{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use serde_json::{Value, json};

    fn node(annotations: Value) -> Node {
        testing::object(json!({"metadata": {"name": "n", "uid": "u", "annotations": annotations,
            "labels": {"kubernetes.io/hostname": "host"}}}))
    }

    #[test]
    fn a_capacity_follows_its_node() {
        let class: StorageClass =
            testing::object(json!({"metadata": {"name": "c"}, "provisioner": PROVISIONER}));
        let reporting = node(json!({AVAILABLE: "1024"}));
        let made = object(&reporting, &class, 1024, "kube-system").unwrap();
        assert_eq!(made.capacity.as_ref().map(Quantity::to_string).as_deref(), Some("1024"));
        assert_eq!(made.node_topology.as_ref().unwrap().match_labels[HOSTNAME], "host");
        assert_eq!((&*made.storage_class_name, node_of(&made).as_deref()), ("c", Some("n")));
        let other: StorageClass =
            testing::object(json!({"metadata": {"name": "d"}, "provisioner": PROVISIONER}));
        assert_ne!(
            object(&reporting, &other, 1024, "kube-system").unwrap().metadata.name,
            made.metadata.name
        );
        for annotations in [json!({}), json!({AVAILABLE: "much"}), json!({AVAILABLE: "-1"})] {
            assert_eq!(hostname_with_space(&node(annotations)), None);
        }
    }
}
