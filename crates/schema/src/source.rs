//! The sources of a decoder: JSON text or a tree, behind one pull interface.
//!
//! The decoder asks for a value, then for its keys or items. Both sources bound nesting, so that no input can
//! exhaust the stack.

use crate::encode;
use crate::scan::{plain, rest_of_value};
use crate::value::{Map, Value};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::vec::IntoIter;

/// The deepest nesting of values.
pub const MAX_DEPTH: usize = 512;

/// The beginning of a value, or a whole scalar.
#[derive(Debug, PartialEq)]
pub enum Token<'a> {
    Map,
    List,
    Null,
    Bool(bool),
    Int(i64),
    /// A number that is not a 64-bit integer, as it was written.
    Decimal(Cow<'a, str>),
    String(Cow<'a, str>),
    /// A map as compact text.
    Json(Arc<str>),
}

/// The text of a whole map.
#[derive(Debug, PartialEq)]
pub enum MapText<'a> {
    /// Without blanks between its parts.
    Compact(Arc<str>),
    /// As written, with blanks.
    Spaced(&'a str),
}

/// The error of text that is not JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SyntaxError(pub String);

/// A pull parser. After `Token::Map` come keys, each followed by a value, until `key` gives `None`; after
/// `Token::List` come values as long as `item` gives true.
pub trait Source<'a> {
    fn value(&mut self) -> Result<Token<'a>, SyntaxError>;
    fn key(&mut self) -> Result<Option<Cow<'a, str>>, SyntaxError>;
    fn item(&mut self) -> Result<bool, SyntaxError>;
    /// The text of a map, instead of its keys.
    fn text(&mut self) -> Result<MapText<'a>, SyntaxError>;
    /// Checks that nothing follows the value.
    fn end(&mut self) -> Result<(), SyntaxError>;

    /// Skips the rest of a value that began with `token`.
    fn skip(&mut self, token: &Token<'a>) -> Result<(), SyntaxError> {
        step_over(self, token)
    }
}

fn step_over<'a>(source: &mut (impl Source<'a> + ?Sized), token: &Token<'a>) -> Result<(), SyntaxError> {
    match token {
        Token::List => {
            while source.item()? {
                let token = source.value()?;
                step_over(source, &token)?;
            }
        }
        Token::Map => {
            while source.key()?.is_some() {
                let token = source.value()?;
                step_over(source, &token)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// JSON text.
pub struct Json<'a> {
    text: &'a str,
    at: usize,
    /// One entry per open map or list: whether it has had no entry yet.
    open: Vec<bool>,
    /// Whether there was space between tokens.
    spaced: bool,
    /// Whether the text is canonical: skipped parts are then not checked.
    canonical: bool,
}

impl<'a> Json<'a> {
    /// Refuses text that is not UTF-8.
    pub fn new(bytes: &'a [u8]) -> Result<Self, SyntaxError> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Json::of_text(text)),
            Err(bad) => Err(SyntaxError(format!("invalid UTF-8 at byte {}", bad.valid_up_to()))),
        }
    }

    pub fn of_text(text: &'a str) -> Self {
        Json { text, at: 0, open: Vec::with_capacity(16), spaced: false, canonical: false }
    }

    /// Text that was written by this crate, compact and without a mistake in it.
    pub fn canonical(text: &'a str) -> Self {
        Json { canonical: true, ..Json::of_text(text) }
    }

    /// The number of consumed bytes.
    pub fn position(&self) -> usize {
        self.at
    }

    #[inline]
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = bytes.get(self.at) {
            self.at += 1;
            self.spaced = true;
        }
        bytes.get(self.at).copied()
    }

    fn unexpected<T>(&self, wanted: &str) -> Result<T, SyntaxError> {
        Err(SyntaxError(match self.text.as_bytes().get(self.at) {
            None => "unexpected end of JSON input".to_owned(),
            Some(byte) => format!("invalid character {} {wanted}", format_value(*byte)),
        }))
    }

    /// A character that a literal cannot go on with; the end of the text counts as a space.
    fn broken<T>(&self, context: &str) -> Result<T, SyntaxError> {
        let byte = self.text.as_bytes().get(self.at).copied().unwrap_or(b' ');
        Err(SyntaxError(format!("invalid character {} {context}", format_value(byte))))
    }

    fn enter(&mut self) -> Result<(), SyntaxError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(SyntaxError("exceeded max depth".to_owned()));
        }
        self.at += 1;
        self.open.push(true);
        Ok(())
    }

    fn word(&mut self, word: &str, token: Token<'a>) -> Result<Token<'a>, SyntaxError> {
        let found = self.text.as_bytes()[self.at..].iter();
        let alike = found.zip(word.as_bytes()).take_while(|(found, expected)| found == expected).count();
        self.at += alike;
        match word[alike..].chars().next() {
            None => Ok(token),
            Some(next) => self.broken(&format!("in literal {word} (expecting {next:?})")),
        }
    }

    fn number(&mut self) -> Result<Token<'a>, SyntaxError> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let digits = |at: &mut usize| {
            let from = *at;
            while bytes.get(*at).is_some_and(u8::is_ascii_digit) {
                *at += 1;
            }
            *at > from
        };
        let mut at = self.at;
        if bytes[at] == b'-' {
            at += 1;
        }
        let whole = at;
        if !digits(&mut at) {
            self.at = at;
            return self.broken("in numeric literal");
        }
        // a number that begins with 0 ends there; a following digit is an error
        if bytes[whole] == b'0' {
            at = whole + 1;
        }
        let mut integer = true;
        if bytes.get(at) == Some(&b'.') {
            integer = false;
            at += 1;
            if !digits(&mut at) {
                self.at = at;
                return self.broken("after decimal point in numeric literal");
            }
        }
        if let Some(b'e' | b'E') = bytes.get(at) {
            integer = false;
            at += 1;
            if let Some(b'+' | b'-') = bytes.get(at) {
                at += 1;
            }
            if !digits(&mut at) {
                self.at = at;
                return self.broken("in exponent of numeric literal");
            }
        }
        self.at = at;
        let text = &self.text[start..at];
        if integer && let Ok(number) = text.parse() {
            return Ok(Token::Int(number));
        }
        Ok(Token::Decimal(Cow::Borrowed(text)))
    }

    fn string(&mut self) -> Result<Cow<'a, str>, SyntaxError> {
        let bytes = self.text.as_bytes();
        let start = self.at + 1;
        let at = start + plain(&bytes[start..]);
        match bytes.get(at) {
            Some(b'"') => {
                self.at = at + 1;
                Ok(Cow::Borrowed(&self.text[start..at]))
            }
            Some(b'\\') => self.escaped(start, at),
            _ => {
                self.at = at;
                self.unexpected("in string literal")
            }
        }
    }

    /// A string with escapes; `at` is the first backslash.
    fn escaped(&mut self, start: usize, mut at: usize) -> Result<Cow<'a, str>, SyntaxError> {
        let bytes = self.text.as_bytes();
        let mut out = String::with_capacity(at - start + 16);
        let mut from = start;
        loop {
            match bytes.get(at) {
                Some(b'"') => {
                    out.push_str(&self.text[from..at]);
                    self.at = at + 1;
                    return Ok(Cow::Owned(out));
                }
                Some(b'\\') => {
                    out.push_str(&self.text[from..at]);
                    self.at = at + 1;
                    out.push(self.escape()?);
                    from = self.at;
                    at = from + plain(&bytes[from..]);
                }
                _ => {
                    self.at = at;
                    return self.unexpected("in string literal");
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, SyntaxError> {
        let plain = match self.text.as_bytes().get(self.at) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode();
            }
            _ => return self.broken("in string escape code"),
        };
        self.at += 1;
        Ok(plain)
    }

    /// `\uXXXX`, or a pair of them. A lone surrogate becomes the replacement character, as clients expect.
    fn unicode(&mut self) -> Result<char, SyntaxError> {
        let high = self.hex4()?;
        if let Some(c) = char::from_u32(high) {
            return Ok(c);
        }
        if (0xd800..0xdc00).contains(&high) && self.text.as_bytes()[self.at..].starts_with(b"\\u") {
            let back = self.at;
            self.at += 2;
            let low = self.hex4()?;
            if (0xdc00..0xe000).contains(&low) {
                let c = char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00));
                return Ok(c.unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = back;
        }
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn hex4(&mut self) -> Result<u32, SyntaxError> {
        let code =
            self.text.get(self.at..self.at + 4).filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
        match code.and_then(|hex| u32::from_str_radix(hex, 16).ok()) {
            Some(code) => {
                self.at += 4;
                Ok(code)
            }
            None => {
                let hex = self.text.as_bytes()[self.at..].iter().take(4);
                self.at += hex.take_while(|byte| byte.is_ascii_hexdigit()).count();
                self.broken("in \\u hexadecimal character escape")
            }
        }
    }

    /// Steps over the comma before an entry; gives false at the closing bracket.
    #[inline]
    fn entry(&mut self, close: u8, wanted: &str) -> Result<bool, SyntaxError> {
        let next = self.peek();
        let Some(first) = self.open.last_mut() else { return self.unexpected(wanted) };
        if next == Some(close) {
            self.open.pop();
            self.at += 1;
            return Ok(false);
        }
        if std::mem::replace(first, false) {
            return Ok(true);
        }
        if next != Some(b',') {
            return self.unexpected(wanted);
        }
        self.at += 1;
        Ok(true)
    }
}

impl<'a> Source<'a> for Json<'a> {
    fn value(&mut self) -> Result<Token<'a>, SyntaxError> {
        match self.peek() {
            Some(b'{') => self.enter().map(|()| Token::Map),
            Some(b'[') => self.enter().map(|()| Token::List),
            Some(b'"') => self.string().map(Token::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Token::Bool(true)),
            Some(b'f') => self.word("false", Token::Bool(false)),
            Some(b'n') => self.word("null", Token::Null),
            _ => self.unexpected("looking for beginning of value"),
        }
    }

    fn key(&mut self) -> Result<Option<Cow<'a, str>>, SyntaxError> {
        if !self.entry(b'}', "after object key:value pair")? {
            return Ok(None);
        }
        if self.peek() != Some(b'"') {
            return self.unexpected("looking for beginning of object key string");
        }
        let key = self.string()?;
        if self.peek() != Some(b':') {
            return self.unexpected("after object key");
        }
        self.at += 1;
        Ok(Some(key))
    }

    fn item(&mut self) -> Result<bool, SyntaxError> {
        self.entry(b']', "after array element")
    }

    fn skip(&mut self, token: &Token<'a>) -> Result<(), SyntaxError> {
        if !self.canonical || !matches!(token, Token::Map | Token::List) {
            return step_over(self, token);
        }
        match rest_of_value(&self.text.as_bytes()[self.at..]) {
            Some(length) => {
                self.at += length;
                self.open.pop();
                Ok(())
            }
            None => {
                self.at = self.text.len();
                self.unexpected("")
            }
        }
    }

    fn text(&mut self) -> Result<MapText<'a>, SyntaxError> {
        // the opening brace is behind us
        let start = self.at - 1;
        self.spaced = false;
        self.skip(&Token::Map)?;
        let text = &self.text[start..self.at];
        if !self.spaced {
            return Ok(MapText::Compact(text.into()));
        }
        Ok(MapText::Spaced(text))
    }

    fn end(&mut self) -> Result<(), SyntaxError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => self.unexpected("after top-level value"),
        }
    }
}

/// The exact values of integers beyond 64 bits with a sign, for which a tree has floats.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LargeIntegers {
    /// By the bits of the float. Of integers that share a float, the last is known.
    exact: HashMap<u64, u64>,
}

impl LargeIntegers {
    /// The float that stands for an integer from now on.
    pub fn float(&mut self, integer: u64) -> f64 {
        let float = integer as f64;
        self.exact.insert(float.to_bits(), integer);
        float
    }

    fn text(&self, float: f64) -> Option<String> {
        self.exact.get(&float.to_bits()).map(u64::to_string)
    }
}

/// A tree as a source; it is consumed.
pub struct Tree {
    next: Option<Value>,
    open: Vec<Frame>,
    integers: LargeIntegers,
}

enum Frame {
    Map(IntoIter<(Cow<'static, str>, Value)>),
    List(IntoIter<Value>),
}

impl Tree {
    pub fn new(value: Value) -> Self {
        Tree::with_integers(value, LargeIntegers::default())
    }

    /// A tree whose floats may stand for large integers.
    pub fn with_integers(value: Value, integers: LargeIntegers) -> Self {
        Tree { next: Some(value), open: Vec::new(), integers }
    }

    fn enter(&mut self, frame: Frame) -> Result<(), SyntaxError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(SyntaxError("exceeded max depth".to_owned()));
        }
        self.open.push(frame);
        Ok(())
    }
}

impl<'a> Source<'a> for Tree {
    fn value(&mut self) -> Result<Token<'a>, SyntaxError> {
        Ok(match self.next.take().unwrap_or_default() {
            Value::Null => Token::Null,
            Value::Bool(truth) => Token::Bool(truth),
            Value::Int(number) => Token::Int(number),
            Value::Float(number) => {
                let exact = self.integers.text(number);
                Token::Decimal(Cow::Owned(exact.unwrap_or_else(|| encode::float_text(number))))
            }
            Value::String(text) => Token::String(Cow::Owned(text)),
            Value::Json(text) => Token::Json(text),
            Value::List(items) => {
                self.enter(Frame::List(items.into_iter()))?;
                Token::List
            }
            Value::Map(map) => {
                self.enter(Frame::Map(map.into_iter()))?;
                Token::Map
            }
        })
    }

    fn key(&mut self) -> Result<Option<Cow<'a, str>>, SyntaxError> {
        let entry = if let Some(Frame::Map(entries)) = self.open.last_mut() { entries.next() } else { None };
        match entry {
            Some((key, value)) => {
                self.next = Some(value);
                Ok(Some(key))
            }
            None => {
                self.open.pop();
                Ok(None)
            }
        }
    }

    fn item(&mut self) -> Result<bool, SyntaxError> {
        self.next = if let Some(Frame::List(items)) = self.open.last_mut() { items.next() } else { None };
        if self.next.is_none() {
            self.open.pop();
        }
        Ok(self.next.is_some())
    }

    fn text(&mut self) -> Result<MapText<'a>, SyntaxError> {
        let map = match self.open.pop() {
            Some(Frame::Map(entries)) => entries.collect(),
            _ => Map::new(),
        };
        Ok(MapText::Compact(encode::compact(&Value::Map(map))))
    }

    fn end(&mut self) -> Result<(), SyntaxError> {
        Ok(())
    }
}
/// A byte in quotes, as the character with its number.
fn format_value(byte: u8) -> String {
    match char::from(byte) {
        '\'' => r"'\''".to_owned(),
        '"' => "'\"'".to_owned(),
        c => {
            let quoted = crate::problem::quoted(c.encode_utf8(&mut [0; 4]));
            format!("'{}'", quoted.trim_matches('"'))
        }
    }
}
