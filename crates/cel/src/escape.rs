//! Escaped field names: reserved characters and words are spelled out, `a-b` as `a__dash__b` and `namespace` as
//! `__namespace__`.

use crate::grammar::RESERVED;
use std::borrow::Cow;

const PARTS: &[(&str, &str)] = &[("__", "underscores"), (".", "dot"), ("-", "dash"), ("/", "slash")];

/// The name as expressions write it; `None` for names that they cannot.
pub fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some((part, word)) = PARTS.iter().find(|(part, _)| rest.starts_with(part)) {
            out.push_str(&format!("__{word}__"));
            rest = &rest[part.len()..];
            continue;
        }
        if !c.is_ascii_alphanumeric() && c != '_' {
            return None;
        }
        out.push(c);
        rest = &rest[1..];
    }
    Some(out)
}

/// The field name of an escaped identifier; `None` if it is not a valid one.
pub fn unescape(escaped: &str) -> Option<Cow<'_, str>> {
    if !escaped.contains("__") {
        return Some(Cow::Borrowed(escaped));
    }
    let mut out = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some(start) = rest.find("__") {
        let inside = &rest[start + 2..];
        // of more underscores than two, the last two begin the word
        if inside.starts_with('_') {
            out.push_str(&rest[..start + 1]);
            rest = &rest[start + 1..];
            continue;
        }
        let end = inside.find('_').unwrap_or(inside.len());
        let word = &inside[..end];
        if word.is_empty() || !inside[end..].starts_with("__") {
            out.push_str(&rest[..start + 2]);
            rest = inside;
            continue;
        }
        out.push_str(&rest[..start]);
        match PARTS.iter().find(|(_, named)| *named == word) {
            Some((part, _)) => out.push_str(part),
            None if RESERVED.contains(&word) && word.len() + 4 == escaped.len() => out.push_str(word),
            None => return None,
        }
        rest = &inside[end + 2..];
    }
    out.push_str(rest);
    Some(Cow::Owned(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_there_and_back() {
        for (name, escaped) in [
            ("a", "a"),
            ("a_b", "a_b"),
            ("a__b", "a__underscores__b"),
            ("a-b.c/d", "a__dash__b__dot__c__slash__d"),
            ("namespace", "__namespace__"),
            ("true", "__true__"),
            ("__dot__", "__underscores__dot__underscores__"),
            ("x-kubernetes", "x__dash__kubernetes"),
        ] {
            assert_eq!(escape(name).as_deref(), Some(escaped), "{name}");
            assert_eq!(unescape(escaped).as_deref(), Some(name), "{escaped}");
        }
        for name in ["", "1a", "é", "a b", "$ref", "a:b"] {
            assert_eq!(escape(name), None, "{name}");
        }
        for text in ["__foo__", "a__if__", "__if__a"] {
            assert_eq!(unescape(text), None, "{text}");
        }
        assert_eq!(unescape("a__b").as_deref(), Some("a__b"));
    }
}
