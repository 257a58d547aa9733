//! The pods of the node as the managers see them.

use api::core::v1::{Pod, PodStatus};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The source of pods for the managers.
pub trait PodSource: Send + Sync {
    /// Pods whose containers may run.
    fn active_pods(&self) -> Vec<Arc<Pod>>;
    /// All pods.
    fn pods(&self) -> Vec<Arc<Pod>>;
    fn status(&self, uid: &str) -> Option<PodStatus>;
}

/// Names of containers by pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActiveContainers(BTreeMap<String, BTreeSet<String>>);

impl ActiveContainers {
    pub fn contains(&self, uid: &str, container: &str) -> bool {
        self.0.get(uid).is_some_and(|names| names.contains(container))
    }

    pub fn contains_pod(&self, uid: &str) -> bool {
        self.0.contains_key(uid)
    }
}

impl<'a> FromIterator<&'a Arc<Pod>> for ActiveContainers {
    fn from_iter<I: IntoIterator<Item = &'a Arc<Pod>>>(pods: I) -> Self {
        let names = |pod: &Pod| {
            let containers = pod.spec.init_containers.iter().chain(&pod.spec.containers);
            containers.map(|it| it.name.clone()).collect()
        };
        ActiveContainers(pods.into_iter().map(|pod| (pod.metadata.uid.clone(), names(pod))).collect())
    }
}
