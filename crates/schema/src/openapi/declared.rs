//! Schemas of kinds that were declared while the server ran, as they are published.
//!
//! Version 3 says what was declared. Version 2 has no words for much of it, and its readers refuse what they do not
//! find declared: what it cannot say it leaves out, and where anything goes it says nothing at all.

use super::{Flavour, META, Source, object};
use crate::value::{Map, Value};

pub(super) fn render(source: &Source<'_>, flavour: Flavour, mut schema: Value) -> Value {
    let preserve = source.extension("preserve-unknown-fields");
    let open = schema.at(&[&preserve]).is_some_and(|it| *it == Value::Bool(true));
    if flavour == Flavour::V2 {
        simplify(source, &mut schema);
    }
    let map = schema.make_map();
    map.insert("type", "object");
    // readers of version 2 take properties for all there are
    if flavour == Flavour::V3 || !open {
        own_properties(source, flavour, map.entry("properties").make_map());
    }
    schema
}

/// What every object has.
fn own_properties(source: &Source<'_>, flavour: Flavour, properties: &mut Map) {
    let text = |words: &str| object([("description", words.into()), ("type", "string".into())]);
    properties.insert("apiVersion", text("group and version of this object"));
    properties.insert("kind", text("kind of this object"));
    let Some(metadata) = (source.find_type)(META, "ObjectMeta") else { return };
    let reference = flavour.reference(&source.type_name(&metadata));
    let words = ("description", "identity, labels and bookkeeping of the object".into());
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

/// Leaves out what version 2 cannot say.
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
    for part in ["items", "additionalProperties"] {
        if let Some(below) = map.get_mut(part) {
            simplify(source, below);
        }
    }
    if let Some(Value::Map(properties)) = map.get_mut("properties") {
        properties.iter_mut().for_each(|(_, property)| simplify(source, property));
    }
}
