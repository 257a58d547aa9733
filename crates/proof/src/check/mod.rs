//! Decides whether a history is correct: whether one server with one order of writes can have given all these responses.
//!
//! The watches give the order of all changes; everything else is compared with it. With the order known, a check takes
//! about linear time, where a search for some order would take exponential time.
//!
//! | rule | |
//! |---|---|
//! | `watches agree` | all watches show the same change for a version |
//! | `watches are in order` | versions of a watch grow |
//! | `watches are complete` | no change is left out, up to the last one and to each bookmark |
//! | `changes follow each other` | an object is added, modified and deleted in turn, with one uid from its addition to its deletion |
//! | `changes were requested` | each change was made by a write, once, with its value |
//! | `acknowledged writes are there` | with their version, name and value |
//! | `refused writes are not there` | |
//! | `preconditions held` | creates met no object, updates the expected version |
//! | `deletions are there` | of the uids that were acknowledged |
//! | `versions grow` | a write has a newer version than all that was known before it began, over restarts too |
//! | `reads are true` | an object that was read existed in that form |
//! | `reads are fresh` | it did when the read ran, or as new as the read required |
//! | `lists are exact` | all objects of the version of the list, and no others |

mod bounds;
mod reads;
#[cfg(test)]
mod tests;
mod timeline;
mod watches;
mod writes;

use crate::history::{History, Operation};
use bounds::Bounds;
use std::fmt;
use timeline::Timeline;

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub rule: &'static str,
    pub detail: String,
}

impl Violation {
    fn new(rule: &'static str, detail: impl Into<String>) -> Self {
        Violation { rule, detail: detail.into() }
    }

    fn of(rule: &'static str, operation: &Operation, why: impl fmt::Display) -> Self {
        Violation { rule, detail: format!("{operation}: {why}") }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.detail)
    }
}

/// The broken rules of a history.
pub fn check(history: &History) -> Vec<Violation> {
    let mut violations = Vec::new();
    let timeline = Timeline::of(&history.watches, &mut violations);
    let bounds = Bounds::of(&history.operations, &timeline);
    watches::check(&history.watches, &timeline, &mut violations);
    writes::check(&history.operations, &timeline, &bounds, &mut violations);
    reads::check(&history.operations, &timeline, &bounds, &mut violations);
    violations
}
