//! A set of nodes by their positions in the search order, a bit each.
//!
//! Sets of thousands of nodes are combined word by word, so that a search skips nodes without looking at each.

use std::ops::Range;

const BITS: usize = u64::BITS as usize;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeSet {
    words: Vec<u64>,
}

impl NodeSet {
    /// No node of `count`.
    pub fn empty(count: usize) -> Self {
        NodeSet { words: vec![0; count.div_ceil(BITS)] }
    }

    /// Every node of `count`.
    pub fn full(count: usize) -> Self {
        let mut set = NodeSet { words: vec![u64::MAX; count.div_ceil(BITS)] };
        if let (Some(last), 1..) = (set.words.last_mut(), count % BITS) {
            *last = u64::MAX >> (BITS - count % BITS);
        }
        set
    }

    /// Adds or removes a node. A position outside of the set is ignored.
    pub fn set(&mut self, position: usize, is_in: bool) {
        let Some(word) = self.words.get_mut(position / BITS) else { return };
        let bit = 1 << (position % BITS);
        match is_in {
            true => *word |= bit,
            false => *word &= !bit,
        }
    }

    pub fn contains(&self, position: usize) -> bool {
        self.words.get(position / BITS).is_some_and(|word| word >> (position % BITS) & 1 == 1)
    }

    pub fn insert_all(&mut self, other: &NodeSet) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
    }

    pub fn remove_all(&mut self, other: &NodeSet) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word &= !other);
    }

    /// Keeps the nodes that are in another set, too.
    pub fn retain_all(&mut self, other: &NodeSet) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word &= other);
    }

    /// Keeps the nodes that are in `accepted` or not in `known`.
    pub fn retain_unless_rejected(&mut self, known: &NodeSet, accepted: &NodeSet) {
        let rejected = known.words.iter().zip(&accepted.words).map(|(known, accepted)| known & !accepted);
        self.words.iter_mut().zip(rejected).for_each(|(word, rejected)| *word &= !rejected);
    }

    /// The positions of a range that are in the set, in ascending order.
    pub fn iter(&self, range: Range<usize>) -> impl Iterator<Item = usize> + '_ {
        let end = range.end.min(self.words.len() * BITS);
        let mut at = range.start / BITS;
        let load = |at: usize| self.words.get(at).copied().unwrap_or(0);
        let mut word = load(at) & (u64::MAX << (range.start % BITS));
        std::iter::from_fn(move || {
            while word == 0 {
                at += 1;
                if at * BITS >= end {
                    return None;
                }
                word = load(at);
            }
            let position = at * BITS + word.trailing_zeros() as usize;
            word &= word - 1;
            (position < end).then_some(position)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_come_in_order_and_within_the_range() {
        let mut set = NodeSet::empty(200);
        let positions = [0, 3, 63, 64, 130, 199];
        positions.iter().for_each(|position| set.set(*position, true));
        set.set(1000, true);
        assert_eq!(set.iter(0..200).collect::<Vec<_>>(), positions);
        assert_eq!(set.iter(3..64).collect::<Vec<_>>(), [3, 63]);
        assert_eq!(set.iter(131..200).collect::<Vec<_>>(), [199]);
        assert_eq!(set.iter(64..64).count() + set.iter(70..80).count() + set.iter(200..300).count(), 0);
        assert!(set.contains(64) && !set.contains(65) && !set.contains(1000));
        for count in [0, 1, 63, 64, 65, 200] {
            assert_eq!(NodeSet::full(count).iter(0..1000).count(), count);
        }
    }

    #[test]
    fn sets_combine() {
        let of = |positions: &[usize]| {
            let mut set = NodeSet::empty(100);
            positions.iter().for_each(|position| set.set(*position, true));
            set
        };
        let mut set = of(&[1, 70]);
        set.insert_all(&of(&[2, 71]));
        set.remove_all(&of(&[1, 5]));
        assert_eq!(set, of(&[2, 70, 71]));
        set.retain_unless_rejected(&of(&[2, 70]), &of(&[70]));
        assert_eq!(set, of(&[70, 71]));
        set.retain_all(&of(&[3, 71]));
        assert_eq!(set, of(&[71]));
    }
}
