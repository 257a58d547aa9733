//! Behaviour of the kinds of the group `scheduling`.

pub mod priorityclass;
