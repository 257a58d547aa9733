//! Errors of values whose type differs from the declared one, with the API's texts.

use super::error::DecodeError;
use crate::path::Path;
use crate::source::Token;
use crate::table::{Field, Scalar, Shape, Type};

/// The place of a value, for error texts.
pub(super) struct Place<'p> {
    pub(super) owner: &'p Type,
    pub(super) path: &'p Path<'p>,
}

/// The name of a token's type.
pub(super) fn found(token: &Token<'_>) -> String {
    match token {
        Token::Map | Token::Json(_) => "object".into(),
        Token::List => "array".into(),
        Token::Null => "null".into(),
        Token::Bool(_) => "bool".into(),
        Token::String(_) => "string".into(),
        Token::Int(_) => "number".into(),
        Token::Decimal(text) => format!("number {text}"),
    }
}

/// A token that stands in the place of a structure, as errors name it: the text shows a number only where a number is
/// expected.
pub(super) fn found_in_place_of_struct(token: &Token<'_>) -> String {
    match token {
        Token::Decimal(_) => "number".into(),
        token => found(token),
    }
}

/// The error of a token at a place of this shape.
pub(super) fn mismatch(shape: &Shape, token: &Token<'_>, place: &Place<'_>) -> DecodeError {
    let found = match (shape, token) {
        (Shape::Scalar(Scalar::Int32 | Scalar::IntOrString), Token::Int(number)) => {
            format!("number {number}")
        }
        // the text shows a number only where a number is expected
        (Shape::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Float | Scalar::IntOrString), _) => {
            found(token)
        }
        (_, Token::Decimal(_)) => "number".to_owned(),
        _ => found(token),
    };
    let (owner, path) = (&place.owner.name, place.path.fields_only());
    let field = path.rsplit('.').next().and_then(|name| place.owner.field(name));
    let expected = field.map_or_else(|| go_type(shape), |(_, field)| named_type(shape, field));
    DecodeError::Type(format!(
        "json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {expected}"
    ))
}

/// The type of a shape in errors, by the name that its field declares (`named=`).
fn named_type(shape: &Shape, field: &Field) -> String {
    let named = &field.named;
    let has_lists = matches!(&field.shape, Shape::Map(map) if matches!(map.value, Shape::List(_)));
    match (&field.shape, shape) {
        _ if named.is_empty() => go_type(shape),
        (_, Shape::Map(_)) if has_lists => format!("map[string]{named}"),
        (_, Shape::List(_)) if has_lists => named.to_string(),
        (_, Shape::Map(_)) => named.to_string(),
        // the name of a map is not that of its values
        (Shape::Map(_), _) => go_type(shape),
        // structures have names of their own, so this is the name of their list
        (_, Shape::List(list)) if matches!(list.item, Shape::Struct(_)) => named.to_string(),
        (_, Shape::List(_)) => format!("[]{named}"),
        (_, Shape::Scalar(Scalar::String)) => named.to_string(),
        _ => go_type(shape),
    }
}

const FIELD: &str = " into Go struct field ";
const OF_TYPE: &str = " of type ";

/// A mismatch, reported at this place.
pub(super) fn moved(error: DecodeError, place: &Place<'_>) -> DecodeError {
    relocated(error, |_| Some((place.owner.name.to_string(), place.path.fields_only())))
}

/// A mismatch below this place in a text of its own, which knows nothing of the place.
pub(super) fn detached(error: DecodeError, place: &Place<'_>) -> DecodeError {
    let prefix = place.path.fields_only();
    relocated(error, |field| {
        let (owner, path) = field.split_once('.')?;
        let below = path.strip_prefix(&prefix)?.strip_prefix('.')?;
        Some((owner.to_owned(), below.to_owned()))
    })
}

/// A mismatch at the owner and path that `to` gives for its field; at no field if it gives none.
fn relocated(error: DecodeError, to: impl Fn(&str) -> Option<(String, String)>) -> DecodeError {
    let DecodeError::Type(text) = &error else { return error };
    let (Some((found, rest)), Some((_, wanted))) = (text.split_once(FIELD), text.rsplit_once(OF_TYPE)) else {
        return error;
    };
    let field = rest.strip_suffix(wanted).and_then(|it| it.strip_suffix(OF_TYPE)).unwrap_or_default();
    DecodeError::Type(match to(field) {
        Some((owner, path)) => format!("{found}{FIELD}{owner}.{path}{OF_TYPE}{wanted}"),
        None => format!("{found} into Go value{OF_TYPE}{wanted}"),
    })
}

/// The name of a shape in error texts.
fn go_type(shape: &Shape) -> String {
    match shape {
        Shape::Struct(ty) => go_struct(ty),
        Shape::List(list) => format!("[]{}", go_item(&list.item)),
        Shape::Map(map) => format!("map[string]{}", go_item(&map.value)),
        Shape::Scalar(scalar) => match scalar {
            Scalar::String => "string",
            Scalar::Bool => "bool",
            Scalar::Int32 => "int32",
            Scalar::Int64 => "int64",
            Scalar::Float => "float64",
            Scalar::Bytes => "[]uint8",
            Scalar::Time | Scalar::MicroTime => "string",
            Scalar::Duration => "string",
            Scalar::Quantity => "resource.Quantity",
            Scalar::IntOrString => "int32",
            Scalar::Any => "interface {}",
            Scalar::Object | Scalar::Fields => "map[string]interface {}",
        }
        .to_owned(),
    }
}

/// The name of the shape of items in error texts. A time decodes itself from a string, and says so when it fails alone.
fn go_item(shape: &Shape) -> String {
    match shape {
        Shape::Scalar(Scalar::Time) => "v1.Time".to_owned(),
        Shape::Scalar(Scalar::MicroTime) => "v1.MicroTime".to_owned(),
        Shape::Scalar(Scalar::Duration) => "v1.Duration".to_owned(),
        Shape::Scalar(Scalar::IntOrString) => "intstr.IntOrString".to_owned(),
        shape => go_type(shape),
    }
}

/// The name of a structure in error texts.
pub(super) fn go_struct(ty: &Type) -> String {
    let version = ty.package.rsplit('.').next().unwrap_or_default();
    format!("{version}.{}", ty.name)
}
