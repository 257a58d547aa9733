//! Behaviour of the built-in kinds, whose tables the crate `api` declares: one file for each kind with behaviour of its
//! own, in a folder per API group.
//!
//! A kind's file has everything that its table cannot declare: defaults that depend on other fields, validation
//! across fields, immutable fields, deletion, and its row in a table of objects. Invariants: a kind without such a
//! file works by its table alone, and no kind does I/O or reads a clock.
//!
//! | module | what it is |
//! |---|---|
//! | `hooks`, `registry`, `scheme` | which kind has which hooks; the kinds that are served; those that a body may name |
//! | `core`, `apps`, `batch`, ... | a folder per API group |
//! | `apiextensions` | definitions and custom resources: schemas, rules, costs of expressions |
//! | `workload` | kinds that make pods |
//! | `check`, `limits` | validation that kinds share; limits of a namespace |
//! | `serving`, `gates` | served versions by release; fields behind feature gates |
//! | `retired` | versions that are only read |

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
pub mod metrics;
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
pub mod scheme;
mod serving;
pub mod storage;
mod versions;
mod workload;

#[cfg(test)]
mod tests;

pub use api::tables;
use apimachinery::unstructured as read;
pub use options::{Options, RELEASE, ServiceOptions};
pub use quantities::is_extended as is_extended_resource;
pub use registry::{builtin, builtin_serving, builtin_with};
pub use serving::{Serving, ServingError};
pub use versions::{stored, versions};
