//! The protobuf form of an OpenAPI 2 document, as the gnostic compiler defines it.
//!
//! The same small trees that become JSON are encoded here, each against a table of its message: JSON name,
//! number, and what stands there. Members whose names begin with `x-` are extensions; their values, and
//! defaults and enums, travel as YAML text.

use crate::value::{Map, Value};

/// The media type to which these bytes belong.
pub const MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// The wire form of a field.
#[derive(Clone, Copy)]
enum Wire {
    Text,
    Bool,
    Int,
    Number,
    /// A list of texts.
    Texts,
    /// Any value, as YAML.
    Any,
    Anys,
    Message(&'static Message),
    Messages(&'static Message),
    /// A map, as a message with a list of named messages in this field.
    Named(u32, &'static Message),
    /// A message inside wrappers that JSON does not have: the fields to go through.
    Within(&'static [u32], &'static Message),
    /// One text or several, as a message with a list of texts.
    Type,
    /// A schema, or a truth.
    Additional,
    /// Parameters of either form.
    Parameters,
    /// A map from names to lists of texts.
    Requirements,
}

/// The fields of a message by JSON name, and the number of its extensions.
struct Message {
    fields: &'static [(&'static str, u32, Wire)],
    extensions: u32,
}

static INFO: Message =
    Message { fields: &[("title", 1, Wire::Text), ("version", 2, Wire::Text)], extensions: 7 };

static SCHEMA: Message = Message {
    fields: &[
        ("$ref", 1, Wire::Text),
        ("format", 2, Wire::Text),
        ("title", 3, Wire::Text),
        ("description", 4, Wire::Text),
        ("default", 5, Wire::Any),
        ("maximum", 7, Wire::Number),
        ("minimum", 9, Wire::Number),
        ("maxLength", 11, Wire::Int),
        ("minLength", 12, Wire::Int),
        ("pattern", 13, Wire::Text),
        ("maxItems", 14, Wire::Int),
        ("minItems", 15, Wire::Int),
        ("uniqueItems", 16, Wire::Bool),
        ("required", 19, Wire::Texts),
        ("enum", 20, Wire::Anys),
        ("additionalProperties", 21, Wire::Additional),
        ("type", 22, Wire::Type),
        ("items", 23, Wire::Within(&[1], &SCHEMA)),
        ("allOf", 24, Wire::Messages(&SCHEMA)),
        ("properties", 25, Wire::Named(1, &SCHEMA)),
    ],
    extensions: 31,
};

static QUERY: Message = Message {
    fields: &[
        ("required", 1, Wire::Bool),
        ("in", 2, Wire::Text),
        ("description", 3, Wire::Text),
        ("name", 4, Wire::Text),
        ("type", 6, Wire::Text),
        ("format", 7, Wire::Text),
        ("uniqueItems", 20, Wire::Bool),
    ],
    extensions: 23,
};

static PATH: Message = Message {
    fields: &[
        ("required", 1, Wire::Bool),
        ("in", 2, Wire::Text),
        ("description", 3, Wire::Text),
        ("name", 4, Wire::Text),
        ("type", 5, Wire::Text),
        ("format", 6, Wire::Text),
        ("uniqueItems", 19, Wire::Bool),
    ],
    extensions: 22,
};

static BODY: Message = Message {
    fields: &[
        ("description", 1, Wire::Text),
        ("name", 2, Wire::Text),
        ("in", 3, Wire::Text),
        ("required", 4, Wire::Bool),
        ("schema", 5, Wire::Message(&SCHEMA)),
    ],
    extensions: 6,
};

static RESPONSE: Message = Message {
    fields: &[("description", 1, Wire::Text), ("schema", 2, Wire::Within(&[1], &SCHEMA))],
    extensions: 5,
};

static RESPONSE_VALUE: Message = Message { fields: &[("", 1, Wire::Message(&RESPONSE))], extensions: 0 };

static OPERATION: Message = Message {
    fields: &[
        ("tags", 1, Wire::Texts),
        ("summary", 2, Wire::Text),
        ("description", 3, Wire::Text),
        ("operationId", 5, Wire::Text),
        ("produces", 6, Wire::Texts),
        ("consumes", 7, Wire::Texts),
        ("parameters", 8, Wire::Parameters),
        ("responses", 9, Wire::Named(1, &RESPONSE_VALUE)),
        ("schemes", 10, Wire::Texts),
        ("deprecated", 11, Wire::Bool),
    ],
    extensions: 13,
};

static PATH_ITEM: Message = Message {
    fields: &[
        ("get", 2, Wire::Message(&OPERATION)),
        ("put", 3, Wire::Message(&OPERATION)),
        ("post", 4, Wire::Message(&OPERATION)),
        ("delete", 5, Wire::Message(&OPERATION)),
        ("patch", 8, Wire::Message(&OPERATION)),
        ("parameters", 9, Wire::Parameters),
    ],
    extensions: 10,
};

static API_KEY: Message = Message {
    fields: &[
        ("type", 1, Wire::Text),
        ("name", 2, Wire::Text),
        ("in", 3, Wire::Text),
        ("description", 4, Wire::Text),
    ],
    extensions: 5,
};

static SECURITY_ITEM: Message = Message { fields: &[("", 2, Wire::Message(&API_KEY))], extensions: 0 };

/// A document in the making.
pub(super) struct Document {
    out: Vec<u8>,
    paths: Vec<u8>,
    definitions: Vec<u8>,
}

impl Document {
    pub(super) fn new(info: &Value) -> Self {
        let mut out = Vec::new();
        text(1, "2.0", &mut out);
        nested(2, &message(&INFO, info), &mut out);
        Document { out, paths: Vec::new(), definitions: Vec::new() }
    }

    pub(super) fn path(&mut self, path: &str, item: &Value) {
        named(2, path, &message(&PATH_ITEM, item), &mut self.paths);
    }

    pub(super) fn definition(&mut self, name: &str, schema: &Value) {
        named(1, name, &message(&SCHEMA, schema), &mut self.definitions);
    }

    pub(super) fn end(mut self, security: &Value, schemes: &Value) -> Vec<u8> {
        nested(8, &self.paths, &mut self.out);
        nested(9, &self.definitions, &mut self.out);
        for requirement in security.as_list().unwrap_or_default() {
            field(12, Wire::Requirements, requirement, &mut self.out);
        }
        field(13, Wire::Named(1, &SECURITY_ITEM), schemes, &mut self.out);
        self.out
    }
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn nested(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | 2, out);
    varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn text(number: u32, text: &str, out: &mut Vec<u8>) {
    nested(number, text.as_bytes(), out);
}

/// An entry of a map: its name, and its value.
fn named(number: u32, name: &str, value: &[u8], out: &mut Vec<u8>) {
    let mut entry = Vec::with_capacity(name.len() + value.len() + 16);
    text(1, name, &mut entry);
    nested(2, value, &mut entry);
    nested(number, &entry, out);
}

fn any(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    text(2, &crate::yaml::emit(value), &mut out);
    out
}

fn message(table: &Message, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    // a message that only wraps has one field without a name, which takes the value itself
    if let [("", number, wire)] = table.fields {
        field(*number, *wire, value, &mut out);
        return out;
    }
    let empty = Map::new();
    let map = value.as_map().unwrap_or(&empty);
    for (name, number, wire) in table.fields {
        if let Some(value) = map.get(name) {
            field(*number, *wire, value, &mut out);
        }
    }
    for (name, value) in map.iter().filter(|(name, _)| name.starts_with("x-")) {
        named(table.extensions, name, &any(value), &mut out);
    }
    out
}

fn field(number: u32, wire: Wire, value: &Value, out: &mut Vec<u8>) {
    let items = || value.as_list().unwrap_or_default();
    let entries = || value.as_map().into_iter().flat_map(|map| map.iter());
    match wire {
        Wire::Text => text(number, value.as_str().unwrap_or_default(), out),
        Wire::Bool => {
            varint(u64::from(number) << 3, out);
            varint(u64::from(value.as_bool().unwrap_or_default()), out);
        }
        Wire::Int => {
            varint(u64::from(number) << 3, out);
            varint(value.as_int().unwrap_or_default() as u64, out);
        }
        Wire::Number => {
            let number_value =
                if let Value::Float(it) = value { *it } else { value.as_int().unwrap_or_default() as f64 };
            varint(u64::from(number) << 3 | 1, out);
            out.extend_from_slice(&number_value.to_le_bytes());
        }
        Wire::Texts => items().iter().for_each(|it| text(number, it.as_str().unwrap_or_default(), out)),
        Wire::Any => nested(number, &any(value), out),
        Wire::Anys => items().iter().for_each(|it| nested(number, &any(it), out)),
        Wire::Message(table) => nested(number, &message(table, value), out),
        Wire::Messages(table) => items().iter().for_each(|it| nested(number, &message(table, it), out)),
        Wire::Named(inner, table) => {
            let mut body = Vec::new();
            entries().for_each(|(name, value)| named(inner, name, &message(table, value), &mut body));
            nested(number, &body, out);
        }
        Wire::Within(wrappers, table) => {
            let mut body = message(table, value);
            for wrapper in wrappers.iter().rev() {
                let inner = std::mem::take(&mut body);
                nested(*wrapper, &inner, &mut body);
            }
            nested(number, &body, out);
        }
        Wire::Type => {
            let mut body = Vec::new();
            match value {
                Value::List(_) => field(1, Wire::Texts, value, &mut body),
                _ => field(1, Wire::Text, value, &mut body),
            }
            nested(number, &body, out);
        }
        Wire::Additional => {
            let mut body = Vec::new();
            match value {
                Value::Bool(_) => field(2, Wire::Bool, value, &mut body),
                _ => field(1, Wire::Message(&SCHEMA), value, &mut body),
            }
            nested(number, &body, out);
        }
        Wire::Parameters => items().iter().for_each(|it| nested(number, &parameter(it), out)),
        Wire::Requirements => {
            let mut body = Vec::new();
            for (name, scopes) in entries() {
                let mut list = Vec::new();
                field(1, Wire::Texts, scopes, &mut list);
                named(1, name, &list, &mut body);
            }
            nested(number, &body, out);
        }
    }
}

/// A parameter, inside a message for the choice of where it stands.
fn parameter(value: &Value) -> Vec<u8> {
    let (mut choice, mut out) = (Vec::new(), Vec::new());
    match value.text(&["in"]) {
        "body" => nested(1, &message(&BODY, value), &mut choice),
        place => {
            let mut inner = Vec::new();
            match place {
                "path" => nested(4, &message(&PATH, value), &mut inner),
                _ => nested(3, &message(&QUERY, value), &mut inner),
            }
            nested(2, &inner, &mut choice);
        }
    }
    nested(1, &choice, &mut out);
    out
}
