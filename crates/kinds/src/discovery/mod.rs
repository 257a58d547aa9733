//! Behaviour of the kinds of the group `discovery`.

pub mod endpointslice;
