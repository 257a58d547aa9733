//! The devices on the node, with the pods that use their volumes.
//!
//! A device is in the table from the first pod that uses its volume until its directory is removed. Its lock is held during
//! each operation on it.

use super::pod_volumes::volumes_below;
use crate::container::node_facts::pod_dir;
use client::flex_volume::split_unique_name;
use names::node::FLEX_PLUGIN;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory of devices below a driver's.
const MOUNTS: &str = "mounts";
/// The parts of a driver's name.
const MAX_PARTS: usize = 2;

/// The lock of a device.
pub type DeviceLock = Arc<tokio::sync::Mutex<()>>;

/// See the module.
#[derive(Debug, Default)]
pub struct DeviceEntry {
    pub lock: DeviceLock,
    /// Uids of pods.
    pub users: BTreeSet<String>,
    /// The path of the device, if this agent attached it.
    pub device: Option<String>,
    /// The path of the device that this agent has mounted. One that another agent has mounted is mounted again, which changes
    /// nothing.
    pub mounted: Option<String>,
}

/// See the module. The keys are unique names of volumes.
#[derive(Debug, Default)]
pub struct DeviceTable {
    pub devices: BTreeMap<String, DeviceEntry>,
}

/// The directory of a device.
pub fn device_dir(root: &Path, unique_name: &str) -> PathBuf {
    let (driver, name) = split_unique_name(unique_name).unwrap_or((unique_name, ""));
    plugin_dir(root).join(driver).join(MOUNTS).join(name)
}

fn plugin_dir(root: &Path) -> PathBuf {
    root.join("plugins").join(FLEX_PLUGIN)
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|it| it.file_name().into_string().ok()).collect()
}

impl DeviceTable {
    /// Reads the directories of devices, and those of pods that use them.
    pub fn read(root: &Path) -> Self {
        let mut table = DeviceTable::default();
        table.read_drivers(&plugin_dir(root), "", MAX_PARTS);
        for uid in names_in(&root.join("pods")) {
            let volumes = volumes_below(&pod_dir(root, &uid).join("volumes")).unwrap_or_default();
            for (driver, path) in volumes {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                if let Some(entry) = table.devices.get_mut(&format!("{driver}/{name}")) {
                    entry.users.insert(uid.clone());
                }
            }
        }
        table
    }

    fn read_drivers(&mut self, directory: &Path, prefix: &str, parts: usize) {
        for name in names_in(directory) {
            let (path, driver) = (directory.join(&name), format!("{prefix}{name}"));
            for volume in names_in(&path.join(MOUNTS)) {
                self.devices.insert(format!("{driver}/{volume}"), DeviceEntry::default());
            }
            if parts > 1 {
                self.read_drivers(&path, &format!("{driver}/"), parts - 1);
            }
        }
    }

    /// Enters a pod that uses a volume, and returns the lock.
    pub fn enter(&mut self, unique_name: &str, uid: &str) -> DeviceLock {
        let entry = self.devices.entry(unique_name.to_owned()).or_default();
        entry.users.insert(uid.to_owned());
        entry.lock.clone()
    }

    /// Removes a pod from the users of all volumes.
    pub fn leave(&mut self, uid: &str) {
        for entry in self.devices.values_mut() {
            entry.users.remove(uid);
        }
    }

    /// The volumes that no pod uses any more, with their locks.
    pub fn unused(&self) -> Vec<(String, DeviceLock)> {
        let unused = self.devices.iter().filter(|(_, it)| it.users.is_empty());
        unused.map(|(name, it)| (name.clone(), it.lock.clone())).collect()
    }
}
