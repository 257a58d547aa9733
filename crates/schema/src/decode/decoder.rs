//! The decoder: reads a value from a source against its table, in one pass.

use super::entries::{Entries, FieldBits};
use super::error::DecodeError;
use super::mismatch::{self, Place};
use super::numbers::float_value;
use super::repeated_keys::repeated_keys;
use super::strict_errors::{StrictError, StrictErrors};
use crate::encode;
use crate::path::Path;
use crate::source::{Json, Source, SyntaxError, Token, Tree};
use crate::table::{Field, Flags, MapShape, Scalar, Shape, Type, Unknown};
use crate::text::Text;
use crate::value::{Map, Value};
use crate::zero::{is_zero, zero, zero_when_absent};
use std::borrow::Cow;

/// A decoded value, and the strict errors of its text.
#[derive(Debug, PartialEq)]
pub struct Decoded {
    pub value: Value,
    pub strict_errors: Vec<StrictError>,
}

/// Decodes JSON text without a table; duplicate keys are reported, the last one wins.
pub fn json_untyped(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    untyped(bytes, Decoder { settle: false, ..Decoder::untyped(Json::new(bytes)?) })
}

/// Decodes JSON text without a table inside an object: whole floats become integers, except in a raw object.
pub(crate) fn json_inside(bytes: &[u8], is_raw: bool) -> Result<Decoded, DecodeError> {
    untyped(bytes, Decoder { is_raw, ..Decoder::untyped(Json::new(bytes)?) })
}

fn untyped(bytes: &[u8], mut decoder: Decoder<Json<'_>>) -> Result<Decoded, DecodeError> {
    let token = decoder.source.value()?;
    let value = decoder.any(token, &Path::ROOT)?;
    decoder.source.end()?;
    let mut strict_errors = decoder.into_strict_errors();
    if !strict_errors.is_empty() {
        strict_errors = repeated_keys(bytes, StrictErrors::default())?;
    }
    Ok(Decoded { value, strict_errors })
}

/// Decodes one value from a source against its table.
pub(super) struct Decoder<S> {
    pub(super) source: S,
    pub(super) strict_errors: StrictErrors,
    /// Whether whole floats without a table become integers. A patch keeps its floats: it is decoded again against the
    /// table, which distinguishes them.
    pub(super) settle: bool,
    /// Whether the value is part of a raw object, whose numbers keep their text.
    pub(super) is_raw: bool,
    /// StrictErrors of metadata in a loose object, which are listed last.
    pub(super) late: Vec<StrictError>,
    /// Whether the whole object is of a loose type: then duplicate keys are reported everywhere.
    pub(super) is_custom: bool,
    /// Whether a loose type drops null and unknown fields.
    pub(super) prunes: bool,
    /// Whether numbers out of the range of their type wrap around.
    pub(super) wraps: bool,
    /// The first value whose type differs from the declared one. It is reported at the end, unless an invalid value
    /// ends the decoding before.
    pub(super) mismatch: Option<DecodeError>,
    /// The number of open separate readers, in which the first mismatch ends the decoding.
    pub(super) apart: usize,
    /// The number of open structures.
    pub(super) structures: usize,
}

/// The error of a value in none of the forms of its type.
pub const NO_ALTERNATIVE: &str = "boolean or JSON schema expected";

/// The deepest nesting of structures: each takes much more of the stack than a value without a table.
const MOST_STRUCTURES: usize = 150;

impl<S> Decoder<S> {
    pub(super) fn new(source: S, ty: &Type) -> Self {
        let strict_errors = StrictErrors::for_type(ty);
        Decoder { strict_errors, is_custom: ty.loose, ..Self::untyped(source) }
    }

    pub(super) fn untyped(source: S) -> Self {
        Decoder {
            source,
            strict_errors: StrictErrors::default(),
            settle: true,
            is_raw: false,
            late: Vec::new(),
            is_custom: false,
            prunes: true,
            wraps: false,
            mismatch: None,
            apart: 0,
            structures: 0,
        }
    }

    /// All strict errors in the order of their report.
    pub(super) fn into_strict_errors(self) -> Vec<StrictError> {
        let Decoder { strict_errors, mut late, .. } = self;
        let mut all = strict_errors.into_list();
        all.append(&mut late);
        all
    }
}

impl<'a, S: Source<'a>> Decoder<S> {
    pub(super) fn structure(&mut self, ty: &Type, path: &Path<'_>) -> Result<Value, DecodeError> {
        self.structure_over(ty, path, Map::new())
    }

    /// A structure that is read over an earlier one under the same key: fields that it does not name stay.
    fn structure_over(&mut self, ty: &Type, path: &Path<'_>, earlier: Map) -> Result<Value, DecodeError> {
        self.structures += 1;
        if self.structures > MOST_STRUCTURES {
            return Err(SyntaxError("exceeded max depth".to_owned()).into());
        }
        let mut entries = Entries::new(ty);
        let mut undeclared = Vec::new();
        // the fields that were named, null included, and those with a value
        let mut seen = FieldBits::new(ty.fields.len());
        let mut held = FieldBits::new(ty.fields.len());
        for (name, value) in earlier {
            if let Some(rank) = ty.rank(&name) {
                held.set(rank);
                entries.insert(rank, &ty.fields[ty.by_name[rank] as usize], value);
            }
        }
        while let Some(key) = self.source.key()? {
            let Some(rank) = ty.rank(&key) else {
                self.undeclared(ty, key, path, &mut undeclared)?;
                continue;
            };
            let field = &ty.fields[ty.by_name[rank] as usize];
            let path = path.field(&field.name);
            if seen.set(rank) {
                self.strict_errors.duplicate(&path);
            }
            let before = if held.get(rank) { entries.remove(rank, field) } else { None };
            let token = self.source.value()?;
            match self.field_over(field, token, before, &Place { owner: ty, path: &path })? {
                Some(value) => {
                    held.set(rank);
                    entries.insert(rank, field, value);
                }
                None => held.clear(rank),
            }
        }
        for rank in ty.standing.iter().map(|rank| usize::from(*rank)) {
            let field = &ty.fields[ty.by_name[rank] as usize];
            if !held.get(rank)
                && let Some(value) = zero_when_absent(field)
            {
                entries.insert(rank, field, value);
            }
        }
        self.structures -= 1;
        if undeclared.is_empty() {
            return Ok(Value::Map(Map::from_sorted(entries.entries)));
        }
        undeclared.extend(entries.entries);
        if self.is_custom {
            return Ok(self.sorted(undeclared, path));
        }
        Ok(Value::Map(Map::from_unsorted(undeclared).0))
    }

    pub(super) fn undeclared(
        &mut self,
        ty: &Type,
        key: Cow<'a, str>,
        path: &Path<'_>,
        entries: &mut Vec<(Text, Value)>,
    ) -> Result<(), DecodeError> {
        let path = path.field(&key);
        let token = self.source.value()?;
        match ty.unknown {
            Unknown::Report if self.prunes || !ty.loose => self.unknown(token, &path)?,
            _ => {
                let value = self.any(token, &path)?;
                entries.push((Cow::Owned(key.into_owned()), value));
            }
        }
        Ok(())
    }

    /// Reports an unknown field, whose value is dropped.
    fn unknown(&mut self, token: Token<'a>, path: &Path<'_>) -> Result<(), DecodeError> {
        let is_repeated = self.strict_errors.unknown(path);
        if !self.is_custom {
            return Ok(self.source.skip(&token)?);
        }
        if is_repeated {
            self.strict_errors.duplicate(path);
        }
        self.any(token, path).map(drop)
    }

    /// A field whose key may have had a value before: a structure is read over it, and null leaves it.
    fn field_over(
        &mut self,
        field: &Field,
        token: Token<'a>,
        before: Option<Value>,
        place: &Place<'_>,
    ) -> Result<Option<Value>, DecodeError> {
        match (&field.shape, token, before) {
            (Shape::Struct(ty), Token::Map, Some(Value::Map(before)))
                if !place.owner.loose && !ty.loose && !ty.one_of =>
            {
                Ok(self.structure_over(ty, place.path, before).map(|value| kept(field, value, place.path))?)
            }
            (Shape::Struct(_) | Shape::Scalar(_), Token::Null, Some(before))
                if !place.owner.loose && !field.is(Flags::NILABLE) =>
            {
                Ok(Some(before))
            }
            (_, token, _) => self.field(field, token, place),
        }
    }

    /// A field's value; `None` if the normal form omits it.
    pub(super) fn field(
        &mut self,
        field: &Field,
        token: Token<'a>,
        place: &Place<'_>,
    ) -> Result<Option<Value>, DecodeError> {
        let is_mistyped = self.prunes && field.is(Flags::TEXT) && !matches!(token, Token::String(_));
        if matches!(token, Token::Null) {
            let stays = field.is(Flags::NULLABLE) || !self.prunes && place.owner.loose;
            if stays && is_mistyped {
                return Err(no_text("\"null\"", place));
            }
            let is_structure = self.prunes && matches!(&field.shape, Shape::Struct(ty) if is_part(ty, place));
            return Ok(stays.then(|| if is_structure { Value::map() } else { Value::Null }));
        }
        if is_mistyped {
            // shown as it was sent
            let value = self.any(token, place.path)?;
            return Err(no_text(&crate::problem::go_syntax(&value), place));
        }
        let value = self.shaped(&field.shape, token, place)?;
        Ok(kept(field, value, place.path))
    }

    pub(super) fn shaped(
        &mut self,
        shape: &Shape,
        token: Token<'a>,
        place: &Place<'_>,
    ) -> Result<Value, DecodeError> {
        match (shape, token) {
            (Shape::Scalar(Scalar::Any | Scalar::Object | Scalar::Fields), token) if place.owner.loose => {
                self.any(token, place.path)
            }
            (Shape::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Float | Scalar::IntOrString), token)
                if place.owner.loose && matches!(token, Token::Decimal(_)) =>
            {
                self.any(token, place.path)
            }
            (Shape::Scalar(_), token) if place.owner.loose => self.bare(token, place.path),
            (Shape::Scalar(scalar), token) => self.scalar(*scalar, token, place),
            (Shape::Struct(ty), token) if ty.one_of => self.alternative(ty, shape, token, place),
            (_, Token::Null) if place.owner.loose => Ok(Value::Null),
            (_, Token::Null) => Ok(zero(shape)),
            // metadata of an embedded object, which the kind's rules check as it was sent
            (Shape::Struct(ty), token) if !self.prunes && is_part(ty, place) => self.any(token, place.path),
            (Shape::Struct(ty), Token::Map) if place.owner.loose && !ty.loose => {
                if place.path.is_top_level() { self.apart(ty, place) } else { self.inner(ty, place) }
            }
            (Shape::Struct(ty), Token::Map) => self.structure(ty, place.path),
            (Shape::List(list), Token::List) => self.items(&list.item, place),
            (Shape::Map(map), Token::Map) => self.entries(map, place),
            (Shape::Struct(ty), token) if place.owner.loose && !ty.loose => {
                Err(self.no_structure(ty, token, place))
            }
            (Shape::Struct(ty), token) if place.owner.loose && ty.unknown == Unknown::Keep => {
                self.misplaced(token, place.path)
            }
            (Shape::Map(map), token) if place.owner.loose && map.open => self.misplaced(token, place.path),
            // objects among the items of an undeclared list have no declared fields
            (_, token) if place.owner.loose => self.bare(token, place.path),
            (shape, token) => self.mismatched(shape, token, place),
        }
    }

    fn items(&mut self, item: &Shape, place: &Place<'_>) -> Result<Value, DecodeError> {
        let mut items = Vec::new();
        while self.source.item()? {
            let path = place.path.index(items.len());
            let token = self.source.value()?;
            items.push(self.shaped(item, token, &Place { owner: place.owner, path: &path })?);
        }
        Ok(Value::List(items))
    }

    fn entries(&mut self, map: &MapShape, place: &Place<'_>) -> Result<Value, DecodeError> {
        let mut entries = Vec::new();
        while let Some(key) = self.source.key()? {
            let entry = place.path.entry(&key);
            // a conversion names no keys of maps
            let path = if self.wraps { place.path } else { &entry };
            let token = self.source.value()?;
            // an entry with a default gets it later
            let may_be_null = map.nullable || map.default.is_some();
            let absent = matches!(token, Token::Null) && place.owner.loose && !may_be_null && self.prunes;
            let value = self.shaped(&map.value, token, &Place { owner: place.owner, path })?;
            if !absent {
                entries.push((Cow::Owned(key.into_owned()), value));
            }
        }
        Ok(self.sorted(entries, place.path))
    }

    /// The error of another value in the place of metadata.
    #[cold]
    fn no_structure(&mut self, ty: &Type, token: Token<'a>, place: &Place<'_>) -> DecodeError {
        let (path, found) = (place.path, mismatch::found_in_place_of_struct(&token));
        let value = match self.any(token, path) {
            Ok(value) => crate::problem::go_syntax(&value),
            Err(why) => return why,
        };
        let why = format!("json: cannot unmarshal {found} into Go value of type {}", mismatch::go_struct(ty));
        // the error of the object's own metadata has no path
        let own = path.to_string() == "metadata";
        DecodeError::Type(match own {
            true => why,
            false => format!("{}: Invalid value: {value}: {why}", path.with_keys()),
        })
    }

    /// A value whose type differs from the declared one, which is reported at the end.
    pub(super) fn mismatched(
        &mut self,
        shape: &Shape,
        token: Token<'a>,
        place: &Place<'_>,
    ) -> Result<Value, DecodeError> {
        let error = mismatch::mismatch(shape, &token, place);
        // scalars with their own decoder end the decoding
        let own = [Scalar::IntOrString, Scalar::Time, Scalar::MicroTime, Scalar::Duration];
        if self.apart > 0 || matches!(shape, Shape::Scalar(scalar) if own.contains(scalar)) {
            return Err(error);
        }
        self.source.skip(&token)?;
        self.mismatch.get_or_insert(error);
        Ok(zero(shape))
    }

    /// Metadata of an embedded object. An error shows all of it.
    fn inner(&mut self, ty: &Type, place: &Place<'_>) -> Result<Value, DecodeError> {
        let sent = self.any(Token::Map, place.path)?;
        let mut reader = Decoder { wraps: self.wraps, ..Decoder::new(Tree::new(sent.clone()), ty) };
        reader.source.value()?;
        let read = reader.apart(ty, place);
        let (path, prefix) = (place.path.with_keys(), place.path.to_string());
        self.late.extend(reader.into_strict_errors().into_iter().map(|strict_error| match strict_error {
            StrictError::Unknown(at) => StrictError::Unknown(at.replacen(&prefix, &path, 1)),
            other => other,
        }));
        read.map_err(|why| match why {
            DecodeError::Type(why) => {
                let sent = crate::problem::go_syntax(&sent);
                DecodeError::Type(format!("{path}: Invalid value: {sent}: {why}"))
            }
            other => other,
        })
    }

    /// Metadata of a loose object, which has its own strict decoder.
    fn apart(&mut self, ty: &Type, place: &Place<'_>) -> Result<Value, DecodeError> {
        let before = self.strict_errors.len();
        let outside = self.mismatch.take();
        let read = self.structure(ty, place.path);
        let inside = std::mem::replace(&mut self.mismatch, outside);
        let read = read.and_then(|value| inside.map_or(Ok(value), Err));
        self.late.extend(self.strict_errors.split_off(before));
        read.map_err(|why| match why {
            DecodeError::Type(text) => {
                let path = format!(".{}.", place.path.fields_only());
                DecodeError::Type(text.replacen(&path, ".", 1))
            }
            other => other,
        })
    }

    /// A value with one of several forms, which has its own decoder: strict errors below are not reported, errors below are
    /// reported at this place, and a value of another form becomes null. A conversion reads it as a text of its own.
    fn alternative(
        &mut self,
        ty: &Type,
        shape: &Shape,
        token: Token<'a>,
        place: &Place<'_>,
    ) -> Result<Value, DecodeError> {
        let form = match token {
            Token::Map => Value::map(),
            Token::List => Value::List(Vec::new()),
            Token::Bool(truth) => truth.into(),
            _ => Value::Null,
        };
        let Some(field) = ty.alternative(&form) else {
            self.source.skip(&token)?;
            return match zero(shape) {
                Value::Null => Ok(Value::Null),
                _ => Err(DecodeError::Type(NO_ALTERNATIVE.to_owned())),
            };
        };
        let before = self.strict_errors.len();
        let is_text = self.wraps && self.apart == 0;
        self.apart += 1;
        let value = self.shaped(&field.shape, token, place).map_err(|why| match is_text {
            true => mismatch::detached(why, place),
            false => mismatch::moved(why, place),
        })?;
        self.apart -= 1;
        self.strict_errors.split_off(before);
        let nothing = matches!(&value, Value::List(items) if items.is_empty());
        Ok(if nothing { Value::Null } else { value })
    }

    /// A value without a type of its own. The keys of a built-in kind's raw value are not checked.
    pub(super) fn raw(&mut self, token: Token<'a>, path: &Path<'_>) -> Result<Value, DecodeError> {
        let before = self.strict_errors.len();
        let value = self.any(token, path)?;
        if !self.is_custom {
            self.strict_errors.split_off(before);
        }
        Ok(value)
    }

    fn sorted(&mut self, entries: Vec<(Text, Value)>, path: &Path<'_>) -> Value {
        let (map, repeated) = Map::from_unsorted(entries);
        repeated.iter().for_each(|key| self.strict_errors.duplicate(&path.field(key)));
        Value::Map(map)
    }

    /// A value in the place of a scalar: all fields inside it are unknown.
    fn bare(&mut self, token: Token<'a>, path: &Path<'_>) -> Result<Value, DecodeError> {
        match token {
            token if !self.prunes => self.any(token, path),
            Token::Map => {
                while let Some(key) = self.source.key()? {
                    let token = self.source.value()?;
                    self.unknown(token, &path.field(&key))?;
                }
                Ok(Value::map())
            }
            Token::List => {
                let mut items = Vec::new();
                while self.source.item()? {
                    let path = path.index(items.len());
                    let token = self.source.value()?;
                    items.push(self.bare(token, &path)?);
                }
                Ok(Value::List(items))
            }
            token => self.misplaced(token, path),
        }
    }

    /// A value of another type than the declared one, as the kind's rules report it: a float is none of the integers.
    fn misplaced(&mut self, token: Token<'a>, path: &Path<'_>) -> Result<Value, DecodeError> {
        match token {
            Token::Decimal(text) => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(Value::Float(number)),
                _ => self.any(Token::Decimal(text), path),
            },
            token => self.any(token, path),
        }
    }

    /// Any JSON value, kept as it is.
    pub(super) fn any(&mut self, token: Token<'a>, path: &Path<'_>) -> Result<Value, DecodeError> {
        Ok(match token {
            Token::Null => Value::Null,
            Token::Bool(truth) => truth.into(),
            Token::Int(number) => number.into(),
            Token::Decimal(text) => match text.parse::<f64>() {
                Ok(number) if number.is_finite() && self.settle => {
                    let value = float_value(number);
                    let is_canonical = !self.is_raw || encode::untyped(&value) == text.as_bytes();
                    if is_canonical { value } else { Value::Json(text.into()) }
                }
                Ok(number) if number.is_finite() => Value::Float(number),
                _ => {
                    return Err(DecodeError::Type(format!(
                        "json: cannot unmarshal number {text} into Go value of type float64"
                    )));
                }
            },
            Token::String(text) => text.into(),
            Token::Json(text) => Value::Json(text),
            Token::List => {
                let mut items = Vec::new();
                while self.source.item()? {
                    let path = path.index(items.len());
                    let token = self.source.value()?;
                    items.push(self.any(token, &path)?);
                }
                Value::List(items)
            }
            Token::Map => {
                let mut entries = Vec::new();
                while let Some(key) = self.source.key()? {
                    let token = self.source.value()?;
                    let value = self.any(token, &path.field(&key))?;
                    entries.push((Cow::Owned(key.into_owned()), value));
                }
                self.sorted(entries, path)
            }
        })
    }
}

/// Whether a structure is the metadata of an embedded object.
fn is_part(ty: &Type, place: &Place<'_>) -> bool {
    place.owner.loose && !ty.loose && !place.path.is_top_level()
}

/// A decoded value; `None` if the normal form omits it.
fn kept(field: &Field, value: Value, path: &Path<'_>) -> Option<Value> {
    let has_zero = field.is(Flags::NILABLE) && !(field.is(Flags::OWN) && path.is_of_part());
    let omitted = !field.is(Flags::ALWAYS) && !has_zero && is_zero(&value) && !field.shape.is_written_empty();
    (!omitted).then_some(value)
}

/// The error of a value in the place of text.
fn no_text(formatted: &str, place: &Place<'_>) -> DecodeError {
    let path = place.path.with_keys();
    DecodeError::Type(format!("{path}: Invalid value: {formatted}: must be a string"))
}
