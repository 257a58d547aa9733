//! Strict decoding errors: unknown and duplicate fields with their paths.
//!
//! A body can hold hundreds of thousands of them, each below a key of any length. So their number has the API's limit,
//! and the text of all paths together has a limit for every kind: collecting costs no more than reading the body.

use crate::path::Path;
use crate::problem::quoted;
use crate::table::Type;
use std::collections::HashSet;

/// The most strict errors of an object that are collected. A kind with a table from a schema has no such limit.
pub const COUNT_LIMIT: usize = 100;
/// The most bytes of paths: more than the bytes of a body.
const BYTES_LIMIT: usize = 4 << 20;

/// An unknown or duplicate field, which `fieldValidation` ignores, warns about or rejects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StrictError {
    Unknown(String),
    Duplicate(String),
}

impl StrictError {
    pub(super) fn is_duplicate(&self) -> bool {
        matches!(self, StrictError::Duplicate(_))
    }
}

impl std::fmt::Display for StrictError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StrictError::Unknown(path) => write!(f, "unknown field {}", quoted(path)),
            StrictError::Duplicate(path) => write!(f, "duplicate field {}", quoted(path)),
        }
    }
}

/// Collects the strict errors of one object.
#[derive(Debug, Default)]
pub(super) struct StrictErrors {
    /// In the order of discovery.
    list: Vec<StrictError>,
    seen: HashSet<StrictError>,
    /// The bytes of all paths.
    bytes: usize,
    /// Whether the number has no limit.
    unlimited: bool,
}

impl StrictErrors {
    pub(super) fn for_type(ty: &Type) -> Self {
        StrictErrors { unlimited: ty.loose, ..StrictErrors::default() }
    }

    pub(super) fn duplicate(&mut self, path: &Path<'_>) {
        self.add(StrictError::Duplicate, path);
    }

    /// Returns whether the same field has been reported before.
    pub(super) fn unknown(&mut self, path: &Path<'_>) -> bool {
        self.add(StrictError::Unknown, path)
    }

    /// Adds a strict error, unless it is there already; returns whether it is.
    fn add(&mut self, strict_error: impl FnOnce(String) -> StrictError, path: &Path<'_>) -> bool {
        if self.is_full() {
            return false;
        }
        let path = path.to_string();
        self.bytes += path.len();
        let strict_error = strict_error(path);
        let is_new = self.seen.insert(strict_error.clone());
        if is_new {
            self.list.push(strict_error);
        }
        !is_new
    }

    fn is_full(&self) -> bool {
        self.bytes > BYTES_LIMIT || !self.unlimited && self.list.len() >= COUNT_LIMIT
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Removes and returns all strict errors after the first `count`.
    pub(super) fn split_off(&mut self, count: usize) -> Vec<StrictError> {
        let later = self.list.split_off(count);
        for strict_error in &later {
            self.seen.remove(strict_error);
        }
        later
    }

    pub(super) fn into_list(self) -> Vec<StrictError> {
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_distinct_and_limited() {
        let mut strict_errors = StrictErrors::default();
        for nth in 0..10_000 {
            let name = (nth / 2).to_string();
            strict_errors.unknown(&Path::ROOT.field(&name));
        }
        strict_errors.duplicate(&Path::ROOT.field("0"));
        let list = strict_errors.into_list();
        assert_eq!(list.len(), COUNT_LIMIT);
        assert_eq!(list[COUNT_LIMIT - 1], StrictError::Unknown((COUNT_LIMIT - 1).to_string()));
    }

    #[test]
    fn paths_below_a_long_key_have_a_size_limit() {
        let mut strict_errors = StrictErrors { unlimited: true, ..StrictErrors::default() };
        let key = "k".repeat(1 << 20);
        let above = Path::ROOT.field(&key);
        for nth in 0..1000 {
            strict_errors.unknown(&above.field(&nth.to_string()));
        }
        assert!((1..=8).contains(&strict_errors.len()), "{}", strict_errors.len());
    }

    #[test]
    fn removed_errors_can_be_added_again() {
        let mut strict_errors = StrictErrors::default();
        strict_errors.unknown(&Path::ROOT.field("a"));
        strict_errors.unknown(&Path::ROOT.field("b"));
        assert_eq!(strict_errors.split_off(1), [StrictError::Unknown("b".to_owned())]);
        strict_errors.unknown(&Path::ROOT.field("b"));
        assert_eq!(strict_errors.len(), 2);
    }
}
