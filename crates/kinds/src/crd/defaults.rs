//! Defaults in a schema: they must be values that the schema itself accepts, with nothing to be pruned.

use super::openapi::{additional, items};
use super::value;
use crate::check::{self, Problems};
use crate::read;
use schema::{Path, Value};

const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// Every default below the root of a schema that is structural.
pub(super) fn check(schema: &Value, path: &Path<'_>, out: &mut Problems) {
    below(schema, true, false, path, out);
}

fn below(schema: &Value, root: bool, in_meta: bool, path: &Path<'_>, out: &mut Problems) {
    let embedded = root || read::flag(schema, &[EMBEDDED]);
    let in_meta = in_meta && !embedded;
    if let Some(default) = schema.at(&["default"]).filter(|it| !it.is_null()) {
        one(schema, default, embedded, in_meta, &path.field("default"), out);
    }
    if let Some(item) = items(schema) {
        below(item, false, in_meta, &path.field("items"), out);
    }
    let at = path.field("properties");
    for (name, property) in read::map(schema, &["properties"]).iter() {
        let meta = embedded && ["metadata", "apiVersion", "kind"].contains(&name);
        below(property, false, in_meta || meta, &at.key(name), out);
    }
    if let Some(more) = additional(schema) {
        below(more, false, in_meta, &path.field("additionalProperties"), out);
    }
}

fn one(schema: &Value, default: &Value, embedded: bool, in_meta: bool, path: &Path<'_>, out: &mut Problems) {
    if !in_meta && is_pruned(schema, default, embedded) {
        let detail = "must not have unknown fields";
        out.push(check::invalid_shown(path, &value::go_shown(default), detail));
    }
    out.extend(value::check(schema, default, &path.to_string()));
}

/// Whether a value has fields that would not be kept.
fn is_pruned(schema: &Value, value: &Value, resource: bool) -> bool {
    match value {
        Value::List(values) => {
            let nothing = Value::map();
            let item = items(schema);
            let keeps = read::flag(schema, &[PRESERVE]) && item.is_none();
            !keeps && values.iter().any(|it| is_pruned(item.unwrap_or(&nothing), it, is_embedded(item)))
        }
        Value::Map(map) => map.iter().any(|(name, value)| is_unknown(schema, name, value, resource)),
        _ => false,
    }
}

fn is_embedded(schema: Option<&Value>) -> bool {
    schema.is_some_and(|it| read::flag(it, &[EMBEDDED]))
}

fn is_unknown(schema: &Value, name: &str, value: &Value, resource: bool) -> bool {
    if resource && ["apiVersion", "kind", "metadata"].contains(&name) {
        return false;
    }
    if let Some(property) = schema.at(&["properties", name]) {
        return is_pruned(property, value, is_embedded(Some(property)));
    }
    match schema.at(&["additionalProperties"]) {
        Some(Value::Bool(true)) => false,
        Some(more @ Value::Map(_)) => is_pruned(more, value, is_embedded(Some(more))),
        _ => !read::flag(schema, &[PRESERVE]),
    }
}
