//! A set of nodes by their positions in the search order, a bit each.
//!
//! Sets of thousands of nodes are combined word by word, so that a search skips nodes without looking at each.

use std::ops::Range;

/// The nodes of a word.
pub const BITS: usize = u64::BITS as usize;

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
        self.words(range).flat_map(|(at, word)| bits(word).map(move |bit| at * BITS + bit))
    }

    /// The words of a range that are not empty, with their numbers: bit `n` of word `at` is position `at * BITS + n`.
    pub fn words(&self, range: Range<usize>) -> impl Iterator<Item = (usize, u64)> + '_ {
        let (first, end) = (range.start / BITS, range.end.div_ceil(BITS).min(self.words.len()));
        let words = self.words.get(first..end).unwrap_or_default().iter().enumerate();
        let clipped = words.map(move |(nth, word)| {
            let at = first + nth;
            let low = if nth == 0 { u64::MAX << (range.start % BITS) } else { u64::MAX };
            let high = u64::MAX >> ((at + 1) * BITS).saturating_sub(range.end);
            (at, word & low & high)
        });
        clipped.filter(|(_, word)| *word != 0)
    }

    /// A word of the set.
    pub fn word(&self, at: usize) -> u64 {
        self.words.get(at).copied().unwrap_or(0)
    }

    /// Adds the nodes of a word. A word outside of the set is ignored.
    pub fn insert_word(&mut self, at: usize, nodes: u64) {
        if let Some(word) = self.words.get_mut(at) {
            *word |= nodes;
        }
    }
}

/// The numbers of the bits that are set, in ascending order.
pub fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(bit)
    })
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
        assert_eq!(
            set.words(3..200).collect::<Vec<_>>(),
            [(0, 1 << 3 | 1 << 63), (1, 1), (2, 4), (3, 1 << 7)]
        );
        assert_eq!((set.word(1), set.word(9)), (1, 0));
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
