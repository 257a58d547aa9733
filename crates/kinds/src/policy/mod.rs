//! Behaviour of the kinds of the group `policy`.

pub mod poddisruptionbudget;
