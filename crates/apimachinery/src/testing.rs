//! Helpers of unit tests.

use schema::{Value, decode};

/// JSON text as a tree.
pub fn json(text: &str) -> Value {
    decode::json_untyped(text.as_bytes()).unwrap().value
}
