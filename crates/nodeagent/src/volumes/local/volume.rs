//! A local volume of a pod as its objects describe it.

use crate::volumes::csi::mount_error::{MountError, Operation};
use crate::volumes::ownership::ChangePolicy;
use crate::volumes::payload::fs_group;
use api::core::v1::{LocalVolumeSource, PersistentVolume, Pod};
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalVolume {
    /// The name in the pod.
    pub name: String,
    /// The name of the persistent volume, which is the one in messages and directories.
    pub volume_name: String,
    /// A directory or a block device.
    pub source: PathBuf,
    /// The filesystem of a device.
    pub fs_type: Option<String>,
    /// Whether containers get the device itself.
    pub is_block: bool,
    pub is_readonly: bool,
    /// The group of the pod, and when files are given to it.
    pub group: Option<(u32, ChangePolicy)>,
}

impl LocalVolume {
    pub fn new(
        pod: &Pod,
        name: &str,
        volume: &PersistentVolume,
        source: &LocalVolumeSource,
        is_readonly: bool,
    ) -> Self {
        LocalVolume {
            name: name.to_owned(),
            volume_name: volume.metadata.name.clone(),
            // a path without a first slash is one of the root directory
            source: Path::new("/").join(&source.path),
            fs_type: source.fs_type.clone(),
            is_block: volume.spec.volume_mode.as_deref() == Some("Block"),
            is_readonly,
            group: fs_group(pod).filter(|_| !is_readonly).map(|group| (group, ChangePolicy::of(pod))),
        }
    }

    pub fn failed(&self, operation: Operation, why: impl Display) -> MountError {
        MountError::failed(operation, self.is_block, &self.volume_name, why)
    }
}
