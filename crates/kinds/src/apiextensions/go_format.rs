//! Go formatting of values and fields in the error texts of custom resources.

use schema::Value;
pub(super) use schema::problem::float_text;
use schema::problem::{format_value, go_syntax, quoted};

/// The field of a problem that concerns the whole object.
pub(super) const NOWHERE: &str = "<nil>";

/// A value as messages show it, with Go types for lists and maps.
pub(super) fn format_go(value: &Value) -> String {
    match value {
        Value::Null => quoted("null"),
        other => go_syntax(other),
    }
}

/// A value without types: `[a b]`, `map[k:v]`.
pub(super) fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.as_str().to_owned(),
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(go_text).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Map(map) => {
            let entries: Vec<_> = map.iter().map(|(name, it)| format!("{name}:{}", go_text(it))).collect();
            format!("map[{}]", entries.join(" "))
        }
        Value::Float(number) => float_text(*number),
        other => format_value(other),
    }
}
