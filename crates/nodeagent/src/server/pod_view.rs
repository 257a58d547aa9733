//! The pods of the node, as the HTTP API shows them.

use api::core::v1::Pod;
use std::sync::Arc;

/// Pods with their current status.
pub trait PodView: Send + Sync + 'static {
    /// All pods that the agent knows.
    fn pods(&self) -> Vec<Arc<Pod>>;

    fn pod(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        let is_it = |pod: &Arc<Pod>| pod.metadata.namespace == namespace && pod.metadata.name == name;
        self.pods().into_iter().find(is_it)
    }

    /// Whether changes of pods are handled.
    fn is_syncing(&self) -> bool {
        true
    }
}
