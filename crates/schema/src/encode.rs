//! The JSON encoder: writes a value in the order of its table.
//!
//! The text is stored, cached and sent: it is the only encoding of an object. For a stamped field of the table (the
//! revision, known only at the commit) the encoder writes an empty string and returns its position, so that the commit
//! can fill it in without encoding again.

use crate::scan::plain;
use crate::table::{Field, Flags, Shape, Type};
use crate::text::Text;
use crate::value::{Map, Value};
use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

/// Structures with at most this many fields are ordered without an allocation or a sort.
const FEW: usize = 64;
/// The initial size of the buffer; most objects fit.
const USUAL: usize = 8 * 1024;

/// An encoded object with a gap for its revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    pub json: Vec<u8>,
    /// The position of the revision, between two quotes; `None` if the type has no such field.
    pub stamp_at: Option<usize>,
}

/// The form of empty lists that are always written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EmptyLists {
    /// `[]`.
    #[default]
    Kept,
    /// `null`, as after a storage format that does not distinguish them.
    Null,
}

/// Encodes an object for the store.
pub fn object(value: &Value, ty: &Type, lists: EmptyLists) -> Encoded {
    let mut writer = Writer { out: Vec::with_capacity(USUAL), stamp_at: None, lists };
    writer.structure(value, ty);
    Encoded { json: writer.out, stamp_at: writer.stamp_at }
}

/// The text that an object would have if it were stored and read back.
pub fn as_stored(value: &Value, ty: &Type, lists: EmptyLists) -> Vec<u8> {
    let mut writer = Writer { out: Vec::with_capacity(1024), stamp_at: Some(0), lists };
    writer.structure(value, ty);
    writer.out
}

/// Text of a value that is stamped already.
pub fn json(value: &Value, ty: &Type) -> Vec<u8> {
    let lists = EmptyLists::Kept;
    let mut writer = Writer { out: Vec::with_capacity(1024), stamp_at: Some(0), lists };
    writer.structure(value, ty);
    writer.out
}

/// Text of a value without a table: keys in their own order.
pub fn untyped(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    any(value, &mut out);
    out
}

struct Writer {
    out: Vec<u8>,
    stamp_at: Option<usize>,
    lists: EmptyLists,
}

impl Writer {
    fn structure(&mut self, value: &Value, ty: &Type) {
        let Value::Map(map) = value else { return any(value, &mut self.out) };
        self.out.push(b'{');
        let start = self.out.len();
        let mut declared = ty.in_order();
        if map.len() <= FEW && ty.fields.len() <= FEW {
            // the entry of each field of the table; undeclared fields come last, by name
            let (mut entry_of, mut places, mut others) = ([0u8; FEW], 0u64, 0u64);
            for (at, (name, _)) in map.iter().enumerate() {
                match declared.find(name) {
                    Some((place, _)) => {
                        entry_of[place] = at as u8;
                        places |= 1 << place;
                    }
                    None => others |= 1 << at,
                }
            }
            for place in bits(places) {
                self.entry(start, map.nth(usize::from(entry_of[place])), Some(&ty.fields[place]));
            }
            for at in bits(others) {
                self.entry(start, map.nth(at), None);
            }
        } else {
            let place = |name| declared.find(name).map_or(usize::MAX, |(place, _)| place);
            let mut order: Vec<(usize, usize)> =
                map.keys().map(place).enumerate().map(|(at, place)| (place, at)).collect();
            order.sort_unstable();
            for (place, at) in order {
                self.entry(start, map.nth(at), ty.fields.get(place));
            }
        }
        self.out.push(b'}');
    }

    /// One entry of a structure whose first one begins at `start`.
    fn entry(&mut self, start: usize, entry: Option<(&str, &Value)>, field: Option<&Field>) {
        let Some((name, value)) = entry else { return };
        // a reader would not tell it from one that is absent
        if value.is_null()
            && field.is_some_and(|field| matches!(&field.shape, Shape::Struct(ty) if ty.one_of))
        {
            return;
        }
        if self.out.len() > start {
            self.out.push(b',');
        }
        match field.map(|field| &field.name) {
            // names that are compiled in have nothing to escape
            Some(Text::Borrowed(name)) => {
                self.out.push(b'"');
                self.out.extend_from_slice(name.as_bytes());
                self.out.extend_from_slice(b"\":");
            }
            _ => {
                string(name, &mut self.out);
                self.out.push(b':');
            }
        }
        match field {
            Some(field) if field.is(Flags::STAMPED) && self.stamp_at.is_none() => {
                self.out.extend_from_slice(b"\"\"");
                self.stamp_at = Some(self.out.len() - 1);
            }
            // JSON of any form is stored as it was sent
            Some(field)
                if self.lists == EmptyLists::Null
                    && !matches!(field.shape, Shape::Scalar(_))
                    && is_empty_list(value) =>
            {
                self.out.extend_from_slice(b"null");
            }
            Some(field) => self.shaped(value, &field.shape),
            None => any(value, &mut self.out),
        }
    }

    fn shaped(&mut self, value: &Value, shape: &Shape) {
        match (shape, value) {
            (Shape::Struct(ty), value) if ty.one_of => match ty.alternative(value) {
                Some(field) => self.shaped(value, &field.shape),
                None => any(value, &mut self.out),
            },
            (Shape::Struct(ty), Value::Map(_)) => self.structure(value, ty),
            (Shape::List(list), Value::List(items)) => {
                self.out.push(b'[');
                for (nth, item) in items.iter().enumerate() {
                    if nth > 0 {
                        self.out.push(b',');
                    }
                    self.shaped(item, &list.item);
                }
                self.out.push(b']');
            }
            (Shape::Map(entries), Value::Map(map)) => self.entries(map, &entries.value),
            _ => any(value, &mut self.out),
        }
    }

    fn entries(&mut self, map: &Map, shape: &Shape) {
        self.out.push(b'{');
        for (nth, (key, value)) in map.iter().enumerate() {
            if nth > 0 {
                self.out.push(b',');
            }
            string(key, &mut self.out);
            self.out.push(b':');
            self.shaped(value, shape);
        }
        self.out.push(b'}');
    }
}

/// Compact text of a value without a table.
pub(crate) fn compact(value: &Value) -> Arc<str> {
    String::from_utf8_lossy(&untyped(value)).into()
}

fn is_empty_list(value: &Value) -> bool {
    matches!(value, Value::List(items) if items.is_empty())
}

fn any(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Int(number) => integer(*number, out),
        Value::Float(number) => out.extend_from_slice(json_float(*number).as_bytes()),
        Value::String(text) => string(text, out),
        Value::Json(text) => out.extend_from_slice(text.as_bytes()),
        Value::List(items) => {
            out.push(b'[');
            for (nth, item) in items.iter().enumerate() {
                if nth > 0 {
                    out.push(b',');
                }
                any(item, out);
            }
            out.push(b']');
        }
        Value::Map(map) => {
            out.push(b'{');
            for (nth, (key, value)) in map.iter().enumerate() {
                if nth > 0 {
                    out.push(b',');
                }
                string(key, out);
                out.push(b':');
                any(value, out);
            }
            out.push(b'}');
        }
    }
}

/// Digits of a number.
pub fn integer(number: i64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// The shortest text that reads back as the same number.
pub fn float_text(number: f64) -> String {
    let magnitude = number.abs();
    if number != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        // exponents have a sign and at least two digits
        let text = format!("{number:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    let mut text = String::new();
    let _ = write!(text, "{number}");
    text
}

/// A number in JSON: as [`float_text`], without the zero in front of a negative exponent of one digit.
pub fn json_float(number: f64) -> String {
    float_text(number).replace("e-0", "e-")
}

/// A JSON string.
pub fn string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    escaped(text, out);
    out.push(b'"');
}

/// The contents of a JSON string, without its quotes.
#[inline]
pub fn escaped(text: &str, out: &mut Vec<u8>) {
    let (before, special) = text.as_bytes().split_at(plain(text.as_bytes()));
    out.extend_from_slice(before);
    if !special.is_empty() {
        escaped_from(special, out);
    }
}

/// As [`escaped`], for text that begins with a special character.
fn escaped_from(mut rest: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    while let Some((byte, after)) = rest.split_first() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            low => {
                out.extend_from_slice(b"\\u00");
                out.push(HEX[(low >> 4) as usize]);
                out.push(HEX[(low & 15) as usize]);
            }
        }
        let (before, special) = after.split_at(plain(after));
        out.extend_from_slice(before);
        rest = special;
    }
}

/// The numbers of the bits that are set, from the lowest on.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (word != 0).then(|| word.trailing_zeros() as usize);
        word &= word.wrapping_sub(1);
        lowest
    })
}

/// JSON with escapes for the characters that are special in HTML and JavaScript, as Go writes it.
pub fn escape_html(json: &str) -> Cow<'_, str> {
    let is_special = |letter| matches!(letter, '<' | '>' | '&' | '\u{2028}' | '\u{2029}');
    if !json.contains(is_special) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for letter in json.chars() {
        if is_special(letter) {
            // writing to a string cannot fail
            let _ = write!(out, "\\u{:04x}", u32::from(letter));
        } else {
            out.push(letter);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_of_html_are_escaped() {
        let check = |json: &str, escaped: &str| assert_eq!(escape_html(json), escaped);
        check("\"<a>&\u{2028}\u{2029}\u{2030}\"", "\"\\u003ca\\u003e\\u0026\\u2028\\u2029\u{2030}\"");
        check(r#"{"a":"\\u003c\\"}"#, r#"{"a":"\\u003c\\"}"#);
    }
}
