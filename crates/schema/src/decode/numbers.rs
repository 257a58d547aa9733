//! Numbers of JSON text as integers or floats.

use crate::encode::float_text;
use crate::value::Value;

/// The integer that a number with a point or an exponent equals. One out of range becomes the least integer.
pub(super) fn whole(text: &str) -> Option<i64> {
    let number = text.parse::<f64>().ok().filter(|it| it.fract() == 0.0)?;
    const EDGE: f64 = 9_223_372_036_854_775_808.0;
    Some(if (-EDGE..EDGE).contains(&number) { number as i64 } else { i64::MIN })
}

/// Whole floats are written without a point, so they are kept as integers.
pub(super) fn whole_or_float(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 9e15 {
        Value::Int(number as i64)
    } else {
        Value::Float(number)
    }
}

/// The JSON form of a float: its shortest text, which is an integer if it has the form of one and is in range.
pub(crate) fn float_value(number: f64) -> Value {
    if number.fract() != 0.0 {
        return Value::Float(number);
    }
    float_text(number).parse().map_or(Value::Float(number), Value::Int)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_floats_have_the_digits_of_their_text() {
        let check = |number: f64, expected: Value| assert_eq!(float_value(number), expected, "{number}");
        check(3.0, Value::Int(3));
        check(-0.0, Value::Int(0));
        check(0.5, Value::Float(0.5));
        check(9_223_372_036_854_774_784.0, Value::Int(9_223_372_036_854_775_000));
        // both edges have a text that is out of range
        for edge in [-9_223_372_036_854_775_808.0, 9_223_372_036_854_775_808.0, 1e300, f64::INFINITY] {
            check(edge, Value::Float(edge));
        }
    }
}
