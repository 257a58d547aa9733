//! Protobuf in and out, as a function of a table.
//!
//! A structure is a message with the numbers of its fields. What is written, in which order, is exactly what
//! the API's own encoders write, so that bytes can be compared: numbers ascend; plain values and structures
//! are written even when they are zero, unless they can be nil; nilable values, bytes, lists and maps are
//! written only when they are there; entries of a map are sorted by key. Fields without a number are not part
//! of the message: `kind` and `apiVersion` travel in the [envelope](envelope()), anything else not at all.
//!
//! ```text
//! string bool int32 int64   text or varint         time microtime   {1: seconds, 2: nanos}
//! float                     fixed 64 bits          quantity         {1: text}
//! bytes                     the bytes themselves   intorstring      {1: 0 or 1, 2: number, 3: text}
//! a structure               nested message         duration         {1: nanoseconds}
//! []T                       the field, repeated    any object       {1: JSON text}
//! {}T                       {1: key, 2: value}, repeated; a list as a value is {1: item, 1: item, ...}
//! ```
//!
//! Reading gives the same normal form as [`decode::json`](crate::decode::json()): whatever way an object came
//! in, its [`Value`](crate::Value) is the same. Numbers that the table does not know are stepped over.
//!
//! Invariant: no input makes it panic, recurse without bound, or take more memory than is proportional to
//! the input. It does not keep the text of `any` and `object` values as it was sent: they are written out
//! again from the tree, with sorted keys.

mod decode;
mod encode;
mod envelope;
#[cfg(test)]
mod tests;
mod wire;

pub use decode::{decode, unknown_fields};
pub use encode::encode;
pub use envelope::{
    Envelope, ItemHead, LIST_TAIL, ListMeta, MAGIC, envelope, list, list_head, open, seal, watch_event,
    watch_frame,
};
pub use wire::{BackwardWriter, DELIMITED, Reader, VARINT};

/// The deepest nesting of messages.
pub const MAX_DEPTH: usize = 200;

/// The error of bytes that are not a valid message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtoError {
    #[error("empty data")]
    EmptyData,
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoPrefix,
    #[error("empty body")]
    EmptyBody,
    #[error("unexpected EOF")]
    Truncated,
    #[error("proto: integer overflow")]
    Overflow,
    #[error("proto: negative length found during unmarshaling")]
    NegativeLength,
    #[error("proto: unexpected end of group")]
    EndOfGroup,
    #[error("proto: illegal wireType {0}")]
    IllegalWireType(u8),
    #[error("proto: wrong wireType = {wire} for field {field}")]
    WrongWireType { wire: u8, field: String },
    #[error("proto: {message}: illegal tag {number} (wire type {tag})")]
    IllegalTag { message: String, number: i32, tag: u64 },
    #[error("proto: {0}: wiretype end group for non-group")]
    EndGroup(String),
    #[error("proto: exceeded max depth")]
    TooDeep,
    /// The wire is right, but a value on it is not: a quantity, a time, JSON text.
    #[error("{0}")]
    Value(String),
}
