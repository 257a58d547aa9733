//! Behaviour of the kinds of the group `admissionregistration`.

pub mod admission_policy;
pub mod webhook;
pub(crate) mod webhook_client;
