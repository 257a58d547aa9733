//! The check that a schema is structural: every value has a type, declared in one place.
//!
//! Inside `allOf`, `anyOf`, `oneOf` and `not` values can only be narrowed: their fields must be declared outside. All
//! violations are reported, in the order of their text.

use super::schema_parts::{additional, items};
use crate::check::Problems;
use crate::read;
use schema::problem::Problem;
use schema::{Path, Value, decode, pattern};

/// The place of a schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Every violation of a schema without unsupported parts.
pub(super) fn check(schema: &Value, path: &Path<'_>) -> Problems {
    let mut out = Problems::new();
    invariants(schema, Level::Root, path, &mut out);
    completeness(schema, schema, &path.to_string(), &path.to_string(), &mut out);
    out.sort_by_cached_key(|it| format!("{}: {}", it.field, it.message));
    out
}

fn flag(schema: &Value, extension: &str) -> bool {
    read::flag(schema, &[extension])
}

const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

fn invariants(schema: &Value, level: Level, path: &Path<'_>, out: &mut Problems) {
    let kind = schema.text(&["type"]);
    if kind == "array" && items(schema).is_none() {
        out.push(Problem::required(&path.field("items"), "must be specified"));
    }
    if let Some(item) = items(schema) {
        invariants(item, Level::Item, &path.field("items"), out);
    }
    let properties = read::map(schema, &["properties"]);
    let at = path.field("properties");
    for (name, property) in properties.iter() {
        invariants(property, Level::Field, &at.key(name), out);
    }
    if read::has(schema, &["additionalProperties"]) {
        let at = path.field("additionalProperties");
        if level == Level::Root {
            out.push(Problem::forbidden(&at, "must not be used at the root"));
        }
        if let Some(more) = additional(schema) {
            invariants(more, Level::Field, &at, out);
        }
    }
    exclusive(schema, path, out);
    let (skip_any_of, skip_first) = (is_int_or_string(schema), is_int_or_string_in_all_of(schema));
    narrowing(schema, skip_any_of, skip_first, path, out);
    types(schema, level, path, out);
    resource(schema, level, path, out);
}

/// Extensions that exclude one another.
fn exclusive(schema: &Value, path: &Path<'_>, out: &mut Problems) {
    if flag(schema, INT_OR_STRING) {
        for extension in [PRESERVE, EMBEDDED].into_iter().filter(|it| flag(schema, it)) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            out.push(Problem::invalid(&path.field(extension), &Value::Bool(true), detail));
        }
    }
}

fn types(schema: &Value, level: Level, path: &Path<'_>, out: &mut Problems) {
    let (kind, at) = (schema.text(&["type"]), path.field("type"));
    if flag(schema, EMBEDDED) && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        out.push(match kind {
            "" => Problem::required(&at, detail),
            _ => Problem::invalid_text(&at, kind, detail),
        });
    } else if kind.is_empty() && !flag(schema, INT_OR_STRING) && !flag(schema, PRESERVE) {
        let place = match level {
            Level::Root => "at the root",
            Level::Item => "for specified array items",
            Level::Field => "for specified object fields",
        };
        out.push(Problem::required(&at, &format!("must not be empty {place}")));
    }
    if flag(schema, EMBEDDED) && read::has(schema, &["additionalProperties"]) {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        out.push(Problem::forbidden(&path.field("additionalProperties"), detail));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        out.push(Problem::invalid_text(&at, kind, "must be object at the root"));
    }
}

/// A schema cannot redefine the fields that every API object has.
fn resource(schema: &Value, level: Level, path: &Path<'_>, out: &mut Problems) {
    let whole = level == Level::Root || flag(schema, EMBEDDED);
    let at = path.field("properties");
    let properties = read::map(schema, &["properties"]);
    for field in ["kind", "apiVersion"] {
        if let Some(kind) = properties.get(field).map(|it| it.text(&["type"]))
            && whole
            && kind != "string"
        {
            out.push(Problem::invalid_text(&at.key(field).field("type"), kind, "must be string"));
        }
    }
    if let Some(metadata) = properties.get("metadata") {
        let (at, kind) = (at.key("metadata"), metadata.text(&["type"]));
        if whole && kind != "object" {
            out.push(Problem::invalid_text(&at.field("type"), kind, "must be object"));
        }
        if level == Level::Root && !restricts_only_names(metadata) {
            let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
            out.push(Problem::forbidden(&at, detail));
        }
    }
    if flag(schema, EMBEDDED) && !flag(schema, PRESERVE) && properties.is_empty() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        out.push(Problem::required(&at, detail));
    }
}

/// Whether a schema of metadata restricts only names.
fn restricts_only_names(metadata: &Value) -> bool {
    let parts = metadata.as_map().into_iter().flat_map(|it| it.iter());
    parts.filter(|(_, value)| !value.is_null()).all(|(part, value)| match part {
        // documentation is not compared
        "type" | "default" | "example" | "externalDocs" => true,
        "properties" => {
            value.as_map().is_some_and(|it| it.keys().all(|name| ["name", "generateName"].contains(&name)))
        }
        _ => false,
    })
}

/// The size of all patterns of a schema together.
pub(super) fn patterns(schema: &Value) -> usize {
    let own = pattern::size(schema.text(&["pattern"])).unwrap_or(0);
    let lists = ["allOf", "oneOf", "anyOf"].into_iter().flat_map(|field| schema.items(&[field]));
    let not = schema.at(&["not"]).filter(|it| !it.is_null());
    let one = [not, items(schema), additional(schema)].into_iter().flatten();
    let properties = read::map(schema, &["properties"]).iter().map(|(_, it)| it);
    properties.chain(lists).chain(one).map(patterns).fold(own, usize::saturating_add)
}

/// The old form of "integer or string", the only use of types inside `anyOf`.
fn is_int_or_string(schema: &Value) -> bool {
    flag(schema, INT_OR_STRING) && declares_int_or_string(schema.items(&["anyOf"]))
}

fn declares_int_or_string(any_of: &[Value]) -> bool {
    let only_type = |value: &Value, kind: &str| {
        value.text(&["type"]) == kind && value.as_map().is_some_and(|it| it.len() == 1)
    };
    matches!(any_of, [a, b] if only_type(a, "integer") && only_type(b, "string"))
}

fn is_int_or_string_in_all_of(schema: &Value) -> bool {
    let first = schema.items(&["allOf"]).first();
    flag(schema, INT_OR_STRING) && first.is_some_and(|it| declares_int_or_string(it.items(&["anyOf"])))
}

/// The parts of a schema that narrow its values.
fn narrowing(schema: &Value, skip_any_of: bool, skip_first: bool, path: &Path<'_>, out: &mut Problems) {
    for field in ["anyOf", "allOf", "oneOf"] {
        if field == "anyOf" && skip_any_of {
            continue;
        }
        let at = path.field(field);
        for (nth, one) in schema.items(&[field]).iter().enumerate() {
            nested(one, field == "allOf" && nth == 0 && skip_first, &at.index(nth), out);
        }
    }
    if let Some(not) = schema.at(&["not"]).filter(|it| !it.is_null()) {
        nested(not, false, &path.field("not"), out);
    }
    let text = schema.text(&["pattern"]);
    if let Err(why) = pattern::size(text) {
        let detail = format!("must be a valid regular expression, but isn't: {why}");
        out.push(Problem::invalid_text(&path.field("pattern"), text, &detail));
    }
}

/// Fields that are forbidden inside `allOf` and the like, and their required value.
const FORBIDDEN: &[(&str, &str)] = &[
    ("type", "empty"),
    ("additionalProperties", "undefined"),
    ("default", "undefined"),
    ("title", "empty"),
    ("description", "empty"),
    ("nullable", "false"),
    (PRESERVE, "false"),
    (EMBEDDED, "false"),
    (INT_OR_STRING, "false"),
    ("x-kubernetes-list-map-keys", "empty"),
    ("x-kubernetes-list-type", "undefined"),
    ("x-kubernetes-map-type", "undefined"),
    ("x-kubernetes-validations", "empty"),
];

fn nested(schema: &Value, skip_any_of: bool, path: &Path<'_>, out: &mut Problems) {
    narrowing(schema, skip_any_of, false, path, out);
    if let Some(item) = items(schema) {
        nested(item, false, &path.field("items"), out);
    }
    let at = path.field("properties");
    for (name, property) in read::map(schema, &["properties"]).iter() {
        nested(property, false, &at.key(name), out);
    }
    for (field, instead) in FORBIDDEN {
        let there = schema.at(&[field]).is_some_and(|it| match *instead {
            "undefined" => !it.is_null(),
            _ => !decode::is_zero(it),
        });
        if there {
            out.push(Problem::forbidden(&path.field(field), &format!("must be {instead} to be structural")));
        }
    }
    if read::has(schema, &["properties", "metadata"]) {
        out.push(Problem::forbidden(&at.key("metadata"), "must not be specified in a nested context"));
    }
}

/// Checks that `schema` declares every part that `narrowed` restricts.
fn completeness(narrowed: &Value, schema: &Value, declared_at: &str, at: &str, out: &mut Problems) {
    for field in ["allOf", "anyOf", "oneOf"] {
        for (nth, one) in narrowed.items(&[field]).iter().enumerate() {
            nested_completeness(one, schema, declared_at, &format!("{at}.{field}[{nth}]"), out);
        }
    }
    if let Some(not) = narrowed.at(&["not"]).filter(|it| !it.is_null()) {
        nested_completeness(not, schema, declared_at, &format!("{at}.not"), out);
    }
}

fn nested_completeness(narrowed: &Value, schema: &Value, declared_at: &str, at: &str, out: &mut Problems) {
    completeness(narrowed, schema, declared_at, at, out);
    let mut each = |part: Option<&Value>, narrowed: &Value, step: &str| {
        let (declared_at, at) = (format!("{declared_at}.{step}"), format!("{at}.{step}"));
        match part {
            Some(part) => nested_completeness(narrowed, part, &declared_at, &at, out),
            None => {
                let mut problem = Problem::required(&Path::ROOT, &format!("because it is defined in {at}"));
                problem.field = declared_at;
                out.push(problem);
            }
        }
    };
    if let Some(item) = items(narrowed) {
        each(items(schema), item, "items");
    }
    for (name, property) in read::map(narrowed, &["properties"]).iter() {
        each(schema.at(&["properties", name]), property, &format!("properties[{name}]"));
    }
}
