//! Values of scalars: each type's own text, range and error.

use super::bytes;
use super::decoder::{Decoder, json_untyped};
use super::error::DecodeError;
use super::mismatch::{self, Place};
use super::numbers::{float_value, whole, whole_or_float};
use crate::source::{MapText, Source, SyntaxError, Token};
use crate::table::{Scalar, Shape};
use crate::value::Value;
use crate::zero::zero;
use crate::{encode, quantity, time};
use std::sync::Arc;

impl<'a, S: Source<'a>> Decoder<S> {
    pub(super) fn scalar(
        &mut self,
        scalar: Scalar,
        token: Token<'a>,
        place: &Place<'_>,
    ) -> Result<Value, DecodeError> {
        let shape = Shape::Scalar(scalar);
        match (scalar, token) {
            (Scalar::Any, token) => self.raw(token, place.path),
            (Scalar::Fields, Token::Map) => Ok(Value::Json(compact(self.source.text()?)?)),
            (Scalar::Fields | Scalar::Object, Token::Json(text)) => Ok(Value::Json(text)),
            (_, Token::Null) => Ok(zero(&shape)),
            // a set of fields may have any form: one that is no object counts as unreadable later
            (Scalar::Fields, token) => {
                let text = encode::untyped(&self.any(token, place.path)?);
                Ok(Value::Json(String::from_utf8_lossy(&text).into()))
            }
            // a raw object may have any form
            (Scalar::Object, token) => {
                self.is_raw = true;
                let value = self.raw(token, place.path);
                self.is_raw = false;
                value
            }
            (Scalar::String, Token::String(text)) => Ok(text.into()),
            (Scalar::Bool, Token::Bool(truth)) => Ok(truth.into()),
            (Scalar::Int32, Token::Int(number)) if i32::try_from(number).is_ok() => Ok(number.into()),
            (Scalar::Int64, Token::Int(number)) => Ok(number.into()),
            (Scalar::Int32, Token::Int(number)) if self.wraps => Ok(i64::from(number as i32).into()),
            (Scalar::Int32 | Scalar::Int64, Token::Decimal(text)) if self.wraps => match whole(&text) {
                Some(number) if scalar == Scalar::Int32 => Ok(i64::from(number as i32).into()),
                Some(number) => Ok(number.into()),
                None => self.mismatched(&shape, Token::Decimal(text), place),
            },
            // the metadata of a custom resource is read without a type first
            (Scalar::Int64, Token::Decimal(text)) if self.is_custom => match text.parse().map(float_value) {
                Ok(Value::Int(number)) => Ok(number.into()),
                Ok(Value::Float(number)) if number.is_finite() => {
                    let text = encode::float_text(number).into();
                    self.mismatched(&shape, Token::Decimal(text), place)
                }
                _ => self.mismatched(&shape, Token::Decimal(text), place),
            },
            (Scalar::Float, Token::Int(number)) => Ok(whole_or_float(number as f64)),
            (Scalar::Float, Token::Decimal(text)) => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(whole_or_float(number)),
                _ => self.mismatched(&shape, Token::Decimal(text), place),
            },
            (Scalar::IntOrString, Token::String(text)) => Ok(text.into()),
            (Scalar::IntOrString, Token::Int(number)) if i32::try_from(number).is_ok() => Ok(number.into()),
            (Scalar::Bytes, Token::String(text)) => match bytes::canonical(&text) {
                Err(why) if self.apart == 0 => {
                    self.mismatch.get_or_insert(why);
                    Ok(zero(&shape))
                }
                other => other,
            },
            (Scalar::Bytes, Token::List) => self.byte_list(place),
            (Scalar::Quantity, Token::String(text)) => canonical(quantity::canonical(&text)),
            (Scalar::Quantity, Token::Int(number)) => canonical(quantity::canonical(&number.to_string())),
            (Scalar::Quantity, Token::Decimal(text)) => canonical(quantity::canonical(&text)),
            // the API reports every other type with this text
            (Scalar::Quantity, _) => canonical(quantity::canonical("\u{0}")),
            (Scalar::Time, Token::String(text)) => canonical(time::parse_time(&text)),
            (Scalar::MicroTime, Token::String(text)) => canonical(time::parse_micro_time(&text)),
            (Scalar::Duration, Token::String(text)) => canonical(time::canonical_duration(&text)),
            (_, token) => self.mismatched(&shape, token, place),
        }
    }

    /// Bytes as a list of numbers.
    fn byte_list(&mut self, place: &Place<'_>) -> Result<Value, DecodeError> {
        let mut out = Vec::new();
        while self.source.item()? {
            let token = self.source.value()?;
            let found = match &token {
                Token::Null => Some(0),
                Token::Int(number) => u8::try_from(*number).ok(),
                _ => None,
            };
            let Some(byte) = found else {
                let found = match &token {
                    Token::Int(number) => format!("number {number}"),
                    other => mismatch::found(other),
                };
                let (owner, path) = (&place.owner.name, place.path.fields_only());
                let error = DecodeError::Type(format!(
                    "json: cannot unmarshal {found} into Go struct field {owner}.{path} of type uint8"
                ));
                if self.apart > 0 {
                    return Err(error);
                }
                self.source.skip(&token)?;
                self.mismatch.get_or_insert(error);
                continue;
            };
            out.push(byte);
        }
        Ok(bytes::encode(&out).into())
    }
}

/// The compact text of a map.
fn compact(text: MapText<'_>) -> Result<Arc<str>, SyntaxError> {
    match text {
        MapText::Compact(text) => Ok(text),
        MapText::Spaced(text) => match json_untyped(text.as_bytes()) {
            Ok(decoded) => Ok(encode::compact(&decoded.value)),
            Err(why) => Err(SyntaxError(why.to_string())),
        },
    }
}

fn canonical<E: std::fmt::Display>(text: Result<String, E>) -> Result<Value, DecodeError> {
    text.map(Value::String).map_err(|why| DecodeError::Type(why.to_string()))
}
