//! Whether a patched object has the form of its type, in the words that clients know.
//!
//! Text with a form of its own (quantities, times, numbers that may be text) is left to the decoder.

use schema::Value;
use schema::table::{Scalar, Shape, Type};

/// The first thing, in the order of the table, that has another form than its type says.
pub(super) fn misfit(ty: &Type, object: &Value) -> Option<String> {
    let map = match object {
        Value::Map(map) => map,
        Value::Null => return None,
        other => return Some(format!("cannot restore struct from: {}", kind(other))),
    };
    ty.fields.iter().find_map(|field| misfit_in(&field.shape, map.get(&field.name)?))
}

fn misfit_in(shape: &Shape, value: &Value) -> Option<String> {
    match (shape, value) {
        (_, Value::Null) => None,
        (Shape::Struct(ty), _) if ty.one_of => None,
        (Shape::Struct(ty), value) => misfit(ty, value),
        (Shape::List(list), Value::List(items)) => items.iter().find_map(|item| misfit_in(&list.item, item)),
        (Shape::List(_), other) => Some(format!("cannot restore slice from {}", kind(other))),
        (Shape::Map(map), Value::Map(entries)) => {
            entries.iter().find_map(|(_, value)| misfit_in(&map.value, value))
        }
        (Shape::Map(_), other) => Some(format!("cannot restore map from {}", kind(other))),
        (Shape::Scalar(scalar), value) => scalar_misfit(*scalar, value),
    }
}

fn scalar_misfit(scalar: Scalar, value: &Value) -> Option<String> {
    let wanted = match scalar {
        Scalar::String => "string",
        Scalar::Bool => "bool",
        Scalar::Int32 => "int32",
        Scalar::Int64 => "int64",
        Scalar::Float => "float64",
        Scalar::Bytes if !matches!(value, Value::String(_)) => {
            return Some(format!("cannot restore slice from {}", kind(value)));
        }
        _ => return None,
    };
    match (scalar, value) {
        (Scalar::String, Value::String(_)) | (Scalar::Bool, Value::Bool(_)) => None,
        (Scalar::Int32 | Scalar::Int64 | Scalar::Float, Value::Int(_)) => None,
        (Scalar::Float, Value::Float(_)) => None,
        (Scalar::String, Value::Int(_)) | (Scalar::Int32 | Scalar::Int64, Value::Float(_)) => {
            Some(format!("cannot convert {} to {wanted}", kind(value)))
        }
        _ => Some(format!("unrecognized type: {wanted}")),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::List(_) => "slice",
        Value::Map(_) => "map",
        other => other.go_type(),
    }
}
