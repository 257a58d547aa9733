//! Numbers of JSON text as integers or floats.

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

/// The JSON form of a float: a whole one is an integer, if it is in range.
pub(crate) fn float_value(number: f64) -> Value {
    const EDGE: f64 = 9_223_372_036_854_775_808.0;
    if number.fract() == 0.0 && (-EDGE..EDGE).contains(&number) {
        Value::Int(number as i64)
    } else {
        Value::Float(number)
    }
}
