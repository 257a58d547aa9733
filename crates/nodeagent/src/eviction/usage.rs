//! What pods use of a resource of the node, by which they are ranked.

use super::limits::StorageUsage;
use super::ranking::PodUsage;
use super::thresholds::{Pressure, Signal};
use crate::runtime::{ContainerStats, SharedRuntime, labels};
use crate::stats::measure_files;
use crate::volumes::VolumeManager;
use crate::volumes::empty_dir::usage;
use api::core::v1::{Pod, Volume};
use names::node::CONTAINER_NAME;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// See the module.
pub struct UsageMeter {
    pub runtime: SharedRuntime,
    pub volumes: VolumeManager,
    /// The directory of pods' log directories.
    pub log_dir: PathBuf,
    /// Counts the processes of a pod.
    pub processes: Box<dyn Fn(&Pod) -> u64 + Send + Sync>,
}

/// What is counted of files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes,
    Inodes,
}

/// Amounts by uid and container.
pub type ContainerAmounts = BTreeMap<(String, String), u64>;

/// Files of a pod on the disks of the node.
#[derive(Default)]
struct PodFiles {
    /// By the name of the volume.
    volumes: BTreeMap<String, u64>,
    /// Writable layers and logs, by the name of the container.
    layers: BTreeMap<String, u64>,
    logs: BTreeMap<String, u64>,
}

impl PodFiles {
    /// All files, with those of a container in one sum.
    fn storage(self) -> StorageUsage {
        let PodFiles { volumes, mut layers, logs } = self;
        for (name, amount) in logs {
            *layers.entry(name).or_default() += amount;
        }
        StorageUsage { volumes, containers: layers }
    }

    /// The files on the filesystem of a signal: with a filesystem of its own for images, that has the layers.
    fn total(&self, signal: Signal, has_image_fs: bool) -> u64 {
        let is_of_images = matches!(signal, Signal::ImageDisk | Signal::ImageInodes);
        let sum = |part: &BTreeMap<String, u64>, is_counted: bool| {
            part.values().filter(|_| is_counted).fold(0, |sum: u64, it| sum.saturating_add(*it))
        };
        let layers = sum(&self.layers, !has_image_fs || is_of_images);
        let others = [&self.logs, &self.volumes].map(|it| sum(it, !has_image_fs || !is_of_images));
        others.into_iter().fold(layers, u64::saturating_add)
    }
}

impl UsageMeter {
    /// What pods use of the resource of a signal.
    pub async fn of_pods(&self, signal: Signal, has_image_fs: bool, pods: Vec<Arc<Pod>>) -> Vec<PodUsage> {
        let mut usages = Vec::new();
        match signal.pressure() {
            Pressure::Processes => {
                let usage = |pod: Arc<Pod>| {
                    let total = (self.processes)(&pod);
                    PodUsage { pod, total, containers: BTreeMap::new() }
                };
                usages.extend(pods.into_iter().map(usage));
            }
            Pressure::Memory => {
                let all = self.containers(working_set).await;
                for pod in pods {
                    let own = all.iter().filter(|((uid, _), _)| *uid == pod.metadata.uid);
                    let containers: BTreeMap<String, u64> =
                        own.map(|((_, name), bytes)| (name.clone(), *bytes)).collect();
                    usages.push(PodUsage { pod, total: containers.values().sum(), containers });
                }
            }
            Pressure::Disk => {
                let is_bytes = matches!(signal, Signal::NodeDisk | Signal::ImageDisk);
                let (unit, count): (Unit, fn(&ContainerStats) -> Option<u64>) =
                    if is_bytes { (Unit::Bytes, layer_bytes) } else { (Unit::Inodes, layer_inodes) };
                let layers = self.containers(count).await;
                for pod in pods {
                    let files = self.files(&pod, &layers, unit).await;
                    let total = files.total(signal, has_image_fs);
                    usages.push(PodUsage { pod, total, containers: files.storage().containers });
                }
            }
        }
        usages
    }

    /// Bytes of the writable layers of all containers.
    pub async fn layers(&self) -> ContainerAmounts {
        self.containers(layer_bytes).await
    }

    /// Bytes of a pod on the node's disks.
    pub async fn storage(&self, pod: &Arc<Pod>, layers: &ContainerAmounts) -> StorageUsage {
        self.files(pod, layers, Unit::Bytes).await.storage()
    }

    async fn containers(&self, amount: fn(&ContainerStats) -> Option<u64>) -> ContainerAmounts {
        let stats = self.runtime.container_stats().await.unwrap_or_else(|why| {
            tracing::warn!(%why, "usage of containers is unknown");
            Vec::new()
        });
        let mut all = ContainerAmounts::new();
        for it in stats {
            let name = it.labels.get(CONTAINER_NAME).cloned().unwrap_or_default();
            if let Some(uid) = labels::pod_uid(&it.labels) {
                *all.entry((uid.to_owned(), name)).or_default() += amount(&it).unwrap_or(0);
            }
        }
        all
    }

    async fn files(&self, pod: &Arc<Pod>, layers: &ContainerAmounts, unit: Unit) -> PodFiles {
        let (pod, volumes) = (pod.clone(), self.volumes.clone());
        let meta = &pod.metadata;
        let log_dir = self.log_dir.join(format!("{}_{}_{}", meta.namespace, meta.name, meta.uid));
        let layer = |name: &str| layers.get(&(meta.uid.clone(), name.to_owned())).copied().unwrap_or(0);
        let names = pod.spec.init_containers.iter().chain(&pod.spec.containers).map(|it| &it.name);
        let layers: BTreeMap<String, u64> = names.map(|name| (name.clone(), layer(name))).collect();
        let work = move || {
            let of_logs = |name: &String| (name.clone(), count(&log_dir.join(name), unit).unwrap_or(0));
            let logs = layers.keys().map(of_logs).collect();
            let volumes = match unit {
                Unit::Bytes => volumes.usage(&pod),
                Unit::Inodes => volume_inodes(&volumes, &pod),
            };
            PodFiles { volumes, layers, logs }
        };
        tokio::task::spawn_blocking(work).await.unwrap_or_default()
    }
}

/// Inodes of the volumes of a pod that end with it.
fn volume_inodes(volumes: &VolumeManager, pod: &Pod) -> BTreeMap<String, u64> {
    let mounts = volumes.mounts(&pod.metadata.uid);
    let is_local = |it: &&Volume| {
        it.empty_dir.as_ref().is_some_and(|it| it.medium.is_empty()) || it.config_map.is_some()
    };
    let used = |volume: &Volume| {
        let inodes = count(&mounts.get(&volume.name)?.host_path, Unit::Inodes)?;
        Some((volume.name.clone(), inodes))
    };
    pod.spec.volumes.iter().filter(is_local).filter_map(used).collect()
}

/// The files below a directory; `None` if it cannot be read.
fn count(path: &Path, unit: Unit) -> Option<u64> {
    match unit {
        Unit::Bytes => usage(path).ok(),
        Unit::Inodes => path.exists().then(|| measure_files(path).1),
    }
}

fn layer_bytes(stats: &ContainerStats) -> Option<u64> {
    stats.writable_layer.as_ref()?.used_bytes
}

fn layer_inodes(stats: &ContainerStats) -> Option<u64> {
    stats.writable_layer.as_ref()?.inodes_used
}

fn working_set(stats: &ContainerStats) -> Option<u64> {
    stats.memory.as_ref()?.working_set_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_count_on_their_filesystem() {
        let one = |amount: u64| BTreeMap::from([("a".to_owned(), amount)]);
        let files = PodFiles { volumes: one(1), layers: one(10), logs: one(100) };
        let totals = |signal| [false, true].map(|has_image_fs| files.total(signal, has_image_fs));
        assert_eq!(totals(Signal::NodeDisk), [111, 101]);
        assert_eq!(totals(Signal::NodeInodes), [111, 101]);
        assert_eq!(totals(Signal::ImageDisk), [111, 10]);
        assert_eq!(totals(Signal::ImageInodes), [111, 10]);
        assert_eq!(files.storage().containers, one(110));
    }
}
