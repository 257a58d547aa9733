//! Sets of indexes, written as intervals: `1,3-5,7`.

use std::fmt;

/// Indexes in ascending order; adjacent ones are one interval.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Indexes {
    /// The first and the last of each interval.
    intervals: Vec<(i32, i32)>,
}

impl Indexes {
    /// Parses the indexes below `end`; parts that cannot be parsed are ignored.
    pub fn parse(text: &str, end: i32) -> Self {
        let mut indexes = Indexes::default();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) else { continue };
            indexes.add_interval(first.max(0), last.min(end.saturating_sub(1)));
        }
        indexes
    }

    pub fn add(&mut self, index: i32) {
        self.add_interval(index, index);
    }

    fn add_interval(&mut self, mut first: i32, mut last: i32) {
        if first > last {
            return;
        }
        // merge all intervals that touch it
        let from = self.intervals.partition_point(|it| it.1.saturating_add(1) < first);
        let to = self.intervals.partition_point(|it| it.0 <= last.saturating_add(1));
        for (other_first, other_last) in self.intervals.drain(from..to.max(from)) {
            first = first.min(other_first);
            last = last.max(other_last);
        }
        self.intervals.insert(from, (first, last));
    }

    pub fn has(&self, index: i32) -> bool {
        let at = self.intervals.partition_point(|it| it.1 < index);
        self.intervals.get(at).is_some_and(|it| it.0 <= index)
    }

    pub fn count(&self) -> i32 {
        self.intervals.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// The smallest indexes below `end` that the set does not contain.
    pub fn first_absent(&self, count: usize, end: i32) -> Vec<i32> {
        let mut absent = Vec::new();
        let mut next = 0;
        for (first, last) in self.intervals.iter().copied().chain([(end, end)]) {
            let room = count - absent.len();
            absent.extend((next..first.min(end)).take(room));
            next = last.saturating_add(1);
        }
        absent
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.intervals.iter().enumerate() {
            if at > 0 {
                out.write_str(",")?;
            }
            match last - first {
                0 => write!(out, "{first}")?,
                1 => write!(out, "{first},{last}")?,
                _ => write!(out, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        let check = |text: &str, end, expected: &str| {
            assert_eq!(Indexes::parse(text, end).to_string(), expected, "{text}");
        };
        check("", 10, "");
        check("1,3-5,7", 10, "1,3-5,7");
        check("1,2,3", 10, "1-3");
        check("0,1", 10, "0,1");
        check("4-20", 10, "4-9");
        check("12", 10, "");
        check("x,2,3-,5", 10, "2,5");
        check("7,1-3,2-4", 10, "1-4,7");
        check("-5-3", 10, "");
        check("1", 0, "");
    }

    #[test]
    fn indexes_join_their_neighbours() {
        let mut indexes = Indexes::default();
        for index in [5, 1, 3, 5, 9, 4, 2, i32::MAX] {
            indexes.add(index);
        }
        assert_eq!(indexes.intervals, [(1, 5), (9, 9), (i32::MAX, i32::MAX)]);
        assert!(indexes.has(1) && indexes.has(5) && !indexes.has(0) && !indexes.has(6) && indexes.has(9));
    }

    #[test]
    fn the_smallest_that_are_absent() {
        let indexes = Indexes::parse("0,2-3,6", 10);
        assert_eq!(indexes.first_absent(3, 10), [1, 4, 5]);
        assert_eq!(indexes.first_absent(9, 10), [1, 4, 5, 7, 8, 9]);
        assert_eq!(indexes.first_absent(9, 5), [1, 4]);
        assert_eq!(indexes.first_absent(0, 10), [0; 0]);
        assert_eq!(indexes.count(), 4);
    }
}
