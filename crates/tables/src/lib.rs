//! Tables, the descriptions of API types, and values, the trees that they describe.
//!
//! The crate depends on the standard library alone, because the build script of `api` uses it. `schema-lang` compiles
//! declarations into tables; `schema` decodes, checks and encodes values by them.
//!
//! Invariant: nothing in this crate names a kind.

pub mod table;
pub mod text;
pub mod value;
