//! Lists of strings as values of the API.

use schema::Value;

pub(crate) fn texts(many: &[String]) -> Value {
    Value::List(many.iter().map(|one| Value::from(one.as_str())).collect())
}

/// The strings of a list.
pub(crate) fn list_of(value: &Value, path: &[&str]) -> Vec<String> {
    let Some(Value::List(items)) = value.at(path) else { return Vec::new() };
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}
