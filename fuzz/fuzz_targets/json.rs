//! JSON without a table: accepted, refused and understood as serde_json does; its own text is a fixed point.

#![no_main]

use libfuzzer_sys::fuzz_target;
use schema::{Value, decode, encode};

fuzz_target!(|data: &[u8]| {
    let ours = decode::json_untyped(data);
    if let Ok(decoded) = &ours {
        let text = encode::untyped(&decoded.value);
        let again = decode::json_untyped(&text).expect("own text decodes").value;
        assert!(is_same(&again, &decoded.value), "{}", String::from_utf8_lossy(&text));
        // the float -0.0 is written as -0, which is the integer 0 from then on, as upstream has it
        let settled = encode::untyped(&again);
        let again = decode::json_untyped(&settled).expect("own text decodes").value;
        assert_eq!(encode::untyped(&again), settled);
    }
    // serde_json nests less deep, refuses halves of surrogate pairs, and numbers that no float holds
    let brackets = data.iter().filter(|byte| matches!(byte, b'[' | b'{')).count();
    if brackets > 100 || has_surrogate(data) {
        return;
    }
    match (ours, serde_json::from_slice::<serde_json::Value>(data)) {
        (Ok(ours), Ok(theirs)) => assert!(equals(&ours.value, &theirs), "{:?} {theirs:?}", ours.value),
        (Err(_), Err(_)) => {}
        (Ok(_), Err(why)) if why.to_string().starts_with("number out of range") => {}
        (Ok(ours), Err(why)) => panic!("accepted {:?}, and serde_json says {why}", ours.value),
        (Err(why), Ok(theirs)) => panic!("refused {theirs}: {why}"),
    }
});

fn has_surrogate(data: &[u8]) -> bool {
    data.windows(3).any(|it| {
        it[0] == b'u'
            && matches!(it[1], b'd' | b'D')
            && matches!(it[2], b'8' | b'9' | b'a'..=b'f' | b'A'..=b'F')
    })
}

/// Equality of everything but the sign of zero.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::List(a), Value::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b)),
        (Value::Map(a), Value::Map(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|((x, a), (y, b))| x == y && is_same(a, b))
        }
        (Value::Int(a), Value::Float(b)) | (Value::Float(b), Value::Int(a)) => *a as f64 == *b,
        _ => a == b,
    }
}

fn equals(ours: &Value, theirs: &serde_json::Value) -> bool {
    use serde_json::Value as Other;
    match (ours, theirs) {
        (Value::Null, Other::Null) => true,
        (Value::Bool(a), Other::Bool(b)) => a == b,
        (Value::Int(a), Other::Number(b)) => {
            b.as_i64().map_or_else(|| b.as_f64() == Some(*a as f64), |b| *a == b)
        }
        (Value::Float(a), Other::Number(b)) => b.as_f64().is_some_and(|b| is_same_float(*a, b)),
        (Value::String(a), Other::String(b)) => a == b,
        (Value::List(a), Other::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equals(a, b)),
        (Value::Map(a), Other::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| equals(a, b)))
        }
        _ => false,
    }
}

/// Equality, where serde_json reads floats exactly: with its feature `float_roundtrip`, which the workspace does not have.
fn is_same_float(ours: f64, theirs: f64) -> bool {
    ours == theirs || (!cfg!(fuzzing) && (ours - theirs).abs() <= ours.abs() * 1e-15 + f64::MIN_POSITIVE)
}
