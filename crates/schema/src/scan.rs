//! Runs over JSON text without taking it apart: strings eight bytes at a time, values by their brackets.
//!
//! Invariant: the result is that of a bytewise search. Syntax is not checked.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// How many bytes at the beginning can stand in a JSON string as they are: no quote, backslash or control
/// character.
#[inline]
pub(crate) fn plain(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let found = special(u64::from_le_bytes(*word));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    // the rest is searched in an overlapping word, or in two overlapping halves
    let tail = match (bytes.last_chunk::<8>(), bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(last), ..) => Some(u64::from_le_bytes(*last)),
        (None, Some(first), Some(last)) => {
            Some(u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last)))
        }
        _ => None,
    };
    if tail.is_some_and(|tail| special(tail) == 0) {
        return bytes.len();
    }
    at + bytes[at..].iter().take_while(|byte| **byte >= 0x20 && **byte != b'"' && **byte != b'\\').count()
}

/// How long the rest of a map or list is whose opening bracket is behind us, with the closing one; `None` when
/// it has no end.
pub(crate) fn rest_of_value(bytes: &[u8]) -> Option<usize> {
    let (mut depth, mut at) = (1usize, 0);
    while depth > 0 {
        // one bit tells braces from brackets, and nothing else that stands outside of strings looks like either
        match bytes.get(at)? | 0x20 {
            b'"' => at = end_of_string(bytes, at + 1)?,
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    Some(at)
}

/// Where the closing quote of a string is that begins at `at`.
fn end_of_string(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        while let Some(word) = bytes.get(at..)?.first_chunk::<8>() {
            let word = u64::from_le_bytes(*word);
            let found = (zeros(word ^ (ONES * b'"' as u64)) | zeros(word ^ (ONES * b'\\' as u64))) & HIGH;
            if found != 0 {
                at += found.trailing_zeros() as usize / 8;
                break;
            }
            at += 8;
        }
        match bytes.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The high bit of each byte that is special. Bits above the lowest one may be wrong, that one never is: a
/// borrow goes upwards only, and only from a byte that is special.
#[inline]
const fn special(word: u64) -> u64 {
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    let quote = zeros(word ^ (ONES * b'"' as u64));
    let backslash = zeros(word ^ (ONES * b'\\' as u64));
    (control | quote | backslash) & HIGH
}

/// The high bit of each byte that is zero, and other bits.
#[inline]
const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word
}

#[cfg(test)]
mod tests {
    use super::{plain, rest_of_value};

    #[test]
    fn values_end_at_their_bracket() {
        for (text, expected) in [
            ("}", Some(1)),
            ("1],2", Some(2)),
            (r#""}\"}":{"a":["]"]}},{}"#, Some(r#""}\"}":{"a":["]"]}}"#.len())),
            (r#""a":{}"#, None),
            (r#""a"#, None),
            (r#""a\"#, None),
        ] {
            assert_eq!(rest_of_value(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn every_byte_at_every_place_is_reported() {
        for length in 0..20 {
            for at in 0..length {
                for byte in 0..=255u8 {
                    for after in [b'a', b'"', 0x1f, 0x21, 0x80, 0xff] {
                        let mut text = vec![b'z'; length];
                        text[at] = byte;
                        text[at + 1..].fill(after);
                        let special = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
                        let expected = text.iter().position(special).unwrap_or(length);
                        assert_eq!(plain(&text), expected, "{text:?}");
                    }
                }
            }
        }
    }
}
