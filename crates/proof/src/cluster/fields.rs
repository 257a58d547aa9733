//! Fields of objects that invariants read.

use serde_json::Value;

/// A text; empty if it is absent.
pub fn text<'v>(object: &'v Value, path: &str) -> &'v str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// A number; 0 if it is absent.
pub fn number(object: &Value, path: &str) -> i64 {
    object.pointer(path).and_then(Value::as_i64).unwrap_or_default()
}

pub fn flag(object: &Value, path: &str) -> bool {
    object.pointer(path).and_then(Value::as_bool).unwrap_or_default()
}

/// The elements of a list; none if it is absent.
pub fn items<'v>(object: &'v Value, path: &str) -> &'v [Value] {
    object.pointer(path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

pub fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

pub fn is_terminating(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

pub fn label<'v>(object: &'v Value, key: &str) -> &'v str {
    let labels = object.pointer("/metadata/labels");
    labels.and_then(|it| it.get(key)).and_then(Value::as_str).unwrap_or_default()
}

pub fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    items(object, "/metadata/finalizers").iter().any(|it| it == finalizer)
}

/// The owner that controls an object, if it is of this kind.
pub fn controller<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    let owners = items(object, "/metadata/ownerReferences");
    owners.iter().find(|it| it["controller"] == true && it["kind"] == kind)
}

/// A condition of a status.
pub fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    items(object, "/status/conditions").iter().find(|it| it["type"] == kind)
}

pub fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|it| it["status"] == "True")
}

/// Whether a pod runs, is ready and is not to end.
pub fn is_ready(pod: &Value) -> bool {
    text(pod, "/status/phase") == "Running" && is_true(pod, "Ready") && !is_terminating(pod)
}

/// Whether all containers of a pod have ended for good.
pub fn is_over(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// A number, or a share of a whole, as in `maxUnavailable`.
pub fn share(value: Option<&Value>, whole: i64, rounds_up: bool) -> Option<i64> {
    match value? {
        Value::String(text) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            let up = if rounds_up { 99 } else { 0 };
            Some((whole * percent + up) / 100)
        }
        number => number.as_i64(),
    }
}

/// Whether a selector of labels matches an object. Expressions are not used by the simulation.
pub fn selects(selector: &Value, object: &Value) -> bool {
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    labels.is_some_and(|it| it.iter().all(|(key, value)| value == label(object, key)))
}
