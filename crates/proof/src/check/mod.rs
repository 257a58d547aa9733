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
//! | `watches begin with a state` | without a version they show all objects of one version first, as new as required |
//! | `watches are in time` | no watch shows a change before the request for it |
//! | `changes follow each other` | an object is added, modified and deleted in turn, with one uid from its addition to its deletion |
//! | `changes were requested` | each change was made by a write, once, with its value |
//! | `deletions were requested` | each by a request of its own, for this name and uid |
//! | `acknowledged writes are there` | with their version, name and value |
//! | `refused writes are not there` | |
//! | `answers are about their object` | the one whose name was in the request |
//! | `preconditions held` | creates met no object, updates the expected version, deletions the uid |
//! | `refusals have a reason` | an object was absent, there, or another one while the request ran |
//! | `deletions are there` | of the uids that were acknowledged, while the request ran |
//! | `collections are emptied` | after deletecollection none of the objects is left that were there before |
//! | `versions grow` | a write has a newer version than all that was known before it began, over restarts too |
//! | `reads are true` | an object that was read existed in that form |
//! | `reads are fresh` | it did when the read ran, or as new as the read required |
//! | `lists are exact` | all objects of the version of the list, and no others |

mod bounds;
mod deletions;
mod reads;
mod refusals;
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
    let bounds = Bounds::of(history, &timeline);
    watches::check(&history.watches, &timeline, &bounds, &mut violations);
    writes::check(&history.operations, &timeline, &bounds, &mut violations);
    deletions::check(&history.operations, &timeline, &bounds, &mut violations);
    refusals::check(&history.operations, &timeline, &bounds, &mut violations);
    reads::check(&history.operations, &timeline, &bounds, &mut violations);
    violations
}
