//! Type conversions.

use crate::fault::{Outcome, fail};
use crate::time::{self, Timestamp};
use crate::value::{CelValue, Text};
use std::sync::Arc;

impl CelValue<'_> {
    /// The result of the function `string`; `None` where that fails.
    pub fn text(&self) -> Option<String> {
        match convert("string", self.clone()) {
            Ok(CelValue::String(text)) => Some(text.to_string()),
            _ => None,
        }
    }
}

/// The result of a type's conversion function.
pub(crate) fn convert<'a>(to: &str, value: CelValue<'a>) -> Outcome<CelValue<'a>> {
    match to {
        "dyn" => return Ok(value),
        "type" => return Ok(CelValue::Type(value.type_name())),
        _ => {}
    }
    let wanted = match to {
        "timestamp" => "google.protobuf.Timestamp",
        "duration" => "google.protobuf.Duration",
        other => other,
    };
    if value.type_name() == wanted {
        return Ok(value);
    }
    if let CelValue::Opaque(_) = value {
        return fail(format!(
            "type conversion to '{wanted}' not supported for values preserved by x-kubernetes-preserve-unknown-fields"
        ));
    }
    let converted = match to {
        "int" => to_int(&value)?.map(CelValue::Int),
        "uint" => to_uint(&value)?.map(CelValue::Uint),
        "double" => to_double(&value).map(CelValue::Double),
        "bool" => match &value {
            CelValue::String(text) => parse_bool(text).map(CelValue::Bool),
            _ => None,
        },
        "string" => to_string(&value)?,
        "bytes" => match &value {
            CelValue::String(text) => Some(CelValue::Bytes(text.as_bytes().into())),
            _ => None,
        },
        "timestamp" => match &value {
            CelValue::Int(seconds) => Some(CelValue::Timestamp(Timestamp::from_unix(*seconds)?)),
            CelValue::String(text) => match time::parse_timestamp(text) {
                // a time out of range has another error than an invalid one
                Some(time) => {
                    Timestamp::from_unix(time.seconds)?;
                    Some(CelValue::Timestamp(time))
                }
                None => None,
            },
            _ => None,
        },
        "duration" => match &value {
            CelValue::String(text) => schema::time::parse_duration(text).ok().map(CelValue::Duration),
            _ => None,
        },
        _ => None,
    };
    match converted {
        Some(converted) => Ok(converted),
        None => fail(format!("type conversion error from '{}' to '{wanted}'", value.type_name())),
    }
}

fn to_int(value: &CelValue<'_>) -> Outcome<Option<i64>> {
    Ok(match value {
        CelValue::Uint(number) => match i64::try_from(*number) {
            Ok(number) => Some(number),
            Err(_) => return fail("integer overflow"),
        },
        CelValue::Double(number) => {
            if !(*number > i64::MIN as f64 && *number < i64::MAX as f64) {
                return fail("integer overflow");
            }
            Some(*number as i64)
        }
        CelValue::String(text) => text.parse().ok(),
        CelValue::Timestamp(time) => Some(time.seconds),
        CelValue::Duration(nanos) => Some(*nanos),
        _ => None,
    })
}

fn to_uint(value: &CelValue<'_>) -> Outcome<Option<u64>> {
    Ok(match value {
        CelValue::Int(number) => match u64::try_from(*number) {
            Ok(number) => Some(number),
            Err(_) => return fail("unsigned integer overflow"),
        },
        CelValue::Double(number) => {
            if !(*number >= 0.0 && *number < 18_446_744_073_709_551_616.0) {
                return fail("unsigned integer overflow");
            }
            Some(*number as u64)
        }
        CelValue::String(text) if !text.starts_with('+') => text.parse().ok(),
        _ => None,
    })
}

fn to_double(value: &CelValue<'_>) -> Option<f64> {
    match value {
        CelValue::Int(number) => Some(*number as f64),
        CelValue::Uint(number) => Some(*number as f64),
        CelValue::String(text) => parse_double(text),
        _ => None,
    }
}

/// A number as text; `None` if it does not fit.
fn parse_double(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text).to_ascii_lowercase();
    match unsigned.as_str() {
        "inf" | "infinity" => {
            return Some(if text.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY });
        }
        "nan" if !text.starts_with(['+', '-']) => return Some(f64::NAN),
        _ => {}
    }
    let plain = unsigned.bytes().all(|it| it.is_ascii_digit() || b".e+-".contains(&it));
    text.parse().ok().filter(|it: &f64| plain && it.is_finite())
}

fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

fn to_string<'a>(value: &CelValue<'a>) -> Outcome<Option<CelValue<'a>>> {
    let text: Arc<str> = match value {
        CelValue::Bool(truth) => truth.to_string().into(),
        CelValue::Int(number) => number.to_string().into(),
        CelValue::Uint(number) => number.to_string().into(),
        CelValue::Double(number) => double_text(*number).into(),
        CelValue::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => return fail("invalid UTF-8 in bytes, cannot convert to string"),
        },
        CelValue::Duration(nanos) => duration_text(*nanos).into(),
        CelValue::Timestamp(time) => time.text().into(),
        CelValue::Null => "null".into(),
        CelValue::Type(name) => (*name).into(),
        _ => return Ok(None),
    };
    Ok(Some(CelValue::String(Text::Shared(text))))
}

fn duration_text(nanos: i64) -> String {
    let seconds = (nanos / 1_000_000_000) as f64 + (nanos % 1_000_000_000) as f64 / 1e9;
    format!("{seconds}s")
}

/// The shortest digits, with an exponent for large and small numbers.
pub(crate) fn double_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number != 0.0 && !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    format!("{number}")
}

/// A value in an error message.
pub(crate) fn format_value(value: &CelValue<'_>) -> String {
    match value {
        CelValue::String(text) => text.to_string(),
        CelValue::Null => "0".to_owned(),
        other => match to_string(other) {
            Ok(Some(CelValue::String(text))) => text.to_string(),
            _ => other.type_name().to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_as_text() {
        for (number, expected) in [
            (0.0, "0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (123_456.0, "123456"),
            (1_234_567.5, "1.2345675e+06"),
            (1e100, "1e+100"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            assert_eq!(double_text(number), expected);
        }
    }

    #[test]
    fn durations_as_text() {
        assert_eq!(duration_text(0), "0s");
        assert_eq!(duration_text(90_000_000_000), "90s");
        assert_eq!(duration_text(-1_500_000_000), "-1.5s");
    }
}
