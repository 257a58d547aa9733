//! Creates objects that are absent.

use api::{Json, Resource};
use client::{Api, Error, unless};
use serde_json::Value;

/// Creates an object, and returns whether it was absent.
pub async fn ensure<K: Resource + Json>(api: &Api<K>, object: Value) -> Result<bool, Error> {
    let object: K = api::from_json(object.to_string().as_bytes())?;
    Ok(unless(409, api.create(&object).await)?.is_some())
}
