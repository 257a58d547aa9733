//! From the bytes of a message to a value in the normal form of its table.
//!
//! A message is read once, in the order of its bytes, so that the first error in the bytes is the one that is
//! reported. A structure may come in several pieces: each is read where it stands, into the fields that the
//! earlier pieces left. Plain values are taken from the last piece that has them, lists are joined. Values are
//! made when all of the parent has been seen.
//!
//! Some values are right on the wire and still have no form in JSON. Their errors count after those of the wire.

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

/// The most unknown fields that are remembered.
const MAX_UNKNOWN: usize = 64;

/// A message without an envelope.
pub fn decode(bytes: &[u8], ty: &Type) -> Result<Value, ProtoError> {
    let (mut decoder, mut fields) = (Decoder::default(), Vec::new());
    decoder.scan(bytes, ty, &ty.name, &[], &mut fields, 0)?;
    let value = decoder.structure(ty, fields);
    decoder.value_error.map_or(Ok(value), Err)
}

/// The fields of a message that a type does not have, each as the name of its message and its number. Decoding drops
/// them.
pub fn unknown_fields(bytes: &[u8], ty: &Type) -> Result<Vec<String>, ProtoError> {
    let mut decoder = Decoder { unknown: Some(Vec::new()), ..Decoder::default() };
    decoder.scan(bytes, ty, &ty.name, &[], &mut Vec::new(), 0)?;
    let mut unknown = decoder.unknown.unwrap_or_default();
    unknown.sort_unstable();
    unknown.dedup();
    Ok(unknown.into_iter().map(|(message, number)| format!("{message}.{number}")).collect())
}

/// The fields of a structure that have occurred, by their place in the table.
type Fields<'a> = Vec<(usize, Slot<'a>)>;

/// The occurrences of a field.
enum Slot<'a> {
    Plain(Value),
    Scalar(Box<ScalarMessage<'a>>),
    Structure(Fields<'a>),
    Items(Vec<Value>),
    Entries(Vec<(Text, Value)>),
}

impl Slot<'_> {
    /// The slot of a field that has not occurred.
    fn of(shape: &Shape) -> Self {
        match shape {
            Shape::List(_) => Slot::Items(Vec::new()),
            Shape::Map(_) => Slot::Entries(Vec::new()),
            Shape::Struct(_) => Slot::Structure(Vec::new()),
            Shape::Scalar(Scalar::Time | Scalar::MicroTime) => Slot::Plain(Value::Null),
            Shape::Scalar(scalar) if is_plain(*scalar) => Slot::Plain(Value::Null),
            Shape::Scalar(_) => Slot::Scalar(Box::default()),
        }
    }
}

/// The slot of a field among those that have occurred.
fn slot_of<'s, 'a>(fields: &'s mut Fields<'a>, at: usize, shape: &Shape) -> &'s mut Slot<'a> {
    let found = fields.iter().rposition(|(place, _)| *place == at);
    let index = found.unwrap_or_else(|| {
        fields.push((at, Slot::of(shape)));
        fields.len() - 1
    });
    &mut fields[index].1
}

/// A scalar that is a small message.
#[derive(Default)]
struct ScalarMessage<'a> {
    numbers: [u64; 3],
    bytes: &'a [u8],
}

/// The names of a field in errors.
#[derive(Clone, Copy)]
struct FieldNames<'t> {
    field: &'t str,
    /// The type of the lists in its map, with its version.
    list: &'t str,
}

impl<'t> FieldNames<'t> {
    fn new(ty: &'t Type, field: &'t Field) -> Self {
        FieldNames { field: field_name(ty, field), list: &field.named }
    }
}

#[derive(Default)]
struct Decoder {
    /// The first error of a value that the wire can have and JSON cannot.
    value_error: Option<ProtoError>,
    /// Fields that the tables do not have, if they are collected.
    unknown: Option<Vec<(String, i32)>>,
}

impl Decoder {
    /// Reads the fields of a message, or of the message nested in it along `within`.
    fn scan<'a>(
        &mut self,
        bytes: &'a [u8],
        ty: &Type,
        message: &str,
        within: &[u16],
        fields: &mut Fields<'a>,
        depth: usize,
    ) -> Result<(), ProtoError> {
        if depth > MAX_DEPTH {
            return Err(ProtoError::TooDeep);
        }
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
                let slot = slot_of(fields, at, &field.shape);
                self.occurrence(&mut reader, &field.shape, wire, slot, FieldNames::new(ty, field), depth)?;
            } else if let Some(at) = find(ty, near, below) {
                near = at;
                let field = &ty.fields[at];
                let inside = &field.within[..=within.len()];
                let name = ty.proto_name(within, inside[within.len()]).unwrap_or(&field.name);
                let nested = delimited(&mut reader, wire, name)?;
                self.scan(nested, ty, name, inside, fields, depth)?;
            } else {
                if let Some(unknown) = self.unknown.as_mut().filter(|it| it.len() < MAX_UNKNOWN) {
                    unknown.push((message.to_owned(), number));
                }
                reader.skip(wire)?;
            }
        }
        Ok(())
    }

    /// Reads one occurrence of a field.
    fn occurrence<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        shape: &Shape,
        wire: u8,
        slot: &mut Slot<'a>,
        names: FieldNames<'_>,
        depth: usize,
    ) -> Result<(), ProtoError> {
        let name = names.field;
        match (shape, slot) {
            (Shape::List(list), Slot::Items(items)) => match &list.item {
                Shape::Scalar(scalar) if wire == DELIMITED && is_packable(*scalar) => {
                    let mut packed = Reader::new(reader.delimited()?);
                    while !packed.is_empty() {
                        let wire = if *scalar == Scalar::Float { FIXED64 } else { VARINT };
                        items.push(self.plain(&mut packed, *scalar, wire, name)?);
                    }
                    Ok(())
                }
                item => {
                    items.push(self.element(reader, item, wire, names, depth)?);
                    Ok(())
                }
            },
            (Shape::Map(map), Slot::Entries(entries)) => {
                if wire != DELIMITED {
                    return Err(wrong(wire, name));
                }
                let (inside, length) = reader.unbounded()?;
                entries.push(self.entry(inside, length, &map.value, names, depth)?);
                Ok(())
            }
            (Shape::Scalar(scalar), slot) if is_plain(*scalar) => {
                *slot = Slot::Plain(self.plain(reader, *scalar, wire, name)?);
                Ok(())
            }
            // a time is read and replaced as a whole
            (Shape::Scalar(time @ (Scalar::Time | Scalar::MicroTime)), slot) => {
                let piece = delimited(reader, wire, name)?;
                let mut message = ScalarMessage::default();
                scan_scalar(piece, *time, &mut message)?;
                let value = if piece.is_empty() { Value::Null } else { scalar_value(*time, &message)? };
                *slot = Slot::Plain(value);
                Ok(())
            }
            (Shape::Scalar(scalar), Slot::Scalar(message)) => {
                scan_scalar(delimited(reader, wire, name)?, *scalar, message)
            }
            (Shape::Struct(ty), Slot::Structure(fields)) => {
                self.scan(delimited(reader, wire, name)?, ty, &ty.name, &[], fields, depth + 1)
            }
            _ => unreachable!("a slot is made for its shape"),
        }
    }

    /// Reads a value that comes once: an item, or a map's value.
    fn element(
        &mut self,
        reader: &mut Reader<'_>,
        shape: &Shape,
        wire: u8,
        names: FieldNames<'_>,
        depth: usize,
    ) -> Result<Value, ProtoError> {
        let mut slot = Slot::of(shape);
        if let Shape::List(_) | Shape::Map(_) = shape {
            let message = names.list.rsplit('.').next().unwrap_or_default();
            let mut inside = Reader::new(delimited(reader, wire, names.field)?);
            while let Some((number, wire)) = inside.tag(message)? {
                match number {
                    1 => {
                        let names = FieldNames { field: "items", list: "" };
                        self.occurrence(&mut inside, shape, wire, &mut slot, names, depth + 1)?;
                    }
                    _ => inside.skip(wire)?,
                }
            }
        } else {
            self.occurrence(reader, shape, wire, &mut slot, names, depth)?;
        }
        Ok(self.finish(shape, slot).unwrap_or_else(|| empty(shape)))
    }

    fn entry(
        &mut self,
        mut reader: Reader<'_>,
        length: usize,
        shape: &Shape,
        names: FieldNames<'_>,
        depth: usize,
    ) -> Result<(Text, Value), ProtoError> {
        let end = reader.left() - length;
        let (mut key, mut value) = (String::new(), None);
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
                2 => value = Some(self.element(&mut reader, shape, expected, names, depth)?),
                _ => {
                    reader.skip(wire)?;
                    if reader.left() < end {
                        return Err(ProtoError::Truncated);
                    }
                }
            }
        }
        Ok((Cow::Owned(key), value.unwrap_or_else(|| empty(shape))))
    }

    /// The value of a structure from all that was seen of it.
    fn structure(&mut self, ty: &Type, mut fields: Fields<'_>) -> Value {
        fields.sort_unstable_by_key(|(at, _)| *at);
        let mut fields = fields.into_iter().peekable();
        let mut entries = Vec::with_capacity(ty.fields.len().min(16));
        for (at, field) in ty.fields.iter().enumerate() {
            let slot = fields.next_if(|(place, _)| *place == at);
            let value = slot.and_then(|(_, slot)| self.finish(&field.shape, slot));
            if let Some(value) = normal(field, value) {
                entries.push((field.name.clone(), value));
            }
        }
        Value::Map(Map::from_unsorted(entries).0)
    }

    /// The value of a field from all that was seen of it.
    fn finish(&mut self, shape: &Shape, slot: Slot<'_>) -> Option<Value> {
        match (shape, slot) {
            (_, Slot::Plain(value)) => Some(value),
            (_, Slot::Items(items)) => (!items.is_empty()).then_some(Value::List(items)),
            (_, Slot::Entries(entries)) => {
                (!entries.is_empty()).then(|| Value::Map(Map::from_unsorted(entries).0))
            }
            (Shape::Struct(ty), Slot::Structure(fields)) => {
                let value = self.structure(ty, fields);
                Some(if ty.one_of { alternative(value, ty) } else { value })
            }
            (Shape::Scalar(scalar), Slot::Scalar(message)) => Some(match scalar_value(*scalar, &message) {
                Ok(value) => value,
                Err(why) => self.refuse(why),
            }),
            _ => None,
        }
    }

    /// Notes the error of a value that JSON cannot have.
    fn refuse(&mut self, why: ProtoError) -> Value {
        self.value_error.get_or_insert(why);
        Value::Null
    }

    fn plain(
        &mut self,
        reader: &mut Reader<'_>,
        scalar: Scalar,
        wire: u8,
        name: &str,
    ) -> Result<Value, ProtoError> {
        Ok(match scalar {
            Scalar::Bool => (varint(reader, wire, name)? != 0).into(),
            // the low 32 bits count, whatever is above
            Scalar::Int32 => i64::from(varint(reader, wire, name)? as i32).into(),
            Scalar::Int64 => (varint(reader, wire, name)? as i64).into(),
            Scalar::Float if wire == FIXED64 => {
                float(f64::from_le_bytes(reader.fixed64()?)).unwrap_or_else(|why| self.refuse(why))
            }
            Scalar::Float => return Err(wrong(wire, name)),
            Scalar::Bytes => STANDARD.encode(delimited(reader, wire, name)?).into(),
            _ => text(delimited(reader, wire, name)?).into(),
        })
    }
}

/// An item or a map's value that was sent without content. A list is there, and empty.
fn empty(shape: &Shape) -> Value {
    match shape {
        Shape::List(_) => Value::List(Vec::new()),
        _ => zero(shape),
    }
}

/// The value of a field in the normal form.
fn normal(field: &Field, value: Option<Value>) -> Option<Value> {
    let Some(value) = value else { return zero_when_absent(field) };
    let nilable = field.is(Flags::NILABLE);
    let left_out = if nilable { value.is_null() } else { is_zero(&value) };
    if left_out && zero_when_absent(field).is_none() { None } else { Some(value) }
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

/// Reads the fields of a scalar that is a small message. They are numbered from one.
fn scan_scalar<'a>(bytes: &'a [u8], scalar: Scalar, into: &mut ScalarMessage<'a>) -> Result<(), ProtoError> {
    let (message, fields): (&str, &[&str]) = match scalar {
        Scalar::Time | Scalar::MicroTime => ("Timestamp", &["seconds", "nanos"]),
        Scalar::Quantity => ("Quantity", &["string_"]),
        Scalar::Duration => ("Duration", &["duration"]),
        Scalar::IntOrString => ("IntOrString", &["type", "intVal", "strVal"]),
        Scalar::Fields => ("FieldsV1", &["raw"]),
        Scalar::Any => ("JSON", &["raw"]),
        _ => ("RawExtension", &["raw"]),
    };
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.tag(message)? {
        let at = number as usize - 1;
        match fields.get(at) {
            Some(name @ (&"string_" | &"strVal" | &"raw")) => {
                into.bytes = delimited(&mut reader, wire, name)?;
                if scalar == Scalar::Quantity {
                    quantity_value(into.bytes)?;
                }
            }
            Some(name) => into.numbers[at] = varint(&mut reader, wire, name)?,
            None => reader.skip(wire)?,
        }
    }
    Ok(())
}

/// The value of a scalar that is a small message, from all that was seen of it.
fn scalar_value(scalar: Scalar, message: &ScalarMessage<'_>) -> Result<Value, ProtoError> {
    let ScalarMessage { numbers, bytes } = message;
    let (seconds, nanos) = (numbers[0] as i64, numbers[1] as i32);
    match scalar {
        Scalar::Time | Scalar::MicroTime if seconds == NO_TIME && nanos == 0 => Ok(Value::Null),
        Scalar::Time => Ok(time::format_time(seconds).into()),
        Scalar::MicroTime => {
            let micros = seconds.saturating_mul(1_000_000).saturating_add(i64::from(nanos / 1000));
            Ok(time::format_micro_time(micros).into())
        }
        // an empty text is no quantity, so that none was sent
        Scalar::Quantity if bytes.is_empty() => Ok(zero(&Shape::Scalar(scalar))),
        Scalar::Quantity => quantity_value(bytes),
        Scalar::Duration => Ok(time::format_duration(numbers[0] as i64).into()),
        Scalar::IntOrString => match numbers[0] {
            0 => Ok(i64::from(numbers[1] as i32).into()),
            1 => Ok(text(bytes).into()),
            _ => Err(ProtoError::Value("impossible IntOrString.Type".to_owned())),
        },
        _ => raw(scalar, bytes),
    }
}

fn quantity_value(bytes: &[u8]) -> Result<Value, ProtoError> {
    let canonical = quantity::canonical(&text(bytes));
    canonical.map(Value::String).map_err(|why| ProtoError::Value(why.to_string()))
}

/// An object that is no set of fields: it has a step that no path has.
const NO_FIELDS: &str = r#"{"":{}}"#;

/// JSON text inside a message.
fn raw(scalar: Scalar, bytes: &[u8]) -> Result<Value, ProtoError> {
    if bytes.is_empty() && scalar != Scalar::Fields {
        return Ok(Value::Null);
    }
    let text = if scalar == Scalar::Fields { first_value(bytes) } else { bytes };
    let value = match json_inside(text, scalar == Scalar::Object) {
        Ok(decoded) => decoded.value,
        // the record of owners is judged as such, and this is none
        Err(_) if scalar == Scalar::Fields => return Ok(Value::Json(NO_FIELDS.into())),
        Err(why) => return Err(ProtoError::Value(why.to_string())),
    };
    match (scalar, &value) {
        (Scalar::Fields, Value::Null) => Ok(value),
        (Scalar::Fields, Value::Map(_)) => {
            Ok(Value::Json(String::from_utf8_lossy(&crate::encode::untyped(&value)).into()))
        }
        (Scalar::Fields, _) => Ok(Value::Json(NO_FIELDS.into())),
        // a raw object may have any form
        _ => Ok(value),
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
