//! Conversion between the two versions.
//!
//! Invariants: an object that is read from the stored version has all fields of the newer version, with the CPU metric
//! last; the annotations appear in the older version only.

use super::annotations::{self, FieldAnnotation};
use super::metrics::{self, Side, USUAL_UTILIZATION, usual_metric};
use crate::{read, tables};
use schema::{Value, decode};
use std::borrow::Cow;

const OLDER_TARGET: [&str; 2] = ["spec", "targetCPUUtilizationPercentage"];
const OLDER_CURRENT: [&str; 2] = ["status", "currentCPUUtilizationPercentage"];

/// The object in the newer version.
pub(super) fn as_newer(object: &Value) -> Cow<'_, Value> {
    if object.text(&["apiVersion"]).ends_with("/v1") {
        Cow::Owned(newer(object.clone()))
    } else {
        Cow::Borrowed(object)
    }
}

/// A part of an object in the normal form of a version.
fn normal(value: Value, version: &str, name: &str) -> Option<Value> {
    let ty = tables::type_named(&format!("api.autoscaling.{version}"), name)?;
    Some(decode::tree(value, ty).ok()?.value)
}

/// The normal form of one list in the newer version; nothing when it cannot be that.
fn newer_list(list: Vec<Value>, field: &'static str, name: &str) -> Option<Value> {
    let mut part = Value::map();
    part.set(&[field], list);
    normal(part, "v2", name)?.unset(&[field])
}

/// Replaces a part by its normal form.
fn renormal(object: &mut Value, field: &'static str, version: &str, name: &str) {
    if let Some(part) = object.unset(&[field]) {
        let part = normal(part.clone(), version, name).unwrap_or(part);
        object.set(&[field], part);
    }
}

/// The older form of an object in the newer one.
pub(super) fn older(mut object: Value) -> Value {
    annotations::drop(&mut object, &annotations::ALL);
    let wanted = object.unset(&["spec", "metrics"]).unwrap_or_default();
    let wanted = wanted.as_list().unwrap_or_default();
    // of several such targets the older version knows the first
    let target = |one: &Value| metrics::utilization(one, Side::Target);
    if let Some(percent) = wanted.iter().find_map(target) {
        object.set(&OLDER_TARGET, percent);
    }
    let others = wanted.iter().filter(|one| target(one).is_none());
    carry(FieldAnnotation::Metrics, others.map(|one| metrics::older(one, Side::Target)), &mut object);
    let current = object.unset(&["status", "currentMetrics"]).unwrap_or_default();
    let current = current.as_list().unwrap_or_default();
    if let Some(percent) = current.iter().find_map(|one| metrics::utilization(one, Side::Current)) {
        object.set(&OLDER_CURRENT, percent);
    }
    carry(
        FieldAnnotation::CurrentMetrics,
        current.iter().map(|one| metrics::older(one, Side::Current)),
        &mut object,
    );
    let conditions = object.unset(&["status", "conditions"]).unwrap_or_default();
    carry(FieldAnnotation::Conditions, conditions.as_list().unwrap_or_default().iter().cloned(), &mut object);
    if let Some(behavior) = object.unset(&["spec", "behavior"]).filter(|it| !it.is_null()) {
        FieldAnnotation::Behavior.put(&capitalized(&behavior), &mut object);
    }
    renormal(&mut object, "status", "v1", "HorizontalPodAutoscalerStatus");
    object
}

fn carry(what: FieldAnnotation, list: impl Iterator<Item = Value>, object: &mut Value) {
    let list: Vec<Value> = list.collect();
    if !list.is_empty() {
        what.put(&list.into(), object);
    }
}

/// The newer form of an object in the older one.
pub(super) fn newer(mut object: Value) -> Value {
    let target = object.unset(&OLDER_TARGET).and_then(|it| it.as_int());
    let mut wanted = carried_metrics(FieldAnnotation::Metrics, Side::Target, &object);
    if let Some(percent) = target {
        wanted.push(usual_metric(percent));
    } else if wanted.is_empty() {
        wanted.push(usual_metric(USUAL_UTILIZATION));
    }
    object.set(&["spec", "metrics"], wanted);
    let percent = object.unset(&OLDER_CURRENT).and_then(|it| it.as_int());
    let mut current = carried_metrics(FieldAnnotation::CurrentMetrics, Side::Current, &object);
    if let (Some(percent), true) = (percent, current.is_empty()) {
        let mut metric = Value::map();
        metric.set(&["type"], "Resource");
        metric.set(&["resource", "name"], "cpu");
        metric.set(&["resource", "current", "averageUtilization"], percent);
        current.push(metric);
    }
    if !current.is_empty() {
        object.set(&["status", "currentMetrics"], current);
    }
    let conditions = FieldAnnotation::Conditions.read(&object).and_then(|it| match it {
        Value::List(items) => newer_list(items, "conditions", "HorizontalPodAutoscalerStatus"),
        _ => None,
    });
    if let Some(conditions) = conditions {
        object.set(&["status", "conditions"], conditions);
    }
    if let Some(behavior) = FieldAnnotation::Behavior.read(&object).and_then(|it| plain_behavior(&it)) {
        object.set(&["spec", "behavior"], behavior);
    }
    annotations::drop(&mut object, &annotations::ALL);
    renormal(&mut object, "status", "v2", "HorizontalPodAutoscalerStatus");
    object
}

fn carried_metrics(what: FieldAnnotation, side: Side, object: &Value) -> Vec<Value> {
    let (field, name) = match side {
        Side::Target => ("metrics", "HorizontalPodAutoscalerSpec"),
        Side::Current => ("currentMetrics", "HorizontalPodAutoscalerStatus"),
    };
    let Some(Value::List(items)) = what.read(object) else { return Vec::new() };
    let list = items.iter().map(|one| metrics::newer(one, side)).collect();
    match newer_list(list, field, name) {
        Some(Value::List(items)) => items,
        _ => Vec::new(),
    }
}

/// Names of the behaviour, as the newer version and the annotation spell them.
const SIDES: [(&str, &str); 2] = [("scaleUp", "ScaleUp"), ("scaleDown", "ScaleDown")];
const RULES: [(&str, &str); 2] =
    [("stabilizationWindowSeconds", "StabilizationWindowSeconds"), ("selectPolicy", "SelectPolicy")];
const POLICY: [(&str, &str); 3] = [("type", "Type"), ("value", "Value"), ("periodSeconds", "PeriodSeconds")];

/// The behaviour as the annotation has it: nothing is left out.
fn capitalized(behavior: &Value) -> Value {
    let mut out = Value::map();
    for (plain, capital) in SIDES {
        let rules = behavior.at(&[plain]).filter(|it| !it.is_null());
        let rules = rules.map_or(Value::Null, |rules| {
            let mut out = Value::map();
            for (plain, capital) in RULES {
                out.set(&[capital], rules.at(&[plain]).cloned().unwrap_or_default());
            }
            let policies = rules.at(&["policies"]).and_then(Value::as_list).map(|policies| {
                let policy = |one: &Value| {
                    let mut out = Value::map();
                    for (plain, capital) in POLICY {
                        out.set(&[capital], one.at(&[plain]).cloned().unwrap_or_default());
                    }
                    out
                };
                Value::List(policies.iter().map(policy).collect())
            });
            out.set(&["Policies"], policies.unwrap_or_default());
            out
        });
        out.set(&[capital], rules);
    }
    out
}

/// The behaviour of an annotation; nothing when there is none in it.
fn plain_behavior(given: &Value) -> Option<Value> {
    let mut behavior = Value::map();
    for (plain, capital) in SIDES {
        let Some(rules) = given.at(&[capital]).filter(|it| !it.is_null()) else { continue };
        let mut out = Value::map();
        for (plain, capital) in RULES {
            if let Some(value) = rules.at(&[capital]).filter(|it| !it.is_null()) {
                out.set(&[plain], value.clone());
            }
        }
        let policies = rules.items(&["Policies"]).iter().map(|one| {
            let mut out = Value::map();
            for (plain, capital) in POLICY {
                if let Some(value) = one.at(&[capital]) {
                    out.set(&[plain], value.clone());
                }
            }
            out
        });
        let policies: Vec<Value> = policies.collect();
        if !policies.is_empty() {
            out.set(&["policies"], policies);
        }
        behavior.set(&[plain], out);
    }
    let behavior = normal(behavior, "v2", "HorizontalPodAutoscalerBehavior")?;
    SIDES.iter().any(|(plain, _)| read::has(&behavior, &[plain])).then_some(behavior)
}

/// Normalizes an object of the older version as a round trip does.
pub(super) fn settle(object: &mut Value) {
    let version = object.text(&["apiVersion"]).to_owned();
    let taken = std::mem::take(object);
    *object = older(newer(taken));
    object.set(&["apiVersion"], version);
}
