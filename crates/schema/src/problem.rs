//! A problem with one field, as validation reports it: reason, path and text.
//!
//! Validation collects all problems of an object; the API server makes the causes of a `Status` of them.

use crate::path::Path;
use crate::value::Value;
pub use tables::text::{is_printable, quoted};

/// The reason of a problem. The names are the API's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    InternalError,
    TypeInvalid,
}

impl Reason {
    pub fn name(self) -> &'static str {
        match self {
            Reason::NotFound => "FieldValueNotFound",
            Reason::Required => "FieldValueRequired",
            Reason::Duplicate => "FieldValueDuplicate",
            Reason::Invalid => "FieldValueInvalid",
            Reason::NotSupported => "FieldValueNotSupported",
            Reason::Forbidden => "FieldValueForbidden",
            Reason::TooLong => "FieldValueTooLong",
            Reason::TooMany => "FieldValueTooMany",
            Reason::InternalError => "InternalError",
            Reason::TypeInvalid => "FieldValueTypeInvalid",
        }
    }
}

/// How many bytes problems may take that each show one and the same list. Showing it for every item of the list
/// would take as many bytes as there are pairs of items.
pub const REPEATED_LIMIT: usize = 256 << 10;

/// The most bytes of the problems of one object; the first always fits.
const LIMIT: usize = 4 << 20;

/// The problems of one object, in the order of discovery, as far as they fit.
///
/// An item of three bytes can have five problems, each with a path and a text, and an answer shows each twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems {
    list: Vec<Problem>,
    bytes: usize,
}

impl Problems {
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether no more of them are kept.
    pub fn is_full(&self) -> bool {
        self.bytes >= LIMIT
    }

    pub fn push(&mut self, problem: Problem) {
        if !self.is_full() {
            self.bytes += size_of::<Problem>() + problem.field.len() + problem.message.len();
            self.list.push(problem);
        }
    }

    /// These problems, then the others.
    pub fn and(mut self, others: Problems) -> Self {
        self.extend(others);
        self
    }

    /// Every problem twice: upstream runs the checks of some kinds again on an update.
    pub fn repeated(self) -> Self {
        let again = self.clone();
        self.and(again)
    }

    pub fn retain(&mut self, keep: impl FnMut(&Problem) -> bool) {
        self.list.retain(keep);
    }

    pub fn sort_by_cached_key<K: Ord>(&mut self, key: impl FnMut(&Problem) -> K) {
        self.list.sort_by_cached_key(key);
    }
}

impl std::ops::Deref for Problems {
    type Target = [Problem];

    fn deref(&self) -> &[Problem] {
        &self.list
    }
}

impl Extend<Problem> for Problems {
    fn extend<I: IntoIterator<Item = Problem>>(&mut self, problems: I) {
        problems.into_iter().for_each(|problem| self.push(problem));
    }
}

impl FromIterator<Problem> for Problems {
    fn from_iter<I: IntoIterator<Item = Problem>>(problems: I) -> Self {
        let mut all = Self::default();
        all.extend(problems);
        all
    }
}

impl From<Vec<Problem>> for Problems {
    fn from(problems: Vec<Problem>) -> Self {
        problems.into_iter().collect()
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        std::iter::once(problem).collect()
    }
}

impl IntoIterator for Problems {
    type Item = Problem;
    type IntoIter = std::vec::IntoIter<Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

impl<'p> IntoIterator for &'p Problems {
    type Item = &'p Problem;
    type IntoIter = std::slice::Iter<'p, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub reason: Reason,
    pub field: String,
    /// `Invalid value: "x": must be ...`
    pub message: String,
}

impl Problem {
    fn new(reason: Reason, path: &Path<'_>, message: String) -> Self {
        // the object as a whole has no name; clients know this one
        let field = if path.is_root() { "[]".to_owned() } else { path.to_string() };
        Problem { reason, field, message }
    }

    pub fn required(path: &Path<'_>, detail: &str) -> Self {
        Self::new(Reason::Required, path, with_detail("Required value".to_owned(), detail))
    }

    pub fn invalid(path: &Path<'_>, value: &Value, detail: &str) -> Self {
        Self::new(
            Reason::Invalid,
            path,
            with_detail(format!("Invalid value: {}", format_value(value)), detail),
        )
    }

    /// A value that is shown as quoted text.
    pub fn invalid_text(path: &Path<'_>, text: &str, detail: &str) -> Self {
        Self::new(Reason::Invalid, path, with_detail(format!("Invalid value: {}", quoted(text)), detail))
    }

    pub fn not_supported(path: &Path<'_>, value: &Value, supported: &[&str]) -> Self {
        let mut sorted: Vec<_> = supported.iter().map(|one| quoted(one)).collect();
        sorted.sort();
        let detail = if sorted.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", sorted.join(", "))
        };
        Self::new(
            Reason::NotSupported,
            path,
            with_detail(format!("Unsupported value: {}", format_value(value)), &detail),
        )
    }

    pub fn duplicate(path: &Path<'_>, value: &Value) -> Self {
        Self::new(Reason::Duplicate, path, format!("Duplicate value: {}", format_value(value)))
    }

    pub fn forbidden(path: &Path<'_>, detail: &str) -> Self {
        Self::new(Reason::Forbidden, path, with_detail("Forbidden".to_owned(), detail))
    }

    pub fn too_long(path: &Path<'_>, limit: usize) -> Self {
        Self::new(Reason::TooLong, path, format!("Too long: must have at most {limit} bytes"))
    }

    pub fn too_many(path: &Path<'_>, found: usize, limit: usize) -> Self {
        Self::new(Reason::TooMany, path, format!("Too many: {found}: must have at most {limit} items"))
    }

    pub fn not_found(path: &Path<'_>, value: &Value) -> Self {
        Self::new(Reason::NotFound, path, format!("Not found: {}", format_value(value)))
    }
}

fn with_detail(start: String, detail: &str) -> String {
    if detail.is_empty() { start } else { format!("{start}: {detail}") }
}

/// A value as messages show it.
pub fn format_value(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        other => String::from_utf8_lossy(&crate::encode::untyped(other)).into_owned(),
    }
}

/// A value without a table as messages show it, with Go types for lists and maps: `map[string]interface {}{"a":1}`.
pub fn go_syntax(value: &Value) -> String {
    go_syntax_with(value, &format_value)
}

/// The same, with a text for values that are kept as JSON.
pub fn go_syntax_with(value: &Value, show_json: &dyn Fn(&Value) -> String) -> String {
    let mut out = String::new();
    write_go_syntax(value, show_json, &mut out);
    out
}

fn write_go_syntax(value: &Value, show_json: &dyn Fn(&Value) -> String, out: &mut String) {
    match value {
        Value::Null => out.push_str("interface {}(nil)"),
        Value::Float(number) => out.push_str(&float_text(*number)),
        Value::Json(_) => out.push_str(&show_json(value)),
        Value::List(items) => {
            out.push_str("[]interface {}{");
            for (nth, item) in items.iter().enumerate() {
                out.push_str(if nth > 0 { ", " } else { "" });
                write_go_syntax(item, show_json, out);
            }
            out.push('}');
        }
        Value::Map(map) => {
            out.push_str("map[string]interface {}{");
            for (nth, (name, value)) in map.iter().enumerate() {
                out.push_str(if nth > 0 { ", " } else { "" });
                out.push_str(&quoted(name));
                out.push(':');
                write_go_syntax(value, show_json, out);
            }
            out.push('}');
        }
        Value::Bool(_) | Value::Int(_) | Value::String(_) => out.push_str(&format_value(value)),
    }
}

/// A number with a fraction as messages show it: `1000.5`, `1e+20`.
pub fn float_text(number: f64) -> String {
    let text = format!("{number:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if number != 0.0 && !(-4..6).contains(&exponent) => {
            format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
        }
        _ => crate::encode::float_text(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_without_a_table_have_go_types() {
        let mut value = Value::map();
        value.set(&["a"], "x");
        value.set(&["b"], Value::List(vec![Value::Int(1), Value::Null]));
        let expected = r#"map[string]interface {}{"a":"x", "b":[]interface {}{1, interface {}(nil)}}"#;
        assert_eq!(go_syntax(&value), expected);
        assert_eq!(go_syntax(&Value::Float(1e30)), "1e+30");
        assert_eq!(go_syntax(&Value::List(Vec::new())), "[]interface {}{}");
    }

    #[test]
    fn problems_are_limited_in_size() {
        let text = "x".repeat(1000);
        let one = Problem::invalid_text(&Path::ROOT.field("spec"), &text, "");
        let many: Problems = std::iter::repeat_n(one.clone(), 10_000).collect();
        assert!(many.is_full());
        assert!((3_600..4_400).contains(&many.len()), "{}", many.len());
        // a full list stays full when joined
        let mut all = Problems::new();
        all.extend(many);
        assert!(all.is_full());
        let large = Problem::invalid_text(&Path::ROOT, &"x".repeat(2 * LIMIT), "");
        let mut all = Problems::from(large);
        all.push(one);
        assert_eq!(all.len(), 1, "the first always fits");
    }
}
