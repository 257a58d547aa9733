//! The report of a run: operations, faults and violations, as text.

use crate::check::Violation;
use crate::history::{History, Notice};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The violations that are printed of each rule.
const SHOWN: usize = 5;

/// See the module.
#[derive(Debug)]
pub struct Report {
    pub seed: u64,
    /// The faults of the run, as a text.
    pub faults: String,
    pub took: Duration,
    /// The sum of all starts, and their number.
    pub starts: (Duration, u32),
    counts: BTreeMap<(&'static str, &'static str), usize>,
    changes: usize,
    bookmarks: usize,
    violations: Vec<(String, Violation)>,
}

impl Report {
    pub fn new(seed: u64, faults: String) -> Self {
        Report {
            seed,
            faults,
            took: Duration::ZERO,
            starts: Default::default(),
            counts: BTreeMap::new(),
            changes: 0,
            bookmarks: 0,
            violations: Vec::new(),
        }
    }

    pub fn add(&mut self, collection: &str, history: &History, violations: Vec<Violation>) {
        for (key, count) in history.counts() {
            *self.counts.entry(key).or_default() += count;
        }
        let notices = || history.watches.iter().flat_map(|it| &it.notices);
        self.changes += notices().filter(|it| matches!(it.notice, Notice::Change(_))).count();
        self.bookmarks += notices().filter(|it| matches!(it.notice, Notice::Bookmark(_))).count();
        self.violations.extend(violations.into_iter().map(|it| (collection.to_owned(), it)));
    }

    pub fn is_correct(&self) -> bool {
        self.violations.is_empty()
    }

    /// The operations that were done.
    pub fn done(&self) -> usize {
        self.counts.iter().filter(|((_, outcome), _)| *outcome == "done").map(|(_, count)| count).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mean = self.starts.0.checked_div(self.starts.1).unwrap_or_default();
        writeln!(f, "seed {}: {} in {:.1?}, a start takes {mean:.1?}", self.seed, self.faults, self.took)?;
        for ((verb, outcome), count) in &self.counts {
            writeln!(f, "  {verb:<16} {outcome:<10} {count:>8}")?;
        }
        writeln!(f, "  watches: {} changes, {} bookmarks", self.changes, self.bookmarks)?;
        let mut by_rule: BTreeMap<&str, Vec<&(String, Violation)>> = BTreeMap::new();
        for violation in &self.violations {
            by_rule.entry(violation.1.rule).or_default().push(violation);
        }
        for (rule, violations) in &by_rule {
            writeln!(f, "BROKEN: {rule}: {} times", violations.len())?;
            for (collection, violation) in violations.iter().take(SHOWN) {
                writeln!(f, "  {collection}: {}", violation.detail)?;
            }
        }
        match self.violations.len() {
            0 => write!(f, "  all rules hold"),
            count => write!(f, "{count} violations"),
        }
    }
}
