//! The decision about the volumes of a node.
//!
//! ```text
//! used by a pod, not attached              attach, unless it can be on one node only and is on another
//! used by a pod, attached                  list it in the node's status, so that the kubelet may mount it
//! unused, but the node reports it in use   wait; not for ever if the node is not ready
//! unused                                   remove it from the node's status, then detach
//! ```

use super::attachable_volume::AttachableVolume;
use api::core::v1::PersistentVolumeSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The names of a node and of an attachment to it.
pub type NodeAttachment = (String, String);

/// A volume that pods of a node use.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredVolume {
    pub volume: AttachableVolume,
    /// The name of the PersistentVolume, or that in the pod.
    pub object: String,
    /// The PersistentVolume itself, if it is made from a volume in a pod.
    pub inline: Option<Box<PersistentVolumeSpec>>,
    /// Whether it can be on one node only.
    pub exclusive: bool,
    /// The other nodes that have an attachment of it.
    pub elsewhere: Vec<String>,
}

/// An attachment to the node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AttachmentState {
    /// The driver reports success.
    pub attached: bool,
    /// The last error of the driver.
    pub error: Option<String>,
    pub is_terminating: bool,
}

/// The state of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    /// `status.volumesAttached`.
    pub volumes_attached: Vec<String>,
    /// The attachments of `status.volumesInUse`: unique names of volumes that have no objects.
    pub in_use: BTreeSet<String>,
    pub ready: bool,
    pub out_of_service: bool,
}

/// The volumes of a node: desired and actual.
pub struct NodeVolumes {
    /// `None` if the node is gone.
    pub node: Option<Node>,
    /// By attachment.
    pub desired: BTreeMap<String, DesiredVolume>,
    /// By name.
    pub attachments: BTreeMap<String, AttachmentState>,
    /// The unique names of volumes, by attachment.
    pub names: BTreeMap<String, String>,
    /// For how long each attachment has waited to be detached.
    pub waited: BTreeMap<String, Duration>,
}

/// The changes to make; all by attachment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    pub attach: Vec<String>,
    /// Cannot be attached because the volume is on another node.
    pub refused: Vec<String>,
    /// The driver reports an error.
    pub failed: Vec<String>,
    /// The new `status.volumesAttached`, if it changes.
    pub volumes_attached: Option<Vec<String>>,
    /// Attachments that are new in `volumes_attached`.
    pub new: Vec<String>,
    /// To detach, and whether the node may still use the volume.
    pub detach: Vec<(String, bool)>,
    /// Not needed any more, but the node uses them.
    pub waiting: Vec<String>,
}

impl NodeVolumes {
    /// A volume that a node reports in use is detached after `force_detach_after` if the node is not ready.
    pub fn decide(&self, force_detach_after: Duration) -> Plan {
        let mut plan = Plan::default();
        let missing = self.desired.iter().filter(|(name, _)| !self.attachments.contains_key(*name));
        for (name, desired) in missing.filter(|_| self.node.is_some()) {
            let is_refused = desired.exclusive && !desired.elsewhere.is_empty();
            if is_refused { &mut plan.refused } else { &mut plan.attach }.push(name.clone());
        }
        let mut attached = BTreeMap::new();
        for (name, state) in &self.attachments {
            if !state.is_terminating && !self.desired.contains_key(name) {
                match self.may_detach(name, force_detach_after) {
                    None => plan.waiting.push(name.clone()),
                    Some(is_forced) => {
                        plan.detach.push((name.clone(), is_forced));
                        continue;
                    }
                }
            }
            match (state.attached && !state.is_terminating, self.names.get(name)) {
                (true, Some(volume)) => drop(attached.insert(volume.clone(), name)),
                (false, _) if state.error.is_some() && !state.is_terminating => {
                    plan.failed.push(name.clone())
                }
                _ => {}
            }
        }
        if let Some(node) = &self.node {
            let old: BTreeSet<&String> = node.volumes_attached.iter().collect();
            if !old.iter().copied().eq(attached.keys()) {
                let new = attached.iter().filter(|(volume, _)| !old.contains(volume));
                plan.new = new.map(|(_, name)| (*name).clone()).collect();
                plan.volumes_attached = Some(attached.into_keys().collect());
            }
        }
        plan
    }

    /// `None` if an unneeded attachment must stay; else whether the node may still use the volume.
    fn may_detach(&self, name: &str, force_detach_after: Duration) -> Option<bool> {
        let Some(node) = &self.node else { return Some(false) };
        if !node.in_use.contains(name) {
            return Some(false);
        }
        let has_waited = self.waited.get(name).is_some_and(|waited| *waited >= force_detach_after);
        (node.out_of_service || !node.ready && has_waited).then_some(true)
    }
}

#[cfg(test)]
mod tests;
