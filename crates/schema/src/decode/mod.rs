//! Decoding: from text or a tree to a value in the normal form of its table, in one pass.
//!
//! The normal form has the contents of the API's own types: optional fields that are absent or empty are omitted,
//! fields that are always written have their zero value, quantities and times are canonical. Unknown and duplicate
//! fields are collected with their paths; a wrong type is an error.

mod bytes;
mod decoder;
mod entries;
mod error;
mod mismatch;
mod numbers;
mod partial;
mod repeated_keys;
mod scalar;
mod strict_errors;
mod type_meta;

pub use crate::zero::{is_zero, zero, zero_struct, zero_when_absent};
pub use bytes::base64_problem;
pub(crate) use decoder::json_inside;
pub use decoder::{Decoded, NO_ALTERNATIVE, json_untyped};
pub use error::DecodeError;
pub(crate) use numbers::float_value;
pub use partial::{FieldTree, canonical_parts};
pub use strict_errors::{COUNT_LIMIT as STRICT_ERRORS_LIMIT, StrictError};
pub use type_meta::TypeMeta;

use self::decoder::Decoder;
use self::mismatch::Place;
use self::repeated_keys::repeated_keys;
use self::strict_errors::StrictErrors;
use crate::path::Path;
use crate::source::{Json, LargeIntegers, Source, SyntaxError, Token, Tree};
use crate::table::{Type, Unknown};
use crate::value::Value;
use std::collections::HashSet;

/// The treatment of a number out of the range of its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    Refuse,
    Wrap,
}

/// Decodes JSON text against a type.
pub fn json(bytes: &[u8], ty: &Type) -> Result<Decoded, DecodeError> {
    let mut decoded = decode(Json::new(bytes)?, ty)?;
    // the text of a custom resource is read as a whole before its schema is looked at
    if ty.loose && decoded.strict_errors.iter().any(StrictError::is_duplicate) {
        let mut all = repeated_keys(bytes, StrictErrors::for_type(ty))?;
        decoded.strict_errors.retain(|it| !it.is_duplicate());
        all.append(&mut decoded.strict_errors);
        decoded.strict_errors = all;
    }
    Ok(decoded)
}

/// Decodes text that [`encode`](crate::encode) wrote for the same type.
pub fn canonical_json(bytes: &[u8], ty: &Type) -> Result<Decoded, DecodeError> {
    let text = std::str::from_utf8(bytes).map_err(|why| SyntaxError(why.to_string()))?;
    decode(Json::canonical(text), ty)
}

/// Decodes a tree against a type.
pub fn tree(value: Value, ty: &Type) -> Result<Decoded, DecodeError> {
    decode(Tree::new(value), ty)
}

/// Decodes a tree whose floats may stand for large integers.
pub fn tree_with_integers(value: Value, integers: LargeIntegers, ty: &Type) -> Result<Decoded, DecodeError> {
    decode(Tree::with_integers(value, integers), ty)
}

/// Decodes an applied tree: a loose type keeps null and unknown fields for the kind's rules.
pub fn applied(value: Value, ty: &Type) -> Result<Decoded, DecodeError> {
    decode_with(Decoder { prunes: false, wraps: true, ..Decoder::new(Tree::new(value), ty) }, ty)
}

/// Decodes a tree with conversion of numbers: a number out of range wraps around.
pub fn converted(value: Value, ty: &Type) -> Result<Decoded, DecodeError> {
    decode_with(Decoder { wraps: true, ..Decoder::new(Tree::new(value), ty) }, ty)
}

/// Decodes the replaced fields of an object in normal form again.
pub fn refit<'k>(
    value: Value,
    ty: &Type,
    replaced: impl Iterator<Item = &'k str>,
    numbers: Numbers,
) -> Result<Decoded, DecodeError> {
    let wraps = numbers == Numbers::Wrap;
    let Value::Map(mut map) = value else {
        return decode_with(Decoder { wraps, ..Decoder::new(Tree::new(value), ty) }, ty);
    };
    let keys: Vec<&str> = replaced.collect();
    let undeclared = keys.iter().filter(|key| ty.unknown == Unknown::Report && ty.field(key).is_none());
    let mut unknown: HashSet<&str> = undeclared.copied().collect();
    if !unknown.is_empty() {
        // all at once, so that a long map is shifted only once
        let mut names = HashSet::new();
        map.retain(|key, _| match unknown.take(key) {
            Some(key) => !names.insert(key),
            None => true,
        });
        unknown = names;
    }
    let (mut strict_errors, mut late) = (StrictErrors::for_type(ty), Vec::new());
    for key in keys {
        let Some((_, field)) = ty.field(key) else {
            if unknown.contains(key) {
                strict_errors.unknown(&Path::ROOT.field(key));
            }
            continue;
        };
        let Some(found) = map.remove(&field.name) else {
            if let Some(zero) = zero_when_absent(field) {
                map.insert(field.name.clone(), zero);
            }
            continue;
        };
        let path = Path::ROOT.field(&field.name);
        let source = Tree::new(found);
        let mut decoder = Decoder { strict_errors, late, wraps, ..Decoder::new(source, ty) };
        let token = decoder.source.value()?;
        let fitted = decoder.field(field, token, &Place { owner: ty, path: &path })?;
        if let Some(why) = decoder.mismatch.take() {
            return Err(why);
        }
        Decoder { strict_errors, late, .. } = decoder;
        if let Some(fitted) = fitted.or_else(|| zero_when_absent(field)) {
            map.insert(field.name.clone(), fitted);
        }
    }
    let mut strict_errors = strict_errors.into_list();
    strict_errors.append(&mut late);
    sort_strict_errors(ty, &mut strict_errors);
    Ok(Decoded { value: Value::Map(map), strict_errors })
}

/// Sorts the strict errors of a custom resource by the order in which its parts are decoded; those of built-in kinds
/// keep the order of discovery.
fn sort_strict_errors(ty: &Type, strict_errors: &mut [StrictError]) {
    if !ty.loose {
        return;
    }
    strict_errors.sort_by_cached_key(|strict_error| match strict_error {
        StrictError::Duplicate(_) => (0, String::new()),
        StrictError::Unknown(path) if path.starts_with("metadata.") => (1, path.clone()),
        StrictError::Unknown(path) if !path.contains(".metadata.") => (2, path.clone()),
        StrictError::Unknown(path) => (3, path.clone()),
    });
}

fn decode<'a>(source: impl Source<'a>, ty: &Type) -> Result<Decoded, DecodeError> {
    decode_with(Decoder::new(source, ty), ty)
}

fn decode_with<'a, S: Source<'a>>(mut decoder: Decoder<S>, ty: &Type) -> Result<Decoded, DecodeError> {
    let value = match decoder.source.value()? {
        Token::Map => decoder.structure(ty, &Path::ROOT)?,
        // null is an empty object
        Token::Null => zero_struct(ty),
        other => {
            let found = mismatch::found(&other);
            decoder.source.skip(&other)?;
            decoder.source.end()?;
            return Err(DecodeError::NotAnObject(found));
        }
    };
    decoder.source.end()?;
    if let Some(why) = decoder.mismatch.take() {
        return Err(why);
    }
    let mut strict_errors = decoder.into_strict_errors();
    sort_strict_errors(ty, &mut strict_errors);
    Ok(Decoded { value, strict_errors })
}

/// The same value, with every text form decoded.
pub fn open(value: &Value) -> Value {
    match value {
        Value::Json(text) => json_untyped(text.as_bytes()).map_or(Value::Null, |it| it.value),
        Value::List(items) => Value::List(items.iter().map(open).collect()),
        Value::Map(map) => Value::Map(map.map_values(open)),
        scalar => scalar.clone(),
    }
}
