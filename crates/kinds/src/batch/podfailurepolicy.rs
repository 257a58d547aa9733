//! Validation of pod failure policies: rules over exit codes and conditions.

use crate::check::{self, Problems};
use crate::{gates, read};
use rest::hooks::Context;
use schema::problem::{Problem, Reason};
use schema::{Path, Value};
use std::collections::HashSet;

const MOST: usize = 20;
const MOST_CODES: usize = 255;

/// Lists that must be there and have nothing in them are none. `spec` is that of a job.
pub(crate) fn default_lists(spec: Option<&mut Value>) {
    let Some(policy) = spec.and_then(|it| it.at_mut(&["podFailurePolicy"])) else { return };
    read::each_mut(policy, &["rules"], |rule| none_if_empty(rule, "onPodConditions"));
    none_if_empty(policy, "rules");
}

fn none_if_empty(value: &mut Value, field: &'static str) {
    if value.at(&[field]).and_then(Value::as_list).is_some_and(<[Value]>::is_empty) {
        value.set(&[field], Value::Null);
    }
}

/// Removes the policy from the spec of a job if its feature gate is off, unless the old object has one.
pub(crate) fn drop_disabled(spec: Option<&mut Value>, old: Option<&Value>, context: &Context<'_>) {
    const GUARDED: &[gates::GatedField] = &[(gates::FAILURE_POLICY, &["podFailurePolicy"])];
    if let Some(spec) = spec {
        gates::drop_disabled(spec, old, GUARDED, context);
    }
}

/// Conditions that say nothing else must be true. `spec` is that of a job.
pub(crate) fn default_conditions(spec: Option<&mut Value>) {
    let Some(policy) = spec.and_then(|it| it.at_mut(&["podFailurePolicy"])) else { return };
    read::each_mut(policy, &["rules"], |rule| {
        read::each_mut(rule, &["onPodConditions"], |one| {
            if one.text(&["status"]).is_empty() {
                one.set(&["status"], "True");
            }
        });
    });
}

/// `spec` is that of a job with a policy.
pub(crate) fn validate(spec: &Value, path: &Path<'_>, out: &mut Problems) {
    let rules = spec.items(&["podFailurePolicy", "rules"]);
    let path = path.field("rules");
    if rules.len() > MOST {
        out.push(Problem::too_many(&path, rules.len(), MOST));
    }
    let containers: HashSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| spec.items(&["template", "spec", list]))
        .map(|it| it.text(&["name"]))
        .collect();
    for (at, one) in rules.iter().enumerate() {
        rule(one, &containers, &path.index(at), out);
    }
}

/// One of a few texts, which are named where none is given.
fn one_of(text: &str, allowed: &[&str], path: &Path<'_>, out: &mut Problems) {
    if text.is_empty() {
        let named: Vec<String> = allowed.iter().map(|it| format!("{it:?}")).collect();
        out.push(Problem::required(path, &format!("valid values: [{}]", named.join(" "))));
    } else if !allowed.contains(&text) {
        out.push(check::unsupported(path, text, allowed));
    }
}

fn rule(rule: &Value, containers: &HashSet<&str>, path: &Path<'_>, out: &mut Problems) {
    one_of(rule.text(&["action"]), &["Count", "FailJob", "Ignore"], &path.field("action"), out);
    let codes = rule.at(&["onExitCodes"]).filter(|it| !it.is_null());
    if let Some(codes) = codes {
        exit_codes(codes, containers, &path.field("onExitCodes"), out);
    }
    let conditions = rule.items(&["onPodConditions"]);
    if !conditions.is_empty() {
        pod_conditions(conditions, &path.field("onPodConditions"), out);
    }
    let why = match (codes.is_some(), !conditions.is_empty()) {
        (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return,
    };
    let message = format!("Invalid value: {why}");
    out.push(Problem { reason: Reason::Invalid, field: path.to_string(), message });
}

fn pod_conditions(items: &[Value], path: &Path<'_>, out: &mut Problems) {
    if items.len() > MOST {
        out.push(Problem::too_many(path, items.len(), MOST));
    }
    for (at, one) in items.iter().enumerate() {
        let path = path.index(at);
        check::qualified_name(one.text(&["type"]), &path.field("type"), out);
        one_of(one.text(&["status"]), &["False", "True", "Unknown"], &path.field("status"), out);
    }
}

fn exit_codes(codes: &Value, containers: &HashSet<&str>, path: &Path<'_>, out: &mut Problems) {
    let operator = codes.text(&["operator"]);
    one_of(operator, &["In", "NotIn"], &path.field("operator"), out);
    if let Some(name) = read::opt_text(codes, &["containerName"]).filter(|it| !containers.contains(it)) {
        const WHY: &str = "must be one of the container or initContainer names in the pod template";
        out.push(Problem::invalid_text(&path.field("containerName"), name, WHY));
    }
    let values: Vec<i64> = codes.items(&["values"]).iter().map(|it| it.as_int().unwrap_or(0)).collect();
    let path = path.field("values");
    if values.is_empty() {
        let none = if codes.at(&["values"]).is_some_and(|it| !it.is_null()) { "{}" } else { "(nil)" };
        let formatted = format!("[]int32{none}");
        out.push(check::invalid_formatted(&path, &formatted, "at least one value is required"));
    } else if values.len() > MOST_CODES {
        out.push(Problem::too_many(&path, values.len(), MOST_CODES));
    }
    let mut seen = HashSet::new();
    for (at, value) in values.iter().enumerate() {
        let item = path.index(at);
        if operator == "In" && *value == 0 {
            out.push(check::invalid_int(&item, 0, "must not be 0 for the In operator"));
        }
        if !seen.insert(value) {
            out.push(Problem::duplicate(&item, &Value::Int(*value)));
        }
    }
    if !values.is_sorted() {
        out.push(check::invalid_formatted(&path, &format_value(&values), "must be ordered"));
    }
}

fn format_value(values: &[i64]) -> String {
    let all: Vec<String> = values.iter().map(ToString::to_string).collect();
    format!("[]int32{{{}}}", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{json, problems};

    #[test]
    fn each_rule_has_one_requirement() {
        let check = |rule: &str, expected: &[&str]| {
            let spec = json(&format!(
                r#"{{"podFailurePolicy":{{"rules":[{rule}]}},"template":{{"spec":{{"containers":[{{"name":"c"}}]}}}}}}"#
            ));
            let mut out = Problems::new();
            validate(&spec, &Path::ROOT.field("p"), &mut out);
            assert_eq!(problems(&out), expected);
        };
        check(
            r#"{"action":"Count","onExitCodes":{"containerName":"c","operator":"In","values":[1,2]}}"#,
            &[],
        );
        check(
            "{}",
            &[
                r#"p.rules[0].action: Required value: valid values: ["Count" "FailJob" "Ignore"]"#,
                "p.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
            ],
        );
        check(
            r#"{"action":"Count","onExitCodes":{"containerName":"x","operator":"In","values":[3,0,3]}}"#,
            &[
                r#"p.rules[0].onExitCodes.containerName: Invalid value: "x": must be one of the container or initContainer names in the pod template"#,
                "p.rules[0].onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator",
                "p.rules[0].onExitCodes.values[2]: Duplicate value: 3",
                "p.rules[0].onExitCodes.values: Invalid value: []int32{3, 0, 3}: must be ordered",
            ],
        );
    }
}
