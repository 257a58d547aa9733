//! Validation of autoscalers, in the newer version.

use super::convert::as_newer;
use crate::check::{self, Problems};
use crate::{metadata, quantities, read};
use schema::problem::Problem;
use schema::{Path, Value};

const SOURCES: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];
const POPULATE: &str = "must populate information for the given metric source";
const LONGEST_WINDOW_SECONDS: i64 = 3600;
const LONGEST_PERIOD_SECONDS: i64 = 1800;

pub(super) fn status(new: &Value) -> Problems {
    let mut out = Problems::new();
    if let Some(status) = as_newer(new).at(&["status"]) {
        let path = Path::ROOT.field("status");
        check::not_negative(status, "currentReplicas", &path, &mut out);
        check::not_negative(status, "desiredReplicas", &path, &mut out);
    }
    out
}

/// `fewest` is the least allowed number of replicas.
pub(super) fn validate(object: &Value, fewest: i64) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("spec");
    let least = read::opt_int(object, &["spec", "minReplicas"]);
    let most = read::int(object, &["spec", "maxReplicas"]);
    if let Some(least) = least.filter(|least| *least < fewest) {
        let path = path.field("minReplicas");
        out.push(check::invalid_int(&path, least, &format!("must be greater than or equal to {fewest}")));
    }
    if most < 1 {
        out.push(check::invalid_int(&path.field("maxReplicas"), most, "must be greater than 0"));
    }
    if least.is_some_and(|least| most < least) {
        const WHY: &str = "must be greater than or equal to `minReplicas`";
        out.push(check::invalid_int(&path.field("maxReplicas"), most, WHY));
    }
    reference(object.at(&["spec", "scaleTargetRef"]), &path.field("scaleTargetRef"), &mut out);
    metrics(object, least, &path.field("metrics"), &mut out);
    let path = path.field("behavior");
    for side in ["scaleUp", "scaleDown"] {
        if let Some(rules) = object.at(&["spec", "behavior", side]).filter(|it| !it.is_null()) {
            behavior(rules, &path.field(side), &mut out);
        }
    }
    out
}

/// An object of any kind, by kind and name.
fn reference(reference: Option<&Value>, path: &Path<'_>, out: &mut Problems) {
    for field in ["kind", "name"] {
        let text = reference.map_or("", |it| it.text(&[field]));
        segment(text, "", &path.field(field), out);
    }
}

/// A text that fits into a path, and must be given.
fn segment(text: &str, missing: &str, path: &Path<'_>, out: &mut Problems) {
    if text.is_empty() {
        out.push(Problem::required(path, missing));
    } else {
        let why = metadata::path_name(text, false);
        out.extend(why.iter().map(|why| Problem::invalid_text(path, text, why)));
    }
}

fn metrics(object: &Value, least: Option<i64>, path: &Path<'_>, out: &mut Problems) {
    let given = object.items(&["spec", "metrics"]);
    for (at, one) in given.iter().enumerate() {
        metric(one, &path.index(at), out);
    }
    let measures_load = |one: &Value| matches!(one.text(&["type"]), "Object" | "External");
    if least == Some(0) && !given.iter().any(measures_load) {
        const WHY: &str =
            "must specify at least one Object or External metric to support scaling to zero replicas";
        out.push(Problem::forbidden(path, WHY));
    }
}

type Check = fn(&Value, &Path<'_>, &mut Problems);

fn metric(metric: &Value, path: &Path<'_>, out: &mut Problems) {
    let kind = metric.text(&["type"]);
    if kind.is_empty() {
        out.push(Problem::required(&path.field("type"), "must specify a metric source type"));
    }
    if !SOURCES.contains(&kind) {
        out.push(check::unsupported(&path.field("type"), kind, SOURCES));
    }
    const CHECKS: [(&str, &str, Check); 5] = [
        ("Object", "object", object_source),
        ("External", "external", external_source),
        ("Pods", "pods", pods_source),
        ("Resource", "resource", resource_source),
        ("ContainerResource", "containerResource", container_source),
    ];
    let present: Vec<_> = CHECKS.iter().filter(|(_, field, _)| read::has(metric, &[field])).collect();
    // only one can be meant: the rest is refused below
    if let Some((_, field, check)) = present.first()
        && let Some(source) = metric.at(&[field])
    {
        check(source, &path.field(field), out);
    }
    match CHECKS.iter().find(|(one, ..)| *one == kind) {
        None => out.push(check::unsupported(&path.field("type"), kind, SOURCES)),
        Some((_, field, _)) if !read::has(metric, &[field]) => {
            let gate = match *field {
                "containerResource" => " (only allowed when HPAContainerMetrics feature is enabled)",
                _ => "",
            };
            out.push(Problem::required(&path.field(field), &format!("{POPULATE}{gate}")));
        }
        Some(_) => {}
    }
    if present.len() > 1 {
        for (_, field, _) in present.iter().filter(|(one, ..)| *one != kind) {
            out.push(Problem::forbidden(&path.field(field), "must populate the given metric source only"));
        }
    }
}

fn has(source: &Value, field: &str) -> bool {
    read::has(source, &["target", field])
}

fn value_or_average(source: &Value, why: &str, path: &Path<'_>, out: &mut Problems) {
    if !has(source, "value") && !has(source, "averageValue") {
        out.push(Problem::required(&path.field("target").field("averageValue"), why));
    }
}

fn object_source(source: &Value, path: &Path<'_>, out: &mut Problems) {
    reference(source.at(&["describedObject"]), &path.field("describedObject"), out);
    identifier(source, path, out);
    target(source, path, out);
    value_or_average(source, "must set either a target value or averageValue", path, out);
}

fn external_source(source: &Value, path: &Path<'_>, out: &mut Problems) {
    identifier(source, path, out);
    target(source, path, out);
    value_or_average(source, "must set either a target value for metric or a per-pod target", path, out);
    if has(source, "value") && has(source, "averageValue") {
        const WHY: &str = "may not set both a target value for metric and a per-pod target";
        out.push(Problem::forbidden(&path.field("target").field("value"), WHY));
    }
}

fn pods_source(source: &Value, path: &Path<'_>, out: &mut Problems) {
    identifier(source, path, out);
    target(source, path, out);
    let average = source.at(&["target", "averageValue"]).filter(|it| !it.is_null());
    if average.is_none_or(|it| quantities::parse(it).sign() != 1) {
        const WHY: &str = "must specify a positive target averageValue";
        out.push(Problem::required(&path.field("target").field("averageValue"), WHY));
    }
}

fn resource_source(source: &Value, path: &Path<'_>, out: &mut Problems) {
    if source.text(&["name"]).is_empty() {
        out.push(Problem::required(&path.field("name"), "must specify a resource name"));
    }
    value_or_utilization(source, path, out);
}

fn container_source(source: &Value, path: &Path<'_>, out: &mut Problems) {
    if source.text(&["name"]).is_empty() {
        out.push(Problem::required(&path.field("name"), "must specify a resource name"));
    }
    if source.text(&["container"]).is_empty() {
        out.push(Problem::required(&path.field("container"), "must specify a container"));
    }
    value_or_utilization(source, path, out);
}

fn value_or_utilization(source: &Value, path: &Path<'_>, out: &mut Problems) {
    target(source, path, out);
    let path = path.field("target");
    match (has(source, "averageUtilization"), has(source, "averageValue")) {
        (false, false) => {
            const WHY: &str = "must set either a target raw value or a target utilization";
            out.push(Problem::required(&path.field("averageUtilization"), WHY));
        }
        (true, true) => {
            const WHY: &str = "may not set both a target raw value and a target utilization";
            out.push(Problem::forbidden(&path.field("averageValue"), WHY));
        }
        _ => {}
    }
}

fn identifier(source: &Value, path: &Path<'_>, out: &mut Problems) {
    let path = path.field("metric");
    segment(source.text(&["metric", "name"]), "must specify a metric name", &path.field("name"), out);
}

fn target(source: &Value, path: &Path<'_>, out: &mut Problems) {
    let path = path.field("target");
    let kind = source.text(&["target", "type"]);
    if kind.is_empty() {
        out.push(Problem::required(&path.field("type"), "must specify a metric target type"));
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        const WHY: &str = "must be either Utilization, Value, or AverageValue";
        out.push(Problem::invalid_text(&path.field("type"), kind, WHY));
    }
    for field in ["value", "averageValue"] {
        if let Some(amount) = source.at(&["target", field]).filter(|it| !it.is_null())
            && quantities::parse(amount).sign() != 1
        {
            out.push(Problem::invalid(&path.field(field), amount, "must be positive"));
        }
    }
    if let Some(percent) = read::opt_int(source, &["target", "averageUtilization"]).filter(|it| *it < 1) {
        let path = path.field("averageUtilization");
        out.push(check::invalid_int(&path, percent, "must be greater than 0"));
    }
}

fn behavior(rules: &Value, path: &Path<'_>, out: &mut Problems) {
    if let Some(seconds) = read::opt_int(rules, &["stabilizationWindowSeconds"]) {
        let path = path.field("stabilizationWindowSeconds");
        if seconds < 0 {
            out.push(check::invalid_int(&path, seconds, "must be greater than or equal to zero"));
        }
        at_most(seconds, LONGEST_WINDOW_SECONDS, &path, out);
    }
    if let Some(policy) = read::opt_text(rules, &["selectPolicy"])
        && !matches!(policy, "Max" | "Min" | "Disabled")
    {
        out.push(check::unsupported(&path.field("selectPolicy"), policy, &["Disabled", "Max", "Min"]));
    }
    let policies = rules.items(&["policies"]);
    let path = path.field("policies");
    if policies.is_empty() {
        out.push(Problem::required(&path, "must specify at least one Policy"));
    }
    for (at, one) in policies.iter().enumerate() {
        let path = path.index(at);
        let kind = one.text(&["type"]);
        if !matches!(kind, "Pods" | "Percent") {
            out.push(check::unsupported(&path.field("type"), kind, &["Percent", "Pods"]));
        }
        for field in ["value", "periodSeconds"] {
            let number = read::int(one, &[field]);
            if number <= 0 {
                out.push(check::invalid_int(&path.field(field), number, "must be greater than zero"));
            }
        }
        let seconds = read::int(one, &["periodSeconds"]);
        at_most(seconds, LONGEST_PERIOD_SECONDS, &path.field("periodSeconds"), out);
    }
}

fn at_most(number: i64, most: i64, path: &Path<'_>, out: &mut Problems) {
    if number > most {
        out.push(check::invalid_int(path, number, &format!("must be less than or equal to {most}")));
    }
}
