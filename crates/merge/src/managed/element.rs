//! One step of a field path, and its text.
//!
//! ```text
//! f:replicas                              the field or key `replicas`
//! k:{"containerPort":80,"protocol":"TCP"} the item with this key
//! v:"example.com/finalizer"               the item with this value
//! i:3                                     the item at this position
//! ```
//!
//! Invariant:JSON inside a step is canonical (compact, names sorted), so steps are equal when their text
//! is. Steps sort as their text does, positions aside.

use super::ManagedFieldsError;
use schema::table::{Literal, Text};
use schema::{Value, decode, encode, problem};

/// One step of a field path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Element {
    Field(Text),
    Index(i64),
    /// Canonical JSON of an object: key names and values.
    Key(Box<str>),
    /// Canonical JSON of a scalar.
    Value(Box<str>),
}

impl Element {
    /// Reads a step; `None` for a kind of step that is not known, which others may know.
    pub fn parse(text: &str) -> Result<Option<Element>, ManagedFieldsError> {
        let invalid = || ManagedFieldsError::Element(text.to_owned());
        let (kind, rest) = match text.as_bytes() {
            [kind, b':', ..] => (kind, &text[2..]),
            _ => return Err(invalid()),
        };
        let json =
            || decode::json_untyped(rest.as_bytes()).map(|decoded| decoded.value).map_err(|_| invalid());
        Ok(Some(match kind {
            b'f' => Element::Field(Text::Owned(rest.to_owned())),
            b'i' => Element::Index(rest.parse().map_err(|_| invalid())?),
            b'k' => match json()? {
                Value::Map(map) => Element::key(map.iter().map(|(name, value)| (name, Part::Value(value)))),
                _ => return Err(invalid()),
            },
            b'v' => Element::value(&json()?),
            _ => return Ok(None),
        }))
    }

    /// The step to the item with these keys, which come sorted by name.
    pub(super) fn key<'a>(parts: impl Iterator<Item = (&'a str, Part<'a>)>) -> Element {
        let mut out = String::with_capacity(48);
        out.push('{');
        for (nth, (name, part)) in parts.enumerate() {
            if nth > 0 {
                out.push(',');
            }
            string(name, &mut out);
            out.push(':');
            match part {
                Part::Value(value) => write(value, &mut out),
                Part::Default(literal) => write_literal(literal, &mut out),
            }
        }
        out.push('}');
        Element::Key(out.into_boxed_str())
    }

    /// The step to the item with this value.
    pub(crate) fn value(value: &Value) -> Element {
        let mut out = String::with_capacity(24);
        write(value, &mut out);
        Element::Value(out.into_boxed_str())
    }

    /// The step to a field as it is written in a set of fields.
    pub(super) fn write_field(name: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\"f:");
        encode::escaped(name, out);
        out.push(b'"');
    }

    /// The step as it is written in a set of fields, as a JSON string.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let (kind, rest): (&[u8; 3], &str) = match self {
            Element::Field(name) => return Element::write_field(name, out),
            Element::Key(json) => (b"\"k:", json),
            Element::Value(json) => (b"\"v:", json),
            Element::Index(at) => {
                out.extend_from_slice(b"\"i:");
                encode::integer(*at, out);
                return out.push(b'"');
            }
        };
        out.extend_from_slice(kind);
        encode::escaped(rest, out);
        out.push(b'"');
    }

    /// Whether this is how the step is written.
    pub(super) fn is_written(&self, text: &str) -> bool {
        match (self, text.as_bytes()) {
            (Element::Field(name), [b'f', b':', rest @ ..]) => name.as_bytes() == rest,
            (Element::Key(json), [b'k', b':', rest @ ..]) => json.as_bytes() == rest,
            (Element::Value(json), [b'v', b':', rest @ ..]) => json.as_bytes() == rest,
            (Element::Index(at), [b'i', b':', ..]) => text[2..].parse() == Ok(*at),
            _ => false,
        }
    }

    /// The step as messages write it: `.replicas`, `[name="c"]`, `[="x"]`, `[3]`.
    pub fn path(&self) -> String {
        let decoded = |json: &str| match decode::json_untyped(json.as_bytes()) {
            Ok(decoded) => decoded.value,
            Err(_) => Value::String(json.to_owned()),
        };
        match self {
            Element::Field(name) => format!(".{name}"),
            Element::Index(at) => format!("[{at}]"),
            Element::Value(json) => format!("[={}]", format_value(&decoded(json))),
            Element::Key(json) => {
                let keys = decoded(json);
                let parts: Vec<String> = keys.as_map().map_or_else(Vec::new, |map| {
                    map.iter().map(|(name, value)| format!("{name}={}", format_value(value))).collect()
                });
                format!("[{}]", parts.join(","))
            }
        }
    }
}

/// A value as messages write it inside of a step.
fn format_value(value: &Value) -> String {
    match value {
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(format_value).collect();
            format!("[{}]", items.join(","))
        }
        Value::Map(map) => {
            map.iter().map(|(name, value)| format!("{name}={}", format_value(value))).collect()
        }
        Value::Float(number) => problem::float_text(*number),
        scalar => problem::format_value(scalar),
    }
}

/// The value of one key of an item.
pub(crate) enum Part<'a> {
    Value(&'a Value),
    /// The item leaves the key out, and its table has a default for it.
    Default(&'a Literal),
}

fn write_literal(literal: &Literal, out: &mut String) {
    match literal {
        Literal::Bool(truth) => write(&Value::Bool(*truth), out),
        Literal::Int(number) => write(&Value::Int(*number), out),
        Literal::Text(text) => string(text, out),
        Literal::Json(_) => write(&schema::defaults::value(literal), out),
    }
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Int(number) => out.push_str(&number.to_string()),
        // a number that is whole is the same number without a point
        Value::Float(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
            out.push_str(&(*number as i64).to_string());
        }
        Value::Float(number) => out.push_str(&encode::json_float(*number)),
        Value::String(text) => string(text, out),
        Value::Json(text) => out.push_str(text),
        Value::List(items) => {
            out.push('[');
            for (nth, item) in items.iter().enumerate() {
                if nth > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Map(map) => {
            out.push('{');
            for (nth, (name, value)) in map.iter().enumerate() {
                if nth > 0 {
                    out.push(',');
                }
                string(name, out);
                out.push(':');
                write(value, out);
            }
            out.push('}');
        }
    }
}

/// A JSON string with the escapes that field sets have always been written with: besides the necessary ones,
/// characters that mean something in HTML.
fn string(text: &str, out: &mut String) {
    out.push('"');
    let plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&');
    if text.bytes().all(plain) {
        out.push_str(text);
        out.push('"');
        return;
    }
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\x1f' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str("\\u");
                let code = u32::from(character);
                for shift in [12, 8, 4, 0] {
                    out.push(char::from_digit((code >> shift) & 15, 16).unwrap_or('0'));
                }
            }
            plain => out.push(plain),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, canonical: &str) {
        let mut out = Vec::new();
        Element::parse(text).unwrap().unwrap().write(&mut out);
        let mut expected = Vec::new();
        encode::string(canonical, &mut expected);
        assert_eq!(out, expected);
    }

    #[test]
    fn text_becomes_canonical() {
        check("f:a/b:c", "f:a/b:c");
        check("f:", "f:");
        check("i:-3", "i:-3");
        check(r#"k:{ "protocol":"TCP", "port": 80 }"#, r#"k:{"port":80,"protocol":"TCP"}"#);
        check(r#"k:{"port":80.0}"#, r#"k:{"port":80}"#);
        check(r#"v:"a\u002fb""#, r#"v:"a/b""#);
        check(r#"v:"<\u0001>""#, r#"v:"\u003c\u0001\u003e""#);
        check("v:1.5", "v:1.5");
        check("v:true", "v:true");
    }

    #[test]
    fn messages_show_paths() {
        let path = |text: &str| Element::parse(text).unwrap().unwrap().path();
        assert_eq!(path("f:a"), ".a");
        assert_eq!(path(r#"k:{"port":80,"protocol":"TCP"}"#), r#"[port=80,protocol="TCP"]"#);
        assert_eq!(path(r#"v:"a<b""#), r#"[="a<b"]"#);
        assert_eq!(path("i:3"), "[3]");
    }

    #[test]
    fn invalid_steps_differ_from_unknown_ones() {
        assert_eq!(Element::parse("x:y"), Ok(None));
        for text in ["", "x", "fx", "k:3", "k:{", "v:", "i:x", "é:"] {
            assert_eq!(Element::parse(text), Err(ManagedFieldsError::Element(text.to_owned())), "{text}");
        }
    }
}
