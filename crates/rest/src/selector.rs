//! Label and field selectors: parsed once per request, matched against what the cache has extracted.

use crate::error::ApiError;
use crate::object::Object;
use crate::resource::Resource;
use apimachinery::labels;

/// Both selectors of a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selector {
    pub labels: labels::Selector,
    pub fields: Vec<FieldTerm>,
}

/// One condition on a selectable field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldTerm {
    pub what: Selected,
    pub equal: bool,
    pub value: String,
}

/// What a field condition reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selected {
    Name,
    Namespace,
    /// Position in the collection's list of extracted fields.
    Field(usize),
}

impl Selector {
    pub fn parse(labels: &str, fields: &str, resource: &Resource) -> Result<Self, ApiError> {
        Ok(Selector { labels: parse_labels(labels)?, fields: parse_fields(fields, resource)? })
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub fn matches(&self, object: &Object) -> bool {
        self.fields.iter().all(|term| term.matches(object)) && self.labels.matches_by(|key| object.label(key))
    }

    /// The one name that can match, if the selector says so.
    pub fn name(&self) -> Option<&str> {
        self.equal_to(Selected::Name)
    }

    pub fn namespace(&self) -> Option<&str> {
        self.equal_to(Selected::Namespace)
    }

    pub fn field(&self, at: usize) -> Option<&str> {
        self.equal_to(Selected::Field(at))
    }

    fn equal_to(&self, what: Selected) -> Option<&str> {
        self.fields.iter().find(|term| term.equal && term.what == what).map(|term| &*term.value)
    }
}

impl FieldTerm {
    fn matches(&self, object: &Object) -> bool {
        let found = match self.what {
            Selected::Name => &*object.name,
            Selected::Namespace => &*object.namespace,
            Selected::Field(at) => object.field(at).unwrap_or(""),
        };
        (found == self.value) == self.equal
    }
}

/// Whether a field selector can be read, for a kind that may have its fields or not.
pub fn check_fields(text: &str) -> Result<(), ApiError> {
    read_fields(text).map(drop)
}

/// Name, whether it must be equal, and value of each term.
fn read_fields(text: &str) -> Result<Vec<(&str, bool, String)>, ApiError> {
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
        .collect()
}

fn parse_fields(text: &str, resource: &Resource) -> Result<Vec<FieldTerm>, ApiError> {
    let mut terms = Vec::new();
    for (label, equal, value) in read_fields(text)? {
        let what = resource.collection.selected(&resource.kind, label);
        let what = what.map_err(|why| match resource.hooks.unknown_label {
            Some(told) => ApiError::bad_request(told(label)),
            None => why,
        })?;
        terms.push(FieldTerm { what, equal, value });
    }
    Ok(terms)
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
