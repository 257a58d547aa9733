//! The event of a node update: the part of the node that changed.

use super::event::ClusterEvent;
use api::core::v1::{Node, NodeCondition};
use std::collections::BTreeMap;

/// The event of an update of a node, if the update may make a pod schedulable. Only the first of several changes is
/// reported, as upstream does: a node that gains labels and loses a taint in one write gives a label change.
pub fn node_scheduling_properties_changed(new: &Node, old: &Node) -> Option<ClusterEvent> {
    if old.spec.unschedulable && !new.spec.unschedulable {
        Some(ClusterEvent::NODE_SPEC_UNSCHEDULABLE_CHANGE)
    } else if new.status.allocatable != old.status.allocatable {
        Some(ClusterEvent::NODE_ALLOCATABLE_CHANGE)
    } else if new.metadata.labels != old.metadata.labels {
        Some(ClusterEvent::NODE_LABEL_CHANGE)
    } else if new.spec.taints != old.spec.taints {
        Some(ClusterEvent::NODE_TAINT_CHANGE)
    } else if statuses(&new.status.conditions) != statuses(&old.status.conditions) {
        Some(ClusterEvent::NODE_CONDITION_CHANGE)
    } else {
        None
    }
}

/// Conditions without their times and messages; heartbeats are no change.
fn statuses(conditions: &[NodeCondition]) -> BTreeMap<&str, &str> {
    conditions.iter().map(|condition| (&*condition.type_, &*condition.status)).collect()
}
