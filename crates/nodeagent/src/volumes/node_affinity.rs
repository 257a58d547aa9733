//! Persistent volumes are used on the nodes only that can reach them.

use api::core::v1::{Node, PersistentVolume};
use api::node_selector::NodeMatcher;

/// The error of a volume that another node has.
const NO_MATCH: &str = "no matching NodeSelectorTerms";

/// Checks that a node is one of those that a volume names.
pub fn check_node_affinity(volume: &PersistentVolume, node: &Node) -> Result<(), &'static str> {
    let required = volume.spec.node_affinity.as_ref().and_then(|it| it.required.as_deref());
    let matches = |it| NodeMatcher::new(it).matches(&node.metadata.name, &node.metadata.labels);
    if required.is_none_or(matches) { Ok(()) } else { Err(NO_MATCH) }
}
