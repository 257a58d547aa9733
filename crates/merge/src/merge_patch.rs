//! JSON merge patch (RFC 7386): maps merge, `null` removes, every other value replaces.
//!
//! Invariant: each map of the patch is joined with its target in one pass over both, so the work is linear. Lists
//! are replaced whole; null members of maps inside them are left out, except where a list replaces a map.

use crate::error::Error;
use schema::table::Text;
use schema::{Map, Value};
use std::cmp::Ordering;

/// Merges `patch` into `target`. A list replaces the target; a scalar is an error.
pub fn merge_patch(target: &mut Value, patch: Value) -> Result<(), Error> {
    match patch {
        Value::Map(patch) => {
            merge_map(target, patch);
            Ok(())
        }
        mut list @ Value::List(_) => {
            prune(&mut list);
            *target = list;
            Ok(())
        }
        other => Err(Error::Malformed(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            other.json_type()
        ))),
    }
}

fn merge_map(target: &mut Value, patch: Map) {
    let before = match std::mem::take(target) {
        Value::Map(map) => map,
        _ => Map::new(),
    };
    let mut merged: Vec<(Text, Value)> = Vec::with_capacity(before.len() + patch.len());
    let mut before = before.into_iter().peekable();
    for (key, value) in patch {
        while let Some(entry) = before.next_if(|(name, _)| name.cmp(&key) == Ordering::Less) {
            merged.push(entry);
        }
        let held = before.next_if(|(name, _)| *name == key);
        let (key, mut here) = held.unwrap_or((key, Value::Null));
        match value {
            Value::Null => continue,
            Value::Map(inner) => merge_map(&mut here, inner),
            mut other => {
                if !matches!(here, Value::Map(_)) {
                    prune(&mut other);
                }
                here = other;
            }
        }
        merged.push((key, here));
    }
    merged.extend(before);
    *target = Value::Map(Map::from_unsorted(merged).0);
}

/// Removes null members from the maps inside a value.
pub(crate) fn prune(value: &mut Value) {
    match value {
        Value::List(items) => items.iter_mut().for_each(prune),
        Value::Map(map) => {
            map.retain(|_, value| !value.is_null());
            map.iter_mut().for_each(|(_, value)| prune(value));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managed::tests::json;

    fn check(target: &str, patch: &str, expected: &str) {
        let mut value = json(target);
        merge_patch(&mut value, json(patch)).unwrap();
        assert_eq!(value, json(expected), "{target} + {patch}");
    }

    #[test]
    fn the_examples_of_the_rfc() {
        check(r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#);
        check(r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#);
        check(r#"{"a":"b"}"#, r#"{"a":null}"#, r#"{}"#);
        check(r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#);
        check(r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#);
        check(r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#);
        check(r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#);
        check(r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#);
        check(r#"{"a":[1]}"#, r#"{"a":[null,{"b":null,"c":[{"d":null}]}]}"#, r#"{"a":[null,{"c":[{}]}]}"#);
        check(r#"{"a":{}}"#, r#"{"a":[{"b":null}]}"#, r#"{"a":[{"b":null}]}"#);
        check(r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#);
        check(r#"[1,2]"#, r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#);
        check(r#"{}"#, r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#);
    }

    #[test]
    fn only_objects_are_patches() {
        let mut value = json("{}");
        let why = merge_patch(&mut value, json(r#""x""#)).unwrap_err();
        assert_eq!(why.code(), 400);
        let text = "error decoding patch: json: cannot unmarshal string into Go value of type map[string]interface {}";
        assert_eq!(why.to_string(), text);
    }
}
