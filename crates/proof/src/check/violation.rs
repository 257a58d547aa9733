//! A broken rule.

use crate::history::Operation;
use std::fmt;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub rule: &'static str,
    pub detail: String,
}

impl Violation {
    pub(super) fn new(rule: &'static str, detail: impl Into<String>) -> Self {
        Violation { rule, detail: detail.into() }
    }

    pub(super) fn of(rule: &'static str, operation: &Operation, why: impl fmt::Display) -> Self {
        Violation { rule, detail: format!("{operation}: {why}") }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.detail)
    }
}
