//! What a table is, and everything that follows from one: decoding, defaults, validation, encoding, OpenAPI.
//!
//! Always true: nothing in this crate names a kind. A Pod and a custom resource are both a [`table::Kind`].

mod cursor;
pub mod decode;
pub mod defaults;
pub mod encode;
pub mod format;
pub mod jsonpath;
pub mod lang;
pub mod openapi;
pub mod path;
pub mod pattern;
pub mod problem;
pub mod proto;
pub mod quantity;
pub mod rank;
pub mod rules;
mod scan;
pub mod source;
pub mod table;
pub mod time;
pub mod url;
pub mod value;
pub mod walk;
pub mod yaml;

pub use path::Path;
pub use value::{Map, Value};
