//! Values of flags by type, with the errors of upstream's flag library.

use schema::Value;
use schema::format::{label_value, parse_ip, qualified_name};
use schema::quantity::Quantity;
use std::num::IntErrorKind;

/// The value of a flag of a type. A null leaves the value as it is.
pub fn parse_value(ty: &str, text: &str) -> Result<Value, String> {
    match ty {
        "bool" => parse_bool(text).map(Value::Bool),
        "int32" => parse_int(text, 32).map(Value::Int),
        "int64" => parse_int(text, 64).map(Value::Int),
        "verbosity" => parse_level(text).map(Value::Int),
        "duration" => match schema::time::parse_duration(text) {
            Ok(_) => Ok(text.into()),
            Err(why) => Err(why.to_string()),
        },
        "nanoseconds" => schema::time::parse_duration(text).map(Value::Int).map_err(|why| why.to_string()),
        "quantity" => text.parse::<Quantity>().map(|_| text.into()).map_err(|why| why.to_string()),
        "ip" if text.is_empty() => Ok(Value::Null),
        "ip" => match parse_ip(text) {
            Some(_) => Ok(text.into()),
            None => Err(format!("{text:?} is not a valid IP address")),
        },
        "strings" => {
            split_list(text).map(|items| items.into_iter().map(Value::from).collect()).map(Value::List)
        }
        "map" => parse_map(pieces(text), '='),
        "thresholds" => parse_map(pieces(text), '<'),
        "option" => parse_map(std::iter::once(text), '='),
        "boolmap" => parse_gates(text),
        "listmap" => parse_headers(text),
        "[]taint" => parse_taints(text),
        "[]vmodule" => pieces(text).map(parse_level_of_module).collect::<Result<_, _>>().map(Value::List),
        "[]memory" if text.is_empty() => Ok(Value::Null),
        "[]memory" => text.split(';').map(parse_memory).collect::<Result<_, _>>().map(Value::List),
        _ => Ok(text.into()),
    }
}

/// The error of a flag whose value Go's own flag package reads.
pub fn go_error(why: &str) -> &'static str {
    match why.ends_with("value out of range") {
        true => "value out of range",
        false => "parse error",
    }
}

fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(|piece| !piece.is_empty())
}

fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(format!("strconv.ParseBool: parsing {text:?}: invalid syntax")),
    }
}

/// A number in decimal, or with the prefix of another base.
fn parse_int(text: &str, bits: u32) -> Result<i64, String> {
    let failed = |why: &str| format!("strconv.ParseInt: parsing {text:?}: {why}");
    let (sign, digits) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (&text[..1], rest),
        None => ("", text),
    };
    let lower = digits.to_ascii_lowercase();
    let (base, digits) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        Some("0o") => (8, &lower[2..]),
        _ if lower.len() > 1 && lower.starts_with('0') => (8, &lower[1..]),
        _ => (10, &*lower),
    };
    if digits.starts_with(['-', '+']) {
        return Err(failed("invalid syntax"));
    }
    let number = i64::from_str_radix(&format!("{sign}{digits}"), base).map_err(|why| match why.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => failed("value out of range"),
        _ => failed("invalid syntax"),
    })?;
    match bits == 64 || i32::try_from(number).is_ok() {
        true => Ok(number),
        false => Err(failed("value out of range")),
    }
}

/// A level of the log, which fits in 31 bits.
fn parse_level(text: &str) -> Result<i64, String> {
    let failed = |why: &str| format!("strconv.ParseUint: parsing {text:?}: {why}");
    if text.is_empty() || !text.bytes().all(|it| it.is_ascii_digit()) {
        return Err(failed("invalid syntax"));
    }
    text.parse::<i32>().map(i64::from).map_err(|_| failed("value out of range"))
}

/// A line of comma-separated values, some of them in quotes.
fn split_list(text: &str) -> Result<Vec<String>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let (mut items, mut rest) = (Vec::new(), text);
    loop {
        let Some(quoted) = rest.strip_prefix('"') else {
            let (item, after) =
                rest.split_once(',').map_or((rest, None), |(item, after)| (item, Some(after)));
            if let Some(at) = item.find('"') {
                let column = text.len() - rest.len() + at + 1;
                return Err(format!("parse error on line 1, column {column}: bare \" in non-quoted field"));
            }
            items.push(item.to_owned());
            match after {
                Some(after) => rest = after,
                None => return Ok(items),
            }
            continue;
        };
        let (item, after) = unquote(quoted).ok_or_else(|| {
            let column = text.len() + 1;
            format!("parse error on line 1, column {column}: extraneous or missing \" in quoted-field")
        })?;
        items.push(item);
        match after.strip_prefix(',') {
            Some(after) => rest = after,
            None => return Ok(items),
        }
    }
}

/// The text up to the closing quote, in which two quotes are one, and what follows: nothing or a comma.
fn unquote(text: &str) -> Option<(String, &str)> {
    let (mut item, mut rest) = (String::new(), text);
    loop {
        let (before, after) = rest.split_once('"')?;
        item.push_str(before);
        match after.strip_prefix('"') {
            Some(after) => {
                item.push('"');
                rest = after;
            }
            None => return (after.is_empty() || after.starts_with(',')).then_some((item, after)),
        }
    }
}

fn parse_map<'t>(pairs: impl Iterator<Item = &'t str>, separator: char) -> Result<Value, String> {
    let mut map = Value::map();
    for pair in pairs {
        let (key, value) = pair
            .split_once(separator)
            .ok_or_else(|| format!("malformed pair, expect string{separator}string"))?;
        map.make_map().insert(key.trim().to_owned(), Value::from(value.trim()));
    }
    Ok(map)
}

fn parse_gates(text: &str) -> Result<Value, String> {
    let mut map = Value::map();
    for pair in pieces(text) {
        let (name, value) = pair.split_once('=').ok_or("malformed pair, expect string=bool")?;
        let (name, value) = (name.trim(), value.trim());
        let value =
            parse_bool(value).map_err(|why| format!("invalid value of {name}: {value}, err: {why}"))?;
        map.make_map().insert(name.to_owned(), Value::Bool(value));
    }
    Ok(map)
}

fn parse_headers(text: &str) -> Result<Value, String> {
    let mut map = Value::map();
    for pair in pieces(text) {
        let (key, value) = pair.split_once(':').ok_or("malformed pair, expect string:string")?;
        let entry = map.make_map().entry(key.trim().to_owned());
        match entry.as_list_mut() {
            Some(list) => list.push(Value::from(value.trim())),
            None => *entry = Value::List(vec![Value::from(value.trim())]),
        }
    }
    Ok(map)
}

/// `MODULE=LEVEL`.
fn parse_level_of_module(pair: &str) -> Result<Value, String> {
    let parts: Vec<&str> = pair.split('=').collect();
    let [pattern, level] = parts[..] else {
        return Err(format!("{pair:?} does not have the pattern=N format"));
    };
    if pattern.is_empty() || level.is_empty() {
        return Err(format!("{pair:?} does not have the pattern=N format"));
    }
    let level = parse_level(level).map_err(|why| format!("parsing verbosity in {pair:?}: {why}"))?;
    let mut item = Value::map();
    item.set(&["filePattern"], pattern);
    item.set(&["verbosity"], level);
    Ok(item)
}

/// Taints, of which those that end with a dash are left out.
fn parse_taints(text: &str) -> Result<Value, String> {
    if text.is_empty() {
        return Ok(Value::List(Vec::new()));
    }
    let mut taints: Vec<Value> = Vec::new();
    for spec in text.split(',') {
        if let Some(removed) = spec.strip_suffix('-') {
            parse_taint(removed)?;
            continue;
        }
        let taint = parse_taint(spec)?;
        let (key, effect) = (taint.text(&["key"]), taint.text(&["effect"]));
        if effect.is_empty() {
            return Err(format!("invalid taint spec: {spec}"));
        }
        if taints.iter().any(|it| it.text(&["key"]) == key && it.text(&["effect"]) == effect) {
            let value = taint.text(&["value"]);
            return Err(format!(
                "duplicated taints with the same key and effect: {{{key} {value} {effect} <nil>}}"
            ));
        }
        taints.push(taint);
    }
    Ok(Value::List(taints))
}

/// `key=value:effect`, `key:effect` or `key`.
fn parse_taint(spec: &str) -> Result<Value, String> {
    let wrong = |errors: &[String]| format!("invalid taint spec: {spec}, {}", errors.join("; "));
    let parts: Vec<&str> = spec.split(':').collect();
    let (key, value, effect) = match parts[..] {
        [key] => (key, None, ""),
        [pair, effect] => {
            if !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
                return Err(format!("invalid taint effect: {effect}, unsupported taint effect"));
            }
            let words: Vec<&str> = pair.split('=').collect();
            match words[..] {
                [key] => (key, None, effect),
                [key, value] => (key, Some(value), effect),
                _ => return Err(format!("invalid taint spec: {spec}")),
            }
        }
        _ => return Err(format!("invalid taint spec: {spec}")),
    };
    let errors = value.map(label_value).unwrap_or_default();
    if !errors.is_empty() {
        return Err(wrong(&errors));
    }
    let errors = qualified_name(key);
    if !errors.is_empty() {
        return Err(wrong(&errors));
    }
    let mut taint = Value::map();
    for (field, text) in [("key", key), ("value", value.unwrap_or_default()), ("effect", effect)] {
        if !text.is_empty() {
            taint.set(&[field], text);
        }
    }
    Ok(taint)
}

/// `0:memory=1Gi,hugepages-2Mi=2Gi`.
fn parse_memory(reservation: &str) -> Result<Value, String> {
    let parts: Vec<&str> = reservation.split(':').collect();
    let [number, limits] = parts[..] else {
        return Err(format!(
            "the reserved memory has incorrect format, expected numaNodeID:type=quantity[,type=quantity...], got {reservation}"
        ));
    };
    let number: i64 = number
        .parse()
        .map_err(|_| format!("failed to convert the NUMA node ID, exptected integer, got {number}"))?;
    let mut map = Value::map();
    for limit in limits.split(',') {
        let words: Vec<&str> = limit.split('=').collect();
        let [name, quantity] = words[..] else {
            return Err(format!(
                "the reserved limit has incorrect value, expected type=quantatity, got {limit}"
            ));
        };
        if name != "memory" && !name.starts_with("hugepages-") {
            return Err(format!("memory type conversion error, unknown type: {name:?}"));
        }
        let quantity: Quantity = quantity
            .parse()
            .map_err(|_| format!("failed to parse the quantatity, expected quantatity, got {quantity}"))?;
        map.make_map().insert(name.to_owned(), Value::from(quantity.to_string()));
    }
    let mut item = Value::map();
    item.set(&["numaNode"], number);
    item.set(&["limits"], map);
    Ok(item)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_prefixes_of_go() {
        for (text, number) in [("12", 12), ("-0x1F", -31), ("0b11", 3), ("017", 15), ("0o17", 15), ("0", 0)] {
            assert_eq!(parse_value("int32", text), Ok(Value::Int(number)), "{text}");
        }
        for text in ["", "-", "0x", "1.5", "+-1", "0x-1"] {
            let expected = format!("strconv.ParseInt: parsing {text:?}: invalid syntax");
            assert_eq!(parse_value("int32", text), Err(expected));
        }
    }

    #[test]
    fn items_of_a_list_may_be_quoted() {
        let list = |text: &str| split_list(text);
        assert_eq!(list("a,b").unwrap(), ["a", "b"]);
        assert_eq!(list("a,\"b,\"\"c\",").unwrap(), ["a", "b,\"c", ""]);
        assert_eq!(
            list("a,b\"c").unwrap_err(),
            "parse error on line 1, column 4: bare \" in non-quoted field"
        );
        assert!(list("\"a").unwrap_err().contains("extraneous or missing"));
    }
}
