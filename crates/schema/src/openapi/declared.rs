//! Schemas of kinds that were declared while the server ran, as they are published.
//!
//! Version 3 has the declared schema. Version 2 cannot express all of it, and its readers reject undeclared fields:
//! inexpressible parts are left out, and free-form parts have no schema.

use super::{Flavour, META, Source, object};
use crate::table::{API_VERSION_DOC, KIND_DOC, METADATA_DOC};
use crate::value::{Map, Value};

/// Descriptions of version and kind of an embedded object.
const EMBEDDED_DOCS: [&str; 2] = [
    "apiVersion defines, by its group and version, the schema that the embedded object follows",
    "kind is a string value that names the schema of the embedded object",
];

pub(super) fn render(source: &Source<'_>, flavour: Flavour, mut schema: Value) -> Value {
    let preserve = source.extension("preserve-unknown-fields");
    let open = schema.at(&[&preserve]).is_some_and(|it| *it == Value::Bool(true));
    // readers of version 2 treat a schema as complete
    if flavour == Flavour::V2 && open {
        return object([("type", "object".into())]);
    }
    if flavour == Flavour::V2 {
        simplify(source, &mut schema);
    }
    complete(source, flavour, &mut schema);
    let map = schema.make_map();
    map.insert("type", "object");
    own_properties(source, flavour, [API_VERSION_DOC, KIND_DOC], map.entry("properties").make_map());
    schema
}

/// The properties that every object has.
fn own_properties(source: &Source<'_>, flavour: Flavour, docs: [&str; 2], properties: &mut Map) {
    let text = |words: &str| object([("description", words.into()), ("type", "string".into())]);
    properties.insert("apiVersion", text(docs[0]));
    properties.insert("kind", text(docs[1]));
    let Some(metadata) = (source.find_type)(META, "ObjectMeta") else { return };
    let reference = flavour.reference(&source.type_name(&metadata));
    let words = ("description", METADATA_DOC.into());
    let published = match flavour {
        Flavour::V2 => {
            let mut published = reference;
            published.make_map().insert(words.0, words.1);
            published
        }
        Flavour::V3 => object([("allOf", Value::List(vec![reference])), words]),
    };
    properties.insert("metadata", published);
}

/// Says what follows from the extensions of a schema: what objects inside of objects have, and which types a number or
/// a text can be.
fn complete(source: &Source<'_>, flavour: Flavour, schema: &mut Value) {
    let Value::Map(map) = schema else { return };
    let flag = |map: &Map, name: &str| map.get(&source.extension(name)) == Some(&Value::Bool(true));
    each_below(map, |below| complete(source, flavour, below));
    if flag(map, "embedded-resource") && (flavour == Flavour::V3 || !flag(map, "preserve-unknown-fields")) {
        own_properties(source, flavour, EMBEDDED_DOCS, map.entry("properties").make_map());
        let mut required = match map.remove("required") {
            Some(Value::List(required)) => required,
            _ => Vec::new(),
        };
        for name in ["kind", "apiVersion"].map(Value::from) {
            if !required.contains(&name) {
                required.push(name);
            }
        }
        map.insert("required", Value::List(required));
    }
    let said = map.contains("anyOf") || map.contains("allOf");
    if flavour == Flavour::V3 && flag(map, "int-or-string") && !said {
        let types = ["integer", "string"].map(|name| object([("type", name.into())]));
        map.insert("anyOf", Value::List(types.into()));
    }
}

/// The schemas of the parts of a value.
fn each_below(map: &mut Map, mut change: impl FnMut(&mut Value)) {
    for part in ["items", "additionalProperties"] {
        if let Some(below) = map.get_mut(part) {
            change(below);
        }
    }
    if let Some(Value::Map(properties)) = map.get_mut("properties") {
        properties.iter_mut().for_each(|(_, property)| change(property));
    }
}

/// Removes parts that version 2 cannot express.
fn simplify(source: &Source<'_>, schema: &mut Value) {
    let Value::Map(map) = schema else { return };
    for part in ["allOf", "anyOf", "oneOf", "not"] {
        map.remove(part);
    }
    let flag = |map: &Map, name: &str| map.get(name) == Some(&Value::Bool(true));
    let nullable = map.remove("nullable") == Some(Value::Bool(true));
    let open = flag(map, &source.extension("preserve-unknown-fields"));
    if nullable || open {
        for part in ["type", "properties", "items", "additionalProperties", "required", "enum", "format"] {
            map.remove(part);
        }
    }
    if flag(map, &source.extension("int-or-string")) {
        map.remove("type");
        map.remove("format");
    }
    each_below(map, |below| simplify(source, below));
}
