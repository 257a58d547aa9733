//! Audit policy: ordered rules that select requests and the level of their events.
//!
//! Invariants: a parsed policy has only known fields and values, so that a typo cannot drop events. A request
//! that matches no rule is not recorded.

mod parse;
mod rules;
#[cfg(test)]
mod tests;

pub use parse::InvalidPolicy;
pub use rules::{Level, Policy, Selection, Stage};
