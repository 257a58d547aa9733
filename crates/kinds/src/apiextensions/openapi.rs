//! Validation of the schema of a definition: the supported parts of JSON Schema, and their combinations.
//!
//! [`structural`](super::structural) then checks that a schema without unsupported parts is structural.

use super::schema_parts::{InvalidSchemas, additional, given, items};
use super::{defaults, rule_costs, structural};
use crate::check::{self, Problems};
use crate::read;
use schema::problem::Problem;
use schema::{Path, Value};
use std::collections::HashSet;

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
const META: &[&str] = &["metadata", "kind", "apiVersion"];

/// The fields at the root of a schema with a status subresource, and their names in messages.
const AT_ROOT: &[(&str, &str)] = &[
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-validations", "XValidations"),
];

/// The place of a schema.
#[derive(Clone, Copy)]
struct Place {
    is_root: bool,
    inside_meta: bool,
    /// The reason why a default is forbidden here, if it is.
    no_defaults: Option<&'static str>,
}

/// The problems of a schema.
#[derive(Default)]
struct SchemaProblems {
    all: Problems,
    /// Problems of the keys and items of a list belong to the list.
    invalid: InvalidSchemas,
}

/// The deepest nesting of schemas; everything derived from them nests as deep.
const DEEPEST: usize = 128;
/// The most properties of one object.
const MOST_PROPERTIES: usize = 60_000;

/// The most bytes of all patterns of a schema, by estimate: they stay in memory once they are used.
const MOST_PATTERNS: usize = 32 << 20;

/// Whether schemas nest at most `depth` levels deep.
fn is_within(schema: &Value, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let lists = ["allOf", "oneOf", "anyOf"].into_iter().flat_map(|field| schema.items(&[field]));
    let one = [given(schema, "not"), items(schema), additional(schema)].into_iter().flatten();
    let properties = read::map(schema, &["properties"]).iter().map(|(_, it)| it);
    properties.chain(lists).chain(one).all(|it| is_within(it, depth))
}

/// Checks the schema of a version.
pub(super) fn check_root(schema: &Value, status: bool, path: &Path<'_>, out: &mut Problems) {
    let before = out.len();
    if !is_within(schema, DEEPEST) {
        let detail = format!("must not be nested more than {DEEPEST} levels deep");
        return out.push(Problem::forbidden(path, &detail));
    }
    if status {
        root_with_status(schema, path, out);
    }
    if read::flag(schema, &["nullable"]) {
        out.push(Problem::forbidden(&path.field("nullable"), "nullable cannot be true at the root"));
    }
    let place = Place { is_root: true, inside_meta: false, no_defaults: None };
    let mut problems = SchemaProblems::default();
    check(schema, place, path, &mut problems);
    if let Some(part) = unsupported(schema) {
        // another problem may have been reported for it already
        if out.len() == before && problems.all.is_empty() {
            let detail = format!("OpenAPIV3Schema '{part}' is not supported");
            out.push(Problem::invalid_text(path, "", &detail));
        }
    } else {
        let violations = structural::check(schema, path);
        // rules are checked only if the rest of the schema is valid
        let mut is_valid = violations.is_empty();
        if violations.is_empty() {
            let before = out.len();
            defaults::check(schema, path, out);
            is_valid = out.len() == before;
            if structural::patterns(schema) > MOST_PATTERNS {
                let detail = "patterns are too large together: use shorter ones, or such that repeat less";
                out.push(Problem::forbidden(path, detail));
            }
        }
        out.extend(violations);
        if is_valid {
            rule_costs::check(schema, path, &problems.invalid, &mut problems.all);
        }
    }
    out.extend(problems.all);
}

fn root_with_status(schema: &Value, path: &Path<'_>, out: &mut Problems) {
    let parts = schema.as_map().into_iter().flat_map(|it| it.iter());
    let mut given = parts.filter(|(_, value)| !value.is_null()).map(|(name, _)| name);
    let kind = schema.text(&["type"]);
    if !kind.is_empty() && kind != "object" {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        out.push(Problem::invalid_text(&path.field("type"), kind, detail));
    } else if given.any(|name| !AT_ROOT.iter().any(|(allowed, _)| *allowed == name)) {
        let allowed: Vec<_> = AT_ROOT.iter().map(|(_, formatted)| *formatted).collect();
        let detail = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            allowed.join(" ")
        );
        let text = schema::encode::untyped(schema);
        let formatted = format!("apiextensions.JSONSchemaProps{}", String::from_utf8_lossy(&text));
        out.push(check::invalid_formatted(path, &formatted, &detail));
    }
}

fn check(schema: &Value, place: Place, path: &Path<'_>, out: &mut SchemaProblems) {
    let before = out.all.len();
    let inner = Place { is_root: false, ..place };
    standard(schema, place, path, &mut out.all);
    if read::flag(schema, &["uniqueItems"]) {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        out.all.push(Problem::forbidden(&path.field("uniqueItems"), detail));
    }
    let properties = read::map(schema, &["properties"]);
    if properties.len() > MOST_PROPERTIES {
        out.all.push(Problem::too_many(&path.field("properties"), properties.len(), MOST_PROPERTIES));
    }
    if let Some(more) = given(schema, "additionalProperties") {
        let at = path.field("additionalProperties");
        if !properties.is_empty() && *more != Value::Bool(true) {
            let detail = "additionalProperties and properties are mutual exclusive";
            out.all.push(Problem::forbidden(&at, detail));
        }
        if more.as_map().is_some() {
            let mut inner = inner;
            if place.inside_meta {
                inner.no_defaults = Some("inside additionalProperties applying to object metadata");
            }
            check(more, inner, &at, out);
        }
    }
    let at = path.field("properties");
    for (name, property) in properties.iter() {
        let mut inner = inner;
        let meta = META.contains(&name);
        if meta && (place.is_root || read::flag(schema, &["x-kubernetes-embedded-resource"])) {
            inner.inside_meta = true;
            if place.is_root {
                inner.no_defaults = Some(match name {
                    "metadata" => "in top-level metadata",
                    "kind" => "in top-level kind",
                    _ => "in top-level apiVersion",
                });
            }
        }
        check(property, inner, &at.key(name), out);
    }
    below(schema, inner, path, out);
    extensions(schema, path, &mut out.all);
    if out.all.len() > before {
        out.invalid.insert(std::ptr::from_ref(schema));
    }
}

/// The schemas below, properties aside.
fn below(schema: &Value, inner: Place, path: &Path<'_>, out: &mut SchemaProblems) {
    if let Some(not) = given(schema, "not") {
        check(not, inner, &path.field("not"), out);
    }
    for field in ["allOf", "oneOf", "anyOf"] {
        let at = path.field(field);
        for (nth, one) in schema.items(&[field]).iter().enumerate() {
            check(one, inner, &at.index(nth), out);
        }
    }
    let at = path.field("definitions");
    for (name, one) in read::map(schema, &["definitions"]).iter() {
        check(one, inner, &at.key(name), out);
    }
    let at = path.field("items");
    match given(schema, "items") {
        Some(Value::List(several)) => {
            for (nth, one) in several.iter().enumerate() {
                check(one, inner, &at.index(nth), out);
            }
        }
        Some(one) if one.as_map().is_some() => check(one, inner, &at, out),
        _ => {}
    }
    let at = path.field("dependencies");
    for (name, one) in read::map(schema, &["dependencies"]).iter().filter(|(_, it)| it.as_map().is_some()) {
        check(one, inner, &at.key(name), out);
    }
}

/// Checks the parts of JSON Schema that are not supported.
fn standard(schema: &Value, place: Place, path: &Path<'_>, out: &mut Problems) {
    let kind = schema.text(&["type"]);
    if !kind.is_empty() && !TYPES.contains(&kind) {
        out.push(check::unsupported(&path.field("type"), kind, TYPES));
    }
    if let (Some(why), Some(_)) = (place.no_defaults, given(schema, "default")) {
        out.push(Problem::forbidden(&path.field("default"), &format!("must not be set {why}")));
    }
    for part in parts_unsupported(schema).filter(|it| *it != "schema" && *it != "type" && *it != "items") {
        let field = if part == "ref" { "$ref" } else { part };
        out.push(Problem::forbidden(&path.field(field), &format!("{field} is not supported")));
    }
    if kind == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        out.push(Problem::forbidden(&path.field("type"), detail));
    }
    if given(schema, "items").is_some_and(|it| it.as_list().is_some()) {
        let detail = "items must be a schema object and not an array";
        out.push(Problem::forbidden(&path.field("items"), detail));
    }
    if place.inside_meta && read::flag(schema, &["x-kubernetes-embedded-resource"]) {
        let detail = "must not be used inside of resource meta";
        out.push(Problem::forbidden(&path.field("x-kubernetes-embedded-resource"), detail));
    }
}

/// The unsupported parts of this schema.
fn parts_unsupported(schema: &Value) -> impl Iterator<Item = &'static str> {
    let filled = |field: &str| !read::map(schema, &[field]).is_empty();
    [
        ("id", !schema.text(&["id"]).is_empty()),
        ("schema", !schema.text(&["$schema"]).is_empty()),
        ("additionalItems", given(schema, "additionalItems").is_some()),
        ("patternProperties", filled("patternProperties")),
        ("definitions", filled("definitions")),
        ("dependencies", filled("dependencies")),
        ("ref", given(schema, "$ref").is_some()),
        ("type", schema.text(&["type"]) == "null"),
        ("items", given(schema, "items").is_some_and(|it| it.as_list().is_some())),
    ]
    .into_iter()
    .filter(|(_, there)| *there)
    .map(|(part, _)| part)
}

/// The first unsupported part, here or below.
fn unsupported(schema: &Value) -> Option<&'static str> {
    const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
    if schema.at(&[PRESERVE]).and_then(Value::as_bool) == Some(false) {
        return Some(PRESERVE);
    }
    if let Some(part) = parts_unsupported(schema).next() {
        return Some(part);
    }
    let lists = ["allOf", "oneOf", "anyOf"].into_iter().flat_map(|field| schema.items(&[field]));
    let one = [given(schema, "not"), items(schema), additional(schema)].into_iter().flatten();
    let properties = read::map(schema, &["properties"]).iter().map(|(_, it)| it);
    properties.chain(lists).chain(one).find_map(unsupported)
}

/// Whether a version's schema has a default anywhere.
pub(super) fn has_default(version: &Value) -> bool {
    fn below(schema: &Value) -> bool {
        let lists = ["allOf", "oneOf", "anyOf"].into_iter().flat_map(|field| schema.items(&[field]));
        let one = [given(schema, "not"), items(schema), additional(schema)].into_iter().flatten();
        let properties = read::map(schema, &["properties"]).iter().map(|(_, it)| it);
        given(schema, "default").is_some() || properties.chain(lists).chain(one).any(below)
    }
    version.at(&["schema", "openAPIV3Schema"]).is_some_and(below)
}

fn must_have_type(schema: &Value, wanted: &str, because: &str, path: &Path<'_>, out: &mut Problems) {
    let detail = format!("must be {wanted} if {because} is specified");
    match schema.text(&["type"]) {
        kind if kind == wanted => {}
        "" => out.push(Problem::required(&path.field("type"), &detail)),
        kind => out.push(Problem::invalid_text(&path.field("type"), kind, &detail)),
    }
}

/// Checks the extensions for merging lists and maps, and for unknown fields.
fn extensions(schema: &Value, path: &Path<'_>, out: &mut Problems) {
    if schema.at(&["x-kubernetes-preserve-unknown-fields"]) == Some(&Value::Bool(false)) {
        let at = path.field("x-kubernetes-preserve-unknown-fields");
        out.push(Problem::invalid(&at, &Value::Bool(false), "must be true or undefined"));
    }
    if let Some(kind) = read::opt_text(schema, &["x-kubernetes-map-type"]) {
        must_have_type(schema, "object", "x-kubernetes-map-type", path, out);
        if !["atomic", "granular"].contains(&kind) {
            let at = path.field("x-kubernetes-map-type");
            out.push(check::unsupported(&at, kind, &["atomic", "granular"]));
        }
    }
    let list_type = read::opt_text(schema, &["x-kubernetes-list-type"]);
    let keys = schema.items(&["x-kubernetes-list-map-keys"]);
    if let Some(kind) = list_type {
        must_have_type(schema, "array", "x-kubernetes-list-type", path, out);
        if schema.text(&["type"]) == "array" && kind == "set" {
            set_items(schema, &path.field("items"), out);
        }
        if !["atomic", "set", "map"].contains(&kind) {
            let at = path.field("x-kubernetes-list-type");
            out.push(check::unsupported(&at, kind, &["atomic", "set", "map"]));
        }
    }
    if !keys.is_empty() && list_type != Some("map") {
        let (at, detail) =
            (path.field("x-kubernetes-list-type"), "must be map if x-kubernetes-list-map-keys is non-empty");
        out.push(match list_type {
            None => Problem::required(&at, detail),
            Some(kind) => Problem::invalid_text(&at, kind, detail),
        });
    }
    if list_type == Some("map") {
        map_items(schema, keys, path, out);
    }
    item_keys(schema, list_type, keys, path, out);
    validations(schema, path, out);
}

/// Items of a set are compared as wholes.
fn set_items(schema: &Value, path: &Path<'_>, out: &mut Problems) {
    let Some(item) = items(schema) else { return };
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let (field, whole) = match item.text(&["type"]) {
        "object" => ("x-kubernetes-map-type", false),
        "array" => ("x-kubernetes-list-type", true),
        _ => return,
    };
    match read::opt_text(item, &[field]) {
        Some("atomic") => {}
        None if whole => {}
        Some(kind) if whole => out.push(Problem::invalid_text(&path.field(field), kind, detail)),
        _ => out.push(check::null(&path.field(field), detail)),
    }
}

fn map_items(schema: &Value, keys: &[Value], path: &Path<'_>, out: &mut Problems) {
    let keys_path = path.field("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        out.push(Problem::required(&keys_path, detail));
    }
    let at = path.field("items");
    let Some(given_items) = given(schema, "items") else {
        return out.push(Problem::required(&at, "must have a schema if x-kubernetes-list-type is map"));
    };
    let Some(item) = items(schema) else {
        let detail = "must only have a single schema if x-kubernetes-list-type is map";
        let text = schema::encode::untyped(given_items);
        let formatted = format!("apiextensions.JSONSchemaPropsOrArray{{{}}}", String::from_utf8_lossy(&text));
        return out.push(check::invalid_formatted(&at, &formatted, detail));
    };
    let kind = item.text(&["type"]);
    if kind != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        return out.push(Problem::invalid_text(&at.field("type"), kind, detail));
    }
    let mut seen = HashSet::new();
    let mut repeated = check::SharedListProblems::default();
    let mut wrong = |detail| repeated.report(&keys_path, || check::format_texts(keys), detail, out);
    let mut scalars = Vec::new();
    for key in keys.iter().map(read::text) {
        match item.at(&["properties", key]) {
            None => wrong("entries must all be names of item properties"),
            Some(property) if ["array", "object"].contains(&property.text(&["type"])) => scalars.push(key),
            Some(_) => {}
        }
        if !seen.insert(key) {
            wrong("must not contain duplicate entries");
        }
    }
    let properties = at.field("properties");
    for key in scalars {
        let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
        out.push(Problem::invalid_text(&properties.key(key).field("type"), kind, detail));
    }
}

/// Checks that the items of sets and map lists always have their keys.
fn item_keys(schema: &Value, list_type: Option<&str>, keys: &[Value], path: &Path<'_>, out: &mut Problems) {
    let (Some(item), Some(kind @ ("set" | "map"))) = (items(schema), list_type) else { return };
    let at = path.field("items");
    if read::flag(item, &["nullable"]) {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {kind}");
        out.push(Problem::forbidden(&at.field("nullable"), &detail));
    }
    let properties = at.field("properties");
    let required: HashSet<&str> = item.items(&["required"]).iter().map(read::text).collect();
    for key in keys.iter().map(read::text).filter(|_| kind == "map") {
        let Some(property) = item.at(&["properties", key]) else { continue };
        let at = properties.key(key);
        if !required.contains(key) && given(property, "default").is_none() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            out.push(Problem::required(&at.field("default"), detail));
        }
        if read::flag(property, &["nullable"]) {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            out.push(Problem::forbidden(&at.field("nullable"), detail));
        }
    }
}

/// Checks the text of validation rules.
fn validations(schema: &Value, path: &Path<'_>, out: &mut Problems) {
    let path = path.field("x-kubernetes-validations");
    let broken = |text: &str| text.contains(['\n', '\r']);
    for (at, validation) in schema.items(&["x-kubernetes-validations"]).iter().enumerate() {
        let path = path.index(at);
        let (rule, message) = (validation.text(&["rule"]).trim(), validation.text(&["message"]));
        if rule.is_empty() {
            out.push(Problem::required(&path.field("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            let detail = "message must be non-empty if specified";
            out.push(Problem::invalid_text(&path.field("message"), message, detail));
        } else if broken(message.trim()) {
            let detail = "message must not contain line breaks";
            out.push(Problem::invalid_text(&path.field("message"), message, detail));
        } else if broken(rule) && message.trim().is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            out.push(Problem::required(&path.field("message"), detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::json;

    #[test]
    fn problems_of_a_list_leave_the_rules_of_its_items_to_be_checked() {
        const RULES: &str = r#""x-kubernetes-validations":[{"rule":"self.none"}]"#;
        let rule_fields = |list: &str, item: &str| {
            let schema = format!(
                r#"{{"type":"object",{RULES},"properties":{{"l":{{"type":"array",{RULES},{list},"maxItems":3,
                    "items":{{"type":"object",{RULES},{item}}}}}}}}}"#
            );
            let mut problems = Problems::new();
            check_root(&json(&schema), false, &Path::ROOT, &mut problems);
            let (rules, others): (Vec<_>, Vec<_>) =
                problems.into_iter().map(|it| it.field).partition(|it| it.ends_with("[0].rule"));
            (rules, others)
        };
        const OF_ROOT: &str = "x-kubernetes-validations[0].rule";
        const OF_LIST: &str = "properties[l].x-kubernetes-validations[0].rule";
        const OF_ITEMS: &str = "properties[l].items.x-kubernetes-validations[0].rule";
        let map = r#""x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"]"#;
        let key = |more: &str| format!(r#""properties":{{"k":{{"type":"string"{more}}}}}"#);
        let required = r#""required":["k"]"#;
        let (rules, others) = rule_fields(map, &format!("{},{required}", key("")));
        assert_eq!((rules, others), (vec![OF_ITEMS.into(), OF_LIST.into(), OF_ROOT.into()], vec![]));
        for (list, item, problem) in [
            (map, key(""), "properties[l].items.properties[k].default"),
            (
                map,
                format!("{},{required}", key(r#","nullable":true"#)),
                "properties[l].items.properties[k].nullable",
            ),
            (map, format!(r#"{},{required},"nullable":true"#, key("")), "properties[l].items.nullable"),
            (r#""x-kubernetes-list-type":"set""#, key(""), "properties[l].items.x-kubernetes-map-type"),
        ] {
            assert_eq!(rule_fields(list, &item), (vec![OF_ITEMS.into()], vec![problem.into()]), "{item}");
        }
        // a problem of the items themselves is theirs, and all schemas around them have it
        let unsupported = format!(r#"{},{required},"uniqueItems":true"#, key(""));
        assert_eq!(rule_fields(map, &unsupported), (vec![], vec!["properties[l].items.uniqueItems".into()]));
    }
}
