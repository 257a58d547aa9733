//! Scalar fields whose JSON form is text, or one of two forms.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schema::quantity::Quantity;
use schema::source::Token;
use schema::time;

use super::read::text;
use super::{Json, ReadError, ReadResult, Reader, Writer};

/// A point in time, in whole seconds since 1970.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

impl Time {
    pub const fn unix_seconds(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Time {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&time::format_time(self.0))
    }
}

/// A point in time, in microseconds since 1970.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MicroTime(pub i64);

impl MicroTime {
    pub const fn unix_micros(self) -> i64 {
        self.0
    }
}

impl fmt::Display for MicroTime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&time::format_micro_time(self.0))
    }
}

/// A length of time in nanoseconds, written as `1m30s`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub i64);

impl fmt::Display for Duration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&time::format_duration(self.0))
    }
}

/// Bytes, which are base64 in JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteString(pub Vec<u8>);

/// A number, or a text such as `25%` or the name of a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IntOrString {
    Int(i32),
    String(String),
}

impl Default for IntOrString {
    fn default() -> Self {
        IntOrString::Int(0)
    }
}

impl fmt::Display for IntOrString {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IntOrString::Int(number) => write!(out, "{number}"),
            IntOrString::String(text) => out.write_str(text),
        }
    }
}

/// JSON of a scalar that is text: how the text is read and written, and which value is left out.
macro_rules! text_json {
    ($ty:ty, read: $read:expr, write: $write:expr, is_empty: $is_empty:expr) => {
        impl Json for $ty {
            fn read(&mut self, token: Token<'_>, _: &mut Reader<'_>) -> ReadResult<()> {
                *self = text(token, $read)?;
                Ok(())
            }

            fn write(&self, out: &mut Writer) {
                let write: fn(&Self) -> String = $write;
                out.string(&write(self));
            }

            fn is_empty(&self) -> bool {
                let is_empty: fn(&Self) -> bool = $is_empty;
                is_empty(self)
            }
        }
    };
}

text_json!(
    Time,
    read: |it| time::to_unix(it).map(Time).ok_or_else(|| no_time(it)),
    write: Time::to_string,
    is_empty: |_| false
);
text_json!(
    MicroTime,
    read: |it| time::to_unix_micros(it).map(MicroTime).ok_or_else(|| no_time(it)),
    write: MicroTime::to_string,
    is_empty: |_| false
);
text_json!(
    Duration,
    read: |it| time::parse_duration(it).map(Duration).map_err(|error| error.to_string()),
    write: Duration::to_string,
    is_empty: |it| it.0 == 0
);
text_json!(
    ByteString,
    read: |it| STANDARD.decode(it).map(ByteString).map_err(|error| error.to_string()),
    write: |it| STANDARD.encode(&it.0),
    is_empty: |it| it.0.is_empty()
);

fn no_time(text: &str) -> String {
    format!("{text:?} is not a time of RFC 3339")
}

impl Json for Quantity {
    fn read(&mut self, token: Token<'_>, _: &mut Reader<'_>) -> ReadResult<()> {
        *self = match token {
            // a number is as good as its text
            Token::Int(number) => Quantity::new(number),
            Token::Decimal(number) => number.parse().map_err(|error| ReadError::new(format!("{error}")))?,
            other => text(other, |it| it.parse().map_err(|error| format!("{it:?}: {error}")))?,
        };
        Ok(())
    }

    fn write(&self, out: &mut Writer) {
        out.string(&self.to_string());
    }

    fn is_empty(&self) -> bool {
        self.is_zero()
    }
}

impl Json for IntOrString {
    fn read(&mut self, token: Token<'_>, input: &mut Reader<'_>) -> ReadResult<()> {
        *self = match token {
            Token::String(text) => IntOrString::String(text.into_owned()),
            other => {
                let mut number = 0;
                Json::read(&mut number, other, input)?;
                IntOrString::Int(number)
            }
        };
        Ok(())
    }

    fn write(&self, out: &mut Writer) {
        match self {
            IntOrString::Int(number) => out.integer((*number).into()),
            IntOrString::String(text) => out.string(text),
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}
