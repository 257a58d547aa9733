//! The diagnosis of a pod that no node fits, and its message.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::framework::profile::Plugin;
use crate::framework::status::{Code, Reason, Reasons, Rejection};
use crate::node_info::Slot;

/// So many of the last rejections are compared with a new one.
const SEARCHED: usize = 8;

/// Why a pod did not fit.
#[derive(Debug, Clone, Default)]
pub struct Diagnosis {
    /// By the slot of the node: one more than the place of its rejection, 0 without one.
    nodes: Vec<u32>,
    /// Different rejections, with exceptions, and how many nodes have each.
    rejections: Vec<(Arc<Rejection>, usize)>,
    count: usize,
    /// Further nodes that rejected the pod, of which only the number is known.
    pub skipped: usize,
    /// The plugins that rejected the pod: events they registered for may make it schedulable.
    pub unschedulable_plugins: BTreeSet<Plugin>,
    /// The message of a plugin that rejected the pod before any node was looked at.
    pub pre_filter_message: String,
    /// The message of preemption.
    pub post_filter_message: String,
}

impl Diagnosis {
    /// Notes the rejection of a node; a later one takes its place.
    pub fn reject(&mut self, slot: Slot, rejection: Arc<Rejection>) {
        if self.nodes.len() <= slot {
            self.nodes.resize((slot + 1).next_power_of_two(), 0);
        }
        match self.known(self.nodes[slot]) {
            Some(before) => self.rejections[before].1 -= 1,
            None => self.count += 1,
        }
        // the same rejection is shared by many nodes; a few are searched for it
        let recent = self.rejections.iter_mut().rev().take(SEARCHED);
        let place = match recent.rev().position(|(known, _)| Arc::ptr_eq(known, &rejection)) {
            Some(at) => self.rejections.len().saturating_sub(SEARCHED) + at,
            None => {
                self.rejections.push((rejection, 0));
                self.rejections.len() - 1
            }
        };
        self.rejections[place].1 += 1;
        self.nodes[slot] = place as u32 + 1;
    }

    /// The place of a node's rejection.
    fn known(&self, entry: u32) -> Option<usize> {
        entry.checked_sub(1).map(|place| place as usize)
    }

    /// The rejection of a node.
    pub fn rejection(&self, slot: Slot) -> Option<&Arc<Rejection>> {
        let place = self.known(*self.nodes.get(slot)?)?;
        self.rejections.get(place).map(|(rejection, _)| rejection)
    }

    /// Adds a reason to the rejection of a node. Without a code, a node that has none becomes unschedulable.
    pub fn add_reason(&mut self, slot: Slot, code: Option<Code>, reason: &str) {
        let known = self.rejection(slot);
        let mut reasons: Vec<Reason> = known.map(|known| known.reasons.to_vec()).unwrap_or_default();
        let code = code.or(known.map(|known| known.code)).unwrap_or(Code::Unschedulable);
        reasons.push(Reason::Other(reason.into()));
        self.reject(slot, Arc::new(Rejection { code, reasons: Reasons::Many(reasons) }));
    }

    /// Notes a plugin that rejected the pod.
    pub fn note_plugin(&mut self, plugin: Option<Plugin>) {
        // the same few plugins reject most nodes
        if let Some(plugin) = plugin.filter(|plugin| !self.unschedulable_plugins.contains(plugin)) {
            self.unschedulable_plugins.insert(plugin);
        }
    }

    /// The number of nodes that rejected the pod.
    pub fn rejections(&self) -> usize {
        self.count + self.skipped
    }

    pub fn code(&self, slot: Slot) -> Option<Code> {
        self.rejection(slot).map(|rejection| rejection.code)
    }

    /// The message for users: `0/3 nodes are available: ...`.
    pub fn message(&self, node_count: usize) -> String {
        let mut message = format!("0/{node_count} nodes are available:");
        for part in [&self.pre_filter_message, &self.histogram(), &self.post_filter_message] {
            if !part.is_empty() {
                message.push_str(&format!(" {part}."));
            }
        }
        message
    }

    /// `2 Insufficient cpu, 1 Too many pods`: the reasons with the number of nodes, sorted as text.
    fn histogram(&self) -> String {
        let mut counts: HashMap<&Reason, usize> = HashMap::new();
        for (rejection, nodes) in self.rejections.iter().filter(|(_, nodes)| *nodes > 0) {
            for reason in rejection.reasons.iter() {
                *counts.entry(reason).or_default() += nodes;
            }
        }
        let mut by_text: HashMap<String, usize> = HashMap::new();
        for (reason, count) in counts {
            *by_text.entry(reason.to_string()).or_default() += count;
        }
        let mut lines: Vec<String> = by_text.iter().map(|(text, count)| format!("{count} {text}")).collect();
        lines.sort();
        lines.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_and_sorted_as_text() {
        let mut diagnosis = Diagnosis::default();
        for slot in 0..11 {
            let reason =
                if slot < 2 { Reason::Insufficient("cpu".into()) } else { Reason::Text("Too many pods") };
            diagnosis.reject(slot, Arc::new(Rejection::new(Code::Unschedulable, reason)));
        }
        assert_eq!(diagnosis.message(12), "0/12 nodes are available: 2 Insufficient cpu, 9 Too many pods.");
        diagnosis.reject(11, Arc::new(Rejection::unschedulable("Too many pods")));
        diagnosis.post_filter_message = "preemption: x.".into();
        let expected = "0/12 nodes are available: 10 Too many pods, 2 Insufficient cpu. preemption: x..";
        assert_eq!((diagnosis.message(12), diagnosis.rejections()), (expected.to_owned(), 12));
        let other = Arc::new(Rejection::unresolvable("other"));
        for slot in 0..20 {
            diagnosis.reject(slot, Arc::clone(&other));
        }
        diagnosis.add_reason(3, None, "more");
        assert_eq!(diagnosis.message(20), "0/20 nodes are available: 1 more, 20 other. preemption: x..");
        assert_eq!((diagnosis.code(3), diagnosis.code(20)), (Some(Code::UnschedulableAndUnresolvable), None));
    }
}
