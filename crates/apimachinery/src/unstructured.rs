//! Readers of fields in object trees.
//!
//! Objects are in the normal form of their table, where an absent field and its zero value mean the same: readers
//! return the zero value in both cases.

use schema::{Map, Value};
use std::sync::LazyLock;

static EMPTY: LazyLock<Map> = LazyLock::new(Map::new);

pub fn int(value: &Value, path: &[&str]) -> i64 {
    opt_int(value, path).unwrap_or(0)
}

pub fn opt_int(value: &Value, path: &[&str]) -> Option<i64> {
    value.at(path).and_then(Value::as_int)
}

pub fn flag(value: &Value, path: &[&str]) -> bool {
    value.at(path).and_then(Value::as_bool).unwrap_or(false)
}

pub fn opt_text<'v>(value: &'v Value, path: &[&str]) -> Option<&'v str> {
    value.at(path).and_then(Value::as_str)
}

/// The map at a path, empty when it is missing.
pub fn map<'v>(value: &'v Value, path: &[&str]) -> &'v Map {
    value.at(path).and_then(Value::as_map).unwrap_or(&EMPTY)
}

/// Whether the field is present and not null.
pub fn has(value: &Value, path: &[&str]) -> bool {
    value.at(path).is_some_and(|it| !it.is_null())
}

/// The text of a value, empty when it is something else.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

/// Calls a function on each item of the list at a path.
pub fn each_mut(value: &mut Value, path: &[&str], mut change: impl FnMut(&mut Value)) {
    if let Some(items) = value.at_mut(path).and_then(Value::as_list_mut) {
        items.iter_mut().for_each(&mut change);
    }
}

/// Whether two fields are equal, where null is absent.
pub fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    let present = |it: Option<&Value>| it.filter(|value| !value.is_null()).cloned();
    match (a, b) {
        (Some(a), Some(b)) => a == b,
        (a, b) => present(a) == present(b),
    }
}
