//! The parts of a JSON schema: its items and additional properties.

use schema::Value;
use std::collections::HashSet;

/// The schemas in a schema that have a problem, in them or below, by identity: paths of all schemas around a problem would
/// be many times as long as the schema.
pub(super) type InvalidSchemas = HashSet<*const Value>;

/// A field of a schema that is not null.
pub(super) fn given<'v>(schema: &'v Value, field: &str) -> Option<&'v Value> {
    schema.at(&[field]).filter(|it| !it.is_null())
}

/// The schema of the items, if it is a single one.
pub(super) fn items(schema: &Value) -> Option<&Value> {
    given(schema, "items").filter(|it| it.as_map().is_some())
}

/// The schema of additional properties, if there is one.
pub(super) fn additional(schema: &Value) -> Option<&Value> {
    given(schema, "additionalProperties").filter(|it| it.as_map().is_some())
}
