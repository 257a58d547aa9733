//! Decides what to do with an object, from the object and the state of its owners.

use super::graph::{OwnerState, View};
use super::identity::Uid;

/// The action on an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Nothing,
    /// Remove the finalizer: the dependents are gone.
    Finish,
    /// Wait for these dependents, which are queued.
    Wait(Vec<Uid>),
    /// Remove the references to these owners.
    Unlink(Vec<Uid>),
    Delete(Propagation),
    /// Unblock the owners, then delete in the foreground: owner and object wait for each other.
    UnblockAndDelete,
}

/// The propagation policy of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    Orphan,
    Foreground,
    Background,
}

impl Propagation {
    pub fn name(self) -> &'static str {
        match self {
            Propagation::Orphan => "Orphan",
            Propagation::Foreground => "Foreground",
            Propagation::Background => "Background",
        }
    }
}

/// `owners` is the state of each owner of the object; none is unknown.
pub fn decide(item: &View, owners: &[OwnerState]) -> Action {
    if item.deletion.waits() {
        return if item.blocked { Action::Wait(item.blocking.clone()) } else { Action::Finish };
    }
    // a deletion cannot be undone
    if item.deletion.deleting || owners.is_empty() {
        return Action::Nothing;
    }
    let waiting = owners.contains(&OwnerState::Waiting);
    if owners.contains(&OwnerState::Solid) {
        let lost = item.owners.iter().zip(owners).filter(|(_, known)| **known != OwnerState::Solid);
        let lost: Vec<Uid> = lost.map(|((owner, _), _)| owner.uid.clone()).collect();
        return if lost.is_empty() { Action::Nothing } else { Action::Unlink(lost) };
    }
    if waiting && item.has_dependents {
        return if item.dependent_waits {
            Action::UnblockAndDelete
        } else {
            Action::Delete(Propagation::Foreground)
        };
    }
    Action::Delete(match item.deletion {
        deletion if deletion.orphan => Propagation::Orphan,
        deletion if deletion.foreground => Propagation::Foreground,
        _ => Propagation::Background,
    })
}
