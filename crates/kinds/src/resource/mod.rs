//! Behaviour of the kinds of the group `resource`.

pub mod resourceclaim;
