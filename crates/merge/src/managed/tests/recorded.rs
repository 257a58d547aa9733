//! Tests of managed fields against recorded answers, if those are available.
//!
//! Tables are built from the reference of types. The test repeats every recorded creation and update, and compares the
//! entries with the recorded ones. An answer has the object as stored, while the request was tracked: fields that the
//! server set later ([`LATE`]), and scenarios about such changes ([`OTHERWISE`]), are left out.

use super::*;
use crate::tests::recorded::{Types, scenarios};
use schema::Value;
use std::collections::HashMap;
use std::path::Path;

/// Filled in after the write was tracked.
const LATE: &[&[&str]] = &[
    &["spec", "priority"],
    &["spec", "preemptionPolicy"],
    &["spec", "tolerations"],
    &["spec", "taints"],
    &["spec", "finalizers"],
    &["spec", "clusterIP"],
    &["spec", "clusterIPs"],
    &["spec", "ipFamilies"],
    &["spec", "ipFamilyPolicy"],
    &["spec", "healthCheckNodePort"],
];

/// Scenarios in which what is stored differs from what was tracked, or fields are reset in a way of their own.
const OTHERWISE: &[&str] = &[
    "admission-limitranger",
    "autoscaling-v1-horizontalpodautoscalers",
    "certificates-v1-certificatesigningrequests",
    "core-v1-limitranges#0",
    "core-v1-persistentvolumeclaims",
    "core-v1-services#2",
    "discovery-v1-endpointslices#0",
    "extra-job-completions",
    "extra-pvc-",
    "extra-sts-retention",
    "hpa-both-versions",
    "service-lb-local",
    "service-type-changes",
    "subresource-namespace",
    "subresource-token",
];

/// Entries in the text of their identity and fields, without times, in a fixed order.
fn entries(object: &Value) -> Vec<String> {
    let late = FieldSet::of(LATE);
    let summary = |entry: &Value| {
        let mut set = FieldSet::of_value(entry.at(&["fieldsV1"]).unwrap()).unwrap();
        set.subtract_below(&late);
        if set.is_empty() {
            return None;
        }
        let names = ["manager", "operation", "apiVersion", "subresource"].map(|name| entry.text(&[name]));
        let set = set.to_text();
        Some(format!("{} {set}", names.join(" ")))
    };
    let mut entries: Vec<_> =
        object.items(&["metadata", "managedFields"]).iter().filter_map(summary).collect();
    entries.sort();
    entries
}

/// The request of a scenario.
struct Request {
    method: String,
    /// Path of the object, without a subresource.
    object: String,
    subresource: String,
    manager: String,
    apply: bool,
}

fn request(step: &Value) -> Request {
    let path = step.text(&["do", "path"]);
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let manager = query.split('&').find_map(|pair| pair.strip_prefix("fieldManager=")).unwrap_or("recorder");
    let known = ["status", "approval", "finalize", "ephemeralcontainers"];
    let (object, subresource) = match path.rsplit_once('/') {
        Some((object, last)) if known.contains(&last) => (object, last),
        _ => (path, ""),
    };
    Request {
        method: step.text(&["do", "method"]).to_owned(),
        object: object.to_owned(),
        subresource: subresource.to_owned(),
        manager: manager.to_owned(),
        apply: step.text(&["do", "headers", "Content-Type"]).starts_with("application/apply"),
    }
}

#[test]
fn recorded_updates_are_tracked_alike() {
    let Some(mut types) = Types::load() else { return };
    let mut compared = 0;
    for family in ["apply", "defaults", "patches", "verbs", "tables"] {
        for file in scenarios(family) {
            compared += scenario(&file, &mut types);
        }
    }
    assert!(compared > 150, "only {compared} recorded writes were found");
}

/// Makes the writes of one scenario again, and gives how many there were to compare.
fn scenario(file: &Path, types: &mut Types) -> usize {
    let scenario = json(&std::fs::read_to_string(file).unwrap());
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let mut compared = 0;
    let mut known: HashMap<String, Value> = HashMap::new();
    for (at, step) in scenario.items(&["steps"]).iter().enumerate() {
        let request = request(step);
        let answer = step.at(&["answer", "body"]).cloned().unwrap_or_default();
        let is_object = answer.at(&["metadata", "name"]).is_some() && answer.text(&["kind"]) != "Status";
        let dry = step.text(&["do", "path"]).contains("dryRun");
        let object = match &*request.method {
            "POST" => format!("{}/{}", request.object, answer.text(&["metadata", "name"])),
            _ => request.object.clone(),
        };
        let writes = matches!(&*request.method, "POST" | "PUT" | "PATCH");
        if !is_object {
            // the object may have changed without an answer that shows it
            if writes {
                known.remove(&object);
            }
            continue;
        }
        let place = format!("{stem}#{at}");
        let created = request.method == "POST";
        if writes && !request.apply && !OTHERWISE.iter().any(|it| place.starts_with(it)) {
            let live = known.get(&object).filter(|_| !created);
            if (created || live.is_some()) && check(step, &request, live, &answer, types, &place) {
                compared += 1;
            }
        }
        if !dry {
            known.insert(object, answer);
        }
    }
    compared
}

/// The entries that a client sends along.
fn sent(step: &Value) -> Option<&Value> {
    let edits = |operation: &&Value| operation.text(&["path"]) == "/metadata/managedFields";
    match step.at(&["do", "body"])? {
        Value::List(operations) => operations.iter().find(edits)?.at(&["value"]),
        body => body.at(&["metadata", "managedFields"]),
    }
}

/// Makes a write again; false when its kind has no table.
fn check(
    step: &Value,
    request: &Request,
    live: Option<&Value>,
    answer: &Value,
    types: &mut Types,
    place: &str,
) -> bool {
    let Some(ty) = types.root(answer) else { return false };
    let mut new = answer.clone();
    new.unset(&["metadata", "managedFields"]);
    if let Some(sent) = sent(step) {
        new.set(&["metadata", "managedFields"], sent.clone());
    }
    let reset = match &*request.subresource {
        "" => FieldSet::of(&[&["status"]]),
        _ => FieldSet::of(&[&["spec"]]),
    };
    let write = Write {
        ty: &ty,
        manager: &request.manager,
        api_version: answer.text(&["apiVersion"]),
        subresource: &request.subresource,
        now: "${time}",
        reset: &reset,
        convert: None,
    };
    let fresh = creation::brought(&ty, &new, &reset, &UNOWNED).ok().flatten();
    assert_eq!(fresh, compared(&ty, &new, &reset), "{place}");
    track(&write, live, &mut new);
    assert_eq!(entries(&new), entries(answer), "{place}");
    true
}
