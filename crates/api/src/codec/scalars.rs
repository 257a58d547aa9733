//! Scalar fields whose JSON form is text, or one of two forms.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration as Span, SystemTime, UNIX_EPOCH};

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

/// The whole second in which it lies.
impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Self {
        Time(micros(time).div_euclid(1_000_000))
    }
}

impl From<Time> for SystemTime {
    fn from(time: Time) -> Self {
        at(time.0, Span::from_secs)
    }
}

/// Reads RFC 3339; fractions of a second are dropped.
impl FromStr for Time {
    type Err = ReadError;

    fn from_str(text: &str) -> ReadResult<Self> {
        time::to_unix(text).map(Time).ok_or_else(|| ReadError::new(no_time(text)))
    }
}

/// Microseconds since 1970, rounded down.
fn micros(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
        Err(before) => {
            let nanos = i128::try_from(before.duration().as_nanos()).unwrap_or(i128::MAX);
            i64::try_from((-nanos).div_euclid(1000)).unwrap_or(i64::MIN)
        }
    }
}

/// The time this many units after 1970; 1970 where the clock of this machine cannot hold it.
fn at(units: i64, span: fn(u64) -> Span) -> SystemTime {
    let distance = span(units.unsigned_abs());
    let time = if units < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
    time.unwrap_or(UNIX_EPOCH)
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

/// The whole microsecond in which it lies.
impl From<SystemTime> for MicroTime {
    fn from(time: SystemTime) -> Self {
        MicroTime(micros(time))
    }
}

impl From<MicroTime> for SystemTime {
    fn from(time: MicroTime) -> Self {
        at(time.0, Span::from_micros)
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

/// The fields that a manager owns, kept as JSON text: clients hand it on and seldom look inside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldsV1(Option<Arc<str>>);

impl FieldsV1 {
    /// The compact JSON text; `None` where the set is absent.
    pub fn as_json(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl Json for FieldsV1 {
    fn read(&mut self, token: Token<'_>, input: &mut Reader<'_>) -> ReadResult<()> {
        self.0 = match token {
            Token::Map => Some(input.rest_of_object()?),
            Token::Null => None,
            other => return Err(ReadError::expected("an object", &other)),
        };
        Ok(())
    }

    fn write(&self, out: &mut Writer) {
        out.raw(self.as_json().unwrap_or("null"));
    }

    fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_parse_and_format() {
        for (micros, seconds) in [(0, 0), (1_999_999, 1), (-1, -1), (-1_000_000, -1), (-1_000_001, -2)] {
            let time = SystemTime::from(MicroTime(micros));
            assert_eq!((MicroTime::from(time), Time::from(time)), (MicroTime(micros), Time(seconds)));
            assert_eq!(Time::from(SystemTime::from(Time(seconds))), Time(seconds));
        }
        assert_eq!("1970-01-01T00:01:00.5Z".parse::<Time>().unwrap(), Time(60));
        assert!("soon".parse::<Time>().is_err());
    }
}
