//! The volumes of a pod that are ready to be mounted into its containers.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// How the usage of a volume is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageSource {
    /// By its files.
    Files,
    /// By its filesystem.
    Filesystem,
    /// Not, or by others.
    None,
}

/// A volume on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountedVolume {
    /// The file or directory that containers get.
    pub host_path: PathBuf,
    /// Whether the volume is read-only for all containers, whatever their mounts say.
    pub is_readonly: bool,
    /// Whether the agent made it, so that it may change its labels.
    pub is_managed: bool,
    /// Whether containers get it as a device.
    pub is_block: bool,
    pub usage: UsageSource,
}

impl MountedVolume {
    /// A volume with files. Those of volumes that the agent made are measured.
    pub fn new(host_path: PathBuf, is_readonly: bool, is_managed: bool) -> Self {
        let usage = if is_managed { UsageSource::Files } else { UsageSource::None };
        MountedVolume { host_path, is_readonly, is_managed, is_block: false, usage }
    }
}

/// Volumes by the name that the pod gives them.
pub type PodMounts = BTreeMap<String, MountedVolume>;
