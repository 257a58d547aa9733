//! Behaviour of the kinds of the group `node`.

pub mod runtimeclass;
