//! From a value to the bytes of its message.
//!
//! The value is in normal form; a value of another shape is written as the shape's zero.

use super::wire::BackwardWriter;
use crate::table::{Field, Flags, Scalar, Shape, Type};
use crate::value::Value;
use crate::{encode, time};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The message of a value, without an envelope.
pub fn encode(value: &Value, ty: &Type) -> Vec<u8> {
    let mut out = BackwardWriter::new(1024);
    structure(&mut out, value, ty);
    out.finish()
}

/// A numbered field and its value.
type Member<'a> = (&'a Field, Option<&'a Value>);

fn structure(out: &mut BackwardWriter, value: &Value, ty: &Type) {
    if ty.one_of {
        return alternative(out, value, ty);
    }
    message(out, &members(value, ty), 0);
}

/// Members of the message that is `depth` nested messages inside their structure's.
fn message(out: &mut BackwardWriter, members: &[Member<'_>], depth: usize) {
    // fields of the same nested message stand together, everything else on its own
    let nested = |(field, _): &Member<'_>| field.within.get(depth).copied();
    for group in members.chunk_by(|a, b| nested(a).is_some() && nested(a) == nested(b)).rev() {
        let Some((first, value)) = group.first() else { continue };
        let Some(number) = nested(&group[0]) else {
            self::field(out, first, *value);
            continue;
        };
        let end = out.len();
        message(out, group, depth + 1);
        if !wraps_list(group) || matches!(value, Some(Value::List(_))) {
            out.enclose(number, end);
        }
    }
}

/// A value that is one field of its message. A boolean field is also written for the other fields.
fn alternative(out: &mut BackwardWriter, value: &Value, ty: &Type) {
    let taken = ty.alternative(value).map(|field| field.number);
    for field in ty.fields.iter().rev() {
        if matches!(field.shape, Shape::Scalar(Scalar::Bool)) {
            let truth = !matches!(value, Value::Null | Value::Bool(false));
            out.varint_field(field.number, u64::from(truth));
        } else if taken == Some(field.number) {
            self::field(out, field, Some(value));
        }
    }
}

/// The numbered fields of a type in the order of the wire.
fn members<'a>(value: &'a Value, ty: &'a Type) -> Vec<Member<'a>> {
    let mut values = vec![None; ty.fields.len()];
    if let Value::Map(map) = value {
        // both sides are sorted by name: one joint walk finds each entry's field
        let mut declared = ty.by_name.iter().map(|at| *at as usize).peekable();
        for (name, value) in map.iter() {
            while declared.next_if(|at| *ty.fields[*at].name < *name).is_some() {}
            if let Some(at) = declared.next_if(|at| *ty.fields[*at].name == *name) {
                values[at] = Some(value);
            }
        }
    }
    let numbered = ty.fields.iter().zip(values).filter(|(field, _)| field.number != 0);
    let mut members: Vec<Member<'_>> = numbered.collect();
    fn path(field: &Field) -> impl Iterator<Item = &u16> {
        field.within.iter().chain([&field.number])
    }
    let place = |(a, _): &Member<'_>, (b, _): &Member<'_>| path(a).cmp(path(b));
    if !members.is_sorted_by(|a, b| place(a, b).is_le()) {
        members.sort_unstable_by(place);
    }
    members
}

/// A nested message around nothing but a list stands for a list that can be nil; any other is always there.
fn wraps_list(group: &[Member<'_>]) -> bool {
    matches!(group, [(field, _)] if field.number == 1 && matches!(field.shape, Shape::List(_)))
}

fn field(out: &mut BackwardWriter, field: &Field, value: Option<&Value>) {
    let number = field.number;
    match &field.shape {
        Shape::List(_) | Shape::Map(_) => repeated(out, number, value.unwrap_or(&Value::Null), &field.shape),
        shape => match value {
            None | Some(Value::Null) if field.is(Flags::NILABLE) || is_bytes(shape) => {}
            value => element(out, number, value.unwrap_or(&Value::Null), shape),
        },
    }
}

fn is_bytes(shape: &Shape) -> bool {
    matches!(shape, Shape::Scalar(Scalar::Bytes))
}

/// The items of a list or the entries of a map, each a field of its own.
fn repeated(out: &mut BackwardWriter, number: u16, value: &Value, shape: &Shape) {
    match (shape, value) {
        (Shape::List(list), Value::List(items)) => {
            for item in items.iter().rev() {
                element(out, number, item, &list.item);
            }
        }
        (Shape::Map(map), Value::Map(entries)) => {
            for (key, value) in entries.iter().rev() {
                let end = out.len();
                if !(value.is_null() && is_bytes(&map.value)) {
                    element(out, 2, value, &map.value);
                }
                out.bytes_field(1, key.as_bytes());
                out.enclose(number, end);
            }
        }
        _ => {}
    }
}

/// One value as one field.
fn element(out: &mut BackwardWriter, number: u16, value: &Value, shape: &Shape) {
    let end = out.len();
    match shape {
        Shape::Scalar(scalar) => return self::scalar(out, number, value, *scalar),
        Shape::Struct(ty) => structure(out, value, ty),
        Shape::List(_) | Shape::Map(_) => repeated(out, 1, value, shape),
    }
    out.enclose(number, end);
}

fn scalar(out: &mut BackwardWriter, number: u16, value: &Value, scalar: Scalar) {
    let text = value.as_str().unwrap_or_default();
    match scalar {
        Scalar::String => return out.bytes_field(number, text.as_bytes()),
        Scalar::Bytes => return out.bytes_field(number, &STANDARD.decode(text).unwrap_or_default()),
        Scalar::Bool => return out.varint_field(number, u64::from(value == &Value::Bool(true))),
        // negative numbers are sign-extended, also those of 32 bits
        Scalar::Int32 | Scalar::Int64 => {
            return out.varint_field(number, value.as_int().unwrap_or_default() as u64);
        }
        Scalar::Float => {
            let float = match value {
                Value::Int(whole) => *whole as f64,
                Value::Float(float) => *float,
                _ => 0.0,
            };
            return out.fixed64_field(number, float.to_le_bytes());
        }
        _ => {}
    }
    let end = out.len();
    match scalar {
        Scalar::Time => timestamp(out, time::to_unix(text).map(|seconds| (seconds, 0))),
        Scalar::MicroTime => timestamp(
            out,
            time::to_unix_micros(text)
                .map(|micros| (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000) * 1000)),
        ),
        Scalar::Quantity => out.bytes_field(1, if text.is_empty() { b"0" } else { text.as_bytes() }),
        Scalar::Duration => out.varint_field(1, time::parse_duration(text).unwrap_or_default() as u64),
        Scalar::IntOrString => {
            out.bytes_field(3, text.as_bytes());
            out.varint_field(2, value.as_int().unwrap_or_default() as u64);
            out.varint_field(1, u64::from(value.as_str().is_some()));
        }
        _ if value.is_null() => {}
        _ => out.bytes_field(1, &encode::untyped(value)),
    }
    out.enclose(number, end);
}

/// The first second of year 1 has the same encoding as no time.
pub(super) const NO_TIME: i64 = -62_135_596_800;

fn timestamp(out: &mut BackwardWriter, time: Option<(i64, i64)>) {
    if let Some((seconds, nanos)) = time.filter(|time| *time != (NO_TIME, 0)) {
        out.varint_field(2, nanos as u64);
        out.varint_field(1, seconds as u64);
    }
}
