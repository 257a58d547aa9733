//! Reading fields of an object tree without caring whether they are there.
//!
//! Objects come in the normal form of their table, where an absent field and its zero value mean the same;
//! these readers give the zero value in both cases.

use schema::{Map, Value};
use std::sync::LazyLock;

static EMPTY: LazyLock<Map> = LazyLock::new(Map::new);

pub(crate) fn int(value: &Value, path: &[&str]) -> i64 {
    opt_int(value, path).unwrap_or(0)
}

pub(crate) fn opt_int(value: &Value, path: &[&str]) -> Option<i64> {
    value.at(path).and_then(Value::as_int)
}

pub(crate) fn flag(value: &Value, path: &[&str]) -> bool {
    value.at(path).and_then(Value::as_bool).unwrap_or(false)
}

pub(crate) fn opt_text<'v>(value: &'v Value, path: &[&str]) -> Option<&'v str> {
    value.at(path).and_then(Value::as_str)
}

/// The map at a path, empty when it is missing.
pub(crate) fn map<'v>(value: &'v Value, path: &[&str]) -> &'v Map {
    value.at(path).and_then(Value::as_map).unwrap_or(&EMPTY)
}

/// There, and not null.
pub(crate) fn has(value: &Value, path: &[&str]) -> bool {
    value.at(path).is_some_and(|it| !it.is_null())
}

/// The text of a value, empty when it is something else.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

/// Calls a function on each item of the list at a path.
pub(crate) fn each_mut(value: &mut Value, path: &[&str], mut change: impl FnMut(&mut Value)) {
    if let Some(items) = value.at_mut(path).and_then(Value::as_list_mut) {
        items.iter_mut().for_each(&mut change);
    }
}

/// Whether two fields hold the same, where null is absent.
pub(crate) fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    let present = |it: Option<&Value>| it.filter(|value| !value.is_null()).cloned();
    match (a, b) {
        (Some(a), Some(b)) => a == b,
        (a, b) => present(a) == present(b),
    }
}
