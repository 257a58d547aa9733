//! Evictions: deletion of a pod within its disruption budget.
//!
//! A pod that is pending or finished is deleted without a check, and so is a pod that is not ready while enough others
//! are. Any other eviction uses one of the allowed disruptions of its budget, which lists the pod until the disruption
//! controller has observed its deletion.

use crate::{gates, read};
use rest::error::{ApiError, Cause, Subject};
use rest::hooks::{BudgetCharge, BudgetDecision, Context};
use schema::{Value, time};

const BUDGETS: &str = "poddisruptionbudgets";
/// The most evictions that wait for the disruption controller.
const MOST_UNNOTICED: usize = 2000;
const TOO_MANY: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
const SEVERAL: &str =
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";

/// The cost of an eviction.
pub(super) fn decide(pod: &Value, context: &Context<'_>) -> Result<BudgetDecision, ApiError> {
    let leaving = !pod.text(&["metadata", "deletionTimestamp"]).is_empty();
    match pod.text(&["status", "phase"]) {
        "Succeeded" | "Failed" => return Ok(BudgetDecision::Free),
        _ if leaving => return Ok(BudgetDecision::Free),
        // it may have begun to work in the meantime
        "Pending" => return Ok(BudgetDecision::FreeWhileUnchanged),
        _ => {}
    }
    let namespace = pod.text(&["metadata", "namespace"]);
    let budgets = (context.list)(BUDGETS, Some(namespace));
    let mut its_own = budgets.iter().filter(|one| selects(one.at(&["spec", "selector"]), pod));
    let Some(budget) = its_own.next() else { return Ok(BudgetDecision::Free) };
    if its_own.next().is_some() {
        return Err(ApiError::internal(SEVERAL));
    }
    let always = budget.text(&["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow";
    if always && gates::UNHEALTHY.is_open(context) && !is_ready(pod) {
        return Ok(BudgetDecision::FreeWhileUnchanged);
    }
    let status = |field: &str| read::int(budget, &["status", field]);
    let desired = status("desiredHealthy");
    if !is_ready(pod) && desired > 0 && status("currentHealthy") >= desired {
        return Ok(BudgetDecision::FreeWhileUnchanged);
    }
    Ok(BudgetDecision::Charge(BudgetCharge {
        plural: BUDGETS,
        namespace: namespace.to_owned(),
        name: budget.text(&["metadata", "name"]).to_owned(),
        charge,
    }))
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.items(&["status", "conditions"]);
    conditions.iter().any(|one| one.text(&["type"]) == "Ready" && one.text(&["status"]) == "True")
}

/// Whether a budget's selector picks a pod. One that would pick everything picks nothing.
fn selects(selector: Option<&Value>, pod: &Value) -> bool {
    let Some(selector) = selector.filter(|it| !it.is_null()) else { return false };
    let labels = read::map(pod, &["metadata", "labels"]);
    let equal = read::map(selector, &["matchLabels"]);
    let expressions = selector.items(&["matchExpressions"]);
    if equal.is_empty() && expressions.is_empty() {
        return false;
    }
    equal.iter().all(|(key, value)| labels.get(key) == Some(value))
        && expressions.iter().all(|one| {
            let held = labels.get(one.text(&["key"]));
            let listed = held.is_some_and(|value| one.items(&["values"]).contains(value));
            match one.text(&["operator"]) {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => held.is_some(),
                "DoesNotExist" => held.is_none(),
                _ => false,
            }
        })
}

/// Uses one allowed disruption of a budget.
fn charge(budget: &mut Value, pod: &Value, context: &Context<'_>) -> Result<(), ApiError> {
    let name = budget.text(&["metadata", "name"]).to_owned();
    let status = |field: &str| read::int(budget, &["status", field]);
    let forbidden = |why: &str| {
        let subject = Subject { group: "policy", kind: "poddisruptionbudget", name: &name };
        Err(ApiError::object_forbidden(subject, why))
    };
    if status("observedGeneration") < read::int(budget, &["metadata", "generation"]) {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(too_many(why, 10));
    }
    let allowed = status("disruptionsAllowed");
    if allowed < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    if read::map(budget, &["status", "disruptedPods"]).len() > MOST_UNNOTICED {
        return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if allowed == 0 {
        let (needed, has) = (status("desiredHealthy"), status("currentHealthy"));
        let why = format!("The disruption budget {name} needs {needed} healthy pods and has {has} currently");
        return Err(too_many(why, 0));
    }
    budget.set(&["status", "disruptionsAllowed"], allowed - 1);
    if allowed == 1 {
        none_left(budget, context);
    }
    let disrupted = budget.make_map().entry("status").make_map().entry("disruptedPods").make_map();
    disrupted.insert(pod.text(&["metadata", "name"]).to_owned(), time::format_time(context.now));
    Ok(())
}

fn too_many(why: String, seconds: u32) -> ApiError {
    let mut error = ApiError::too_many_requests(TOO_MANY, seconds);
    if let Some(details) = &mut error.details {
        details.causes.push(Cause {
            reason: "DisruptionBudget".to_owned(),
            message: why,
            field: String::new(),
        });
    }
    error
}

/// Says in the budget's conditions that it allows no more.
fn none_left(budget: &mut Value, context: &Context<'_>) {
    let generation = read::int(budget, &["status", "observedGeneration"]);
    let mut condition = Value::map();
    condition.set(&["type"], "DisruptionAllowed");
    condition.set(&["status"], "False");
    condition.set(&["observedGeneration"], generation);
    condition.set(&["lastTransitionTime"], context.timestamp());
    condition.set(&["reason"], "InsufficientPods");
    condition.set(&["message"], "");
    put_condition(budget, condition);
}

/// Notes why the pod goes.
pub(super) fn mark(pod: &mut Value, context: &Context<'_>) {
    if !gates::CONDITIONS_OF_DISRUPTION.is_open(context) {
        return;
    }
    let mut condition = Value::map();
    condition.set(&["type"], "DisruptionTarget");
    condition.set(&["status"], "True");
    condition.set(&["lastProbeTime"], Value::Null);
    condition.set(&["lastTransitionTime"], context.timestamp());
    condition.set(&["reason"], "EvictionByEvictionAPI");
    condition.set(&["message"], "Eviction API: evicting");
    put_condition(pod, condition);
}

/// Puts a condition in the place of the one of its type; the time stays where the status does.
fn put_condition(object: &mut Value, mut condition: Value) {
    let list = object.make_map().entry("status").make_map().entry("conditions");
    if !matches!(list, Value::List(_)) {
        *list = Value::List(Vec::new());
    }
    let Value::List(conditions) = list else { return };
    let same_type = |one: &&mut Value| one.text(&["type"]) == condition.text(&["type"]);
    match conditions.iter_mut().find(same_type) {
        Some(there) => {
            if there.text(&["status"]) == condition.text(&["status"])
                && let Some(since) = there.at(&["lastTransitionTime"])
            {
                condition.set(&["lastTransitionTime"], since.clone());
            }
            *there = condition;
        }
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json};

    fn selector(text: &str, labels: &str) -> bool {
        let pod = json(&format!(r#"{{"metadata":{{"labels":{labels}}}}}"#));
        selects(Some(&json(text)), &pod)
    }

    #[test]
    fn selectors_pick_some_pods_but_never_all() {
        assert!(selector(r#"{"matchLabels":{"a":"b"}}"#, r#"{"a":"b","c":"d"}"#));
        assert!(!selector(r#"{"matchLabels":{"a":"b","c":"x"}}"#, r#"{"a":"b","c":"d"}"#));
        assert!(!selector("{}", r#"{"a":"b"}"#));
        let check = |operator: &str, expected: [bool; 3]| {
            let text =
                format!(r#"{{"matchExpressions":[{{"key":"a","operator":"{operator}","values":["b"]}}]}}"#);
            let labels = [r#"{"a":"b"}"#, r#"{"a":"c"}"#, "{}"];
            assert_eq!(labels.map(|labels| selector(&text, labels)), expected, "{operator}");
        };
        check("In", [true, false, false]);
        check("NotIn", [false, true, true]);
        check("Exists", [true, true, false]);
        check("DoesNotExist", [false, false, true]);
    }

    #[test]
    fn budgets_are_charged_until_exhausted() {
        let pod = json(r#"{"metadata":{"name":"p"}}"#);
        let mut budget = json(
            r#"{"metadata":{"name":"b","generation":1},
            "status":{"observedGeneration":1,"disruptionsAllowed":2}}"#,
        );
        assert!(charge(&mut budget, &pod, &context()).is_ok());
        assert!(budget.items(&["status", "conditions"]).is_empty());
        assert!(charge(&mut budget, &pod, &context()).is_ok());
        assert_eq!(budget.items(&["status", "conditions"]).len(), 1);
        let refused = charge(&mut budget, &pod, &context()).expect_err("nothing is left");
        assert_eq!((refused.code, refused.message.as_str()), (429, TOO_MANY));
        assert_eq!(read::map(&budget, &["status", "disruptedPods"]).len(), 1);
    }

    #[test]
    fn inactive_pods_are_evicted_free() {
        let decision = |text: &str| decide(&json(text), &context());
        assert!(matches!(decision(r#"{"status":{"phase":"Failed"}}"#), Ok(BudgetDecision::Free)));
        assert!(matches!(
            decision(r#"{"status":{"phase":"Pending"}}"#),
            Ok(BudgetDecision::FreeWhileUnchanged)
        ));
        assert!(matches!(decision(r#"{"status":{"phase":"Running"}}"#), Ok(BudgetDecision::Free)));
    }
}
