//! Zero values of shapes: the values of absent fields.

use crate::table::{Field, Flags, Scalar, Shape, Type};
use crate::value::{Map, Value};

/// The value that is written for an absent field, if any.
pub fn zero_when_absent(field: &Field) -> Option<Value> {
    if field.is(Flags::NILABLE) {
        return field.is(Flags::ALWAYS).then_some(Value::Null);
    }
    field.stands().then(|| zero(&field.shape))
}

/// The empty value of a shape.
pub fn zero(shape: &Shape) -> Value {
    match shape {
        Shape::Struct(ty) if ty.one_of => match ty.alternative(&Value::Bool(false)) {
            Some(_) => Value::Bool(false),
            None => Value::Null,
        },
        Shape::Struct(ty) => zero_struct(ty),
        Shape::List(_) | Shape::Map(_) => Value::Null,
        Shape::Scalar(scalar) => match scalar {
            Scalar::String | Scalar::Bytes => "".into(),
            Scalar::Bool => false.into(),
            Scalar::Int32 | Scalar::Int64 | Scalar::Float | Scalar::IntOrString => 0.into(),
            Scalar::Quantity => "0".into(),
            Scalar::Duration => "0s".into(),
            Scalar::Time | Scalar::MicroTime | Scalar::Any | Scalar::Object | Scalar::Fields => Value::Null,
        },
    }
}

/// A structure with only the fields that are always written.
pub fn zero_struct(ty: &Type) -> Value {
    let fields = ty.standing.iter().map(|rank| &ty.fields[ty.by_name[usize::from(*rank)] as usize]);
    let entries = fields.filter_map(|field| Some((field.name.clone(), zero_when_absent(field)?)));
    Value::Map(Map::from_sorted(entries.collect()))
}

/// Whether a value is the zero value of its type.
pub fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Int(number) => *number == 0,
        Value::Float(number) => *number == 0.0,
        Value::String(text) => text.is_empty(),
        Value::List(items) => items.is_empty(),
        Value::Map(map) => map.is_empty(),
        Value::Json(text) => &**text == "{}",
    }
}
