//! Oddities: unknown and duplicate fields with their paths.
//!
//! A body can hold hundreds of thousands of them, each below a key of any length. So their number has the API's limit,
//! and the text of all paths together has a limit for every kind: collecting costs no more than reading the body.

use crate::path::Path;
use crate::table::Type;
use std::collections::HashSet;

/// The most oddities of an object that are collected. A kind with a table from a schema has no such limit.
pub const COUNT_LIMIT: usize = 100;
/// The most bytes of paths: more than the bytes of a body.
const BYTES_LIMIT: usize = 4 << 20;

/// A flaw of the input that `fieldValidation` ignores, warns about or rejects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Oddity {
    Unknown(String),
    Duplicate(String),
}

impl std::fmt::Display for Oddity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Oddity::Unknown(path) => write!(f, "unknown field {path:?}"),
            Oddity::Duplicate(path) => write!(f, "duplicate field {path:?}"),
        }
    }
}

/// Collects the oddities of one object.
#[derive(Debug, Default)]
pub(super) struct Oddities {
    /// In the order of discovery.
    list: Vec<Oddity>,
    seen: HashSet<Oddity>,
    /// The bytes of all paths.
    bytes: usize,
    /// Whether the number has no limit.
    unlimited: bool,
}

impl Oddities {
    pub(super) fn for_type(ty: &Type) -> Self {
        Oddities { unlimited: ty.loose, ..Oddities::default() }
    }

    pub(super) fn duplicate(&mut self, path: &Path<'_>) {
        self.add(Oddity::Duplicate, path);
    }

    pub(super) fn unknown(&mut self, path: &Path<'_>) {
        self.add(Oddity::Unknown, path);
    }

    fn add(&mut self, oddity: impl FnOnce(String) -> Oddity, path: &Path<'_>) {
        if self.is_full() {
            return;
        }
        let path = path.to_string();
        self.bytes += path.len();
        let oddity = oddity(path);
        if self.seen.insert(oddity.clone()) {
            self.list.push(oddity);
        }
    }

    fn is_full(&self) -> bool {
        self.bytes > BYTES_LIMIT || !self.unlimited && self.list.len() >= COUNT_LIMIT
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Removes and returns all oddities after the first `count`.
    pub(super) fn split_off(&mut self, count: usize) -> Vec<Oddity> {
        let later = self.list.split_off(count);
        for oddity in &later {
            self.seen.remove(oddity);
        }
        later
    }

    pub(super) fn into_list(self) -> Vec<Oddity> {
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_named_once_and_no_more_than_the_limit() {
        let mut oddities = Oddities::default();
        for nth in 0..10_000 {
            let name = (nth / 2).to_string();
            oddities.unknown(&Path::ROOT.field(&name));
        }
        oddities.duplicate(&Path::ROOT.field("0"));
        let list = oddities.into_list();
        assert_eq!(list.len(), COUNT_LIMIT);
        assert_eq!(list[COUNT_LIMIT - 1], Oddity::Unknown((COUNT_LIMIT - 1).to_string()));
    }

    #[test]
    fn a_long_key_above_many_fields_is_not_written_for_each() {
        let mut oddities = Oddities { unlimited: true, ..Oddities::default() };
        let key = "k".repeat(1 << 20);
        let above = Path::ROOT.field(&key);
        for nth in 0..1000 {
            oddities.unknown(&above.field(&nth.to_string()));
        }
        assert!((1..=8).contains(&oddities.len()), "{}", oddities.len());
    }

    #[test]
    fn those_taken_out_can_be_met_again() {
        let mut oddities = Oddities::default();
        oddities.unknown(&Path::ROOT.field("a"));
        oddities.unknown(&Path::ROOT.field("b"));
        assert_eq!(oddities.split_off(1), [Oddity::Unknown("b".to_owned())]);
        oddities.unknown(&Path::ROOT.field("b"));
        assert_eq!(oddities.len(), 2);
    }
}
