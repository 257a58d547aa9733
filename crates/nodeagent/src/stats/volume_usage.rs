//! Usage of the volumes of pods. A volume is measured when a page needs it, and at most once in a period.

use super::counters::AgentMetrics;
use super::filesystem::{FilesystemUsage, filesystem};
use crate::volumes::csi::csi_volumes::CsiUsage;
use crate::volumes::mounts::UsageSource;
use crate::volumes::{MountedVolume, VolumeManager};
use env::World;
use names::node::{CSI_DIRECTORY, CSI_PLUGIN};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
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

    /// The volumes of a pod that are measured.
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
        let mounts = self.volumes.mounts(uid);
        let work = move || {
            let own = mounts.iter().filter(|(_, volume)| !is_of_driver(&volume.host_path));
            own.filter_map(|(name, volume)| measure(name, volume)).collect::<Vec<_>>()
        };
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

fn measure(name: &str, volume: &MountedVolume) -> Option<VolumeStats> {
    let path = &*volume.host_path;
    let (filesystem, used_bytes, inodes_used) = match volume.usage {
        UsageSource::None => return None,
        UsageSource::Files => {
            let filesystem = filesystem(path)?;
            let (used_bytes, inodes_used) = measure_files(path);
            (filesystem, used_bytes, inodes_used)
        }
        UsageSource::Filesystem => {
            let filesystem = filesystem(path)?;
            let blocks = rustix::fs::statvfs(path).ok()?;
            // blocks that only root may use count neither as used nor as available
            let used_bytes = blocks.f_blocks.saturating_sub(blocks.f_bfree) * blocks.f_frsize;
            let inodes_used = filesystem.inodes.saturating_sub(filesystem.inodes_free);
            (filesystem, used_bytes, inodes_used)
        }
    };
    // the directory of a volume is below the one of its plugin
    let plugin = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let plugin = plugin.replacen('~', "/", 1);
    Some(VolumeStats { name: name.to_owned(), plugin, filesystem, used_bytes, inodes_used })
}

/// Bytes and number of the files below a directory.
pub fn measure_files(path: &Path) -> (u64, u64) {
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
    (used_bytes, inodes_used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_volume_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        std::fs::write(folder.path().join("a/b"), vec![1; 10_000]).unwrap();
        let volume = MountedVolume::new(folder.path().to_owned(), false, true);
        let stats = measure("v", &volume).unwrap();
        assert_eq!(stats.inodes_used, 3);
        assert!(stats.used_bytes >= 10_000 && stats.filesystem.capacity > 0);
        let whole = MountedVolume { usage: UsageSource::Filesystem, ..volume.clone() };
        assert!(measure("v", &whole).unwrap().used_bytes >= stats.used_bytes);
        assert_eq!(measure("v", &MountedVolume { usage: UsageSource::None, ..volume }), None);
    }
}
