//! Pointers into trees, and comparing with placeholders.

use schema::Value;
use schema::problem::format_value;

fn segments(pointer: &str) -> Vec<String> {
    pointer.split('/').skip(1).map(|it| it.replace("~1", "/").replace("~0", "~")).collect()
}

/// The value at a pointer.
pub(super) fn at<'v>(value: &'v Value, pointer: &str) -> Option<&'v Value> {
    segments(pointer).iter().try_fold(value, |value, step| match value {
        Value::Map(map) => map.get(step),
        Value::List(list) => list.get(step.parse::<usize>().ok()?),
        _ => None,
    })
}

/// Puts a value at a pointer, or takes away what is there. `-` appends to a list.
pub(super) fn put(value: &mut Value, pointer: &str, new: Option<Value>) {
    let mut steps = segments(pointer);
    let Some(last) = steps.pop() else { return };
    let mut here = value;
    for step in steps {
        here = match here {
            Value::List(list) => match step.parse::<usize>().ok().and_then(|at| list.get_mut(at)) {
                Some(item) => item,
                None => return,
            },
            other => other.make_map().entry(step),
        };
    }
    match (here, new) {
        (Value::List(list), Some(new)) if last == "-" => list.push(new),
        (Value::List(list), new) => {
            let Ok(at) = last.parse::<usize>() else { return };
            match new {
                Some(new) if at < list.len() => list[at] = new,
                None if at < list.len() => {
                    list.remove(at);
                }
                _ => {}
            }
        }
        (here, Some(new)) if last == "-" => *here = Value::List(vec![new]),
        (here, Some(new)) => *here.make_map().entry(last) = new,
        (Value::Map(map), None) => {
            map.remove(&last);
        }
        _ => {}
    }
}

/// Writes out texts that are given as a repetition.
pub(super) fn expand(value: &Value) -> Value {
    if let (Some(Value::String(text)), Some(Value::Int(times))) =
        (value.at(&["$repeat"]), value.at(&["$times"]))
    {
        return text.repeat(*times as usize).into();
    }
    match value {
        Value::List(list) => Value::List(list.iter().map(expand).collect()),
        Value::Map(map) => {
            Value::Map(map.iter().map(|(key, value)| (key.to_owned().into(), expand(value))).collect())
        }
        other => other.clone(),
    }
}

/// Whether a value is what was recorded; `${...}` stands for any text.
pub(super) fn matches(expected: &Value, actual: &Value) -> bool {
    match (expected, actual) {
        (Value::String(pattern), _) if pattern.starts_with("${") && pattern.ends_with('}') => true,
        (Value::String(pattern), Value::String(text)) if pattern.contains("${") => fits(pattern, text),
        (Value::List(a), Value::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| matches(a, b)),
        (Value::Map(a), Value::Map(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| matches(a, b)))
        }
        (a, b) => a == b,
    }
}

/// Where two values first differ.
pub(super) fn difference(expected: &Value, actual: &Value, path: &str) -> String {
    match (expected, actual) {
        (Value::List(a), Value::List(b)) if a.len() == b.len() => {
            let wrong = a.iter().zip(b).enumerate().find(|(_, (a, b))| !matches(a, b));
            wrong.map(|(at, (a, b))| difference(a, b, &format!("{path}/{at}"))).unwrap_or_default()
        }
        (Value::Map(a), Value::Map(b)) => {
            let null = Value::from("(absent)");
            let keys = a.keys().chain(b.keys());
            let pairs = keys.map(|key| (key, a.get(key).unwrap_or(&null), b.get(key).unwrap_or(&null)));
            let wrong = pairs.into_iter().find(|(_, a, b)| !matches(a, b));
            wrong.map(|(key, a, b)| difference(a, b, &format!("{path}/{key}"))).unwrap_or_default()
        }
        (a, b) => format!("{path}: expected {}, got {}", format_value(a), format_value(b)),
    }
}

fn fits(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once("${") else { return pattern == text };
    let end = rest.split_once('}').map_or("", |(_, end)| end);
    let Some(text) = text.strip_prefix(start) else { return false };
    if end.contains("${") {
        return (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| fits(end, &text[at..]));
    }
    text.ends_with(end)
}
