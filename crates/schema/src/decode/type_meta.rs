//! The kind and version that a body names, read as Go's JSON package reads them.
//!
//! A key counts in any case, and of several keys the last one counts. The fields of a kind are compared exactly, so
//! `Kind` can be an unknown field that names the kind.

use crate::source::{Json, Source, SyntaxError, Token};
use crate::value::Value;

const API_VERSION: &str = "apiVersion";
const KIND: &str = "kind";

/// The kind and version of a body.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct TypeMeta {
    pub api_version: String,
    pub kind: String,
    /// The error of the first of these fields that is no text.
    pub mismatch: Option<String>,
}

enum Content<'a> {
    Text(&'a str),
    Null,
    Other(&'static str),
}

impl TypeMeta {
    pub fn of_json(bytes: &[u8]) -> Result<Self, SyntaxError> {
        let mut source = Json::new(bytes)?;
        let mut meta = TypeMeta::default();
        if source.value()? != Token::Map {
            return Ok(meta);
        }
        while let Some(key) = source.key()? {
            let token = source.value()?;
            source.skip(&token)?;
            let content = match &token {
                Token::String(text) => Content::Text(text),
                Token::Null => Content::Null,
                Token::Map | Token::Json(_) => Content::Other("object"),
                Token::List => Content::Other("array"),
                Token::Bool(_) => Content::Other("bool"),
                Token::Int(_) | Token::Decimal(_) => Content::Other("number"),
            };
            meta.add(&key, content);
        }
        Ok(meta)
    }

    /// Of a tree, whose keys are in order.
    pub fn of_tree(value: &Value) -> Self {
        let mut meta = TypeMeta::default();
        let Value::Map(map) = value else { return meta };
        for (key, value) in map.iter() {
            let content = match value {
                Value::String(text) => Content::Text(text),
                Value::Null => Content::Null,
                Value::Map(_) | Value::Json(_) => Content::Other("object"),
                Value::List(_) => Content::Other("array"),
                Value::Bool(_) => Content::Other("bool"),
                Value::Int(_) | Value::Float(_) => Content::Other("number"),
            };
            meta.add(key, content);
        }
        meta
    }

    fn add(&mut self, key: &str, content: Content<'_>) {
        let (name, field) = match key {
            _ if is_spelling_of(key, API_VERSION) => (API_VERSION, &mut self.api_version),
            _ if is_spelling_of(key, KIND) => (KIND, &mut self.kind),
            _ => return,
        };
        match content {
            Content::Text(text) => text.clone_into(field),
            Content::Null => {}
            Content::Other(found) => {
                let why =
                    || format!("json: cannot unmarshal {found} into Go struct field .{name} of type string");
                self.mismatch.get_or_insert_with(why);
            }
        }
    }

    /// Whether a key names the kind or the version in another spelling.
    pub fn is_other_spelling(key: &str) -> bool {
        [API_VERSION, KIND].iter().any(|name| key != *name && is_spelling_of(key, name))
    }
}

/// Compares without regard to case; two letters have another form beyond ASCII.
fn is_spelling_of(key: &str, name: &str) -> bool {
    let mut letters = key.chars().map(|letter| match letter {
        '\u{212a}' => 'k',
        '\u{17f}' => 's',
        other => other.to_ascii_lowercase(),
    });
    name.chars().all(|letter| letters.next() == Some(letter.to_ascii_lowercase())) && letters.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_key_in_any_case_counts() {
        let check = |text: &str, api_version: &str, kind: &str| {
            let meta = TypeMeta::of_json(text.as_bytes()).unwrap();
            assert_eq!((&*meta.api_version, &*meta.kind, meta.mismatch), (api_version, kind, None), "{text}");
        };
        check(r#"{"kind":"A","apiVersion":"v1"}"#, "v1", "A");
        check(r#"{"kind":"A","KIND":"B","kinds":"C"}"#, "", "B");
        check(r#"{"Kind":"A","kind":"B"}"#, "", "B");
        check(r#"{"kind":"A","Kind":null,"kind":null}"#, "", "A");
        check("{\"\u{212a}ind\":\"A\",\"apiVer\u{17f}ion\":\"v2\"}", "v2", "A");
        check("[]", "", "");
        let meta = TypeMeta::of_json(br#"{"Kind":5,"apiVersion":{},"kind":"A"}"#).unwrap();
        let why = "json: cannot unmarshal number into Go struct field .kind of type string";
        assert_eq!((&*meta.kind, meta.mismatch.as_deref()), ("A", Some(why)));
    }

    #[test]
    fn other_spellings_are_recognized() {
        for (key, expected) in
            [("kind", false), ("Kind", true), ("APIVERSION", true), ("kinds", false), ("", false)]
        {
            assert_eq!(TypeMeta::is_other_spelling(key), expected, "{key}");
        }
    }
}
