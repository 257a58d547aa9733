//! The order of nodes: one of each zone in turn, so that a search over the first nodes covers all zones.
//!
//! Example: zones `a: [n1, n2]` and `b: [n3]` give `n1, n3, n2`.

use std::sync::Arc;

use crate::node_info::Slot;
use crate::selector::Labels;
use names::labels::{FAILURE_DOMAIN_REGION, FAILURE_DOMAIN_ZONE, TOPOLOGY_REGION, TOPOLOGY_ZONE};

/// Nodes by zone, in the order of their arrival.
#[derive(Debug, Default)]
pub struct NodeTree {
    zones: Vec<(Arc<str>, Vec<Slot>)>,
    /// The zone of each slot.
    zone_by_slot: Vec<Option<Arc<str>>>,
}

impl NodeTree {
    pub fn add(&mut self, slot: Slot, zone: &str) {
        let zone = match self.zones.iter_mut().find(|(name, _)| **name == *zone) {
            Some((name, slots)) => {
                slots.push(slot);
                Arc::clone(name)
            }
            None => {
                let name: Arc<str> = Arc::from(zone);
                self.zones.push((Arc::clone(&name), vec![slot]));
                name
            }
        };
        if self.zone_by_slot.len() <= slot {
            self.zone_by_slot.resize(slot + 1, None);
        }
        self.zone_by_slot[slot] = Some(zone);
    }

    pub fn remove(&mut self, slot: Slot) {
        let Some(zone) = self.zone_by_slot.get_mut(slot).and_then(Option::take) else { return };
        let Some(at) = self.zones.iter().position(|(name, _)| *name == zone) else { return };
        self.zones[at].1.retain(|one| *one != slot);
        if self.zones[at].1.is_empty() {
            self.zones.remove(at);
        }
    }

    /// The zone of a node.
    pub fn zone(&self, slot: Slot) -> Option<&str> {
        self.zone_by_slot.get(slot)?.as_deref()
    }

    pub fn order(&self) -> Vec<Slot> {
        let longest = self.zones.iter().map(|(_, slots)| slots.len()).max().unwrap_or(0);
        let round = |at: usize| self.zones.iter().filter_map(move |(_, slots)| slots.get(at).copied());
        (0..longest).flat_map(round).collect()
    }
}

/// Region and zone of a node; empty if it has neither.
pub fn zone_of(labels: &Labels) -> String {
    let label =
        |old: &str, new: &str| labels.get(old).or_else(|| labels.get(new)).cloned().unwrap_or_default();
    let zone = label(FAILURE_DOMAIN_ZONE, TOPOLOGY_ZONE);
    let region = label(FAILURE_DOMAIN_REGION, TOPOLOGY_REGION);
    if zone.is_empty() && region.is_empty() { String::new() } else { format!("{region}:\0:{zone}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_take_turns() {
        let mut tree = NodeTree::default();
        for (slot, zone) in ["a", "a", "b", "a", "c"].into_iter().enumerate() {
            tree.add(slot, zone);
        }
        assert_eq!(tree.order(), [0, 2, 4, 1, 3]);
        tree.remove(2);
        assert_eq!((tree.order(), tree.zone(3), tree.zone(2)), (vec![0, 4, 1, 3], Some("a"), None));
    }
}
