//! Local volumes: directories and block devices of this node, as persistent volumes.
//!
//! A device with a filesystem is mounted once on the node, and formatted before if it is empty; a directory is there
//! already. Either is then mounted for each pod. A pod may get a device as it is, too:
//!
//! ```text
//! plugins/kubernetes.io/local-volume/mounts/<volume>                      the filesystem of a device, for all pods
//! pods/<uid>/volumes/kubernetes.io~local-volume/<volume>                  the directory, for one pod
//! plugins/kubernetes.io~local-volume/volumeDevices/<volume>/<uid>         a device
//! pods/<uid>/volumeDevices/kubernetes.io~local-volume/<volume>            the link to it
//! ```
//!
//! The directories of pods are made before and removed after what they stand for, and are all that an agent needs to know:
//! a filesystem is in use as long as a pod has the directory of its volume.

#[cfg(test)]
mod tests;
mod volume;

pub use volume::LocalVolume;

use super::block_map::{BlockMap, DEVICES, is_mounted};
use super::csi::mount_error::{MountError, Operation};
use super::format::format_and_mount;
use super::mounts::{MountedVolume, UsageSource};
use super::ownership::set_group;
use crate::container::node_facts::pod_dir;
use crate::filesystem::{Filesystem, unless_absent};
use names::node::{LOCAL_PLUGIN, LOCAL_VOLUME_PLUGIN};
use outbound::io_text;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt::Display;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory of volumes below a pod's.
const VOLUMES: &str = "volumes";
const MOUNTS: &str = "mounts";
/// The mode of a new directory at which a volume is mounted, less the mask of the process.
const NEW_MODE: u32 = 0o777;
const DEVICE_MODE: u32 = 0o750;
/// The filesystem of an empty device whose volume names none.
const DEFAULT_TYPE: &str = "ext4";
const NO_SOURCE: &str = "only directory and block device are supported";

/// The lock of a volume, held during each operation on it.
type VolumeLock = Arc<tokio::sync::Mutex<()>>;

/// See the module.
pub struct LocalVolumes {
    root: PathBuf,
    filesystem: Arc<dyn Filesystem>,
    locks: Mutex<HashMap<String, VolumeLock>>,
}

/// The names in a directory; none if it is absent.
fn names_in(directory: &Path) -> io::Result<Vec<String>> {
    match std::fs::read_dir(directory) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => {
            let names = entries?.map(|entry| entry.map(|it| it.file_name().into_string().ok()));
            Ok(names.collect::<io::Result<Vec<_>>>()?.into_iter().flatten().collect())
        }
    }
}

impl LocalVolumes {
    pub fn new(root: &Path, filesystem: Arc<dyn Filesystem>) -> Self {
        LocalVolumes { root: root.to_owned(), filesystem, locks: Mutex::default() }
    }

    /// The directories of filesystems of devices.
    fn mounts(&self) -> PathBuf {
        self.root.join("plugins").join(LOCAL_PLUGIN).join(MOUNTS)
    }

    fn devices_of_pod(&self, uid: &str) -> PathBuf {
        pod_dir(&self.root, uid).join(DEVICES).join(LOCAL_VOLUME_PLUGIN)
    }

    fn of_pod(&self, uid: &str) -> PathBuf {
        pod_dir(&self.root, uid).join(VOLUMES).join(LOCAL_VOLUME_PLUGIN)
    }

    fn block_map(&self, uid: &str, name: &str) -> BlockMap {
        let devices = self.root.join("plugins").join(LOCAL_VOLUME_PLUGIN).join(DEVICES);
        BlockMap { file: devices.join(name).join(uid), link: self.devices_of_pod(uid).join(name) }
    }

    fn lock(&self, name: &str) -> VolumeLock {
        self.locks.lock().entry(name.to_owned()).or_default().clone()
    }

    /// Does work on files that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Filesystem) -> io::Result<T> + Send + 'static,
    ) -> Result<T, String> {
        let filesystem = self.filesystem.clone();
        let done = tokio::task::spawn_blocking(move || work(&*filesystem)).await;
        done.unwrap_or_else(|why| Err(io::Error::other(why))).map_err(|why| io_text(&why))
    }

    /// Brings a volume to a pod. It may be there already.
    pub async fn mount(&self, uid: &str, volume: &LocalVolume) -> Result<MountedVolume, MountError> {
        let lock = self.lock(&volume.volume_name);
        let _one_at_a_time = lock.lock().await;
        match volume.is_block {
            true => self.map(uid, volume).await,
            false => self.mount_files(uid, volume).await,
        }
    }

    async fn map(&self, uid: &str, volume: &LocalVolume) -> Result<MountedVolume, MountError> {
        let device = std::fs::canonicalize(&volume.source);
        let device = device.map_err(|why| {
            let why = format!("lstat {}: {}", volume.source.display(), io_text(&why));
            volume.failed(Operation::Initialize, why)
        })?;
        let is_device = std::fs::metadata(&device).is_ok_and(|it| it.file_type().is_block_device());
        if !is_device {
            let why = format!("{} is not a block device", device.display());
            return Err(volume.failed(Operation::Map, why));
        }
        let map = self.block_map(uid, &volume.volume_name);
        let (link, is_readonly) = (map.link.clone(), volume.is_readonly);
        let mapped = self.blocking(move |filesystem| map.map(&device, filesystem)).await;
        mapped.map_err(|why| volume.failed(Operation::Map, why))?;
        Ok(MountedVolume { is_block: true, ..MountedVolume::new(link, is_readonly, !is_readonly) })
    }

    async fn mount_files(&self, uid: &str, volume: &LocalVolume) -> Result<MountedVolume, MountError> {
        let source = volume.source.display();
        let Ok(data) = std::fs::metadata(&volume.source) else {
            let why = format!("path \"{source}\" does not exist");
            return Err(volume.failed(Operation::Initialize, why));
        };
        let kind = data.file_type();
        if !kind.is_dir() && !kind.is_block_device() {
            return Err(volume.failed(Operation::Initialize, NO_SOURCE));
        }
        let path = self.of_pod(uid).join(&volume.volume_name);
        let target = path.clone();
        let made = self.blocking(move |filesystem| {
            filesystem.create_dir_all(&target, NEW_MODE)?;
            filesystem.is_mount_point(&target)
        });
        let is_mounted = made.await.map_err(|why| volume.failed(Operation::Publish, why))?;
        if !is_mounted {
            let mounted = match kind.is_block_device() {
                true => self.mount_device(volume).await,
                false => Ok(volume.source.clone()),
            };
            let mounted = match mounted {
                Ok(source) => self.bind(volume, source, path.clone()).await,
                Err(why) => Err(why),
            };
            if mounted.is_err() {
                // a directory with something in it stays
                let _ = self.filesystem.remove_dir(&path);
            }
            mounted?;
        }
        let is_readonly = volume.is_readonly;
        let usage = UsageSource::Filesystem;
        Ok(MountedVolume { usage, ..MountedVolume::new(path, is_readonly, !is_readonly) })
    }

    /// Mounts the filesystem of a device, once for all pods, and returns where it is.
    async fn mount_device(&self, volume: &LocalVolume) -> Result<PathBuf, MountError> {
        let target = self.mounts().join(&volume.volume_name);
        let made = target.clone();
        let is_mounted = self.blocking(move |filesystem| {
            filesystem.create_dir_all(&made, DEVICE_MODE)?;
            filesystem.is_mount_point(&made)
        });
        let is_mounted = is_mounted.await.map_err(|why| volume.failed(Operation::Stage, why))?;
        if is_mounted {
            return Ok(target);
        }
        let device = volume.source.to_string_lossy();
        let fs_type = volume.fs_type.as_deref().unwrap_or(DEFAULT_TYPE);
        let mounted = format_and_mount(&*self.filesystem, &device, &target, fs_type, volume.is_readonly);
        mounted.await.map_err(|why| {
            let _ = self.filesystem.remove_dir(&target);
            let target = target.display();
            let why = format!(
                "local: failed to mount device {device} at {target} (fstype: {fs_type}), error {why}"
            );
            volume.failed(Operation::Stage, why)
        })?;
        Ok(target)
    }

    async fn bind(&self, volume: &LocalVolume, source: PathBuf, path: PathBuf) -> Result<(), MountError> {
        let (is_readonly, group) = (volume.is_readonly, volume.group);
        let bound = self.blocking(move |filesystem| {
            filesystem.bind(&source, &path, is_readonly)?;
            let Some((group, policy)) = group else { return Ok(()) };
            // a mount that is there counts as one whose files have the group
            let given = set_group(&path, group, false, policy, filesystem);
            given.inspect_err(|_| drop(filesystem.unmount(&path)))
        });
        bound.await.map_err(|why| volume.failed(Operation::Publish, why))
    }

    /// Takes the devices from a pod whose containers have ended. Its directories are left to the caller.
    pub async fn unmap_pod(&self, uid: &str) -> Result<(), String> {
        let directory = self.devices_of_pod(uid);
        for name in names_in(&directory).map_err(|why| io_text(&why))? {
            let lock = self.lock(&name);
            let _one_at_a_time = lock.lock().await;
            let map = self.block_map(uid, &name);
            let unmapped = self.blocking(move |filesystem| {
                map.unmap(filesystem)?;
                // the directory of the volume stays while another pod has the device
                if let Some(of_volume) = map.file.parent() {
                    let _ = filesystem.remove_dir(of_volume);
                }
                Ok(())
            });
            unmapped.await?;
        }
        self.blocking(move |filesystem| unless_absent(filesystem.remove_dir(&directory))).await
    }

    /// Unmounts the filesystems of devices that no pod uses. What fails is tried again at the next call.
    pub async fn remove_unused(&self) {
        let mounts = self.mounts();
        let report = |name: &str, why: &dyn Display| {
            tracing::warn!(volume = name, %why, "UnmountVolume.UnmountDevice failed");
        };
        let names = names_in(&mounts).unwrap_or_else(|why| {
            report("", &why);
            Vec::new()
        });
        for name in names {
            let lock = self.lock(&name);
            let _one_at_a_time = lock.lock().await;
            match self.is_used(&name) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(why) => {
                    report(&name, &why);
                    continue;
                }
            }
            let path = mounts.join(&name);
            let removed = self.blocking(move |filesystem| {
                if is_mounted(&path, filesystem) {
                    filesystem.unmount(&path)?;
                }
                unless_absent(filesystem.remove_dir(&path))
            });
            if let Err(why) = removed.await {
                report(&name, &why);
            }
        }
        // a lock that only this table has is held by no one
        self.locks.lock().retain(|_, lock| Arc::strong_count(lock) > 1);
    }

    /// Whether a pod has the directory of a volume.
    fn is_used(&self, name: &str) -> io::Result<bool> {
        let pods = names_in(&self.root.join("pods"))?;
        Ok(pods.iter().any(|uid| std::fs::symlink_metadata(self.of_pod(uid).join(name)).is_ok()))
    }
}
