//! How one state of an object becomes the next: JSON patch, merge patch, strategic merge patch, server-side
//! apply, and who owns which field.
//!
//! Everything here is a function over trees ([`schema::Value`]) and, where fields are tracked, tables
//! ([`schema::table::Type`]). Always true: no kind is named, no clock is read, and the work is linear in the
//! size of what comes in (`n log n` for lists whose items are told apart by a key).
//!
//! What it does not do: decode or encode text, validate, or answer requests. A caller turns an
//! [`Error`] into a response with [`Error::code`].

pub mod apply;
pub mod document;
mod error;
pub mod json_patch;
pub mod managed;
pub mod merge_patch;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod recorded;
pub mod strategic;

pub use apply::{Applied, ApplyError, ApplyWrite, Conflict, Conflicts, apply, described};
pub use error::{Error, Rejection};
pub use json_patch::JsonPatch;
pub use merge_patch::merge_patch;
pub use strategic::strategic_merge;
