//! Behaviour of the built-in kinds, whose tables the crate `api` declares: one file for each kind that has behaviour of its own.
//!
//! A kind's file says what the table cannot: defaults that depend on other fields, rules that need more than
//! one field, what may change, what deleting means, and its row in a table of objects. Always true: a kind
//! without such a file works by its table alone. Nothing in here does I/O or reads a clock.

pub mod admissionregistration;
pub mod apiextensions;
pub mod apiregistration;
pub mod apiserverinternal;
pub mod apps;
mod asn1;
pub mod autoscaling;
pub mod batch;
pub mod certificates;
mod check;
mod conditions;
pub mod coordination;
pub mod core;
pub mod discovery;
pub mod flowcontrol;
pub mod gates;
mod hooks;
pub mod limits;
mod metadata;
pub mod networking;
pub mod node;
pub mod node_selection;
mod options;
mod pem;
pub mod policy;
mod quantities;
pub mod rbac;
mod registry;
pub mod resource;
mod retired;
pub mod scheduling;
mod serving;
pub mod storage;
mod versions;
mod workload;

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod testing;

pub use api::tables;
use apimachinery::unstructured as read;
pub use options::{Options, RELEASE, ServiceOptions};
pub use quantities::is_extended as is_extended_resource;
pub use registry::{builtin, builtin_serving, builtin_with};
pub use serving::{BadServing, Serving};
pub use versions::{stored, versions};
