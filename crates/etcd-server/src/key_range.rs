//! The keys that a request names: one, those of an interval, or all from one on.

use std::ops::Bound;

use bytes::Bytes;

/// A set of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyRange {
    One(Bytes),
    /// From the first to the second, exclusive; empty if they are not in order.
    Interval(Bytes, Bytes),
    From(Bytes),
}

impl KeyRange {
    /// The range of a key and a range end, which is empty for one key and a zero byte for all that follow.
    pub fn new(key: &Bytes, range_end: &Bytes) -> Self {
        match range_end.as_ref() {
            [] => Self::One(key.clone()),
            [0] => Self::From(key.clone()),
            _ => Self::Interval(key.clone(), range_end.clone()),
        }
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            Self::One(one) => one == key,
            Self::Interval(start, end) => start.as_ref() <= key && key < end.as_ref(),
            Self::From(start) => start.as_ref() <= key,
        }
    }

    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Interval(start, end) if start >= end)
    }

    /// The bounds, for an ordered map. Only for a range that is not empty.
    pub fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        match self {
            Self::One(key) => (Bound::Included(key), Bound::Included(key)),
            Self::Interval(start, end) => (Bound::Included(start), Bound::Excluded(end)),
            Self::From(start) => (Bound::Included(start), Bound::Unbounded),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(key: &'static str, end: &'static str) -> KeyRange {
        KeyRange::new(&Bytes::from(key), &Bytes::from(end))
    }

    #[test]
    fn range_ends_have_three_forms() {
        let names = ["", "a", "a\0", "b", "c"];
        let within = |range: KeyRange| names.into_iter().filter(move |it| range.contains(it.as_bytes()));
        assert_eq!(within(range("a", "")).collect::<Vec<_>>(), ["a"]);
        assert_eq!(within(range("a", "b")).collect::<Vec<_>>(), ["a", "a\0"]);
        assert_eq!(within(range("a\0", "\0")).collect::<Vec<_>>(), ["a\0", "b", "c"]);
        assert!(range("b", "a").is_empty() && range("b", "b").is_empty() && !range("b", "\0").is_empty());
    }
}
