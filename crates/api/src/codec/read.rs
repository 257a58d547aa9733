//! Reads typed structs from JSON text.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use schema::Value;
use schema::source::{Json as Text, MapText, Source, SyntaxError, Token};
use schema::{decode, encode};

use super::{Json, Struct};

pub type ReadResult<T> = Result<T, ReadError>;

/// Why text is not an object of a type: what is wrong, and where.
#[derive(Debug, thiserror::Error)]
pub struct ReadError {
    /// Field names and positions, innermost first.
    path: Vec<String>,
    message: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, part) in self.path.iter().rev().enumerate() {
            let dot = if at > 0 && !part.starts_with('[') { "." } else { "" };
            write!(out, "{dot}{part}")?;
        }
        let colon = if self.path.is_empty() { "" } else { ": " };
        write!(out, "{colon}{}", self.message)
    }
}

impl From<SyntaxError> for ReadError {
    fn from(error: SyntaxError) -> Self {
        ReadError::new(error.0)
    }
}

impl ReadError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        ReadError { path: Vec::new(), message: message.into() }
    }

    /// A value of another form than the field has.
    pub(crate) fn form(token: &Token<'_>) -> Self {
        ReadError::new(format!("unexpected {}", form(token)))
    }

    pub(super) fn expected(expected: &str, token: &Token<'_>) -> Self {
        ReadError::new(format!("expected {expected}, found {}", form(token)))
    }

    fn within(mut self, part: String) -> Self {
        self.path.push(part);
        self
    }
}

fn form(token: &Token<'_>) -> &'static str {
    match token {
        Token::Map | Token::Json(_) => "an object",
        Token::List => "a list",
        Token::Null => "null",
        Token::Bool(_) => "a boolean",
        Token::Int(_) | Token::Decimal(_) => "a number",
        Token::String(_) => "a string",
    }
}

/// JSON text that is read from left to right.
pub struct Reader<'a> {
    text: &'a str,
    source: Text<'a>,
    /// Whether the managed fields of objects are stepped over.
    skips_managed_fields: bool,
    /// Whether fields that a type does not declare are stepped over.
    skips_unknown_fields: bool,
}

/// The field of [`ObjectMeta`](crate::meta::v1::ObjectMeta) that is often half of an object.
const MANAGED_FIELDS: &str = "managedFields";

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> ReadResult<Self> {
        let text = std::str::from_utf8(bytes)
            .map_err(|bad| ReadError::new(format!("invalid UTF-8 at byte {}", bad.valid_up_to())))?;
        let source = Text::of_text(text);
        Ok(Reader { text, source, skips_managed_fields: false, skips_unknown_fields: false })
    }

    /// Steps over the managed fields of objects.
    #[must_use]
    pub fn without_managed_fields(self) -> Self {
        Reader { skips_managed_fields: true, ..self }
    }

    /// Steps over fields that a type does not declare.
    #[must_use]
    pub fn without_unknown_fields(self) -> Self {
        Reader { skips_unknown_fields: true, ..self }
    }

    /// Reads the only value of the text.
    pub fn whole<T: Json>(mut self) -> ReadResult<T> {
        let mut value = T::default();
        self.read(&mut value)?;
        self.end()?;
        Ok(value)
    }

    /// Reads the next value.
    pub fn read<T: Json>(&mut self, into: &mut T) -> ReadResult<()> {
        let token = self.source.value()?;
        into.read(token, self)
    }

    /// Nothing may follow.
    pub fn end(&mut self) -> ReadResult<()> {
        Ok(self.source.end()?)
    }

    pub(crate) fn read_struct(&mut self, into: &mut dyn Struct, token: Token<'_>) -> ReadResult<()> {
        match token {
            Token::Map => {}
            Token::Null => return Ok(()),
            other => return Err(ReadError::expected("an object", &other)),
        }
        while let Some(name) = self.source.key()? {
            if self.skips_managed_fields && name == MANAGED_FIELDS {
                self.skip()?;
                continue;
            }
            match into.read_field(&name, self) {
                Ok(true) => {}
                Ok(false) if self.skips_unknown_fields => self.skip()?,
                Ok(false) => {
                    let value = self.any().map_err(|error| error.within(name.clone().into_owned()))?;
                    into.unknown_fields_mut().push(name.into_owned(), value);
                }
                Err(error) => return Err(error.within(name.into_owned())),
            }
        }
        Ok(())
    }

    /// Steps over the next value.
    fn skip(&mut self) -> ReadResult<()> {
        let token = self.source.value()?;
        Ok(self.source.skip(&token)?)
    }

    fn any(&mut self) -> ReadResult<Value> {
        let token = self.source.value()?;
        self.rest_of_any(token)
    }

    /// A value of any form that begins with a token.
    fn rest_of_any(&mut self, token: Token<'_>) -> ReadResult<Value> {
        match token {
            Token::Null => Ok(Value::Null),
            Token::Bool(it) => Ok(Value::Bool(it)),
            Token::Int(it) => Ok(Value::Int(it)),
            Token::String(it) => Ok(Value::String(it.into_owned())),
            Token::Decimal(it) => it.parse().map(Value::Float).map_err(|_| ReadError::new("not a number")),
            Token::Json(it) => Ok(Value::Json(it)),
            Token::Map => self.rest_of_tree(&Token::Map),
            Token::List => self.rest_of_tree(&Token::List),
        }
    }

    /// The compact text of an object whose opening brace is read.
    pub(super) fn rest_of_object(&mut self) -> ReadResult<Arc<str>> {
        match self.source.text()? {
            MapText::Compact(text) => Ok(text),
            MapText::Spaced(text) => {
                let decoded = decode::json_untyped(text.as_bytes());
                let decoded = decoded.map_err(|error| ReadError::new(error.to_string()))?;
                Ok(String::from_utf8_lossy(&encode::untyped(&decoded.value)).into())
            }
        }
    }

    fn rest_of_tree(&mut self, token: &Token<'a>) -> ReadResult<Value> {
        let start = self.source.position() - 1;
        self.source.skip(token)?;
        let text = &self.text.as_bytes()[start..self.source.position()];
        let decoded = decode::json_untyped(text).map_err(|error| ReadError::new(error.to_string()))?;
        Ok(decoded.value)
    }
}

impl Json for Value {
    fn read(&mut self, token: Token<'_>, input: &mut Reader<'_>) -> ReadResult<()> {
        *self = input.rest_of_any(token)?;
        Ok(())
    }

    fn write(&self, out: &mut super::Writer) {
        out.any(self);
    }

    fn is_empty(&self) -> bool {
        matches!(self, Value::Null)
    }
}

impl<T: Json> Json for Vec<T> {
    fn read(&mut self, token: Token<'_>, input: &mut Reader<'_>) -> ReadResult<()> {
        self.clear();
        match token {
            Token::List => {}
            Token::Null => return Ok(()),
            other => return Err(ReadError::expected("a list", &other)),
        }
        while input.source.item()? {
            let mut item = T::default();
            input.read(&mut item).map_err(|error| error.within(format!("[{}]", self.len())))?;
            if self.is_empty() {
                // most lists have one item, for which `push` would reserve the room of four
                self.reserve_exact(1);
            }
            self.push(item);
        }
        // objects stay in caches for long
        self.shrink_to_fit();
        Ok(())
    }

    fn write(&self, out: &mut super::Writer) {
        out.list(self);
    }

    fn is_empty(&self) -> bool {
        Vec::is_empty(self)
    }
}

impl<T: Json> Json for BTreeMap<String, T> {
    fn read(&mut self, token: Token<'_>, input: &mut Reader<'_>) -> ReadResult<()> {
        self.clear();
        match token {
            Token::Map => {}
            Token::Null => return Ok(()),
            other => return Err(ReadError::expected("an object", &other)),
        }
        while let Some(name) = input.source.key()? {
            let mut value = T::default();
            input.read(&mut value).map_err(|error| error.within(format!("[{name}]")))?;
            self.insert(name.into_owned(), value);
        }
        Ok(())
    }

    fn write(&self, out: &mut super::Writer) {
        out.map(self);
    }

    fn is_empty(&self) -> bool {
        BTreeMap::is_empty(self)
    }
}

impl<T: Json> Json for Option<T> {
    fn read(&mut self, token: Token<'_>, input: &mut Reader<'_>) -> ReadResult<()> {
        *self = None;
        if !matches!(token, Token::Null) {
            self.insert(T::default()).read(token, input)?;
        }
        Ok(())
    }

    fn write(&self, out: &mut super::Writer) {
        match self {
            Some(value) => value.write(out),
            None => out.null(),
        }
    }

    fn is_empty(&self) -> bool {
        self.is_none()
    }
}

impl<T: Json> Json for Box<T> {
    fn read(&mut self, token: Token<'_>, input: &mut Reader<'_>) -> ReadResult<()> {
        (**self).read(token, input)
    }

    fn write(&self, out: &mut super::Writer) {
        (**self).write(out);
    }

    fn is_empty(&self) -> bool {
        (**self).is_empty()
    }
}

impl Json for String {
    fn read(&mut self, token: Token<'_>, _: &mut Reader<'_>) -> ReadResult<()> {
        *self = match token {
            Token::String(text) => text.into_owned(),
            Token::Null => String::new(),
            other => return Err(ReadError::expected("a string", &other)),
        };
        Ok(())
    }

    fn write(&self, out: &mut super::Writer) {
        out.string(self);
    }

    fn is_empty(&self) -> bool {
        String::is_empty(self)
    }
}

impl Json for bool {
    fn read(&mut self, token: Token<'_>, _: &mut Reader<'_>) -> ReadResult<()> {
        *self = match token {
            Token::Bool(truth) => truth,
            Token::Null => false,
            other => return Err(ReadError::expected("a boolean", &other)),
        };
        Ok(())
    }

    fn write(&self, out: &mut super::Writer) {
        out.raw(if *self { "true" } else { "false" });
    }

    fn is_empty(&self) -> bool {
        !*self
    }
}

impl Json for i64 {
    fn read(&mut self, token: Token<'_>, _: &mut Reader<'_>) -> ReadResult<()> {
        *self = match token {
            Token::Int(number) => number,
            Token::Null => 0,
            other => return Err(ReadError::expected("an integer", &other)),
        };
        Ok(())
    }

    fn write(&self, out: &mut super::Writer) {
        out.integer(*self);
    }

    fn is_empty(&self) -> bool {
        *self == 0
    }
}

impl Json for i32 {
    fn read(&mut self, token: Token<'_>, input: &mut Reader<'_>) -> ReadResult<()> {
        let mut number = 0i64;
        number.read(token, input)?;
        *self = i32::try_from(number).map_err(|_| ReadError::new(format!("{number} does not fit int32")))?;
        Ok(())
    }

    fn write(&self, out: &mut super::Writer) {
        out.integer((*self).into());
    }

    fn is_empty(&self) -> bool {
        *self == 0
    }
}

impl Json for f64 {
    fn read(&mut self, token: Token<'_>, _: &mut Reader<'_>) -> ReadResult<()> {
        *self = match token {
            Token::Int(number) => number as f64,
            Token::Decimal(text) => text.parse().map_err(|_| ReadError::new("not a number"))?,
            Token::Null => 0.0,
            other => return Err(ReadError::expected("a number", &other)),
        };
        Ok(())
    }

    fn write(&self, out: &mut super::Writer) {
        out.raw(&schema::encode::float_text(*self));
    }

    fn is_empty(&self) -> bool {
        *self == 0.0
    }
}

/// Reads a value that is text in JSON; `null` is the zero value.
pub(super) fn text<T: Default>(
    token: Token<'_>,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> ReadResult<T> {
    match token {
        Token::String(text) => parse(&text).map_err(ReadError::new),
        Token::Null => Ok(T::default()),
        other => Err(ReadError::expected("a string", &other)),
    }
}
