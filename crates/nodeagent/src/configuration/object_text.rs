//! The text of an object, JSON or YAML, up to its kind and version.

use schema::yaml::{self, Limits};
use schema::{Value, decode};

/// Reads an object that has a kind and a version. The errors are upstream's.
pub fn read(text: &[u8]) -> Result<Value, String> {
    let value = parse(text)?;
    let wrong = |why: String| Err(format!("couldn't get version/kind; json parse error: {why}"));
    if !matches!(value, Value::Null | Value::Map(_) | Value::Json(_)) {
        let expected = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
        return wrong(format!(
            "json: cannot unmarshal {} into Go value of type {expected}",
            value.json_type()
        ));
    }
    for field in ["apiVersion", "kind"] {
        if let Some(other) = value.at(&[field]).filter(|it| !matches!(it, Value::String(_) | Value::Null)) {
            let found = other.json_type();
            return wrong(format!(
                "json: cannot unmarshal {found} into Go struct field .{field} of type string"
            ));
        }
    }
    for (field, shown) in [("kind", "Kind"), ("apiVersion", "apiVersion")] {
        if value.text(&[field]).is_empty() {
            return Err(format!("Object '{shown}' is missing in '{}'", String::from_utf8_lossy(text)));
        }
    }
    Ok(value)
}

fn parse(text: &[u8]) -> Result<Value, String> {
    let is_json = text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    if is_json {
        let decoded = decode::json_untyped(text);
        return decoded
            .map(|it| it.value)
            .map_err(|why| format!("couldn't get version/kind; json parse error: {why}"));
    }
    yaml::parse(text, Limits::default()).map(|it| it.value).map_err(|why| why.cause().to_owned())
}
