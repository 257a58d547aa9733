//! Annotations of the older version: metrics, their current values, conditions and behaviour.
//!
//! The texts are those that other servers of this API write and read, to the byte: names in their order, and
//! the behaviour with capital letters. Reading is lenient: names in any case, and a text that makes no sense
//! counts as absent.

use names::Names;
use schema::{Map, Value, decode, encode};
use std::borrow::Cow;

/// The annotations that belong to this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldAnnotation {
    Metrics,
    CurrentMetrics,
    Conditions,
    Behavior,
}

pub(super) const ALL: [FieldAnnotation; 4] = [
    FieldAnnotation::Metrics,
    FieldAnnotation::CurrentMetrics,
    FieldAnnotation::Conditions,
    FieldAnnotation::Behavior,
];
pub(super) const OF_SPEC: [FieldAnnotation; 2] = [FieldAnnotation::Metrics, FieldAnnotation::Behavior];
pub(super) const OF_STATUS: [FieldAnnotation; 2] =
    [FieldAnnotation::CurrentMetrics, FieldAnnotation::Conditions];

const NAMES: Names = Names::kubernetes();

/// Names of both kinds of metrics; labels have names of their own, below `matchLabels`.
const METRICS: &[&str] = &[
    "type",
    "object",
    "pods",
    "resource",
    "containerResource",
    "external",
    "target",
    "metricName",
    "metricSelector",
    "kind",
    "name",
    "apiVersion",
    "targetValue",
    "targetAverageUtilization",
    "targetAverageValue",
    "currentValue",
    "currentAverageUtilization",
    "currentAverageValue",
    "selector",
    "averageValue",
    "container",
    LABELS,
    "matchExpressions",
    "key",
    "operator",
    "values",
];
const LABELS: &str = "matchLabels";
const CONDITIONS: &[&str] = &["type", "status", "lastTransitionTime", "reason", "message"];
const BEHAVIOR: &[&str] = &[
    "ScaleUp",
    "ScaleDown",
    "StabilizationWindowSeconds",
    "SelectPolicy",
    "Policies",
    "Type",
    "Value",
    "PeriodSeconds",
];

impl FieldAnnotation {
    pub(super) fn key(self) -> String {
        let name = match self {
            FieldAnnotation::Metrics => "metrics",
            FieldAnnotation::CurrentMetrics => "current-metrics",
            FieldAnnotation::Conditions => "conditions",
            FieldAnnotation::Behavior => "behavior",
        };
        NAMES.well_known_under("autoscaling.alpha", name)
    }

    /// Every name that its text has, in an order that fits each of its structures.
    fn names(self) -> &'static [&'static str] {
        match self {
            FieldAnnotation::Metrics | FieldAnnotation::CurrentMetrics => METRICS,
            FieldAnnotation::Conditions => CONDITIONS,
            FieldAnnotation::Behavior => BEHAVIOR,
        }
    }

    /// Puts the annotation.
    pub(super) fn put(self, value: &Value, object: &mut Value) {
        let mut out = Vec::new();
        write(value, self.names(), &mut out);
        let text = String::from_utf8(out).unwrap_or_default();
        let text = encode::escape_html(&text).into_owned();
        let metadata = object.make_map().entry("metadata");
        metadata.make_map().entry("annotations").make_map().insert(self.key(), text);
    }

    /// The value of the annotation, if it is valid.
    pub(super) fn read(self, object: &Value) -> Option<Value> {
        let text = object.at(&["metadata", "annotations", &self.key()])?.as_str()?;
        let value = decode::json_untyped(text.as_bytes()).ok()?.value;
        Some(named(value, self.names()))
    }
}

/// Restores some annotations.
pub(super) fn keep(next: &mut Value, old: &Value, which: &[FieldAnnotation]) {
    drop(next, which);
    for one in which {
        let key = one.key();
        if let Some(text) = old.at(&["metadata", "annotations", &key]) {
            let metadata = next.make_map().entry("metadata");
            metadata.make_map().entry("annotations").make_map().insert(key, text.clone());
        }
    }
}

/// Removes annotations.
pub(super) fn drop(object: &mut Value, which: &[FieldAnnotation]) {
    let Some(Value::Map(annotations)) = object.at_mut(&["metadata", "annotations"]) else { return };
    for one in which {
        annotations.remove(&one.key());
    }
    if annotations.is_empty() {
        object.unset(&["metadata", "annotations"]);
    }
}

fn write(value: &Value, names: &[&str], out: &mut Vec<u8>) {
    match value {
        Value::Map(map) => {
            let place = |name: &str| names.iter().position(|one| *one == name).unwrap_or(names.len());
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(name, _)| place(name));
            out.push(b'{');
            for (at, (name, value)) in entries.into_iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                encode::string(name, out);
                out.push(b':');
                write(value, if name == LABELS { &[] } else { names }, out);
            }
            out.push(b'}');
        }
        Value::List(items) => {
            out.push(b'[');
            for (at, value) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write(value, names, out);
            }
            out.push(b']');
        }
        other => out.extend(encode::untyped(other)),
    }
}

/// The same with its names as they are written here, whatever case they came in.
fn named(value: Value, names: &[&'static str]) -> Value {
    match value {
        Value::Map(map) => {
            let rename = |(name, value): (Cow<'static, str>, Value)| {
                let known = names.iter().find(|one| one.eq_ignore_ascii_case(&name)).copied();
                let value = named(value, if known == Some(LABELS) { &[] } else { names });
                (known.map_or(name, Cow::Borrowed), value)
            };
            Value::Map(map.into_iter().map(rename).collect::<Map>())
        }
        Value::List(items) => Value::List(items.into_iter().map(|one| named(one, names)).collect()),
        other => other,
    }
}
