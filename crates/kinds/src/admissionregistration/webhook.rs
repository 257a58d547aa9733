//! Webhook configurations: the writes that webhooks review, and how they are called.

use crate::check::{self, Problems};
use crate::{admissionregistration::webhook_client, metadata, node_selection as scheduling, read};
use names::Names;
use rest::hooks::{
    CreateHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors, UpdateHooks, WriteHooks,
};
use schema::problem::Problem;
use schema::{Path, Value, format};
use std::collections::HashSet;
use std::time::Duration;

pub fn hooks() -> Hooks {
    Hooks {
        create: CreateHooks { validate: Some(|object, _| validate(object)), ..CreateHooks::default() },
        update: UpdateHooks { validate: Some(|object, _, _| validate(object)), ..UpdateHooks::default() },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[MetadataRules::State]),
            plain_finalizers: true,
            ..WriteHooks::default()
        },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: &[&str] = &["*", "Cluster", "Namespaced"];

fn validate(object: &Value) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("webhooks");
    let mut names = HashSet::new();
    for (at, hook) in object.items(&["webhooks"]).iter().enumerate() {
        let path = path.index(at);
        webhook(hook, &path, &mut out);
        review_versions(hook, &path.field("admissionReviewVersions"), &mut out);
        let name = hook.text(&["name"]);
        if !name.is_empty() && !names.insert(name) {
            out.push(check::duplicate_text(&path.field("name"), name));
        }
    }
    out
}

fn webhook(hook: &Value, path: &Path<'_>, out: &mut Problems) {
    full_name(hook.text(&["name"]), &path.field("name"), out);
    let rules = path.field("rules");
    for (at, rule) in hook.items(&["rules"]).iter().enumerate() {
        rule_with_operations(rule, &rules.index(at), out);
    }
    supported(hook, "failurePolicy", &["Fail", "Ignore"], path, out);
    supported(hook, "matchPolicy", &["Equivalent", "Exact"], path, out);
    if !read::has(hook, &["sideEffects"]) {
        let detail = "must specify one of None, NoneOnDryRun";
        out.push(Problem::required(&path.field("sideEffects"), detail));
    }
    supported(hook, "sideEffects", &["None", "NoneOnDryRun"], path, out);
    supported(hook, "reinvocationPolicy", &["IfNeeded", "Never"], path, out);
    if let Some(seconds) = read::opt_int(hook, &["timeoutSeconds"]).filter(|it| !(1..=30).contains(it)) {
        let detail = "the timeout value must be between 1 and 30 seconds";
        out.push(check::invalid_int(&path.field("timeoutSeconds"), seconds, detail));
    }
    for field in ["namespaceSelector", "objectSelector"] {
        scheduling::label_selector(hook.at(&[field]), &path.field(field), out);
    }
    let nothing = Value::map();
    let config = hook.at(&["clientConfig"]).unwrap_or(&nothing);
    webhook_client::check(config, &path.field("clientConfig"), out);
}

/// A name below a domain.
fn full_name(name: &str, path: &Path<'_>, out: &mut Problems) {
    let before = out.len();
    check::required(name, path, out);
    if out.len() == before {
        check::subdomain(name, path, out);
    }
    if out.len() == before && name.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        out.push(Problem::invalid_text(path, name, detail));
    }
}

/// One of a few texts, where a text is given at all.
pub(crate) fn supported(value: &Value, field: &str, allowed: &[&str], path: &Path<'_>, out: &mut Problems) {
    if let Some(text) = read::opt_text(value, &[field]).filter(|it| !allowed.contains(it)) {
        out.push(check::unsupported(&path.field(field), text, allowed));
    }
}

pub(crate) fn rule_with_operations(rule: &Value, path: &Path<'_>, out: &mut Problems) {
    let operations = rule.items(&["operations"]);
    let at = path.field("operations");
    if operations.is_empty() {
        out.push(Problem::required(&at, ""));
    }
    let formatted =
        check::format_texts(operations).replacen("string", "admissionregistration.OperationType", 1);
    alone(operations, &formatted, "operations", &at, out);
    for (nth, operation) in operations.iter().map(read::text).enumerate() {
        if !OPERATIONS.contains(&operation) {
            out.push(check::unsupported(&at.index(nth), operation, OPERATIONS));
        }
    }
    for (field, what) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let (items, at) = (rule.items(&[field]), path.field(field));
        if items.is_empty() {
            out.push(Problem::required(&at, ""));
        }
        alone(items, &check::format_texts(items), what, &at, out);
        // the group without a name is a group; there is no version without one
        for (nth, version) in items.iter().map(read::text).enumerate().filter(|_| field == "apiVersions") {
            check::required(version, &at.index(nth), out);
        }
    }
    resources(rule.items(&["resources"]), &path.field("resources"), out);
    supported(rule, "scope", SCOPES, path, out);
}

/// Checks that a wildcard is the only item.
fn alone(items: &[Value], formatted: &str, what: &str, path: &Path<'_>, out: &mut Problems) {
    if items.len() > 1 && items.iter().any(|it| read::text(it) == "*") {
        let detail = format!("if '*' is present, must not specify other {what}");
        out.push(check::invalid_formatted(path, formatted, &detail));
    }
}

fn resources(items: &[Value], path: &Path<'_>, out: &mut Problems) {
    if items.is_empty() {
        out.push(Problem::required(path, ""));
    }
    let (mut all_below, mut below_all) = (HashSet::new(), HashSet::new());
    // whether the last one without a subresource stands for one resource
    let mut plain = false;
    for (at, text) in items.iter().map(read::text).enumerate() {
        if text.is_empty() {
            out.push(Problem::required(&path.index(at), ""));
            continue;
        }
        let Some((resource, sub)) = text.split_once('/') else {
            plain = text != "*";
            continue;
        };
        let mut covered = |by: String| {
            let detail = format!("if '{by}' is present, must not specify {text}");
            out.push(Problem::invalid_text(&path.index(at), text, &detail));
        };
        if all_below.contains(resource) {
            covered(format!("{resource}/*"));
        }
        if below_all.contains(sub) {
            covered(format!("*/{sub}"));
        }
        if sub == "*" {
            all_below.insert(resource);
        }
        if resource == "*" {
            below_all.insert(sub);
        }
    }
    let has = |wanted: &str| items.iter().any(|it| read::text(it) == wanted);
    let formatted = check::format_texts(items);
    if items.len() > 1 && has("*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        out.push(check::invalid_formatted(path, &formatted, detail));
    }
    if has("*") && plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        out.push(check::invalid_formatted(path, &formatted, detail));
    }
}

/// The supported versions of admission reviews.
const REVIEW_VERSIONS: &[&str] = &["v1", "v1beta1"];

fn review_versions(hook: &Value, path: &Path<'_>, out: &mut Problems) {
    let versions = hook.items(&["admissionReviewVersions"]);
    if versions.is_empty() {
        let detail = format!("must specify one of {}", REVIEW_VERSIONS.join(", "));
        return out.push(Problem::required(path, &detail));
    }
    check_versions(versions, REVIEW_VERSIONS, path, out);
}

/// Names of versions, each once, one of them known.
pub(crate) fn check_versions(versions: &[Value], known: &[&str], path: &Path<'_>, out: &mut Problems) {
    let mut seen = HashSet::new();
    for (at, version) in versions.iter().map(read::text).enumerate() {
        if !seen.insert(version) {
            out.push(Problem::invalid_text(&path.index(at), version, "duplicate version"));
            continue;
        }
        let format_errors = format::dns1035_label(version);
        out.extend(format_errors.iter().map(|why| Problem::invalid_text(&path.index(at), version, why)));
    }
    if !known.iter().any(|it| seen.contains(it)) {
        let detail = format!("must include at least one of {}", known.join(", "));
        out.push(check::invalid_formatted(path, &check::format_texts(versions), &detail));
    }
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let webhooks = object.items(&["webhooks"]).len() as i64;
    vec![metadata::name(object), webhooks.into(), metadata::age(object, now)]
}

/// Defaults of `v1beta1`, which is more lenient than `v1` and has longer timeouts.
pub(crate) fn default_v1beta1(object: &mut Value, _: &Names) {
    let defaults: [(&'static str, Value); 5] = [
        ("failurePolicy", "Ignore".into()),
        ("matchPolicy", "Exact".into()),
        ("sideEffects", "Unknown".into()),
        ("timeoutSeconds", 30.into()),
        ("admissionReviewVersions", vec![Value::from("v1beta1")].into()),
    ];
    read::each_mut(object, &["webhooks"], |hook| {
        for (field, value) in &defaults {
            let absent = hook
                .at(&[field])
                .is_none_or(|it| it.is_null() || it.as_list().is_some_and(|it| it.is_empty()));
            if absent {
                hook.set(&[field], value.clone());
            }
        }
    });
}
