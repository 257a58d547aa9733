//! The vocabulary of the verbs: errors, options, objects, selectors, and the hooks of a kind.

pub mod error;
pub mod hooks;
pub mod metadata;
pub mod metrics;
pub mod object;
pub mod options;
pub mod request_record;
pub mod reserve;
pub mod selector;
