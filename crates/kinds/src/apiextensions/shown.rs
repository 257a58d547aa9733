//! Values and fields as the API's error texts show them.

use schema::Value;
pub(super) use schema::problem::float_text;
use schema::problem::{quoted, shown};

/// The field of a problem that concerns the whole object.
pub(super) const NOWHERE: &str = "<nil>";

/// A value as messages show it, with Go types for lists and maps.
pub(super) fn go_shown(value: &Value) -> String {
    match value {
        Value::Null => quoted("null"),
        other => part_shown(other),
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
        other => shown(other),
    }
}

fn part_shown(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(part_shown).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Map(map) => {
            let entries: Vec<_> =
                map.iter().map(|(name, value)| format!("{}:{}", quoted(name), part_shown(value))).collect();
            format!("map[string]interface {{}}{{{}}}", entries.join(", "))
        }
        Value::Float(number) => float_text(*number),
        scalar => shown(scalar),
    }
}
