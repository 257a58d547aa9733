//! Typed reads of a decoded tree, whose types the table has checked.

use schema::Value;
use schema::time::parse_duration;

pub(super) fn text(value: &Value, field: &str) -> String {
    value.text(&[field]).to_owned()
}

pub(super) fn optional_text(value: &Value, field: &str) -> Option<String> {
    value.at(&[field]).and_then(Value::as_str).map(str::to_owned)
}

pub(super) fn boolean(value: &Value, field: &str) -> Option<bool> {
    value.at(&[field]).and_then(Value::as_bool)
}

pub(super) fn int64(value: &Value, field: &str) -> Option<i64> {
    value.at(&[field]).and_then(Value::as_int)
}

pub(super) fn int32(value: &Value, field: &str) -> Option<i32> {
    int64(value, field).and_then(|number| i32::try_from(number).ok())
}

pub(super) fn float(value: &Value, field: &str) -> f64 {
    match value.at(&[field]) {
        Some(Value::Float(number)) => *number,
        // whole numbers of configuration values are far below the precision of a float
        Some(Value::Int(number)) => *number as f64,
        _ => 0.0,
    }
}

/// Nanoseconds of a duration, 0 when it is absent.
pub(super) fn duration(value: &Value, field: &str) -> i64 {
    value.at(&[field]).and_then(Value::as_str).and_then(|text| parse_duration(text).ok()).unwrap_or(0)
}

pub(super) fn texts(value: &Value, field: &str) -> Vec<String> {
    value.items(&[field]).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}
