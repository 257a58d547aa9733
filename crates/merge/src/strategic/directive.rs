//! The directives of a strategic merge patch: their names and errors.

use super::go_format::{format_string_verb, format_value};
use crate::error::Error;
use schema::{Map, Value};

/// Replaces or deletes a map, a list or an item.
pub(super) const DIRECTIVE: &str = "$patch";
/// Removes all other keys of a map.
pub(super) const RETAIN_KEYS: &str = "$retainKeys";
/// Prefix: sets the order of a list.
pub(super) const ORDER: &str = "$setElementOrder";
/// Prefix: removes scalars from a list.
pub(super) const DELETE: &str = "$deleteFromPrimitiveList";

/// Whether a member of a patch is a directive about its siblings.
pub(super) fn is_directive(name: &str) -> bool {
    name == RETAIN_KEYS || name.starts_with(ORDER) || name.starts_with(DELETE)
}

/// Whether a value has a directive in any of its maps.
pub(super) fn has_directives(value: &Value) -> bool {
    match value {
        Value::Map(map) => {
            map.iter().any(|(name, value)| name == DIRECTIVE || is_directive(name) || has_directives(value))
        }
        Value::List(items) => items.iter().any(has_directives),
        _ => false,
    }
}

/// The directives with a prefix, by the name of their list.
pub(super) fn directives<'p>(
    patch: &'p Map,
    prefix: &'static str,
    malformed: &'static str,
) -> impl Iterator<Item = (Result<&'p str, Error>, &'p Value)> {
    patch.iter().filter_map(move |(name, value)| {
        let rest = name.strip_prefix(prefix)?;
        Some((rest.strip_prefix('/').ok_or_else(|| Error::InvalidPatch(malformed.to_owned())), value))
    })
}

/// The error of a directive with an unknown value.
pub(super) fn unknown_directive(directive: &Value, patch: &Map) -> Error {
    let map = format_value(&Value::Map(patch.clone()));
    Error::Unmergeable(format!("unknown patch type: {} in map: {map}", format_string_verb(directive)))
}
