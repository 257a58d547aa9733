//! The engine of tables: decoding, defaults, validation, encoding, OpenAPI.
//!
//! Tables and values are defined in the crate `tables`.
//!
//! Invariant: nothing in this crate names a kind. A Pod and a custom resource are both a [`table::Kind`].
//!
//! | module | what it is |
//! |---|---|
//! | `source`, `decode`, `encode` | JSON or a tree as a pull parser; decoding and encoding by a table |
//! | `walk`, `defaults`, `rules`, `problem` | the walker; defaults; declared validation; its errors |
//! | `yaml`, `proto`, `openapi` | the other codecs; OpenAPI documents |
//! | `quantity`, `time`, `pattern`, `url`, `jsonpath` | values in text |

mod cursor;
pub mod decode;
pub mod defaults;
pub mod encode;
pub mod format;
pub mod jsonpath;
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
pub mod time;
pub mod url;
pub mod walk;
pub mod yaml;
mod zero;

pub use path::Path;
use tables::text;
pub use tables::{table, value};
pub use value::{Map, Value};
