//! Labels and annotations by which the agent recognizes its sandboxes and containers.

use super::{ContainerStatus, SandboxInfo};
use names::node;
use std::collections::BTreeMap;

/// Whether a sandbox was made by a node agent.
pub fn is_pod_sandbox(info: &SandboxInfo) -> bool {
    info.labels.contains_key(node::POD_UID)
}

/// The uid of the pod of a container or sandbox with these labels.
pub fn pod_uid(labels: &BTreeMap<String, String>) -> Option<&str> {
    labels.get(node::POD_UID).map(String::as_str)
}

/// How often a container was restarted before this run.
pub fn restart_count(status: &ContainerStatus) -> u32 {
    let count = status.annotations.get(node::CONTAINER_RESTART_COUNT).and_then(|it| it.parse().ok());
    count.unwrap_or(status.attempt)
}
