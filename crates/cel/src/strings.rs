//! String functions. Positions count characters.

use crate::fault::{Outcome, fail};
use crate::value::CelValue;

pub(crate) fn char_at(text: &str, at: i64) -> Outcome<CelValue<'static>> {
    let position = usize::try_from(at).ok();
    match position.map(|it| (it, text.chars().nth(it))) {
        Some((_, Some(c))) => Ok(CelValue::string(c.to_string())),
        Some((it, None)) if it == text.chars().count() => Ok(CelValue::string("")),
        _ => fail(format!("index out of range: {at}")),
    }
}

/// The position of a part, looked for from `from` on.
pub(crate) fn index_of(text: &str, part: &str, from: i64) -> Outcome<i64> {
    if part.is_empty() {
        return Ok(from);
    }
    let start = match usize::try_from(from).ok().and_then(|it| text.char_indices().nth(it)) {
        Some((start, _)) => start,
        None => return fail(format!("index out of range: {from}")),
    };
    Ok(text[start..].find(part).map_or(-1, |at| from + text[start..start + at].chars().count() as i64))
}

/// The last position of a part, at `from` at most.
pub(crate) fn last_index_of(text: &str, part: &str, from: Option<i64>) -> Outcome<i64> {
    let size = text.chars().count() as i64;
    if part.is_empty() {
        return Ok(from.unwrap_or(size));
    }
    let from = from.unwrap_or(size - 1);
    if from < 0 || from >= size {
        return fail(format!("index out of range: {from}"));
    }
    let length = part.chars().count() as i64;
    let last = from.min(size - length);
    if last < 0 {
        return Ok(-1);
    }
    let end = text.char_indices().nth((last + length) as usize).map_or(text.len(), |(end, _)| end);
    Ok(text[..end].rfind(part).map_or(-1, |at| text[..at].chars().count() as i64))
}

pub(crate) fn replace(text: &str, old: &str, new: &str, times: i64) -> String {
    match usize::try_from(times) {
        Ok(times) => text.replacen(old, new, times),
        Err(_) => text.replace(old, new),
    }
}

/// The parts between separators, `most` at most; without a separator, the characters.
pub(crate) fn split(text: &str, separator: &str, most: i64) -> Vec<CelValue<'static>> {
    let most = match most {
        0 => return Vec::new(),
        most => usize::try_from(most).unwrap_or(usize::MAX),
    };
    if !separator.is_empty() {
        return text.splitn(most, separator).map(CelValue::string).collect();
    }
    let mut parts = Vec::new();
    for (start, c) in text.char_indices() {
        if parts.len() + 1 == most {
            parts.push(CelValue::string(&text[start..]));
            break;
        }
        parts.push(CelValue::string(c.to_string()));
    }
    parts
}

pub(crate) fn substring(text: &str, from: i64, to: Option<i64>) -> Outcome<CelValue<'static>> {
    let size = text.chars().count() as i64;
    if let Some(to) = to.filter(|to| from > *to) {
        return fail(format!("invalid substring range. start: {from}, end: {to}"));
    }
    let end = to.unwrap_or(size);
    for at in [from, end] {
        if at < 0 || at > size {
            return fail(format!("index out of range: {at}"));
        }
    }
    let part: String = text.chars().skip(from as usize).take((end - from) as usize).collect();
    Ok(CelValue::string(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(values: &[CelValue<'_>]) -> Vec<String> {
        values.iter().map(crate::convert::format_value).collect()
    }

    #[test]
    fn positions_count_characters() {
        assert_eq!(index_of("ta©o©αT", "©", 0).ok(), Some(2));
        assert_eq!(index_of("ta©o©αT", "©", 3).ok(), Some(4));
        assert_eq!(last_index_of("ta©o©αT", "©", None).ok(), Some(4));
        assert_eq!(last_index_of("ta©o©αT", "©", Some(3)).ok(), Some(2));
        assert_eq!(last_index_of("a", "abc", None).ok(), Some(-1));
        assert_eq!(index_of("", "", 0).ok(), Some(0));
        assert!(index_of("a", "b", 1).is_err());
        assert!(last_index_of("a", "b", Some(-1)).is_err());
        assert!(char_at("ab", 3).is_err());
        assert!(substring("ab", 1, Some(3)).is_err());
    }

    #[test]
    fn parts_are_counted() {
        assert_eq!(texts(&split("a,b,c", ",", 2)), ["a", "b,c"]);
        assert_eq!(texts(&split("abc", "", -1)), ["a", "b", "c"]);
        assert_eq!(texts(&split("abc", "", 2)), ["a", "bc"]);
        assert!(split("a", ",", 0).is_empty());
        assert_eq!(texts(&split("", ",", -1)), [""]);
    }
}
