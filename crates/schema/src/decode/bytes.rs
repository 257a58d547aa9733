//! Bytes as base64 text: the accepted forms, the canonical form, and errors.

use super::error::DecodeError;
use crate::value::Value;
use base64::Engine;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use std::borrow::Cow;

pub(super) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The error of invalid base64; `None` if it is valid.
pub fn base64_problem(text: &str) -> Option<String> {
    illegal_base64(text.as_bytes()).map(|at| format!("illegal base64 data at input byte {at}"))
}

/// The canonical base64 form.
pub(super) fn canonical(text: &str) -> Result<Value, DecodeError> {
    if let Some(at) = illegal_base64(text.as_bytes()) {
        return Err(DecodeError::Type(format!("illegal base64 data at input byte {at}")));
    }
    // line breaks are accepted and dropped
    let compact: Cow<'_, str> =
        if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], "").into() } else { text.into() };
    match STANDARD.decode(&*compact) {
        Ok(_) => Ok(compact.into()),
        // bits beyond the last byte are accepted and dropped
        Err(_) => LENIENT.decode(&*compact).map(|bytes| STANDARD.encode(bytes).into()).map_err(|_| {
            DecodeError::Type(format!("illegal base64 data at input byte {}", compact.len() / 4 * 4))
        }),
    }
}

/// Accepts any bits beyond the last byte as padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// The position at which text stops being base64, as errors show it.
fn illegal_base64(text: &[u8]) -> Option<usize> {
    let blank = |byte: u8| matches!(byte, b'\n' | b'\r');
    let skip = |mut at: usize| {
        while text.get(at).copied().is_some_and(blank) {
            at += 1;
        }
        at
    };
    let (mut at, mut digits) = (0, 0);
    loop {
        at = skip(at);
        let Some(byte) = text.get(at) else {
            return (digits > 0).then(|| at.saturating_sub(digits));
        };
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => digits = (digits + 1) % 4,
            b'=' if digits < 2 => return Some(at),
            b'=' => {
                let mut end = skip(at + 1);
                if digits == 2 {
                    match text.get(end) {
                        None => return Some(text.len()),
                        Some(b'=') => end = skip(end + 1),
                        Some(_) => return Some(end - 1),
                    }
                }
                return (end < text.len()).then_some(end);
            }
            _ => return Some(at),
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_position_of_the_byte() {
        for (text, expected) in [
            ("", None),
            ("aGk=", None),
            ("aG\nk=\n", None),
            ("aGl=", None),
            ("!!", Some(0)),
            ("a", Some(0)),
            ("aGk", Some(0)),
            ("aGk==", Some(4)),
            ("a-_=", Some(1)),
            ("aGkhaGk", Some(4)),
            ("aG=k", Some(2)),
            ("aG=", Some(3)),
            ("a===", Some(1)),
            ("aGk=aGk=", Some(4)),
        ] {
            assert_eq!(illegal_base64(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn bits_beyond_the_last_byte_go() {
        assert_eq!(canonical("aGl="), Ok("aGk=".into()));
        assert_eq!(canonical("aG\nk="), Ok("aGk=".into()));
    }
}
