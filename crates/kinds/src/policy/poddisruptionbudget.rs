//! Disruption budgets: how many pods may be missing, as a number or a share of all.

use crate::check::{self, Problems};
use crate::{conditions, gates, metadata, node_selection as scheduling, read};
use names::Names;
use rest::hooks::{
    Context, CreateHooks, Hooks, ReadHooks, RepeatedMetadataErrors, SubresourceHooks, Subresources,
    UpdateHooks, WriteHooks,
};
use schema::problem::quoted;
use schema::{Path, Value, format};
use std::time::Duration;

pub fn hooks() -> Hooks {
    Hooks {
        create: CreateHooks {
            prepare: Some(|object, context| drop_disabled(object, None, context)),
            validate: Some(|object, _| validate(object)),
            ..CreateHooks::default()
        },
        update: UpdateHooks {
            prepare: Some(prepare_update),
            validate: Some(|object, _, _| validate(object)),
            ..UpdateHooks::default()
        },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[]),
            name_rule: Some(metadata::path_name),
            plain_finalizers: true,
            ..WriteHooks::default()
        },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        subresources: Subresources { parts: SUBRESOURCES, ..Subresources::default() },
        ..Hooks::default()
    }
}

static SUBRESOURCES: &[SubresourceHooks] = &[SubresourceHooks {
    validate: Some(status),
    repeated_metadata_errors: RepeatedMetadataErrors(&[]),
    ..SubresourceHooks::STATUS
}];

/// Removes the policy for unhealthy pods if its feature gate is off, unless the old object has one.
fn drop_disabled(next: &mut Value, old: Option<&Value>, context: &Context<'_>) {
    const GUARDED: &[gates::GatedField] = &[(gates::UNHEALTHY, &["spec", "unhealthyPodEvictionPolicy"])];
    gates::drop_disabled(next, old, GUARDED, context);
}

/// A change that is dropped still counts as one.
fn prepare_update(next: &mut Value, old: &Value, context: &Context<'_>) {
    if next.at(&["spec"]) != old.at(&["spec"]) {
        next.set(&["metadata", "generation"], read::int(old, &["metadata", "generation"]) + 1);
    }
    drop_disabled(next, Some(old), context);
}

fn validate(object: &Value) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("spec");
    const LIMITS: [&str; 2] = ["minAvailable", "maxUnavailable"];
    if LIMITS.iter().all(|field| read::has(object, &["spec", field])) {
        let why = "minAvailable and maxUnavailable cannot be both set";
        out.push(check::invalid_formatted(&path, &format_spec(object), why));
    }
    for field in LIMITS {
        if let Some(value) = object.at(&["spec", field]).filter(|it| !it.is_null()) {
            amount(value, &path.field(field), &mut out);
        }
    }
    let policy = object.text(&["spec", "unhealthyPodEvictionPolicy"]);
    if !policy.is_empty() {
        let path = path.field("unhealthyPodEvictionPolicy");
        check::one_of(policy, &["AlwaysAllow", "IfHealthyBudget"], &path, &mut out);
    }
    scheduling::label_selector(object.at(&["spec", "selector"]), &path.field("selector"), &mut out);
    out
}

/// The spec as error messages show it, without pointed-to values.
fn format_spec(object: &Value) -> String {
    let pointer = |field: &str, to: &str| {
        let there = if read::has(object, &["spec", field]) { "0x0" } else { "nil" };
        format!("(*{to})({there})")
    };
    format!(
        "policy.PodDisruptionBudgetSpec{{MinAvailable:{}, Selector:{}, MaxUnavailable:{}, \
         UnhealthyPodEvictionPolicy:{}}}",
        pointer("minAvailable", "intstr.IntOrString"),
        pointer("selector", "v1.LabelSelector"),
        pointer("maxUnavailable", "intstr.IntOrString"),
        pointer("unhealthyPodEvictionPolicy", "policy.UnhealthyPodEvictionPolicyType"),
    )
}

/// A number, or a share of all that is not more than all.
fn amount(value: &Value, path: &Path<'_>, out: &mut Problems) {
    let Some(text) = value.as_str() else {
        let number = value.as_int().unwrap_or(0);
        if number < 0 {
            out.push(check::invalid_int(path, number, "must be greater than or equal to 0"));
        }
        return;
    };
    let formatted = format!("intstr.IntOrString{{Type:1, IntVal:0, StrVal:{}}}", quoted(text));
    out.extend(format::percent(text).iter().map(|why| check::invalid_formatted(path, &formatted, why)));
    let share = text.strip_suffix('%').and_then(|digits| digits.parse::<i64>().ok());
    if share.is_some_and(|share| share > 100) {
        out.push(check::invalid_formatted(path, &formatted, "must not be greater than 100%"));
    }
}

fn status(new: &Value, _: &Value, _: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    let path = Path::ROOT.field("status");
    conditions::validate(new.items(&["status", "conditions"]), &path.field("conditions"), &mut out);
    if let Some(status) = new.at(&["status"]) {
        for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            check::not_negative(status, field, &path, &mut out);
        }
    }
    out
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    let limit = |field: &str| -> Value {
        match object.at(&["spec", field]) {
            Some(Value::Int(number)) => number.to_string().into(),
            Some(Value::String(text)) => text.clone().into(),
            _ => "N/A".into(),
        }
    };
    vec![
        metadata::name(object),
        limit("minAvailable"),
        limit("maxUnavailable"),
        Value::Int(read::int(object, &["status", "disruptionsAllowed"])),
        metadata::age(object, now),
    ]
}

/// Converts the selector of `v1beta1`, where an empty selector selects no pod.
const EMPTY_SELECTOR: &str = "deprecated-v1beta1-empty-selector-match";

/// To `v1`, where an empty selector is about all pods.
pub(crate) fn convert_v1beta1(object: &mut Value, names: &Names) {
    let label = names.well_known_under("pdb", EMPTY_SELECTOR);
    let Some(selector) = object.at_mut(&["spec", "selector"]).filter(|it| !it.is_null()) else { return };
    let marks = |one: &Value| one.text(&["key"]) == label;
    let labels = read::map(selector, &["matchLabels"]).len();
    match (labels, selector.items(&["matchExpressions"])) {
        (0, []) => {
            let mut mark = Value::map();
            mark.set(&["key"], label);
            mark.set(&["operator"], "Exists");
            selector.set(&["matchExpressions"], vec![mark]);
        }
        (0, [one]) if marks(one) && one.text(&["operator"]) == "DoesNotExist" => *selector = Value::map(),
        (_, expressions) if expressions.iter().any(marks) => {
            let others: Vec<Value> = expressions.iter().filter(|one| !marks(one)).cloned().collect();
            selector.set(&["matchExpressions"], others);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{json, problems};

    #[test]
    fn amounts_are_numbers_or_shares() {
        let check = |spec: &str, expected: usize| {
            let found = problems(&validate(&json(&format!(r#"{{"spec":{spec}}}"#))));
            assert_eq!(found.len(), expected, "{spec}: {found:?}");
        };
        check("{}", 0);
        check(r#"{"minAvailable":"100%"}"#, 0);
        check(r#"{"minAvailable":"101%"}"#, 1);
        check(r#"{"minAvailable":"5"}"#, 1);
        check(r#"{"minAvailable":-1}"#, 1);
        check(r#"{"minAvailable":1,"maxUnavailable":1}"#, 1);
    }
}
