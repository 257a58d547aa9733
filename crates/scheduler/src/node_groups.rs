//! Groups of nodes that score alike for a class of pods.
//!
//! Scores read little of a node: its results for the class, and the counts of its topology domains. Nodes that are
//! equal in these have equal scores, so one node of a group is scored for all. Example: of 500 empty nodes in three
//! zones, three are scored.
//!
//! Always true: a node that changed is in no group until it is scored again.

use std::collections::HashMap;

use crate::node_info::Slot;

/// More groups than this are forgotten, and found again.
const GROUPS: usize = 4096;
const NONE: u32 = u32::MAX;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeGroups {
    /// The group of each node by slot.
    by_slot: Vec<u32>,
    /// Groups by what scores read.
    ids: HashMap<Box<[i64]>, u32>,
    /// Per group, its place among the representatives of the current search.
    places: Vec<u32>,
    /// How many values the keys of the groups have.
    width: usize,
    key: Vec<i64>,
}

/// The nodes of a search by their groups.
#[derive(Debug, Default)]
pub(crate) struct Representatives {
    /// One node of each group.
    pub nodes: Vec<Slot>,
    /// How many nodes of the search are in each group.
    pub sizes: Vec<usize>,
    /// The place of each node's group among [`Self::nodes`].
    pub places: Vec<u32>,
}

impl Representatives {
    /// Each node for itself.
    pub fn single(nodes: &[Slot]) -> Self {
        Representatives {
            nodes: nodes.to_vec(),
            sizes: vec![1; nodes.len()],
            places: (0..nodes.len() as u32).collect(),
        }
    }
}

impl NodeGroups {
    pub fn clear(&mut self) {
        *self = NodeGroups::default();
    }

    /// Notes that a node changed.
    pub fn forget(&mut self, slot: Slot) {
        if let Some(group) = self.by_slot.get_mut(slot) {
            *group = NONE;
        }
    }

    /// Finds the groups of nodes. `append_key` appends what scores read of a node, which are `width` values.
    pub fn gather(
        &mut self,
        nodes: &[Slot],
        width: usize,
        append_key: impl Fn(Slot, &mut Vec<i64>),
    ) -> Representatives {
        if self.width != width || self.places.len() > GROUPS {
            self.clear();
            self.width = width;
        }
        let mut found = Representatives { places: Vec::with_capacity(nodes.len()), ..Default::default() };
        let mut groups = Vec::new();
        for slot in nodes {
            let group = match self.by_slot.get(*slot) {
                Some(group) if *group != NONE => *group,
                _ => self.enter(*slot, &append_key),
            };
            let place = &mut self.places[group as usize];
            if *place == NONE {
                *place = groups.len() as u32;
                groups.push(group);
                found.nodes.push(*slot);
                found.sizes.push(0);
            }
            found.sizes[*place as usize] += 1;
            found.places.push(*place);
        }
        groups.into_iter().for_each(|group| self.places[group as usize] = NONE);
        found
    }

    /// Puts a node into the group of its key.
    fn enter(&mut self, slot: Slot, append_key: &impl Fn(Slot, &mut Vec<i64>)) -> u32 {
        self.key.clear();
        append_key(slot, &mut self.key);
        let group = match self.ids.get(&*self.key) {
            Some(group) => *group,
            None => {
                let group = self.places.len() as u32;
                self.ids.insert(self.key.as_slice().into(), group);
                self.places.push(NONE);
                group
            }
        };
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, NONE);
        }
        self.by_slot[slot] = group;
        group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_of_a_group_stands_for_all() {
        let mut groups = NodeGroups::default();
        let gather = |groups: &mut NodeGroups, nodes: &[Slot], values: [i64; 4]| {
            groups.gather(nodes, 1, |slot, key| key.push(values[slot]))
        };
        let found = gather(&mut groups, &[3, 0, 1], [7, 8, 8, 7]);
        assert_eq!((&*found.nodes, &*found.sizes), (&[3, 1][..], &[2, 1][..]));
        assert_eq!(found.places, [0, 0, 1]);
        // a key is read again once its node has changed
        let found = gather(&mut groups, &[0, 1, 2], [8, 8, 8, 8]);
        assert_eq!((&*found.nodes, &*found.sizes), (&[0, 1][..], &[1, 2][..]));
        groups.forget(0);
        let found = gather(&mut groups, &[0, 1, 2], [8, 8, 8, 8]);
        assert_eq!((&*found.nodes, &*found.sizes), (&[0][..], &[3][..]));
    }

    #[test]
    fn keys_of_another_width_make_other_groups() {
        let mut groups = NodeGroups::default();
        assert_eq!(groups.gather(&[0, 1], 1, |_, key| key.push(0)).nodes, [0]);
        let found = groups.gather(&[0, 1], 2, |slot, key| key.extend([0, slot as i64]));
        assert_eq!(found.nodes, [0, 1]);
    }
}
