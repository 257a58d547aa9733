//! Sets of NUMA nodes.

/// A set of NUMA nodes, as the bits of a number: nodes above 63 cannot be in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumaMask(u64);

impl NumaMask {
    pub fn from_bits(bits: u64) -> Self {
        NumaMask(bits)
    }

    pub fn bits(self) -> u64 {
        self.0
    }

    pub fn contains(self, node: u32) -> bool {
        node < u64::BITS && self.0 & (1 << node) != 0
    }

    /// The nodes in ascending order.
    pub fn nodes(self) -> impl Iterator<Item = u32> {
        (0..u64::BITS).filter(move |node| self.contains(*node))
    }

    pub fn count(self) -> u32 {
        self.0.count_ones()
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn intersection(self, other: Self) -> Self {
        NumaMask(self.0 & other.0)
    }

    pub fn includes(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether it has fewer nodes, or as many with lower numbers.
    pub fn is_narrower_than(self, other: Self) -> bool {
        (self.count(), self.0) < (other.count(), other.0)
    }

    /// All sets of these nodes that are not empty: first those of one node, then those of two, and so on.
    pub fn all_of(nodes: &[u32]) -> Vec<NumaMask> {
        let mut all = Vec::new();
        for size in 1..=nodes.len() {
            combine(nodes, size, NumaMask::default(), &mut all);
        }
        all
    }
}

impl FromIterator<u32> for NumaMask {
    fn from_iter<I: IntoIterator<Item = u32>>(nodes: I) -> Self {
        NumaMask(nodes.into_iter().filter(|node| *node < u64::BITS).fold(0, |bits, node| bits | 1 << node))
    }
}

fn combine(nodes: &[u32], size: usize, base: NumaMask, all: &mut Vec<NumaMask>) {
    if size == 0 {
        all.push(base);
        return;
    }
    for (at, node) in nodes.iter().enumerate() {
        let next = NumaMask(base.0 | 1u64.checked_shl(*node).unwrap_or(0));
        combine(&nodes[at + 1..], size - 1, next, all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_come_by_size_and_then_by_node() {
        let all: Vec<u64> = NumaMask::all_of(&[0, 1, 3]).into_iter().map(NumaMask::bits).collect();
        assert_eq!(all, [1, 2, 8, 3, 9, 10, 11]);
        assert!(NumaMask::all_of(&[]).is_empty());
    }

    #[test]
    fn narrow_sets_have_fewer_or_lower_nodes() {
        let mask = |nodes: &[u32]| nodes.iter().copied().collect::<NumaMask>();
        assert!(mask(&[5]).is_narrower_than(mask(&[0, 1])));
        assert!(mask(&[0, 2]).is_narrower_than(mask(&[1, 2])));
        assert!(!mask(&[1]).is_narrower_than(mask(&[1])));
        assert_eq!(mask(&[1, 70]).nodes().collect::<Vec<_>>(), [1]);
    }
}
