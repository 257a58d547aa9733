//! The limits of a pod's local storage: of its empty directories, its containers, and the whole pod.
//!
//! Everything here is pure. Messages are upstream's.

use crate::pod_facts::{EPHEMERAL_STORAGE, pod_limits};
use api::Quantity;
use api::core::v1::Pod;
use std::collections::BTreeMap;

/// Bytes that a pod uses on the disks of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StorageUsage {
    /// By the name of the volume.
    pub volumes: BTreeMap<String, u64>,
    /// Writable layer and logs, by the name of the container.
    pub containers: BTreeMap<String, u64>,
}

impl StorageUsage {
    pub fn total(&self) -> u64 {
        self.volumes.values().chain(self.containers.values()).fold(0, |sum, &bytes| sum.saturating_add(bytes))
    }
}

fn is_over(used: u64, limit: &Quantity) -> bool {
    i64::try_from(used).unwrap_or(i64::MAX) > limit.whole()
}

/// Whether an empty directory of the pod has a size.
pub fn has_sized_volume(pod: &Pod) -> bool {
    pod.spec.volumes.iter().any(|it| it.empty_dir.as_ref().is_some_and(|it| it.size_limit.is_some()))
}

/// Whether a container of the pod has a limit of local storage.
pub fn has_storage_limit(pod: &Pod) -> bool {
    pod_limits(pod).contains_key(EPHEMERAL_STORAGE)
}

/// The message of the eviction of a pod that uses more than it may.
pub fn excess(pod: &Pod, usage: &StorageUsage) -> Option<String> {
    volume_excess(pod, usage).or_else(|| pod_excess(pod, usage)).or_else(|| container_excess(pod, usage))
}

fn volume_excess(pod: &Pod, usage: &StorageUsage) -> Option<String> {
    pod.spec.volumes.iter().find_map(|volume| {
        let limit = volume.empty_dir.as_ref()?.size_limit.as_ref().filter(|it| it.sign() > 0)?;
        let name = &volume.name;
        let is_over = is_over(*usage.volumes.get(name)?, limit);
        is_over.then(|| format!("Usage of EmptyDir volume {name:?} exceeds the limit \"{limit}\". "))
    })
}

fn pod_excess(pod: &Pod, usage: &StorageUsage) -> Option<String> {
    let limits = pod_limits(pod);
    let limit = limits.get(EPHEMERAL_STORAGE)?;
    is_over(usage.total(), limit)
        .then(|| format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "))
}

fn container_excess(pod: &Pod, usage: &StorageUsage) -> Option<String> {
    pod.spec.containers.iter().find_map(|container| {
        let limit = container.resources.limits.get(EPHEMERAL_STORAGE).filter(|it| !it.is_zero())?;
        let name = &container.name;
        let is_over = is_over(*usage.containers.get(name)?, limit);
        is_over.then(|| format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::testing::object;

    #[test]
    fn a_pod_above_a_limit_is_evicted() {
        let pod: Pod = object(
            r#"{"spec":{"containers":[{"name":"a","resources":{"limits":{"ephemeral-storage":"1Mi"}}},
                    {"name":"b","resources":{"limits":{"ephemeral-storage":"2Mi"}}}],
                "volumes":[{"name":"v","emptyDir":{"sizeLimit":"64Ki"}},{"name":"w","emptyDir":{}}]}}"#,
        );
        assert!(has_sized_volume(&pod) && has_storage_limit(&pod));
        let check = |volumes: &[(&str, u64)], containers: &[(&str, u64)], expected: &str| {
            let list = |all: &[(&str, u64)]| all.iter().map(|(name, it)| ((*name).to_owned(), *it)).collect();
            let usage = StorageUsage { volumes: list(volumes), containers: list(containers) };
            assert_eq!(excess(&pod, &usage).unwrap_or_default(), expected, "{usage:?}");
        };
        check(&[], &[], "");
        check(&[("v", 65_536), ("w", 1 << 20)], &[("a", 1 << 20)], "");
        check(&[("v", 65_537)], &[], "Usage of EmptyDir volume \"v\" exceeds the limit \"64Ki\". ");
        let whole = "Pod ephemeral local storage usage exceeds the total limit of containers 3Mi. ";
        check(&[("w", 3 << 20)], &[("b", 1)], whole);
        check(&[], &[("a", 2 << 20)], "Container a exceeded its local ephemeral storage limit \"1Mi\". ");
        let free: Pod =
            object(r#"{"spec":{"containers":[{"name":"a"}],"volumes":[{"name":"w","emptyDir":{}}]}}"#);
        assert!(!has_sized_volume(&free) && !has_storage_limit(&free));
    }
}
