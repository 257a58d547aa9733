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
mod violation;
mod watches;
mod writes;

pub use violation::Violation;

use crate::history::History;
use bounds::Bounds;
use timeline::Timeline;

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
