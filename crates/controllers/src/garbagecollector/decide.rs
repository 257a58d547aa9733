//! What becomes of an object: a pure function of the object and of what is known about its owners.

use super::graph::{OwnerState, View};
use super::identity::Uid;

/// What is done about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Nothing,
    /// Everything that it waited for is gone.
    Finish,
    /// It waits for these, which should be looked at.
    Wait(Vec<Uid>),
    /// It stays, without these owners.
    Unlink(Vec<Uid>),
    Delete(Propagation),
    /// It waits for an owner that waits for it: that one must not, before it is deleted.
    UnblockAndDelete,
}

/// What becomes of the dependents of what is deleted.
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

/// `owners` says about each owner of the object what was found out; none is unknown.
pub fn decide(item: &View, owners: &[OwnerState]) -> Action {
    if item.marks.waits() {
        return if item.blocked { Action::Wait(item.blocking.clone()) } else { Action::Finish };
    }
    // it is on its way, and cannot turn back
    if item.marks.deleting || owners.is_empty() {
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
    Action::Delete(match item.marks {
        marks if marks.orphan => Propagation::Orphan,
        marks if marks.foreground => Propagation::Foreground,
        _ => Propagation::Background,
    })
}
