//! Behaviour of the kinds of the group `batch`.

pub mod cronjob;
pub mod job;
pub(crate) mod podfailurepolicy;
