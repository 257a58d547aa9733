//! The vocabulary of the verbs: errors, options, objects, selectors, and the hooks of a kind.
//!
//! Nothing here reads or writes the store.

pub(crate) mod body;
pub mod context;
pub mod error;
pub(crate) mod facts;
pub mod form;
pub mod hooks;
pub mod metadata;
pub mod metrics;
pub mod object;
pub mod operation;
pub mod options;
pub mod request_record;
pub mod reserve;
pub mod selector;
pub mod versions;
pub mod view;
pub mod virtual_resource;
