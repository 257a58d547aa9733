//! Label and field selectors: parsed once per request, matched against the facts of cached objects.

use crate::model::error::ApiError;
use crate::model::object::Object;
use apimachinery::labels;
use schema::Value;

/// Both selectors of a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selector {
    pub labels: labels::Selector,
    pub fields: Vec<FieldTerm>,
}

/// One condition on a selectable field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldTerm {
    pub field: FieldSource,
    pub equal: bool,
    pub value: String,
}

/// The source of a field condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldSource {
    Name,
    Namespace,
    /// Position in the collection's list of extracted fields.
    Field(usize),
}

impl Selector {
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub fn matches(&self, object: &Object) -> bool {
        self.fields.iter().all(|term| term.matches(object)) && self.labels.matches_by(|key| object.label(key))
    }

    /// Whether the labels of a tree match, whatever its fields are.
    pub fn matches_labels(&self, value: &Value) -> bool {
        let labels = value.at(&["metadata", "labels"]).and_then(Value::as_map);
        self.labels.matches_by(|key| labels?.get(key)?.as_str())
    }

    /// The name that an object must have, if the selector names one.
    pub fn name(&self) -> Option<&str> {
        self.equal_to(FieldSource::Name)
    }

    pub fn namespace(&self) -> Option<&str> {
        self.equal_to(FieldSource::Namespace)
    }

    pub fn field(&self, at: usize) -> Option<&str> {
        self.equal_to(FieldSource::Field(at))
    }

    fn equal_to(&self, field: FieldSource) -> Option<&str> {
        self.fields.iter().find(|term| term.equal && term.field == field).map(|term| &*term.value)
    }
}

impl FieldTerm {
    fn matches(&self, object: &Object) -> bool {
        let value = match self.field {
            FieldSource::Name => &*object.name,
            FieldSource::Namespace => &*object.namespace,
            FieldSource::Field(at) => object.field(at).unwrap_or(""),
        };
        (value == self.value) == self.equal
    }
}

/// Checks the syntax of a field selector, without the fields of a kind.
pub fn check_fields(text: &str) -> Result<(), ApiError> {
    read_fields(text).map(drop)
}

/// Label, operator (true for equality) and value of each term of a field selector. A term with neither a label nor a
/// value selects everything, and is left out.
pub(crate) fn read_fields(text: &str) -> Result<Vec<(&str, bool, String)>, ApiError> {
    let parts = split_terms(text).into_iter().filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let cannot =
                || ApiError::bad_request(format!("invalid selector: '{text}'; can't understand '{part}'"));
            let (label, equal, value) = field_term(part).ok_or_else(cannot)?;
            let value = unescape(value)
                .map_err(|why| ApiError::bad_request(format!("invalid field selector: {why}")))?;
            Ok((label, equal, value))
        })
        .filter(|term| !matches!(term, Ok((label, _, value)) if label.is_empty() && value.is_empty()))
        .collect()
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut from, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            '\\' if !escaped => escaped = true,
            ',' if !escaped => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => escaped = false,
        }
    }
    parts.push(&text[from..]);
    parts
}

fn field_term(part: &str) -> Option<(&str, bool, &str)> {
    let bytes = part.as_bytes();
    for at in 0..bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'!', Some(b'=')) => return Some((&part[..at], false, &part[at + 2..])),
            (b'=', Some(b'=')) => return Some((&part[..at], true, &part[at + 2..])),
            (b'=', _) => return Some((&part[..at], true, &part[at + 1..])),
            _ => {}
        }
    }
    None
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => return Err(format!("invalid escape sequence: \\{c}")),
                None => return Err("invalid escape sequence: \\".to_owned()),
            },
            ',' | '=' => return Err(format!("unescaped character in value: {}", c as u32)),
            c => out.push(c),
        }
    }
    Ok(out)
}

/// Parses a label selector.
pub fn parse_labels(text: &str) -> Result<labels::Selector, ApiError> {
    labels::Selector::parse(text).map_err(|error| ApiError::bad_request(error.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_terms_split_and_unescape() {
        assert_eq!(split_terms(r"a=b\,c,d=e"), [r"a=b\,c", "d=e"]);
        assert_eq!(field_term("a!=b"), Some(("a", false, "b")));
        assert_eq!(field_term("a==b"), Some(("a", true, "b")));
        assert_eq!(field_term("a"), None);
        assert_eq!(unescape(r"b\,c").as_deref(), Ok("b,c"));
        assert_eq!(unescape("b=c").unwrap_err(), "unescaped character in value: 61");
    }
}
