//! Tables: the description of an API type that every feature is a function of.
//!
//! Built-in tables are written in the schema language, compiled at build time and live in read-only memory; tables of
//! custom resources are created at run time. Both are the same Rust types: text is a [`Cow`](std::borrow::Cow), and a
//! reference between types is a [`Ref`], either to a `static` or counted.
//!
//! No table type names a kind.

mod kind;
mod reference;
mod types;

pub use crate::text::Text;
pub use kind::{
    API_VERSION_DOC, Column, Group, KIND_DOC, Kind, LIST_METADATA_DOC, LazySchema, Lifecycle, METADATA_DOC,
    Release, RetiredVersion, Selectable, Subresource,
};
pub use reference::{Lazy, Many, Ref};
pub use types::{
    Declarations, Field, Flags, Format, ListKind, ListShape, Literal, MapShape, OrderedFields, Patch,
    ProtoName, Rule, Scalar, Shape, Type, Union, Unknown,
};
