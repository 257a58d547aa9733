//! The type check of a patched object, with upstream's error texts.
//!
//! Numbers that may be text, and durations, are left to the decoder.

use schema::table::{Scalar, Shape, Type};
use schema::{Value, decode, encode, quantity, time};

/// The first thing, in the order of the table, that has another form than its type says.
pub fn misfit(ty: &Type, object: &Value) -> Option<String> {
    let map = match object {
        Value::Map(map) => map,
        Value::Null => return None,
        other => return Some(format!("cannot restore struct from: {}", kind(other))),
    };
    ty.fields.iter().find_map(|field| misfit_in(&field.shape, &field.named, map.get(&field.name)?))
}

/// `named` is the name of the scalars in the shape, where they have one of their own.
fn misfit_in(shape: &Shape, named: &str, value: &Value) -> Option<String> {
    match (shape, value) {
        (_, Value::Null) => None,
        // a value of another form is absent, unless absence is a form too; what it has inside is left to the decoder
        (Shape::Struct(ty), value) if ty.one_of => {
            let fits = ty.alternative(value).is_some() || decode::zero(shape).is_null();
            (!fits).then(|| decode::NO_ALTERNATIVE.to_owned())
        }
        (Shape::Struct(ty), value) => misfit(ty, value),
        (Shape::List(list), Value::List(items)) => {
            items.iter().find_map(|item| misfit_in(&list.item, named, item))
        }
        (Shape::List(_), other) => Some(format!("cannot restore slice from {}", kind(other))),
        (Shape::Map(map), Value::Map(entries)) => {
            entries.iter().find_map(|(_, value)| misfit_in(&map.value, "", value))
        }
        (Shape::Map(_), other) => Some(format!("cannot restore map from {}", kind(other))),
        (Shape::Scalar(scalar), value) => scalar_misfit(*scalar, named, value),
    }
}

fn scalar_misfit(scalar: Scalar, named: &str, value: &Value) -> Option<String> {
    let wanted = match scalar {
        Scalar::String if !named.is_empty() => named,
        Scalar::String => "string",
        Scalar::Bool => "bool",
        Scalar::Int32 => "int32",
        Scalar::Int64 => "int64",
        Scalar::Float => "float64",
        Scalar::Bytes => return bytes_misfit(value),
        Scalar::Time => return text_misfit(value, time::parse_time),
        Scalar::MicroTime => return text_misfit(value, time::parse_micro_time),
        Scalar::Quantity => return quantity_misfit(value),
        Scalar::IntOrString if !matches!(value, Value::Int(_) | Value::Float(_)) => {
            return own_misfit(value, "int32");
        }
        Scalar::IntOrString => return integer_misfit(value),
        _ => return None,
    };
    match (scalar, value) {
        (Scalar::String, Value::String(_)) | (Scalar::Bool, Value::Bool(_)) => None,
        (Scalar::Int32 | Scalar::Int64 | Scalar::Float, Value::Int(_)) => None,
        (Scalar::Float, Value::Float(_)) => None,
        (Scalar::Int32 | Scalar::Int64, Value::Float(number)) if number.fract() == 0.0 => None,
        (Scalar::String, Value::Int(_)) | (Scalar::Int32 | Scalar::Int64, Value::Float(_)) => {
            Some(format!("cannot convert {} to {wanted}", kind(value)))
        }
        (Scalar::String, _) => Some("unrecognized type: string".to_owned()),
        _ => Some(format!("unrecognized type: {wanted}")),
    }
}

/// Times, and numbers that may be text, read themselves, and know nothing of the field that they are in.
fn own_misfit(value: &Value, wanted: &str) -> Option<String> {
    match value {
        Value::String(_) | Value::Null => None,
        other => {
            let found = other.json_type();
            Some(format!("json: cannot unmarshal {found} into Go value of type {wanted}"))
        }
    }
}

/// A time, whose text has a form of its own.
fn text_misfit<E: std::fmt::Display>(value: &Value, parse: fn(&str) -> Result<String, E>) -> Option<String> {
    match value {
        Value::String(text) => parse(text).err().map(|why| why.to_string()),
        other => own_misfit(other, "string"),
    }
}

/// A quantity is text or a number; the error of every other type is that of a text without digits.
fn quantity_misfit(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => encode::float_text(*number),
        _ => "\0".to_owned(),
    };
    quantity::canonical(&text).err().map(|why| why.to_string())
}

/// A number reads itself from its text.
fn integer_misfit(value: &Value) -> Option<String> {
    let text = match value {
        Value::Int(number) => number.to_string(),
        Value::Float(number) => encode::float_text(*number),
        _ => return None,
    };
    let is_integer = text.parse::<i32>().is_ok();
    (!is_integer).then(|| format!("json: cannot unmarshal number {text} into Go value of type int32"))
}

/// Bytes are base64, or a list of numbers.
fn bytes_misfit(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => {
            let why = decode::base64_problem(text)?;
            Some(format!("error decoding from json: {why}"))
        }
        Value::List(items) => {
            let wrong = items.iter().find(|it| !matches!(it, Value::Int(_) | Value::Null))?;
            Some(match wrong {
                Value::Float(_) => format!("cannot convert {} to uint8", kind(wrong)),
                _ => "unrecognized type: uint8".to_owned(),
            })
        }
        other => Some(format!("cannot restore slice from {}", kind(other))),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::List(_) => "slice",
        Value::Map(_) => "map",
        other => other.go_type(),
    }
}
