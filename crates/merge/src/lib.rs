//! Patches and field ownership: JSON patch, merge patch, strategic merge patch, server-side apply, and managed
//! fields.
//!
//! Every operation is a function over trees ([`schema::Value`]) and, where fields are tracked, tables
//! ([`schema::table::Type`]). Invariants: no function names a kind or reads a clock, and the work is linear in the
//! size of the input (`n log n` for lists whose items have keys).
//!
//! The crate neither decodes nor encodes text, nor validates, nor sends responses. A caller turns an [`Error`] into
//! a response with [`Error::code`].
//!
//! | module | what it is |
//! |---|---|
//! | `json_patch`, `merge_patch`, `strategic` | the three kinds of patches |
//! | `apply` | server-side apply: its steps, conflicts, pruning |
//! | `managed` | managed fields |
//! | `document` | the text of a patched object, for errors |

pub mod apply;
pub mod document;
mod error;
pub mod json_patch;
pub mod limits;
pub mod managed;
pub mod merge_patch;
pub mod strategic;
#[cfg(test)]
mod tests;

pub use apply::{ApplyError, ApplyOutcome, ApplyWrite, Conflict, Conflicts, apply, described};
pub use error::{Error, Rejection};
pub use json_patch::JsonPatch;
pub use merge_patch::merge_patch;
pub use strategic::strategic_merge;
