//! Text of tables and trees, the comparison of names, and text in messages.

use std::borrow::Cow;
use std::cmp::Ordering;

/// A name or a sentence, compiled in or created at run time.
pub type Text = Cow<'static, str>;

/// The order of names, by their bytes. Names are short and mostly differ early, so their first bytes are compared as
/// numbers, which saves a call for nearly every step of a search.
#[inline]
pub fn order(a: &str, b: &str) -> Ordering {
    head(a).cmp(&head(b)).then_with(|| a.cmp(b))
}

/// The first eight bytes as a number with the same order; missing bytes count as zeros.
#[inline]
pub const fn head(text: &str) -> u64 {
    let bytes = text.as_bytes();
    if let Some(first) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (first, last) = (u32::from_be_bytes(*first) as u64, u32::from_be_bytes(*last) as u64);
        return first << 32 | (last << (8 * (8 - bytes.len()))) & 0xffff_ffff;
    }
    let mut head = 0;
    let mut at = 0;
    while at < bytes.len() {
        head |= (bytes[at] as u64) << (56 - 8 * at);
        at += 1;
    }
    head
}

/// Whether two names are equal, without a call for names of usual length.
#[inline]
pub fn equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    if let (Some(a8), Some(b8)) = (a.first_chunk::<8>(), b.first_chunk::<8>()) {
        return a8 == b8 && a.last_chunk::<8>() == b.last_chunk::<8>() && (a.len() <= 16 || a == b);
    }
    if let (Some(a4), Some(b4)) = (a.first_chunk::<4>(), b.first_chunk::<4>()) {
        return a4 == b4 && a.last_chunk::<4>() == b.last_chunk::<4>();
    }
    a.iter().zip(b).all(|(a, b)| a == b)
}

/// Whether a character can be seen, or is a plain blank.
pub fn is_printable(c: char) -> bool {
    // a mark that only goes with a letter is seen with one
    c == ' '
        || c.is_ascii_graphic()
        || !c.is_ascii() && ['a', c].iter().collect::<String>().escape_debug().count() == 2
}

/// Text in double quotes, with unprintable characters escaped as in Go, whose quotes clients know.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if !is_printable(c) && (c as u32) < 0x10000 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c if !is_printable(c) => out.push_str(&format!("\\U{:08x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
