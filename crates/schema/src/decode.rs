//! From text or a tree to a value in the normal form of its table, in one pass.
//!
//! The normal form is what the API's own types would hold: fields that are absent or empty and need not be
//! written are not there, fields that are always written are there with their zero value, quantities and
//! times are canonical. Unknown and repeated fields are collected with their paths; a wrong type ends the
//! decoding.

mod bytes;
mod oddities;
mod partial;

pub use bytes::base64_problem;
pub use oddities::COUNT_LIMIT as ODDITIES_LIMIT;
pub use partial::{Wanted, canonical_parts};

use self::oddities::Oddities;
use crate::path::Path;
use crate::source::{Json, Source, SyntaxError, Token, Tree};
use crate::table::{Field, Flags, Scalar, Shape, Text, Type, Unknown};
use crate::value::{Map, Value, order};
use crate::{quantity, time};
use std::borrow::Cow;
use std::collections::HashSet;

/// A decoded value and what was odd about its text.
#[derive(Debug, PartialEq)]
pub struct Decoded {
    pub value: Value,
    pub oddities: Vec<Oddity>,
}

/// What becomes of a number that its type cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    Refuse,
    Wrap,
}

/// Something that `fieldValidation` decides about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Oddity {
    Unknown(String),
    Duplicate(String),
}

impl std::fmt::Display for Oddity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Oddity::Unknown(path) => write!(f, "unknown field {path:?}"),
            Oddity::Duplicate(path) => write!(f, "duplicate field {path:?}"),
        }
    }
}

/// Why something could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("{0}")]
    Syntax(#[from] SyntaxError),
    #[error("{0}")]
    Type(String),
    #[error("json: cannot unmarshal {0} into Go value of type map[string]interface {{}}")]
    NotAnObject(String),
}

/// JSON text against a type.
pub fn json(bytes: &[u8], ty: &Type) -> Result<Decoded, DecodeError> {
    decode(Json::new(bytes)?, ty)
}

/// Text that [`encode`](crate::encode) wrote, against the type it was written for.
pub fn canonical_json(bytes: &[u8], ty: &Type) -> Result<Decoded, DecodeError> {
    let text = std::str::from_utf8(bytes).map_err(|why| SyntaxError(why.to_string()))?;
    decode(Json::canonical(text), ty)
}

/// A tree against a type.
pub fn tree(value: Value, ty: &Type) -> Result<Decoded, DecodeError> {
    decode(Tree::new(value), ty)
}

/// A tree that was applied: where the type is loose, null and unknown fields stay for the kind's rules to judge.
pub fn applied(value: Value, ty: &Type) -> Result<Decoded, DecodeError> {
    decode_with(Decoder { prunes: false, wraps: true, ..Decoder::new(Tree::new(value), ty) }, ty)
}

/// A tree whose numbers are converted rather than read: one that its type cannot hold wraps around.
pub fn converted(value: Value, ty: &Type) -> Result<Decoded, DecodeError> {
    decode_with(Decoder { wraps: true, ..Decoder::new(Tree::new(value), ty) }, ty)
}

/// An object in normal form of which some fields were replaced: only those are decoded again.
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
        // all at once: a long map is not moved about for each of them
        let mut found = HashSet::new();
        map.retain(|key, _| match unknown.take(key) {
            Some(key) => !found.insert(key),
            None => true,
        });
        unknown = found;
    }
    let (mut oddities, mut late) = (Oddities::for_type(ty), Vec::new());
    for key in keys {
        let Some((_, field)) = ty.field(key) else {
            if unknown.contains(key) {
                oddities.unknown(&Path::ROOT.field(key));
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
        let mut decoder = Decoder { oddities, late, wraps, ..Decoder::new(source, ty) };
        let token = decoder.source.value()?;
        let fitted = decoder.field(field, token, &Place { owner: ty, path: &path })?;
        if let Some(why) = decoder.mismatch.take() {
            return Err(why);
        }
        Decoder { oddities, late, .. } = decoder;
        if let Some(fitted) = fitted.or_else(|| zero_when_absent(field)) {
            map.insert(field.name.clone(), fitted);
        }
    }
    let mut oddities = oddities.into_list();
    oddities.append(&mut late);
    sort_oddities(ty, &mut oddities);
    Ok(Decoded { value: Value::Map(map), oddities })
}

/// Brings the oddities of a custom resource into the order in which its parts are read; those of built-in kinds stay
/// in the order in which they were met.
fn sort_oddities(ty: &Type, oddities: &mut [Oddity]) {
    if !ty.loose {
        return;
    }
    oddities.sort_by_cached_key(|oddity| match oddity {
        Oddity::Duplicate(path) => (-i32::from(path.starts_with("metadata.")), String::new()),
        Oddity::Unknown(path) if path.starts_with("metadata.") => (1, path.clone()),
        Oddity::Unknown(path) if !path.contains(".metadata.") => (2, path.clone()),
        Oddity::Unknown(path) => (3, path.clone()),
    });
}

/// JSON text without a table; repeated keys are reported, the last one stays.
pub fn json_untyped(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    untyped(bytes, false)
}

/// JSON text without a table as it stands inside an object: numbers are settled.
pub(crate) fn json_inside(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    untyped(bytes, true)
}

fn untyped(bytes: &[u8], settle: bool) -> Result<Decoded, DecodeError> {
    let mut decoder = Decoder { settle, ..Decoder::untyped(Json::new(bytes)?) };
    let token = decoder.source.value()?;
    let value = decoder.any(token, &Path::ROOT)?;
    decoder.source.end()?;
    Ok(Decoded { value, oddities: decoder.told() })
}

fn decode<'a>(source: impl Source<'a>, ty: &Type) -> Result<Decoded, DecodeError> {
    decode_with(Decoder::new(source, ty), ty)
}

fn decode_with<'a, S: Source<'a>>(mut decoder: Decoder<S>, ty: &Type) -> Result<Decoded, DecodeError> {
    let value = match decoder.source.value()? {
        Token::Map => decoder.structure(ty, &Path::ROOT)?,
        // nothing at all is an object with nothing in it
        Token::Null => zero_struct(ty),
        other => {
            let found = found(&other);
            decoder.source.skip(&other)?;
            decoder.source.end()?;
            return Err(DecodeError::NotAnObject(found));
        }
    };
    decoder.source.end()?;
    if let Some(why) = decoder.mismatch.take() {
        return Err(why);
    }
    let mut told = decoder.told();
    sort_oddities(ty, &mut told);
    Ok(Decoded { value, oddities: told })
}

struct Decoder<S> {
    source: S,
    oddities: Oddities,
    /// Numbers without a table become what they are when their text is read again. A patch is not settled: it
    /// is decoded once more against the table, which wants to know that there was a point.
    settle: bool,
    /// What is odd about metadata where the rest is loose, told after everything else.
    late: Vec<Oddity>,
    /// Whether null and unknown fields are dropped where the type is loose.
    prunes: bool,
    /// Numbers that their type cannot hold wrap around.
    wraps: bool,
    /// The first value of another type than declared. It is told at the end, unless a value that is wrong in itself
    /// ends the decoding before.
    mismatch: Option<DecodeError>,
    /// How many readers of their own are open, in which the first mismatch ends the decoding.
    apart: usize,
    /// How many structures are open.
    structures: usize,
}

/// How deep structures may stand in one another: each takes much more of the stack than a value without a table.
const MOST_STRUCTURES: usize = 150;

/// Where a value is going to stand, for messages.
struct Place<'p> {
    owner: &'p Type,
    path: &'p Path<'p>,
}

impl<S> Decoder<S> {
    fn new(source: S, ty: &Type) -> Self {
        Decoder { oddities: Oddities::for_type(ty), ..Self::untyped(source) }
    }

    fn untyped(source: S) -> Self {
        Decoder {
            source,
            oddities: Oddities::default(),
            settle: true,
            late: Vec::new(),
            prunes: true,
            wraps: false,
            mismatch: None,
            apart: 0,
            structures: 0,
        }
    }

    /// Everything that is odd, in the order in which it is told.
    fn told(self) -> Vec<Oddity> {
        let Decoder { oddities, mut late, .. } = self;
        let mut all = oddities.into_list();
        all.append(&mut late);
        all
    }
}

impl<'a, S: Source<'a>> Decoder<S> {
    fn structure(&mut self, ty: &Type, path: &Path<'_>) -> Result<Value, DecodeError> {
        self.structures += 1;
        if self.structures > MOST_STRUCTURES {
            return Err(SyntaxError("exceeded max depth".to_owned()).into());
        }
        let mut entries = Entries::new(ty);
        let mut undeclared = Vec::new();
        let mut seen = Seen::new(ty.fields.len());
        while let Some(key) = self.source.key()? {
            let Some(rank) = ty.rank(&key) else {
                self.undeclared(ty, key, path, &mut undeclared)?;
                continue;
            };
            let field = &ty.fields[ty.by_name[rank] as usize];
            let path = path.field(&field.name);
            if seen.set(rank) {
                self.oddities.duplicate(&path);
                entries.remove(rank, field);
            }
            let token = self.source.value()?;
            match self.field(field, token, &Place { owner: ty, path: &path })? {
                Some(value) => entries.insert(rank, field, value),
                None => seen.clear(rank),
            }
        }
        for rank in ty.standing.iter().map(|rank| usize::from(*rank)) {
            let field = &ty.fields[ty.by_name[rank] as usize];
            if !seen.get(rank)
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
        Ok(Value::Map(Map::from_unsorted(undeclared).0))
    }

    fn undeclared(
        &mut self,
        ty: &Type,
        key: Cow<'a, str>,
        path: &Path<'_>,
        entries: &mut Vec<(Text, Value)>,
    ) -> Result<(), DecodeError> {
        let path = path.field(&key);
        let token = self.source.value()?;
        match ty.unknown {
            Unknown::Report if self.prunes || !ty.loose => {
                self.oddities.unknown(&path);
                self.source.skip(&token)?;
            }
            _ => {
                let value = self.any(token, &path)?;
                entries.push((Cow::Owned(key.into_owned()), value));
            }
        }
        Ok(())
    }

    /// A field's value, or nothing when the normal form leaves it out.
    fn field(
        &mut self,
        field: &Field,
        token: Token<'a>,
        place: &Place<'_>,
    ) -> Result<Option<Value>, DecodeError> {
        if matches!(token, Token::Null) {
            // metadata of an embedded object is a structure, whatever is sent
            let is_part = |ty: &Type| !ty.loose && !place.path.is_top_level();
            if place.owner.loose && matches!(&field.shape, Shape::Struct(ty) if is_part(ty)) {
                return Ok(Some(Value::map()));
            }
            let stays = field.is(Flags::NULLABLE) || !self.prunes && place.owner.loose;
            return Ok(stays.then_some(Value::Null));
        }
        let mistyped = field.is(Flags::TEXT) && !matches!(token, Token::String(_));
        let value = self.shaped(&field.shape, token, place)?;
        if mistyped {
            let (path, shown) = (place.path, crate::problem::shown(&value));
            let path = path.with_keys();
            return Err(DecodeError::Type(format!("{path}: Invalid value: {shown}: must be a string")));
        }
        let omitted = !field.is(Flags::ALWAYS)
            && !field.is(Flags::NILABLE)
            && is_zero(&value)
            && !field.shape.is_written_empty();
        Ok(if omitted { None } else { Some(value) })
    }

    fn shaped(&mut self, shape: &Shape, token: Token<'a>, place: &Place<'_>) -> Result<Value, DecodeError> {
        match (shape, token) {
            (Shape::Scalar(Scalar::Any | Scalar::Object | Scalar::Fields), token) if place.owner.loose => {
                self.any(token, place.path)
            }
            (Shape::Scalar(_), token) if place.owner.loose => self.bare(token, place.path),
            (Shape::Scalar(scalar), token) => self.scalar(*scalar, token, place),
            (Shape::Struct(ty), token) if ty.one_of => self.alternative(ty, shape, token, place),
            (_, Token::Null) if place.owner.loose => Ok(Value::Null),
            (_, Token::Null) => Ok(zero(shape)),
            (Shape::Struct(ty), Token::Map) if place.owner.loose && !ty.loose => {
                if place.path.is_top_level() { self.apart(ty, place) } else { self.inner(ty, place) }
            }
            (Shape::Struct(ty), Token::Map) => self.structure(ty, place.path),
            (Shape::List(list), Token::List) => {
                let mut items = Vec::new();
                while self.source.item()? {
                    let path = place.path.index(items.len());
                    let token = self.source.value()?;
                    items.push(self.shaped(&list.item, token, &Place { owner: place.owner, path: &path })?);
                }
                Ok(Value::List(items))
            }
            (Shape::Map(map), Token::Map) => {
                let mut entries = Vec::new();
                while let Some(key) = self.source.key()? {
                    let path = place.path.entry(&key);
                    let token = self.source.value()?;
                    let absent = matches!(token, Token::Null) && place.owner.loose && !map.nullable;
                    let value = self.shaped(&map.value, token, &Place { owner: place.owner, path: &path })?;
                    if !absent {
                        entries.push((Cow::Owned(key.into_owned()), value));
                    }
                }
                Ok(self.sorted(entries, place.path))
            }
            (Shape::Struct(ty), token) if place.owner.loose && !ty.loose => {
                let (path, found) = (place.path, found(&token));
                let value = crate::problem::shown(&self.any(token, place.path)?);
                let why = format!("json: cannot unmarshal {found} into Go value of type {}", go_struct(ty));
                // the object's own is told without a place
                let own = path.to_string() == "metadata";
                Err(DecodeError::Type(if own {
                    why
                } else {
                    format!("{}: Invalid value: {value}: {why}", path.with_keys())
                }))
            }
            (Shape::Struct(ty), token) if place.owner.loose && ty.unknown == Unknown::Keep => {
                self.any(token, place.path)
            }
            (Shape::Map(map), token) if place.owner.loose && map.open => self.any(token, place.path),
            // objects among the items of what is no list have no fields that are known
            (_, token) if place.owner.loose => self.bare(token, place.path),
            (shape, token) => self.mismatched(shape, token, place),
        }
    }

    /// A value of another type than declared, which is told once everything else has been read.
    fn mismatched(
        &mut self,
        shape: &Shape,
        token: Token<'a>,
        place: &Place<'_>,
    ) -> Result<Value, DecodeError> {
        let error = mismatch(shape, &token, place);
        // what reads itself ends the decoding
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
        self.late.extend(reader.told().into_iter().map(|oddity| match oddity {
            Oddity::Unknown(at) => Oddity::Unknown(at.replacen(&prefix, &path, 1)),
            other => other,
        }));
        read.map_err(|why| match why {
            DecodeError::Type(why) => {
                let sent = crate::problem::shown(&sent);
                DecodeError::Type(format!("{path}: Invalid value: {sent}: {why}"))
            }
            other => other,
        })
    }

    /// Metadata in an object of which nothing else is declared so strictly: clients know it read on its own.
    fn apart(&mut self, ty: &Type, place: &Place<'_>) -> Result<Value, DecodeError> {
        let before = self.oddities.len();
        self.apart += 1;
        let read = self.structure(ty, place.path);
        self.apart -= 1;
        self.late.extend(self.oddities.split_off(before));
        read.map_err(|why| match why {
            DecodeError::Type(text) => {
                let path = format!(".{}.", place.path.fields_only());
                DecodeError::Type(text.replacen(&path, ".", 1))
            }
            other => other,
        })
    }

    /// A value that is one of several forms. The API's own types read these by themselves: what is odd below
    /// is not reported, errors below are reported here, and what has no form that is known is nothing.
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
                _ => Err(DecodeError::Type("boolean or JSON schema expected".to_owned())),
            };
        };
        let told = self.oddities.len();
        self.apart += 1;
        let value = self.shaped(&field.shape, token, place).map_err(|why| moved(why, place))?;
        self.apart -= 1;
        self.oddities.split_off(told);
        let nothing = matches!(&value, Value::List(items) if items.is_empty());
        Ok(if nothing { Value::Null } else { value })
    }

    fn sorted(&mut self, entries: Vec<(Text, Value)>, path: &Path<'_>) -> Value {
        let (map, repeated) = Map::from_unsorted(entries);
        repeated.iter().for_each(|key| self.oddities.duplicate(&path.field(key)));
        Value::Map(map)
    }

    fn scalar(&mut self, scalar: Scalar, token: Token<'a>, place: &Place<'_>) -> Result<Value, DecodeError> {
        let shape = Shape::Scalar(scalar);
        match (scalar, token) {
            (Scalar::Any, token) => self.any(token, place.path),
            (Scalar::Fields, Token::Map) => Ok(Value::Json(self.source.text()?)),
            (Scalar::Fields | Scalar::Object, Token::Json(text)) => Ok(Value::Json(text)),
            (_, Token::Null) => Ok(zero(&shape)),
            // what is kept unread may be anything, though it should be an object
            (Scalar::Object, token) => self.any(token, place.path),
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
            // clients know this text for whatever else is sent as an amount
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
                    other => self::found(other),
                };
                let (owner, path) = (&place.owner.name, place.path.fields_only());
                return Err(DecodeError::Type(format!(
                    "json: cannot unmarshal {found} into Go struct field {owner}.{path} of type uint8"
                )));
            };
            out.push(byte);
        }
        Ok(bytes::encode(&out).into())
    }

    /// A value where a scalar belongs and nothing else was declared: whatever is inside of it is unknown.
    fn bare(&mut self, token: Token<'a>, path: &Path<'_>) -> Result<Value, DecodeError> {
        match token {
            token if !self.prunes => self.any(token, path),
            Token::Map => {
                while let Some(key) = self.source.key()? {
                    self.oddities.unknown(&path.field(&key));
                    let token = self.source.value()?;
                    self.source.skip(&token)?;
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
            token => self.any(token, path),
        }
    }

    /// Any JSON value, kept as it is.
    fn any(&mut self, token: Token<'a>, path: &Path<'_>) -> Result<Value, DecodeError> {
        Ok(match token {
            Token::Null => Value::Null,
            Token::Bool(truth) => truth.into(),
            Token::Int(number) => number.into(),
            Token::Decimal(text) => match text.parse::<f64>() {
                Ok(number) if number.is_finite() && self.settle => float_value(number),
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

fn canonical<E: std::fmt::Display>(text: Result<String, E>) -> Result<Value, DecodeError> {
    text.map(Value::String).map_err(|why| DecodeError::Type(why.to_string()))
}

/// A number with a point or an exponent that is an integer all the same. One beyond all integers becomes the least.
fn whole(text: &str) -> Option<i64> {
    let number = text.parse::<f64>().ok().filter(|it| it.fract() == 0.0)?;
    const EDGE: f64 = 9_223_372_036_854_775_808.0;
    Some(if (-EDGE..EDGE).contains(&number) { number as i64 } else { i64::MIN })
}

/// Floats that are whole are written without a point, so they are kept as integers.
fn whole_or_float(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 9e15 {
        Value::Int(number as i64)
    } else {
        Value::Float(number)
    }
}

/// A float as JSON carries it: whole ones are integers, as far as integers go.
pub(crate) fn float_value(number: f64) -> Value {
    const EDGE: f64 = 9_223_372_036_854_775_808.0;
    if number.fract() == 0.0 && (-EDGE..EDGE).contains(&number) {
        Value::Int(number as i64)
    } else {
        Value::Float(number)
    }
}

fn found(token: &Token<'_>) -> String {
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

fn mismatch(shape: &Shape, token: &Token<'_>, place: &Place<'_>) -> DecodeError {
    let found = match (shape, token) {
        (Shape::Scalar(Scalar::Int32 | Scalar::IntOrString), Token::Int(number)) => {
            format!("number {number}")
        }
        // only a number that does not fit where a number belongs is told
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

/// The name of a shape where its scalars, or the whole map, have one of their own.
fn named_type(shape: &Shape, named: &str) -> String {
    match shape {
        _ if named.is_empty() => go_type(shape),
        Shape::List(_) => format!("[]{named}"),
        Shape::Scalar(Scalar::String) | Shape::Map(_) => named.to_owned(),
        _ => go_type(shape),
    }
}

/// A mismatch as if it had been found at this place.
fn moved(error: DecodeError, place: &Place<'_>) -> DecodeError {
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

/// The name that clients know a shape by in error messages.
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

fn go_struct(ty: &Type) -> String {
    let version = ty.package.rsplit('.').next().unwrap_or_default();
    format!("{version}.{}", ty.name)
}

/// What an absent field is written as, if it is.
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

/// A structure with nothing but what is always written.
pub fn zero_struct(ty: &Type) -> Value {
    let fields = ty.standing.iter().map(|rank| &ty.fields[ty.by_name[usize::from(*rank)] as usize]);
    let entries = fields.filter_map(|field| Some((field.name.clone(), zero_when_absent(field)?)));
    Value::Map(Map::from_sorted(entries.collect()))
}

/// Whether a value is the one that cannot be told from absence.
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

/// The fields of a structure, kept in the order of their names while they come in any.
struct Entries {
    entries: Vec<(Text, Value)>,
    /// The rank of each entry's name, in the same order.
    ranks: [u16; RANKED],
    /// Names that nobody keeps the rank of are found by looking at them.
    ranked: bool,
}

/// Types with more fields than this are rare enough not to matter.
const RANKED: usize = 64;

impl Entries {
    fn new(ty: &Type) -> Self {
        let count = ty.fields.len();
        Entries { entries: Vec::with_capacity(count.min(16)), ranks: [0; RANKED], ranked: count <= RANKED }
    }

    /// Where a name of this rank is, or would be.
    fn find(&self, rank: usize, name: &str) -> Result<usize, usize> {
        if !self.ranked {
            return self.entries.binary_search_by(|(other, _)| order(other, name));
        }
        let ranks = &self.ranks[..self.entries.len()];
        match ranks.iter().rposition(|other| usize::from(*other) <= rank) {
            None => Err(0),
            Some(at) if usize::from(ranks[at]) == rank => Ok(at),
            Some(at) => Err(at + 1),
        }
    }

    fn insert(&mut self, rank: usize, field: &Field, value: Value) {
        let count = self.entries.len();
        // what comes in order, as half of it does, goes to the end
        if self.ranked && (count == 0 || usize::from(self.ranks[count - 1]) < rank) {
            self.ranks[count] = rank as u16;
            self.entries.push((field.name.clone(), value));
            return;
        }
        let (Ok(at) | Err(at)) = self.find(rank, &field.name);
        if self.ranked {
            self.ranks.copy_within(at..count, at + 1);
            self.ranks[at] = rank as u16;
        }
        self.entries.insert(at, (field.name.clone(), value));
    }

    fn remove(&mut self, rank: usize, field: &Field) {
        if let Ok(at) = self.find(rank, &field.name) {
            let count = self.entries.len();
            self.entries.remove(at);
            if self.ranked {
                self.ranks.copy_within(at + 1..count, at);
            }
        }
    }
}

/// Which fields of a structure have come.
struct Seen {
    few: [u64; 2],
    many: Vec<u64>,
}

impl Seen {
    fn new(count: usize) -> Self {
        Seen { few: [0; 2], many: if count > 128 { vec![0; count.div_ceil(64)] } else { Vec::new() } }
    }

    fn words(&mut self) -> &mut [u64] {
        if self.many.is_empty() { &mut self.few } else { &mut self.many }
    }

    fn get(&mut self, at: usize) -> bool {
        self.words()[at / 64] & (1 << (at % 64)) != 0
    }

    /// Gives whether it was set before.
    fn set(&mut self, at: usize) -> bool {
        let before = self.get(at);
        self.words()[at / 64] |= 1 << (at % 64);
        before
    }

    fn clear(&mut self, at: usize) {
        self.words()[at / 64] &= !(1 << (at % 64));
    }
}
