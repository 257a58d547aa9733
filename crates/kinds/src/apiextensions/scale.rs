//! The scale subresource of a custom kind: the paths of its numbers.

use super::go_format::go_text;
use crate::check::Problems;
use crate::{autoscaling::scale, read};
use rest::view::View;
use schema::Value;
use schema::problem::{Problem, Reason};
use schema::table::Text;

/// The paths to the numbers, as a definition names them.
#[derive(Clone)]
pub(super) struct Paths {
    spec: Vec<Text>,
    status: Vec<Text>,
    selector: Option<Vec<Text>>,
}

impl Paths {
    /// The paths of a version with a scale.
    pub fn of(version: &Value) -> Option<Self> {
        let scale = version.at(&["subresources", "scale"]).filter(|it| !it.is_null())?;
        // a path is the names between its dots: an index is a part of a name
        let steps = |field: &str| -> Vec<Text> {
            let path = scale.text(&[field]);
            let names = path.strip_prefix('.').unwrap_or(path).split('.');
            names.map(|it| Text::Owned(it.to_owned())).collect()
        };
        Some(Paths {
            spec: steps("specReplicasPath"),
            status: steps("statusReplicasPath"),
            selector: read::opt_text(scale, &["labelSelectorPath"]).map(|_| steps("labelSelectorPath")),
        })
    }

    pub fn views(&self) -> Vec<View> {
        let (paths, checked) = (self.clone(), self.clone());
        let show = move |object: &Value| {
            let number = |path: &[Text]| at(object, path).and_then(Value::as_int).unwrap_or(0);
            let selector = paths.selector.as_ref().and_then(|path| at(object, path)?.as_str());
            scale::scale_value(number(&paths.spec), number(&paths.status), selector.unwrap_or(""))
        };
        scale::view_of(self.spec.clone(), show, move |object| checked.mismatch(object))
    }

    /// The first value that has another type than the scale.
    fn mismatch(&self, object: &Value) -> Option<String> {
        let numbers = [&self.spec, &self.status].into_iter();
        let first = numbers.map(|path| number(object, path).err()).find_map(|why| why);
        first.or_else(|| text_mismatch(object, self.selector.as_ref()?))
    }

    /// Checks the numbers of an object.
    pub fn check(&self, object: &Value, out: &mut Problems) {
        let mut wrong = |path: &[Text], formatted: &str, why: &str| {
            let message = format!("Invalid value: {formatted}: {why}");
            out.push(Problem { reason: Reason::Invalid, field: written(path), message });
        };
        for path in [&self.spec, &self.status] {
            match number(object, path) {
                Err(why) => wrong(path, "0", &why),
                Ok(number @ ..0) => wrong(path, &number.to_string(), "should be a non-negative integer"),
                Ok(number) if number > i64::from(i32::MAX) => {
                    let why = format!("should be less than or equal to {}", i32::MAX);
                    wrong(path, &number.to_string(), &why);
                }
                Ok(_) => {}
            }
        }
        let Some(path) = &self.selector else { return };
        if let Some(why) = text_mismatch(object, path) {
            wrong(path, "\"\"", &why);
        }
    }
}

/// The number at a path, 0 where there is none.
fn number(object: &Value, path: &[Text]) -> Result<i64, String> {
    match found(object, path)? {
        None => Ok(0),
        Some(Value::Int(number)) => Ok(*number),
        Some(other) => Err(mistyped(path, other, "int64")),
    }
}

/// The error of a value at a path that is no text.
fn text_mismatch(object: &Value, path: &[Text]) -> Option<String> {
    match found(object, path) {
        Ok(None | Some(Value::String(_))) => None,
        Ok(Some(other)) => Some(mistyped(path, other, "string")),
        Err(why) => Some(why),
    }
}

fn at<'v>(value: &'v Value, path: &[Text]) -> Option<&'v Value> {
    found(value, path).ok().flatten().filter(|it| !it.is_null())
}

/// The value at a path; the error names the step that is no map.
fn found<'v>(mut value: &'v Value, path: &[Text]) -> Result<Option<&'v Value>, String> {
    for (nth, step) in path.iter().enumerate() {
        if value.is_null() {
            return Ok(None);
        }
        let Some(map) = value.as_map() else {
            return Err(mistyped(&path[..=nth], value, "map[string]interface{}"));
        };
        match map.get(step) {
            Some(below) => value = below,
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

fn written(path: &[Text]) -> String {
    format!(".{}", path.join("."))
}

fn mistyped(path: &[Text], value: &Value, wanted: &str) -> String {
    let (formatted, kind) = match value {
        Value::Null => ("<nil>".to_owned(), "<nil>"),
        Value::Bool(truth) => (truth.to_string(), "bool"),
        Value::Int(number) => (number.to_string(), "int64"),
        Value::Float(_) => (go_text(value), "float64"),
        Value::String(text) => (text.as_str().to_owned(), "string"),
        Value::List(_) => (go_text(value), "[]interface {}"),
        Value::Map(_) | Value::Json(_) => (go_text(value), "map[string]interface {}"),
    };
    format!("{} accessor error: {formatted} is of the type {kind}, expected {wanted}", written(path))
}
