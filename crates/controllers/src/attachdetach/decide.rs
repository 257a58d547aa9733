//! What is to be done about the volumes of a node, decided from what there is.
//!
//! ```text
//! a pod wants it, nothing is there            attach, unless it may be at one node only and is at another
//! a pod wants it, it is attached              the node is told, and its agent may use it
//! nobody wants it, the agent still uses it    wait; not for ever where the agent is not heard of
//! nobody wants it, nobody uses it             the node is told first, then it is detached
//! ```

use super::csi::Volume;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A volume that pods of a node use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredVolume {
    pub volume: Volume,
    /// The object that describes it.
    pub object: String,
    /// Whether it can be at one node only.
    pub exclusive: bool,
    /// The other nodes where it is, or may be.
    pub elsewhere: Vec<String>,
}

/// An attachment to the node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AttachmentState {
    /// Its driver says that it is done.
    pub attached: bool,
    /// Why its driver could not do it yet.
    pub error: Option<String>,
    /// It is being undone.
    pub leaving: bool,
}

/// What a node says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    /// What it was told to be attached.
    pub told: Vec<String>,
    /// The attachments of what its agent uses.
    pub in_use: BTreeSet<String>,
    pub ready: bool,
    pub out_of_service: bool,
}

/// The volumes of a node: desired and actual.
pub struct NodeVolumes {
    /// Nothing where the node is gone.
    pub node: Option<Node>,
    /// By attachment.
    pub wanted: BTreeMap<String, DesiredVolume>,
    /// By name.
    pub there: BTreeMap<String, AttachmentState>,
    /// What volumes are called by agents, by attachment.
    pub names: BTreeMap<String, String>,
    /// For how long it has been tried to detach something, by attachment.
    pub waited: BTreeMap<String, Duration>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Attachments to be made.
    pub attach: Vec<String>,
    /// Those that cannot be made, since the volume is elsewhere.
    pub refused: Vec<String>,
    /// Those that their driver could not make yet.
    pub failed: Vec<String>,
    /// What the node is told to be attached, where that is something else than before.
    pub tell: Option<Vec<String>>,
    /// Attachments that it is told of for the first time.
    pub new: Vec<String>,
    /// Attachments to be undone, and whether the agent may still use the volume.
    pub detach: Vec<(String, bool)>,
    /// Those that would be undone, but for an agent that uses them.
    pub waiting: Vec<String>,
}

impl NodeVolumes {
    /// `patience` is how long an agent is waited for that is not heard of.
    pub fn decide(&self, patience: Duration) -> Plan {
        let mut plan = Plan::default();
        let missing = self.wanted.iter().filter(|(name, _)| !self.there.contains_key(*name));
        for (name, wanted) in missing.filter(|_| self.node.is_some()) {
            let refused = wanted.exclusive && !wanted.elsewhere.is_empty();
            if refused { &mut plan.refused } else { &mut plan.attach }.push(name.clone());
        }
        let mut attached = BTreeMap::new();
        for (name, there) in &self.there {
            if !there.leaving && !self.wanted.contains_key(name) {
                match self.may_detach(name, patience) {
                    None => plan.waiting.push(name.clone()),
                    Some(forced) => {
                        plan.detach.push((name.clone(), forced));
                        continue;
                    }
                }
            }
            match (there.attached && !there.leaving, self.names.get(name)) {
                (true, Some(volume)) => drop(attached.insert(volume.clone(), name)),
                (false, _) if there.error.is_some() && !there.leaving => plan.failed.push(name.clone()),
                _ => {}
            }
        }
        if let Some(node) = &self.node {
            let told: BTreeSet<&String> = node.told.iter().collect();
            if !told.iter().copied().eq(attached.keys()) {
                let new = attached.iter().filter(|(volume, _)| !told.contains(volume));
                plan.new = new.map(|(_, name)| (*name).clone()).collect();
                plan.tell = Some(attached.into_keys().collect());
            }
        }
        plan
    }

    /// Whether something may be detached that nobody wants, and if so whether its agent may still use it.
    fn may_detach(&self, name: &str, patience: Duration) -> Option<bool> {
        let Some(node) = &self.node else { return Some(false) };
        if !node.in_use.contains(name) {
            return Some(false);
        }
        let unheard = !node.ready && self.waited.get(name).is_some_and(|waited| *waited >= patience);
        (node.out_of_service || unheard).then_some(true)
    }
}

#[cfg(test)]
mod tests;
