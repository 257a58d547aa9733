//! From the bytes of a message to a value in the normal form of its table.
//!
//! A message that comes in several pieces is the pieces taken together: plain values are taken from the last
//! one that has them, lists are joined, structures are merged. So the pieces of a structure are collected
//! first, and read when all of its parent has been seen; no piece is copied.

use super::encode::NO_TIME;
use super::wire::{DELIMITED, FIXED64, Reader, VARINT};
use super::{MAX_DEPTH, ProtoError};
use crate::decode::json_inside;
use crate::source::{Json, Source};
use crate::table::{Field, Flags, Scalar, Shape, Text, Type};
use crate::value::{Map, Value};
use crate::zero::{is_zero, zero, zero_when_absent};
use crate::{quantity, time};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::borrow::Cow;

/// A message without an envelope.
pub fn decode(bytes: &[u8], ty: &Type) -> Result<Value, ProtoError> {
    structure(&[bytes], ty, 0)
}

/// The decoded occurrences of a field.
enum Slot<'a> {
    Absent,
    Plain(Value),
    Message(&'a [u8]),
    /// A message in more than one piece.
    Pieces(Vec<&'a [u8]>),
    Items(Vec<Value>),
    Entries(Vec<(Text, Value)>),
}

impl<'a> Slot<'a> {
    fn piece(&mut self, piece: &'a [u8]) {
        match self {
            Slot::Message(first) if first.is_empty() => *first = piece,
            Slot::Message(first) if !piece.is_empty() => *self = Slot::Pieces(vec![*first, piece]),
            Slot::Pieces(pieces) if !piece.is_empty() => pieces.push(piece),
            Slot::Message(_) | Slot::Pieces(_) => {}
            _ => *self = Slot::Message(piece),
        }
    }

    fn items(&mut self) -> &mut Vec<Value> {
        if !matches!(self, Slot::Items(_)) {
            *self = Slot::Items(Vec::new());
        }
        match self {
            Slot::Items(items) => items,
            _ => unreachable!("made a list above"),
        }
    }

    fn entries(&mut self) -> &mut Vec<(Text, Value)> {
        if !matches!(self, Slot::Entries(_)) {
            *self = Slot::Entries(Vec::new());
        }
        match self {
            Slot::Entries(entries) => entries,
            _ => unreachable!("made entries above"),
        }
    }
}

fn structure(pieces: &[&[u8]], ty: &Type, depth: usize) -> Result<Value, ProtoError> {
    if depth > MAX_DEPTH {
        return Err(ProtoError::TooDeep);
    }
    let mut slots = Vec::new();
    slots.resize_with(ty.fields.len(), || Slot::Absent);
    for piece in pieces {
        if let Err(why) = scan(piece, ty, &ty.name, &[], &mut slots, depth) {
            // messages before the mistake were put aside, and theirs comes first
            let before = ty.fields.iter().zip(slots);
            let mut earlier = before.map(|(field, slot)| finish(&field.shape, slot, depth));
            return Err(earlier.find_map(Result::err).unwrap_or(why));
        }
    }
    let mut entries = Vec::with_capacity(ty.fields.len().min(16));
    for (field, slot) in ty.fields.iter().zip(slots) {
        if let Some(value) = normal(field, finish(&field.shape, slot, depth)?) {
            entries.push((field.name.clone(), value));
        }
    }
    Ok(Value::Map(Map::from_unsorted(entries).0))
}

/// The value of a field in the normal form.
fn normal(field: &Field, value: Option<Value>) -> Option<Value> {
    let Some(value) = value else { return zero_when_absent(field) };
    let nilable = field.is(Flags::NILABLE);
    let left_out = if nilable { value.is_null() } else { is_zero(&value) };
    if left_out && zero_when_absent(field).is_none() { None } else { Some(value) }
}

/// Sorts the fields of a message, or of the message nested in it along `within`, into the slots of the type.
fn scan<'a>(
    bytes: &'a [u8],
    ty: &Type,
    message: &str,
    within: &[u16],
    slots: &mut [Slot<'a>],
    depth: usize,
) -> Result<(), ProtoError> {
    let mut reader = Reader::new(bytes);
    let mut near = 0;
    while let Some((number, wire)) = reader.tag(message)? {
        let here = |field: &Field| *field.within == *within && i32::from(field.number) == number;
        let below = |field: &Field| match field.within.strip_prefix(within) {
            Some([next, ..]) => i32::from(*next) == number,
            _ => false,
        };
        if let Some(at) = find(ty, near, here) {
            near = at;
            let field = &ty.fields[at];
            take(&mut reader, &field.shape, wire, &mut slots[at], field_name(ty, field), depth)?;
        } else if let Some(at) = find(ty, near, below) {
            near = at;
            let field = &ty.fields[at];
            let inside = &field.within[..=within.len()];
            let name = ty.proto_name(within, inside[within.len()]).unwrap_or(&field.name);
            let nested = delimited(&mut reader, wire, name)?;
            scan(nested, ty, name, inside, slots, depth)?;
        } else {
            reader.skip(wire)?;
        }
    }
    Ok(())
}

/// The name of a field in errors: the declared one, or the JSON name. Metadata bears the name of its type.
fn field_name<'t>(ty: &'t Type, field: &'t Field) -> &'t str {
    match &field.shape {
        Shape::Struct(metadata) if field.name == "metadata" => &metadata.name,
        _ => ty.proto_name(&field.within, field.number).unwrap_or(&field.name),
    }
}

/// The first field that fits, looking from `near` on: fields come in about the order of the table.
fn find(ty: &Type, near: usize, fits: impl Fn(&Field) -> bool) -> Option<usize> {
    let (before, after) = ty.fields.split_at_checked(near)?;
    let found = after.iter().position(&fits).map(|at| near + at);
    found.or_else(|| before.iter().position(&fits))
}

/// Reads one occurrence of a field.
fn take<'a>(
    reader: &mut Reader<'a>,
    shape: &Shape,
    wire: u8,
    slot: &mut Slot<'a>,
    name: &str,
    depth: usize,
) -> Result<(), ProtoError> {
    match shape {
        Shape::List(list) => {
            let items = slot.items();
            match &list.item {
                Shape::Scalar(scalar) if wire == DELIMITED && is_packable(*scalar) => {
                    let mut packed = Reader::new(reader.delimited()?);
                    while !packed.is_empty() {
                        let wire = if *scalar == Scalar::Float { FIXED64 } else { VARINT };
                        items.push(plain(&mut packed, *scalar, wire, name)?);
                    }
                }
                item => {
                    let mut slot = Slot::Absent;
                    take_element(reader, item, wire, &mut slot, name)?;
                    items.push(finish_element(item, slot, depth)?.unwrap_or_else(|| zero(item)));
                }
            }
            Ok(())
        }
        Shape::Map(map) => {
            if wire != DELIMITED {
                return Err(wrong(wire, name));
            }
            let (inside, length) = reader.unbounded()?;
            slot.entries().push(entry(inside, length, &map.value, name, depth)?);
            Ok(())
        }
        _ => take_element(reader, shape, wire, slot, name),
    }
}

/// Reads one occurrence of a single value: an item, a map's value, or a field that is no list or map.
fn take_element<'a>(
    reader: &mut Reader<'a>,
    shape: &Shape,
    wire: u8,
    slot: &mut Slot<'a>,
    name: &str,
) -> Result<(), ProtoError> {
    match shape {
        Shape::Scalar(scalar) if is_plain(*scalar) => {
            *slot = Slot::Plain(plain(reader, *scalar, wire, name)?)
        }
        // a time is read and replaced as a whole
        Shape::Scalar(time @ (Scalar::Time | Scalar::MicroTime)) => {
            *slot = Slot::Plain(scalar(*time, &[delimited(reader, wire, name)?])?)
        }
        _ => slot.piece(delimited(reader, wire, name)?),
    }
    Ok(())
}

fn entry(
    mut reader: Reader<'_>,
    length: usize,
    shape: &Shape,
    name: &str,
    depth: usize,
) -> Result<(Text, Value), ProtoError> {
    let end = reader.left() - length;
    let (mut key, mut slot) = (String::new(), Slot::Absent);
    // others read key and value by their types, whatever the tag says of them
    let expected = match shape {
        Shape::Scalar(Scalar::Float) => FIXED64,
        Shape::Scalar(scalar) if is_packable(*scalar) => VARINT,
        _ => DELIMITED,
    };
    while reader.left() > end {
        let Some((number, wire)) = reader.entry_tag()? else { break };
        match number {
            1 => key = text(reader.delimited()?),
            2 => take_element(&mut reader, shape, expected, &mut slot, name)?,
            _ => {
                reader.skip(wire)?;
                if reader.left() < end {
                    return Err(ProtoError::Truncated);
                }
            }
        }
    }
    let value = finish_element(shape, slot, depth)?.unwrap_or_else(|| zero(shape));
    Ok((Cow::Owned(key), value))
}

/// The value of a field from all that was seen of it.
fn finish(shape: &Shape, slot: Slot<'_>, depth: usize) -> Result<Option<Value>, ProtoError> {
    match slot {
        Slot::Items(items) if items.is_empty() => Ok(None),
        Slot::Items(items) => Ok(Some(Value::List(items))),
        Slot::Entries(entries) => Ok(Some(Value::Map(Map::from_unsorted(entries).0))),
        slot => finish_element(shape, slot, depth),
    }
}

fn finish_element(shape: &Shape, slot: Slot<'_>, depth: usize) -> Result<Option<Value>, ProtoError> {
    match slot {
        Slot::Plain(value) => Ok(Some(value)),
        Slot::Message(bytes) => message(shape, &[bytes], depth).map(Some),
        Slot::Pieces(pieces) => message(shape, &pieces, depth).map(Some),
        Slot::Absent | Slot::Items(_) | Slot::Entries(_) => Ok(None),
    }
}

fn message(shape: &Shape, pieces: &[&[u8]], depth: usize) -> Result<Value, ProtoError> {
    match shape {
        Shape::Struct(ty) if ty.one_of => Ok(alternative(structure(pieces, ty, depth + 1)?, ty)),
        Shape::Struct(ty) => structure(pieces, ty, depth + 1),
        Shape::Scalar(scalar) => self::scalar(*scalar, pieces),
        Shape::List(_) | Shape::Map(_) => {
            let mut slot = Slot::Absent;
            for piece in pieces {
                let mut reader = Reader::new(piece);
                while let Some((number, wire)) = reader.tag("items")? {
                    match number {
                        1 => take(&mut reader, shape, wire, &mut slot, "items", depth + 1)?,
                        _ => reader.skip(wire)?,
                    }
                }
            }
            Ok(finish(shape, slot, depth + 1)?.unwrap_or_else(|| zero(shape)))
        }
    }
}

/// The one field that a value is: a list with items, else a structure, else a truth, else nothing.
fn alternative(message: Value, ty: &Type) -> Value {
    let Value::Map(fields) = message else { return Value::Null };
    let rank = |value: &Value| match value {
        Value::List(items) if !items.is_empty() => 3,
        Value::Map(_) => 2,
        Value::Bool(_) => 1,
        _ => 0,
    };
    let own = fields.into_iter().filter(|(name, _)| ty.field(name).is_some()).map(|(_, value)| value);
    own.max_by_key(rank).filter(|value| rank(value) > 0).unwrap_or_default()
}

/// Scalars that are a field and not a message of their own.
fn is_plain(scalar: Scalar) -> bool {
    is_packable(scalar) || matches!(scalar, Scalar::String | Scalar::Bytes)
}

fn is_packable(scalar: Scalar) -> bool {
    matches!(scalar, Scalar::Bool | Scalar::Int32 | Scalar::Int64 | Scalar::Float)
}

fn plain(reader: &mut Reader<'_>, scalar: Scalar, wire: u8, name: &str) -> Result<Value, ProtoError> {
    Ok(match scalar {
        Scalar::Bool => (varint(reader, wire, name)? != 0).into(),
        // the low 32 bits count, whatever is above
        Scalar::Int32 => i64::from(varint(reader, wire, name)? as i32).into(),
        Scalar::Int64 => (varint(reader, wire, name)? as i64).into(),
        Scalar::Float if wire == FIXED64 => float(f64::from_le_bytes(reader.fixed64()?))?,
        Scalar::Float => return Err(wrong(wire, name)),
        Scalar::Bytes => STANDARD.encode(delimited(reader, wire, name)?).into(),
        _ => text(delimited(reader, wire, name)?).into(),
    })
}

fn varint(reader: &mut Reader<'_>, wire: u8, name: &str) -> Result<u64, ProtoError> {
    if wire == VARINT { reader.varint() } else { Err(wrong(wire, name)) }
}

fn delimited<'a>(reader: &mut Reader<'a>, wire: u8, name: &str) -> Result<&'a [u8], ProtoError> {
    if wire == DELIMITED { reader.delimited() } else { Err(wrong(wire, name)) }
}

/// Text need not be UTF-8 on this wire, but it must be in JSON, which is the form that is kept.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The same forms that numbers in JSON text have.
fn float(number: f64) -> Result<Value, ProtoError> {
    match number {
        _ if !number.is_finite() => Err(ProtoError::Value(format!("json: unsupported value: {number}"))),
        _ if number.fract() == 0.0 && number.abs() < 9e15 => Ok(Value::Int(number as i64)),
        _ => Ok(Value::Float(number)),
    }
}

/// The scalars that are small messages, whose fields are numbered from one.
fn scalar(scalar: Scalar, pieces: &[&[u8]]) -> Result<Value, ProtoError> {
    let (message, fields): (&str, &[&str]) = match scalar {
        Scalar::Time | Scalar::MicroTime => ("Timestamp", &["seconds", "nanos"]),
        Scalar::Quantity => ("Quantity", &["string_"]),
        Scalar::Duration => ("Duration", &["duration"]),
        Scalar::IntOrString => ("IntOrString", &["type", "intVal", "strVal"]),
        Scalar::Fields => ("FieldsV1", &["raw"]),
        Scalar::Any => ("JSON", &["raw"]),
        _ => ("RawExtension", &["raw"]),
    };
    let (mut numbers, mut bytes): ([u64; 3], &[u8]) = ([0; 3], &[]);
    let mut is_set = false;
    for piece in pieces {
        let mut reader = Reader::new(piece);
        while let Some((number, wire)) = reader.tag(message)? {
            let at = number as usize - 1;
            match fields.get(at) {
                Some(name @ (&"string_" | &"strVal" | &"raw")) => {
                    bytes = delimited(&mut reader, wire, name)?;
                    is_set = true;
                }
                Some(name) => numbers[at] = varint(&mut reader, wire, name)?,
                None => reader.skip(wire)?,
            }
        }
    }
    let empty = pieces.iter().all(|piece| piece.is_empty());
    let (seconds, nanos) = (numbers[0] as i64, numbers[1] as i32);
    match scalar {
        Scalar::Time | Scalar::MicroTime if empty || seconds == NO_TIME && nanos == 0 => Ok(Value::Null),
        Scalar::Time => Ok(time::format_time(seconds).into()),
        Scalar::MicroTime => {
            let micros = seconds.saturating_mul(1_000_000).saturating_add(i64::from(nanos / 1000));
            Ok(time::format_micro_time(micros).into())
        }
        Scalar::Quantity if !is_set => Ok(zero(&Shape::Scalar(scalar))),
        Scalar::Quantity => quantity::canonical(&text(bytes))
            .map(Value::String)
            .map_err(|why| ProtoError::Value(why.to_string())),
        Scalar::Duration => Ok(time::format_duration(numbers[0] as i64).into()),
        Scalar::IntOrString => match numbers[0] {
            0 => Ok(i64::from(numbers[1] as i32).into()),
            1 => Ok(text(bytes).into()),
            _ => Err(ProtoError::Value("impossible IntOrString.Type".to_owned())),
        },
        _ => raw(scalar, bytes),
    }
}

/// An object that is no set of fields: it has a step that no path has.
const NO_FIELDS: &str = r#"{"":{}}"#;

/// JSON text inside a message.
fn raw(scalar: Scalar, bytes: &[u8]) -> Result<Value, ProtoError> {
    if bytes.is_empty() && scalar != Scalar::Fields {
        return Ok(Value::Null);
    }
    let text = if scalar == Scalar::Fields { first_value(bytes) } else { bytes };
    let value = match json_inside(text) {
        Ok(decoded) => decoded.value,
        // the record of owners is judged as such, and this is none
        Err(_) if scalar == Scalar::Fields => return Ok(Value::Json(NO_FIELDS.into())),
        Err(why) => return Err(ProtoError::Value(why.to_string())),
    };
    match (scalar, &value) {
        (Scalar::Object, Value::Null | Value::Map(_)) | (Scalar::Any, _) => Ok(value),
        (Scalar::Fields, Value::Null) => Ok(value),
        (Scalar::Fields, Value::Map(_)) => {
            Ok(Value::Json(String::from_utf8_lossy(&crate::encode::untyped(&value)).into()))
        }
        (Scalar::Fields, _) => Ok(Value::Json(NO_FIELDS.into())),
        _ => Err(ProtoError::Value(
            "json: cannot unmarshal into Go value of type map[string]interface {}".to_owned(),
        )),
    }
}

/// The first JSON value of a text.
fn first_value(bytes: &[u8]) -> &[u8] {
    let Ok(text) = std::str::from_utf8(bytes) else { return bytes };
    let mut json = Json::of_text(text);
    match json.value().and_then(|token| json.skip(&token)) {
        Ok(()) => &bytes[..json.position()],
        Err(_) => bytes,
    }
}

/// Names of fields whose first word is written in capitals where messages show them.
const INITIALISMS: &[&str] = &[
    "api", "aws", "ca", "cidr", "csi", "dns", "fc", "fs", "gce", "gmsa", "grpc", "http", "id", "ip", "iqn",
    "iscsi", "json", "nfs", "os", "pd", "qos", "rbd", "se", "ssl", "tcp", "tls", "ttl", "tty", "uid", "url",
    "wwn",
];

fn wrong(wire: u8, name: &str) -> ProtoError {
    ProtoError::WrongWireType { wire, field: go_field_name(name) }
}

/// A field's name as messages show it: `ownerReferences` is `OwnerReferences`, `apiVersion` is `APIVersion`,
/// `$ref` is `Ref`, and an extension such as `x-domain-list-type` is `XListType`.
fn go_field_name(name: &str) -> String {
    if let Some((_, words)) = name.strip_prefix("x-").and_then(|name| name.split_once('-')) {
        return std::iter::once("X".to_owned()).chain(words.split('-').map(go_field_name)).collect();
    }
    let name = name.trim_start_matches('$');
    let end = name.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(name.len());
    let (first, rest) = name.split_at(end);
    if INITIALISMS.contains(&first) {
        return format!("{}{rest}", first.to_ascii_uppercase());
    }
    let mut chars = name.chars();
    chars.next().map(|c| c.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_an_entry_end_with_their_first_value() {
        let fields = |text: &str| raw(Scalar::Fields, text.as_bytes()).unwrap();
        let expected = Value::Json(r#"{"f:a":{}}"#.into());
        for text in [r#"{"f:a":{}}"#, r#"{"f:a":{}}{"f:b":{}}"#, r#"{"f:a":{}} x"#] {
            assert_eq!(fields(text), expected, "{text}");
        }
        assert_eq!(fields(r#"{"f:a":{}"#), Value::Json(NO_FIELDS.into()));
    }
}
