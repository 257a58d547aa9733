//! Groups of nodes that score alike for a class of pods.
//!
//! Scores read little of a node: its results for the class, and the counts of its topology domains. Nodes that are
//! equal in these have equal scores, so one node of a group is scored for all. Example: of 500 empty nodes in three
//! zones, three are scored.
//!
//! The members of a group are bits by position in the search order, as in a [`NodeSet`](crate::node_set::NodeSet), and
//! each word knows its groups. Finding the groups of a search costs a step for each group of a word: of 500 empty
//! nodes, which are 8 words, at most 24, and never more than a step for each node.
//!
//! Always true: a node that changed is in no group until it is scored again.

use std::collections::HashMap;

use crate::found_nodes::NodeWindow;
use crate::node_info::Slot;
use crate::node_set::{BITS, bits};

/// More groups than this are forgotten, and found again.
const GROUPS: usize = 4096;
const NONE: u32 = u32::MAX;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeGroups {
    /// The groups of the nodes of each word. No node is in two.
    words: Vec<Vec<Members>>,
    /// Groups by what scores read.
    ids: HashMap<Box<[i64]>, u32>,
    /// Per group, its place among the representatives of the current search.
    places: Vec<u32>,
    /// How many values the keys of the groups have.
    width: usize,
    key: Vec<i64>,
}

/// The nodes of a word that are in a group.
#[derive(Debug, Clone)]
struct Members {
    group: u32,
    nodes: u64,
}

/// The groups of the nodes of a search.
#[derive(Debug, Default)]
pub(crate) struct Representatives {
    pub ids: Vec<u32>,
    /// One node of each group.
    pub nodes: Vec<Slot>,
    /// How many nodes of the search are in each group.
    pub sizes: Vec<usize>,
}

impl NodeGroups {
    /// Notes that the node at a position changed.
    pub fn forget(&mut self, position: usize) {
        if let Some(groups) = self.words.get_mut(position / BITS) {
            groups.iter_mut().for_each(|members| members.nodes &= !(1 << (position % BITS)));
            groups.retain(|members| members.nodes != 0);
        }
    }

    /// Finds the groups of nodes. `append_key` appends what scores read of a node, which are `width` values.
    pub fn gather(
        &mut self,
        window: &NodeWindow,
        width: usize,
        append_key: impl Fn(Slot, &mut Vec<i64>),
    ) -> Representatives {
        if self.width != width || self.places.len() > GROUPS {
            *self = NodeGroups { width, ..NodeGroups::default() };
        }
        let mut found = Representatives::default();
        for (at, word) in window.words() {
            let known = self.words.get(at).into_iter().flatten().fold(0, |known, it| known | it.nodes);
            for bit in bits(word & !known) {
                self.enter(at, bit, |key| append_key(window.slot(at, bit), key));
            }
            for members in self.words.get(at).into_iter().flatten() {
                let nodes = members.nodes & word;
                if nodes == 0 {
                    continue;
                }
                let place = &mut self.places[members.group as usize];
                if *place == NONE {
                    *place = found.ids.len() as u32;
                    found.ids.push(members.group);
                    found.nodes.push(window.slot(at, nodes.trailing_zeros() as usize));
                    found.sizes.push(0);
                }
                found.sizes[*place as usize] += nodes.count_ones() as usize;
            }
        }
        self.place(&found.ids, NONE);
        found
    }

    /// The nodes of a search that are in some of its groups.
    pub fn select(&mut self, window: &NodeWindow, groups: &[u32]) -> NodeWindow {
        self.place(groups, 0);
        let selected = window.select(|at| {
            let members = self.words.get(at).into_iter().flatten();
            members.filter(|it| self.places[it.group as usize] != NONE).fold(0, |nodes, it| nodes | it.nodes)
        });
        self.place(groups, NONE);
        selected
    }

    fn place(&mut self, groups: &[u32], place: u32) {
        groups.iter().for_each(|group| self.places[*group as usize] = place);
    }

    /// Puts a node that is in no group into that of its key.
    fn enter(&mut self, at: usize, bit: usize, append_key: impl FnOnce(&mut Vec<i64>)) {
        self.key.clear();
        append_key(&mut self.key);
        let group = match self.ids.get(&*self.key) {
            Some(group) => *group,
            None => {
                let group = self.places.len() as u32;
                self.ids.insert(self.key.as_slice().into(), group);
                self.places.push(NONE);
                group
            }
        };
        if self.words.len() <= at {
            self.words.resize(at + 1, Vec::new());
        }
        let groups = &mut self.words[at];
        match groups.iter_mut().find(|members| members.group == group) {
            Some(members) => members.nodes |= 1 << bit,
            None => groups.push(Members { group, nodes: 1 << bit }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_set::NodeSet;
    use std::sync::Arc;

    /// A search over 200 nodes from a position on. The slot of a node is its position.
    fn window(start: usize, enough: usize) -> NodeWindow {
        let (order, all): (Arc<[Slot]>, NodeSet) = ((0..200).collect(), NodeSet::full(200));
        NodeWindow::find(&order, start, enough, &all, &all, |_| None).unwrap()
    }

    #[test]
    fn one_node_of_a_group_stands_for_all() {
        let mut groups = NodeGroups::default();
        let third = |slot: Slot, key: &mut Vec<i64>| key.push(slot as i64 % 3);
        let found = groups.gather(&window(150, 90), 1, third);
        assert_eq!((&*found.nodes, &*found.sizes), (&[150, 151, 152][..], &[31, 30, 29][..]));
        let selected = groups.select(&window(150, 90), &found.ids[1..2]);
        let expected: Vec<Slot> = (150..200).chain(0..40).filter(|slot| slot % 3 == 1).collect();
        assert_eq!((selected.len(), selected.iter().collect::<Vec<_>>()), (expected.len(), expected));
        // a key is read again once its node has changed
        let same = |_: Slot, key: &mut Vec<i64>| key.push(1);
        assert_eq!(groups.gather(&window(150, 4), 1, same).sizes, [2, 1, 1]);
        groups.forget(150);
        groups.forget(152);
        assert_eq!(groups.gather(&window(150, 4), 1, same).sizes, [1, 3]);
    }

    #[test]
    fn keys_of_another_width_make_other_groups() {
        let mut groups = NodeGroups::default();
        assert_eq!(groups.gather(&window(0, 2), 1, |_, key| key.push(0)).nodes, [0]);
        let found = groups.gather(&window(0, 2), 2, |slot, key| key.extend([0, slot as i64]));
        assert_eq!(found.nodes, [0, 1]);
    }
}
