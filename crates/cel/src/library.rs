//! The library of named functions.

use crate::convert;
use crate::fault::{Fault, Outcome, fail, no_such_overload};
use crate::operators::{self, lacks};
use crate::strings;
use crate::time;
use crate::url::{self, Url};
use crate::value::{CelValue, List, Map, OwnedMap};
use regex::Regex;
use std::cmp::Ordering;
use std::sync::Arc;

/// Calls a function; the first argument is the receiver.
///
/// `overload` is the only possible overload, if the checker found one.
pub(crate) fn call<'a>(
    function: &'static str,
    overload: Option<&'static str>,
    args: Vec<CelValue<'a>>,
) -> Outcome<CelValue<'a>> {
    use CelValue::{Duration, Int, String, Timestamp};
    let bool = |it: bool| Ok(CelValue::Bool(it));
    match (function, args.as_slice()) {
        ("size", [value]) => match value.size() {
            Some(size) => Ok(Int(size as i64)),
            None => Err(lacks(value, function)),
        },
        (
            "int" | "uint" | "double" | "bool" | "string" | "bytes" | "timestamp" | "duration" | "dyn"
            | "type",
            [_],
        ) => {
            let value = args.into_iter().next().ok_or_else(no_such_overload)?;
            convert::convert(function, value)
        }
        ("contains", [String(text), String(part)]) => bool(text.contains(&**part)),
        ("startsWith", [String(text), String(part)]) => bool(text.starts_with(&**part)),
        ("endsWith", [String(text), String(part)]) => bool(text.ends_with(&**part)),
        ("contains" | "startsWith" | "endsWith", [value, _]) => Err(lacks(value, function)),
        ("matches" | "find", [String(_), String(pattern)])
        | ("findAll", [String(_), String(pattern)] | [String(_), String(pattern), Int(_)]) => {
            let pattern = compiled(function, pattern)?;
            call_compiled(function, &pattern, &args)
        }
        ("matches", [String(_), _]) => Err(no_such_overload()),
        ("matches", [value, _]) => Err(lacks(value, function)),
        (_, [Timestamp(at)]) if function.starts_with("get") => time::part(function, *at, None).map(Int),
        (_, [Timestamp(at), String(zone)]) if function.starts_with("get") => {
            time::part(function, *at, Some(zone)).map(Int)
        }
        ("getHours" | "getMinutes" | "getSeconds" | "getMilliseconds", [Duration(nanos)]) => {
            time::part_of_duration(function, *nanos).map(Int).ok_or_else(|| unfit(function, &args))
        }
        ("url", [String(text)]) => match url::parse(text) {
            Ok(url) => Ok(CelValue::Url(Arc::new(url))),
            Err(why) => fail(format!("URL parse error during conversion from string: {why}")),
        },
        ("isURL", [String(text)]) => bool(url::parse(text).is_ok()),
        (_, [CelValue::Url(url)]) => url_part(function, url).ok_or_else(|| unfit(function, &args)),
        ("charAt", [String(text), Int(at)]) => strings::char_at(text, *at),
        ("indexOf", [String(text), String(part)]) => strings::index_of(text, part, 0).map(Int),
        ("indexOf", [String(text), String(part), Int(from)]) => strings::index_of(text, part, *from).map(Int),
        ("lastIndexOf", [String(text), String(part)]) => strings::last_index_of(text, part, None).map(Int),
        ("lastIndexOf", [String(text), String(part), Int(from)]) => {
            strings::last_index_of(text, part, Some(*from)).map(Int)
        }
        ("lowerAscii", [String(text)]) => Ok(CelValue::string(text.to_ascii_lowercase())),
        ("upperAscii", [String(text)]) => Ok(CelValue::string(text.to_ascii_uppercase())),
        ("replace", [String(text), String(old), String(new)]) => {
            Ok(CelValue::string(strings::replace(text, old, new, -1)))
        }
        ("replace", [String(text), String(old), String(new), Int(times)]) => {
            Ok(CelValue::string(strings::replace(text, old, new, *times)))
        }
        ("split", [String(text), String(separator)]) => {
            Ok(CelValue::list(strings::split(text, separator, -1)))
        }
        ("split", [String(text), String(separator), Int(most)]) => {
            Ok(CelValue::list(strings::split(text, separator, *most)))
        }
        ("substring", [String(text), Int(from)]) => strings::substring(text, *from, None),
        ("substring", [String(text), Int(from), Int(to)]) => strings::substring(text, *from, Some(*to)),
        ("trim", [String(text)]) => Ok(CelValue::string(text.trim())),
        ("join", [CelValue::List(list)]) if begins(list, is_text) => join(list, ""),
        ("join", [CelValue::List(list), String(separator)]) if begins(list, is_text) => join(list, separator),
        ("isSorted", [CelValue::List(list)]) if begins(list, is_ordered) => is_sorted(list),
        ("sum", [CelValue::List(list)]) if begins(list, is_summed) => sum(list, overload),
        ("min", [CelValue::List(list)]) if begins(list, is_ordered) => {
            extreme(list, "min", Ordering::Greater)
        }
        ("max", [CelValue::List(list)]) if begins(list, is_ordered) => extreme(list, "max", Ordering::Less),
        ("indexOf", [CelValue::List(list), item]) => Ok(Int(position(list, item, false))),
        ("lastIndexOf", [CelValue::List(list), item]) => Ok(Int(position(list, item, true))),
        _ => Err(unfit(function, &args)),
    }
}

/// The fault of arguments that no overload takes.
pub(crate) fn unfit(function: &str, args: &[CelValue<'_>]) -> Fault {
    let types: Vec<&str> = args.iter().map(CelValue::type_name).collect();
    Fault::new(format!("no such overload: {function}({})", types.join(", ")))
}

/// A pattern, for the function that searches for it.
pub(crate) fn compiled(function: &str, pattern: &str) -> Outcome<Regex> {
    schema::pattern::compile(pattern).map_err(|why| match function {
        "matches" => Fault::new(why),
        _ => Fault::new(format!("Illegal regex: {why}")),
    })
}

/// The same functions of text, with an expression that is compiled already.
pub(crate) fn call_compiled<'a>(
    function: &'static str,
    pattern: &Regex,
    args: &[CelValue<'a>],
) -> Outcome<CelValue<'a>> {
    let Some(CelValue::String(text)) = args.first() else { return Err(no_such_overload()) };
    Ok(match (function, args.get(2)) {
        ("matches", _) => CelValue::Bool(pattern.is_match(text)),
        ("find", _) => found(pattern, text),
        (_, Some(CelValue::Int(most))) => found_all(pattern, text, *most),
        (_, None) => found_all(pattern, text, -1),
        _ => return Err(no_such_overload()),
    })
}

fn found<'a>(pattern: &Regex, text: &str) -> CelValue<'a> {
    CelValue::string(pattern.find(text).map_or("", |it| it.as_str()))
}

fn found_all<'a>(pattern: &Regex, text: &str, most: i64) -> CelValue<'a> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    CelValue::list(pattern.find_iter(text).take(most).map(|it| CelValue::string(it.as_str())).collect())
}

fn join<'a>(list: &List<'a>, separator: &str) -> Outcome<CelValue<'a>> {
    let mut out = String::new();
    for (nth, item) in list.iter().enumerate() {
        let item = item?;
        let CelValue::String(text) = &item else {
            return fail(format!("unsupported native conversion from {} to 'string'", item.type_name()));
        };
        if nth > 0 {
            out.push_str(separator);
        }
        out.push_str(text);
    }
    Ok(CelValue::string(out))
}

/// Whether the first item decides for the function; an empty list is of any type.
fn begins(list: &List<'_>, fits: fn(&CelValue<'_>) -> bool) -> bool {
    list.is_empty() || list.at(0).is_ok_and(|it| fits(&it))
}

fn is_text(value: &CelValue<'_>) -> bool {
    matches!(value, CelValue::String(_))
}

fn is_summed(value: &CelValue<'_>) -> bool {
    matches!(value, CelValue::Int(_) | CelValue::Uint(_) | CelValue::Double(_) | CelValue::Duration(_))
}

fn is_ordered(value: &CelValue<'_>) -> bool {
    operators::compare("", value, value).is_ok() || matches!(value, CelValue::Double(_))
}

fn is_sorted<'a>(list: &List<'a>) -> Outcome<CelValue<'a>> {
    let mut before: Option<CelValue<'_>> = None;
    for item in list.iter() {
        let item = item?;
        if !is_ordered(&item) {
            return Err(no_such_overload());
        }
        if let Some(before) = before
            && operators::compare("", &before, &item).is_ok_and(Ordering::is_gt)
        {
            return Ok(CelValue::Bool(false));
        }
        before = Some(item);
    }
    Ok(CelValue::Bool(true))
}

fn sum<'a>(list: &List<'a>, overload: Option<&str>) -> Outcome<CelValue<'a>> {
    let first = if list.is_empty() { None } else { Some(list.at(0)?) };
    let zero = match (overload, first) {
        (Some("list_uint_sum"), _) | (None, Some(CelValue::Uint(_))) => CelValue::Uint(0),
        (Some("list_double_sum"), _) | (None, Some(CelValue::Double(_))) => CelValue::Double(0.0),
        (Some("list_duration_sum"), _) | (None, Some(CelValue::Duration(_))) => CelValue::Duration(0),
        _ => CelValue::Int(0),
    };
    list.iter().try_fold(zero, |sum, item| operators::add(sum, item?))
}

/// The item for which no other one is beyond it.
fn extreme<'a>(list: &List<'a>, name: &str, beyond: Ordering) -> Outcome<CelValue<'a>> {
    let mut best: Option<CelValue<'a>> = None;
    for item in list.iter() {
        let item = item?;
        if !is_ordered(&item) {
            return Err(no_such_overload());
        }
        best = match best {
            Some(best) if operators::compare("", &best, &item).ok() != Some(beyond) => Some(best),
            _ => Some(item),
        };
    }
    best.map_or_else(|| fail(format!("{name} called on empty list")), Ok)
}

fn position<'a>(list: &List<'a>, item: &CelValue<'a>, last: bool) -> i64 {
    let is = |at: &usize| list.at(*at).is_ok_and(|it| operators::equal(&it, item).unwrap_or(false));
    let mut places = 0..list.len();
    let position = if last { places.rev().find(is) } else { places.find(is) };
    position.map_or(-1, |at| at as i64)
}

/// A part of a URL, by the name of its function.
fn url_part(function: &str, url: &Url) -> Option<CelValue<'static>> {
    Some(match function {
        "getScheme" => CelValue::string(url.scheme()),
        "getHost" => CelValue::string(url.host()),
        "getHostname" => CelValue::string(url.hostname()),
        "getPort" => CelValue::string(url.port()),
        "getEscapedPath" => CelValue::string(url.escaped_path()),
        "getQuery" => {
            let texts =
                |values: Vec<String>| CelValue::list(values.into_iter().map(CelValue::string).collect());
            let entries = url.query().into_iter().map(|(key, values)| (CelValue::string(key), texts(values)));
            CelValue::Map(Map::Owned(Arc::new(OwnedMap::new(entries.collect()).unwrap_or_default())))
        }
        _ => return None,
    })
}
