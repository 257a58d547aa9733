//! The nodes that a search found, in its order.
//!
//! A search over all nodes goes from where the last one ended until it has found enough: what it found is a window of
//! the search order. The window is a bit per node, so that a cycle handles 64 nodes at a time, and its cost hardly
//! grows with their number.

use std::ops::Range;
use std::sync::Arc;

use crate::node_info::Slot;
use crate::node_set::{BITS, NodeSet, bits};

/// See the module.
#[derive(Debug, Clone)]
pub enum FoundNodes {
    /// Nodes one by one: of a search by names, or through extenders.
    List(Vec<Slot>),
    Window(NodeWindow),
}

impl FoundNodes {
    pub fn len(&self) -> usize {
        match self {
            FoundNodes::List(slots) => slots.len(),
            FoundNodes::Window(window) => window.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn nth(&self, nth: usize) -> Option<Slot> {
        match self {
            FoundNodes::List(slots) => slots.get(nth).copied(),
            FoundNodes::Window(window) => window.nth(nth),
        }
    }

    pub fn to_vec(&self) -> Vec<Slot> {
        match self {
            FoundNodes::List(slots) => slots.clone(),
            FoundNodes::Window(window) => window.iter().collect(),
        }
    }
}

/// Nodes of a part of the search order, which may go over its end to its beginning.
#[derive(Debug, Clone)]
pub struct NodeWindow {
    order: Arc<[Slot]>,
    nodes: NodeSet,
    len: usize,
    start: usize,
    visited: usize,
}

impl NodeWindow {
    /// Finds the first `enough` nodes from `start` on: candidates that are in `accepted`, or for which `accepts` returns
    /// true. `None` as soon as `accepts` returns `None` for a node.
    pub fn find(
        order: &Arc<[Slot]>,
        start: usize,
        enough: usize,
        candidates: &NodeSet,
        accepted: &NodeSet,
        mut accepts: impl FnMut(Slot) -> Option<bool>,
    ) -> Option<Self> {
        let (order, count) = (Arc::clone(order), order.len());
        let mut window = NodeWindow { order, nodes: NodeSet::empty(count), len: 0, start, visited: count };
        for (at, word) in candidates.words(start..count).chain(candidates.words(0..start)) {
            let missing = enough - window.len;
            let mut found = word & accepted.word(at);
            for bit in bits(word & !found) {
                if (found & !(u64::MAX << bit)).count_ones() as usize >= missing {
                    break;
                }
                if accepts(window.order[at * BITS + bit])? {
                    found |= 1 << bit;
                }
            }
            // nodes beyond the number that is missing are left out
            let found = (0..(found.count_ones() as usize).saturating_sub(missing))
                .fold(found, |found, _| found & !(1 << found.ilog2()));
            window.nodes.insert_word(at, found);
            window.len += found.count_ones() as usize;
            if let (true, Some(last)) = (window.len >= enough, found.checked_ilog2()) {
                window.visited = (at * BITS + last as usize + count - start) % count + 1;
                break;
            }
        }
        Some(window)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many positions the search went through.
    pub fn visited(&self) -> usize {
        self.visited
    }

    /// The parts of the search order.
    fn ranges(&self) -> [Range<usize>; 2] {
        let (end, count) = (self.start + self.visited, self.order.len());
        [self.start..end.min(count), 0..end.saturating_sub(count)]
    }

    /// The words of the window. One that has both its start and its end comes twice.
    pub fn words(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.ranges().into_iter().flat_map(|range| self.nodes.words(range))
    }

    /// The node of a bit of a word.
    pub fn slot(&self, at: usize, bit: usize) -> Slot {
        self.order[at * BITS + bit]
    }

    pub fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.words().flat_map(move |(at, word)| bits(word).map(move |bit| self.slot(at, bit)))
    }

    fn nth(&self, nth: usize) -> Option<Slot> {
        let mut before = 0;
        for (at, word) in self.words() {
            let count = word.count_ones() as usize;
            if nth < before + count {
                return bits(word).nth(nth - before).map(|bit| self.slot(at, bit));
            }
            before += count;
        }
        None
    }

    /// The nodes of the window that are in a word of `selected`.
    pub fn select(&self, selected: impl Fn(usize) -> u64) -> Self {
        let mut nodes = NodeSet::empty(self.order.len());
        let mut len = 0;
        for (at, word) in self.words() {
            let both = word & selected(at);
            nodes.insert_word(at, both);
            len += both.count_ones() as usize;
        }
        NodeWindow { order: Arc::clone(&self.order), nodes, len, ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(count: usize, is_in: impl Fn(usize) -> bool) -> NodeSet {
        let mut set = NodeSet::empty(count);
        (0..count).filter(|position| is_in(*position)).for_each(|position| set.set(position, true));
        set
    }

    /// A window has the nodes that a plain walk over the positions finds, and calls `accepts` for the same nodes.
    #[test]
    fn a_window_is_found_like_node_by_node() {
        for count in [1, 63, 64, 65, 200] {
            let order: Arc<[Slot]> = (0..count).rev().collect();
            // every fifth is no candidate; of the others every third is known, and of the rest every second accepted
            let (candidates, accepted) = (set(count, |it| it % 5 != 4), set(count, |it| it % 3 == 0));
            for start in (0..count).step_by(7) {
                for enough in [1, 2, 30, 64, 500] {
                    let (mut calls, mut expected_calls, mut expected, mut visited) =
                        (Vec::new(), Vec::new(), Vec::new(), count);
                    for step in 0..count {
                        let position = (start + step) % count;
                        if position % 5 == 4 {
                            continue;
                        }
                        if position % 3 != 0 {
                            expected_calls.push(order[position]);
                            if order[position].is_multiple_of(2) {
                                continue;
                            }
                        }
                        expected.push(order[position]);
                        if expected.len() == enough {
                            visited = step + 1;
                            break;
                        }
                    }
                    let window = NodeWindow::find(&order, start, enough, &candidates, &accepted, |slot| {
                        calls.push(slot);
                        Some(slot % 2 == 1)
                    });
                    let window = window.unwrap();
                    let context = format!("{count} nodes from {start}, {enough} enough");
                    assert_eq!(window.iter().collect::<Vec<_>>(), expected, "{context}");
                    assert_eq!((window.len(), window.visited()), (expected.len(), visited), "{context}");
                    assert_eq!(calls, expected_calls, "{context}");
                    let drawn: Vec<Slot> = (0..count).map_while(|nth| window.nth(nth)).collect();
                    assert_eq!(drawn, expected, "{context}");
                    let even = window.select(|_| 0x5555_5555_5555_5555);
                    expected.retain(|slot| (count - 1 - slot) % 2 == 0);
                    assert_eq!((even.len(), even.iter().collect::<Vec<_>>()), (expected.len(), expected));
                }
            }
        }
    }

    #[test]
    fn a_search_ends_with_a_node_without_an_answer() {
        let order: Arc<[Slot]> = (0..3).collect();
        let all = NodeSet::full(3);
        let find = |enough| {
            NodeWindow::find(&order, 0, enough, &all, &NodeSet::empty(3), |slot| (slot < 2).then_some(true))
        };
        assert_eq!(find(2).map(|it| it.len()), Some(2));
        assert!(find(3).is_none());
    }
}
