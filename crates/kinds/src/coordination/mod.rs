//! Behaviour of the kinds of the group `coordination`.

pub mod lease;
