//! Behaviour of the kinds of the group `apiregistration`.

pub mod apiservice;
