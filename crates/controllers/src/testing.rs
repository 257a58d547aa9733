//! Helpers of unit tests.

use api::{Json, from_json};
use serde_json::Value;

/// A typed object from its JSON.
pub fn object<T: Json>(json: Value) -> T {
    from_json(json.to_string().as_bytes()).unwrap()
}
