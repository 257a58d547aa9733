//! Defaults in a schema: they must be values that the schema itself accepts, with nothing to be pruned.

use super::compiled::Schema;
use super::embedded::resource;
use super::openapi::items;
use super::value;
use crate::check::{self, Problems};
use crate::read;
use schema::{Path, Value};

const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// What a schema's value is a part of.
#[derive(Clone, Copy)]
enum Part<'n> {
    /// An object of the API as a whole.
    Whole,
    /// One of the fields that every such object has.
    Meta(&'n str),
    /// Something in there.
    InMeta,
    Other,
}

/// Every default below the root of a schema that is structural.
pub(super) fn check(schema: &Value, path: &Path<'_>, out: &mut Problems) {
    below(schema, Part::Whole, path, out);
}

fn below(schema: &Value, part: Part<'_>, path: &Path<'_>, out: &mut Problems) {
    let part = if read::flag(schema, &[EMBEDDED]) { Part::Whole } else { part };
    if let Some(default) = schema.at(&["default"]).filter(|it| !it.is_null()) {
        one(schema, default, part, &path.field("default"), out);
    }
    let inner = match part {
        Part::Meta(_) | Part::InMeta => Part::InMeta,
        Part::Whole | Part::Other => Part::Other,
    };
    if let Some(item) = items(schema) {
        below(item, inner, &path.field("items"), out);
    }
    // what is in additional properties is never missing: defaults there say nothing
    let at = path.field("properties");
    for (name, property) in read::map(schema, &["properties"]).iter() {
        let meta = matches!(part, Part::Whole) && META.contains(&name);
        below(property, if meta { Part::Meta(name) } else { inner }, &at.key(name), out);
    }
}

fn one(schema: &Value, default: &Value, part: Part<'_>, path: &Path<'_>, out: &mut Problems) {
    let before = out.len();
    let whole = matches!(part, Part::Whole);
    match part {
        Part::Whole => resource(default, path, out),
        Part::Meta(name) => {
            let mut object = Value::map();
            object.set(&["apiVersion"], "validation/v1");
            object.set(&["kind"], "Validation");
            object.make_map().insert(name.to_owned(), default.clone());
            let mut found = Vec::new();
            resource(&object, &Path::ROOT, &mut found);
            let told: Vec<_> = found.iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
            let told = if told.len() == 1 { told.concat() } else { format!("[{}]", told.join(", ")) };
            if !found.is_empty() {
                let detail = format!("must result in valid metadata: {told}");
                out.push(check::invalid_shown(path, &value::go_shown(default), &detail));
            }
        }
        Part::InMeta | Part::Other => {}
    }
    let broken = out.len() > before;
    if matches!(part, Part::Whole | Part::Other) && is_pruned(schema, default, whole) {
        let detail = "must not have unknown fields";
        out.insert(before, check::invalid_shown(path, &value::go_shown(default), detail));
    }
    if !broken {
        out.extend(value::check(&Schema::of(schema), default, &path.to_string()));
    }
}

/// Whether a value has fields that would not be kept.
fn is_pruned(schema: &Value, value: &Value, resource: bool) -> bool {
    let embedded = |schema: &Value| read::flag(schema, &[EMBEDDED]);
    match value {
        Value::List(values) => match items(schema) {
            Some(item) => values.iter().any(|it| is_pruned(item, it, embedded(item))),
            None if read::flag(schema, &[PRESERVE]) => false,
            None => values.iter().any(|it| is_pruned(&Value::map(), it, false)),
        },
        Value::Map(map) => map.iter().any(|(name, value)| is_unknown(schema, name, value, resource)),
        _ => false,
    }
}

fn is_unknown(schema: &Value, name: &str, value: &Value, resource: bool) -> bool {
    if resource && META.contains(&name) {
        return false;
    }
    let embedded = |schema: &Value| read::flag(schema, &[EMBEDDED]);
    if let Some(property) = schema.at(&["properties", name]) {
        return is_pruned(property, value, embedded(property));
    }
    match schema.at(&["additionalProperties"]) {
        Some(more @ Value::Map(_)) => is_pruned(more, value, embedded(more)),
        // allowed or not, nothing is known about what is inside
        Some(Value::Bool(_)) => is_pruned(&Value::map(), value, false),
        _ => !read::flag(schema, &[PRESERVE]),
    }
}
