//! The volumes on the node, with the pods that use them.
//!
//! A volume is in the table from the first pod that uses it until it is no longer staged. Its lock is held during each
//! operation on it. A pod is entered before its operation waits for the lock, and a volume is removed under its lock and
//! without pods, so that there is one lock per volume at any time.

use super::service::NodeService;
use super::volume::VolumeId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

/// The lock of a volume.
pub type VolumeLock = Arc<tokio::sync::Mutex<()>>;

/// See the module.
#[derive(Debug, Default)]
pub struct VolumeEntry {
    pub lock: VolumeLock,
    /// The name in directories.
    pub spec_name: String,
    pub is_block: bool,
    /// Whether a controller attaches it to the node.
    pub is_attached: bool,
    /// The driver that has staged it for this agent. For another agent, or by a driver that has registered again and may
    /// have lost its state, it is staged again; for a driver that has not lost it that changes nothing.
    pub staged_by: Option<Weak<dyn NodeService>>,
    /// Uids of pods.
    pub users: BTreeSet<String>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct VolumeTable {
    pub volumes: BTreeMap<VolumeId, VolumeEntry>,
}

impl VolumeEntry {
    pub fn is_staged_by(&self, service: &Arc<dyn NodeService>) -> bool {
        self.staged_by.as_ref().is_some_and(|it| it.ptr_eq(&Arc::downgrade(service)))
    }
}

impl VolumeTable {
    /// Enters a pod that uses a volume, and returns the lock.
    pub fn enter(&mut self, id: &VolumeId, spec_name: &str, is_block: bool, uid: &str) -> VolumeLock {
        let entry = self.volumes.entry(id.clone()).or_default();
        (entry.spec_name, entry.is_block) = (spec_name.to_owned(), is_block);
        entry.users.insert(uid.to_owned());
        entry.lock.clone()
    }

    /// Removes a pod from the users of a volume.
    pub fn leave(&mut self, id: &VolumeId, uid: &str) {
        if let Some(entry) = self.volumes.get_mut(id) {
            entry.users.remove(uid);
        }
    }

    /// The volumes that a pod uses.
    pub fn of_pod(&self, uid: &str) -> Vec<VolumeId> {
        let used = self.volumes.iter().filter(|(_, it)| it.users.contains(uid));
        used.map(|(id, _)| id.clone()).collect()
    }

    /// The volumes that no pod uses any more.
    pub fn unused(&self) -> Vec<VolumeId> {
        self.volumes.iter().filter(|(_, it)| it.users.is_empty()).map(|(id, _)| id.clone()).collect()
    }

    /// The volumes that must not be detached, as the status of the node names them.
    pub fn in_use(&self, plugin: &str) -> Vec<String> {
        let attached = self.volumes.iter().filter(|(_, it)| it.is_attached);
        let mut names: Vec<String> = attached.map(|(id, _)| id.unique_name(plugin)).collect();
        names.sort();
        names
    }
}
