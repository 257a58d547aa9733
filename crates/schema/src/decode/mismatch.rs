//! Errors of values whose type differs from the declared one, with the API's texts.

use super::error::DecodeError;
use crate::path::Path;
use crate::source::Token;
use crate::table::{Scalar, Shape, Type};

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
    let named = field.map_or("", |(_, field)| &*field.named);
    DecodeError::Type(format!(
        "json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {}",
        named_type(shape, named)
    ))
}

/// The name of a shape whose scalars, or whose map, have their own name.
fn named_type(shape: &Shape, named: &str) -> String {
    match shape {
        _ if named.is_empty() => go_type(shape),
        Shape::List(_) => format!("[]{named}"),
        Shape::Scalar(Scalar::String) | Shape::Map(_) => named.to_owned(),
        _ => go_type(shape),
    }
}

/// A mismatch, reported at this place.
pub(super) fn moved(error: DecodeError, place: &Place<'_>) -> DecodeError {
    const FIELD: &str = " into Go struct field ";
    match error {
        DecodeError::Type(text) => {
            DecodeError::Type(match (text.split_once(FIELD), text.rsplit_once(" of type ")) {
                (Some((found, _)), Some((_, wanted))) => {
                    let (owner, path) = (&place.owner.name, place.path.fields_only());
                    format!("{found}{FIELD}{owner}.{path} of type {wanted}")
                }
                _ => text,
            })
        }
        other => other,
    }
}

/// The name of a shape in error texts.
fn go_type(shape: &Shape) -> String {
    match shape {
        Shape::Struct(ty) => go_struct(ty),
        Shape::List(list) => format!("[]{}", go_type(&list.item)),
        Shape::Map(map) => format!("map[string]{}", go_type(&map.value)),
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

/// The name of a structure in error texts.
pub(super) fn go_struct(ty: &Type) -> String {
    let version = ty.package.rsplit('.').next().unwrap_or_default();
    format!("{version}.{}", ty.name)
}
