//! FlexVolume: programs that mount volumes, below `volumePluginDir`. [`client::flex_volume`] has the calls.
//!
//! A volume of a program that attaches is attached to the node by the attach/detach controller, or by the agent where
//! `enableControllerAttachDetach` is false; then its device is mounted once on the node, and the volume for each pod:
//!
//! ```text
//! plugins/kubernetes.io/flexvolume/<vendor>/<driver>/mounts/<volume>   the device, for all pods
//! pods/<uid>/volumes/<vendor>~<driver>/<volume>                        the volume, for one pod
//! ```
//!
//! The directories are all that an agent needs to know after a restart.
//!
//! | module | what it is |
//! |---|---|
//! | `volume` | a volume of a pod as its objects describe it, and its options |
//! | `device` | volumes that are attached: their devices on the node |
//! | `device_table` | those devices, with the pods that use them |
//! | `expand` | volumes that grow |
//! | `pod_volumes` | the directories of volumes of a pod |

mod device;
mod device_table;
mod expand;
mod pod_volumes;
#[cfg(test)]
mod tests;
mod volume;

pub use pod_volumes::volumes_below;
pub use volume::FlexVolume;

use super::attach_waiters::AttachWaiters;
use super::csi::StorageApi;
use super::csi::mount_error::{MountError, Operation};
use super::mounts::{MountedVolume, UsageSource};
use super::node_affinity::check_node_affinity;
use super::ownership::set_group;
use crate::filesystem::Filesystem;
use crate::objects::ObjectSource;
use client::Note;
use client::flex_volume::{CallError, DriverCapabilities, FlexDrivers};
use device_table::DeviceTable;
use outbound::io_text;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The mode of a new directory at which a volume is mounted, less the mask of the process.
const NEW_MODE: u32 = 0o750;

/// What the volumes are made from.
pub struct FlexOptions {
    /// The directory of the programs.
    pub directory: PathBuf,
    /// The directory of the agent.
    pub root: PathBuf,
    pub node_name: String,
    pub filesystem: Arc<dyn Filesystem>,
    pub objects: Arc<dyn ObjectSource>,
    pub api: Arc<dyn StorageApi>,
    /// Whether a controller attaches volumes.
    pub has_controlled_attach: bool,
}

/// The volumes of programs.
pub struct FlexVolumes {
    options: FlexOptions,
    drivers: FlexDrivers,
    table: Mutex<DeviceTable>,
    /// Uids of pods, and their volumes of which it is recorded that they cannot grow.
    refused: Mutex<BTreeSet<(String, String)>>,
    pub waiters: AttachWaiters,
}

impl FlexVolume {
    fn failed(&self, operation: Operation, why: impl Display) -> MountError {
        MountError::failed(operation, false, &self.source.name, why)
    }
}

impl FlexVolumes {
    /// Reads the devices that agents before this one have left.
    pub fn new(options: FlexOptions) -> Self {
        FlexVolumes {
            drivers: FlexDrivers::new(&options.directory),
            table: Mutex::new(DeviceTable::read(&options.root)),
            options,
            refused: Mutex::default(),
            waiters: AttachWaiters::default(),
        }
    }

    pub fn has_driver(&self, volume: &FlexVolume) -> bool {
        self.drivers.program(&volume.source.driver).is_ok()
    }

    /// Mounts a volume in the directory of volumes of its pod, where it may be already, and has it grow if that is due.
    /// Returns events, too. One with `is_mounted` was mounted by this agent.
    pub async fn mount(
        &self,
        uid: &str,
        volume: &FlexVolume,
        directory: &Path,
        is_mounted: bool,
    ) -> Result<(MountedVolume, Vec<Note>), MountError> {
        let capabilities = self.drivers.capabilities(&volume.source.driver).await;
        let capabilities = capabilities.map_err(|why| volume.failed(Operation::Publish, why))?;
        let path = volume.path(directory);
        if !is_mounted {
            self.check_affinity(volume)?;
            let device = match capabilities.attaches {
                true => self.mount_device(uid, volume, &path).await?,
                false => None,
            };
            let mounted = self.set_up(volume, &path, device.as_deref(), capabilities).await;
            mounted.map_err(|why| volume.failed(Operation::Publish, why))?;
        }
        let operation = if is_mounted { Operation::Expand } else { Operation::ExpandOnMount };
        let notes = self.expand(uid, volume, &path, capabilities, operation).await?;
        let is_readonly = volume.source.is_readonly;
        let usage = if capabilities.has_metrics { UsageSource::Filesystem } else { UsageSource::None };
        let is_labelled = capabilities.takes_labels && !is_readonly;
        Ok((MountedVolume { usage, ..MountedVolume::new(path, is_readonly, is_labelled) }, notes))
    }

    fn check_affinity(&self, volume: &FlexVolume) -> Result<(), MountError> {
        let Some(persistent) = &volume.persistent else { return Ok(()) };
        let checked = check_node_affinity(persistent, &self.options.objects.node());
        checked.map_err(|why| volume.failed(Operation::NodeAffinity, why))
    }

    async fn set_up(
        &self,
        volume: &FlexVolume,
        path: &Path,
        device: Option<&Path>,
        capabilities: DriverCapabilities,
    ) -> Result<(), String> {
        let filesystem = &self.options.filesystem;
        filesystem.create_dir_all(path, NEW_MODE).map_err(|why| io_text(&why))?;
        if filesystem.is_mount_point(path).map_err(|why| io_text(&why))? {
            return Ok(());
        }
        let mounted = self.call_mount(volume, path, device).await;
        if mounted.is_err() {
            // a directory with something in it stays
            let _ = filesystem.remove_dir(path);
        }
        mounted?;
        match volume.group.filter(|_| capabilities.takes_group && !volume.source.is_readonly) {
            Some((group, policy)) => {
                let (filesystem, path) = (filesystem.clone(), path.to_owned());
                let work = move || set_group(&path, group, false, policy, &*filesystem);
                let done = tokio::task::spawn_blocking(work).await;
                done.map_err(|why| why.to_string())?.map_err(|why| io_text(&why))
            }
            None => Ok(()),
        }
    }

    async fn call_mount(
        &self,
        volume: &FlexVolume,
        path: &Path,
        device: Option<&Path>,
    ) -> Result<(), String> {
        let options = volume.options(&*self.options.objects).await?;
        let target = path.to_string_lossy();
        match (self.drivers.call(&volume.source.driver, &["mount", &target, &options]).await, device) {
            (Ok(_), _) => Ok(()),
            (Err(CallError::NotSupported), Some(device)) => {
                self.options.filesystem.bind(device, path, false).map_err(|why| io_text(&why))
            }
            (Err(why), _) => Err(why.to_string()),
        }
    }

    /// Has programs unmount the volumes of a pod. A volume whose program is gone, or cannot do it, is left to the caller.
    pub async fn unmount_all(&self, directory: &Path) -> Result<(), String> {
        for (driver, path) in volumes_below(directory).map_err(|why| io_text(&why))? {
            let called = self.drivers.call(&driver, &["unmount", &path.to_string_lossy()]).await;
            match called {
                Ok(_) | Err(CallError::NotSupported | CallError::NoDriver) => {}
                Err(why) => return Err(format!("{}: {why}", path.display())),
            }
        }
        Ok(())
    }
}
