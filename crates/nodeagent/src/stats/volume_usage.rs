//! Usage of the volumes of pods. A volume is measured when a page needs it, and at most once in a period.

use super::counters::AgentMetrics;
use super::filesystem::{FilesystemUsage, filesystem};
use crate::volumes::VolumeManager;
use crate::volumes::csi::csi_volumes::CsiUsage;
use env::World;
use names::node::{CSI_DIRECTORY, CSI_PLUGIN};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The most files of a volume that are counted.
const FILE_LIMIT: u64 = 1_000_000;

/// The usage of one volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeStats {
    pub name: String,
    /// The kind of volume, as metrics name it.
    pub plugin: String,
    pub filesystem: FilesystemUsage,
    pub used_bytes: u64,
    pub inodes_used: u64,
}

type MeasurementCache = HashMap<String, (Duration, Arc<Vec<VolumeStats>>)>;

/// See the module.
pub struct VolumeUsage {
    volumes: VolumeManager,
    period: Duration,
    world: World,
    /// By the uid of a pod, with the time of the measurement.
    measured: Mutex<MeasurementCache>,
}

impl VolumeUsage {
    pub fn new(volumes: VolumeManager, period: Duration, world: World) -> Self {
        VolumeUsage { volumes, period, world, measured: Mutex::default() }
    }

    /// The volumes of a pod that the agent made.
    pub async fn of_pod(&self, uid: &str, metrics: &AgentMetrics) -> Arc<Vec<VolumeStats>> {
        let now = self.world.elapsed();
        if let Some((at, stats)) = self.measured.lock().get(uid)
            && now < *at + self.period
        {
            return stats.clone();
        }
        let of_drivers = match self.volumes.csi() {
            Some(csi) => csi.usage(uid).await,
            None => Vec::new(),
        };
        let mounts: Vec<(String, PathBuf)> = self
            .volumes
            .mounts(uid)
            .into_iter()
            .filter(|(_, volume)| volume.is_managed && !is_of_driver(&volume.host_path))
            .map(|(name, volume)| (name, volume.host_path))
            .collect();
        let work = move || mounts.iter().filter_map(|(name, path)| measure(name, path)).collect::<Vec<_>>();
        let mut stats = tokio::task::spawn_blocking(work).await.unwrap_or_default();
        stats.extend(of_drivers.into_iter().map(driver_stats));
        let stats = Arc::new(stats);
        for volume in &*stats {
            metrics.volumes_read(&volume.plugin, self.world.elapsed().saturating_sub(now));
        }
        self.measured.lock().insert(uid.to_owned(), (now, stats.clone()));
        stats
    }

    /// Forgets the pods that are gone.
    pub fn retain(&self, uids: &HashSet<&str>) {
        self.measured.lock().retain(|uid, _| uids.contains(uid.as_str()));
    }
}

/// Whether a CSI driver mounted a path, and so measures it.
fn is_of_driver(path: &Path) -> bool {
    path.components().any(|it| it.as_os_str() == CSI_DIRECTORY)
}

fn driver_stats(usage: CsiUsage) -> VolumeStats {
    VolumeStats {
        name: usage.name,
        plugin: CSI_PLUGIN.to_owned(),
        filesystem: FilesystemUsage {
            available: usage.available,
            capacity: usage.capacity,
            inodes: usage.inodes,
            inodes_free: usage.inodes_free,
        },
        used_bytes: usage.used,
        inodes_used: usage.inodes_used,
    }
}

fn measure(name: &str, path: &Path) -> Option<VolumeStats> {
    let filesystem = filesystem(path)?;
    let (mut used_bytes, mut inodes_used) = (0, 0);
    let mut pending = vec![path.to_owned()];
    while let Some(path) = pending.pop() {
        let Ok(data) = std::fs::symlink_metadata(&path) else { continue };
        used_bytes += data.blocks() * 512;
        inodes_used += 1;
        if data.is_dir() && inodes_used < FILE_LIMIT {
            pending.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|it| it.path()));
        }
    }
    // the directory of a volume is below the one of its plugin
    let plugin = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let plugin = plugin.replacen('~', "/", 1);
    Some(VolumeStats { name: name.to_owned(), plugin, filesystem, used_bytes, inodes_used })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_volume_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        std::fs::write(folder.path().join("a/b"), vec![1; 10_000]).unwrap();
        let stats = measure("v", folder.path()).unwrap();
        assert_eq!(stats.inodes_used, 3);
        assert!(stats.used_bytes >= 10_000 && stats.filesystem.capacity > 0);
    }
}
