//! What the cluster makes of a pod before it is checked: priority, tolerations, the cost of its runtime.

use crate::{limits, priorityclass, read, scheduling};
use rest::error::{ApiError, Subject};
use rest::hooks::Context;
use schema::Value;

const TOLERATED_SECONDS: i64 = 300;
const PREEMPT: &str = "PreemptLowerPriority";

pub(super) fn admit(object: &mut Value, old: Option<&Value>, context: &Context<'_>) -> Result<(), ApiError> {
    match old {
        Some(old) => keep_priority(object, old),
        None => {
            limits::admit_pod(object, context);
            priority(object, context)?;
        }
    }
    default_tolerations(object, context);
    if old.is_none() {
        runtime_class(object, context)?;
    }
    Ok(())
}

fn forbidden(object: &Value, why: &str) -> ApiError {
    // names are generated later than this
    let name = match (object.text(&["metadata", "name"]), object.text(&["metadata", "generateName"])) {
        ("", "") => "Unknown",
        ("", base) => base,
        (name, _) => name,
    };
    let subject = Subject { group: "", kind: "pods", name };
    ApiError::object_forbidden(subject, why)
}

/// Whoever leaves out what the server filled in changes nothing.
fn keep_priority(object: &mut Value, old: &Value) {
    for field in ["priority", "preemptionPolicy"] {
        if let Some(value) = old.at(&["spec", field])
            && !read::has(object, &["spec", field])
        {
            object.set(&["spec", field], value.clone());
        }
    }
}

fn priority(object: &mut Value, context: &Context<'_>) -> Result<(), ApiError> {
    let (priority, policy) = match object.text(&["spec", "priorityClassName"]) {
        "" => match priorityclass::global_default(context) {
            None => (0, PREEMPT.to_owned()),
            Some(class) => {
                let name = class.text(&["metadata", "name"]).to_owned();
                object.set(&["spec", "priorityClassName"], name);
                value_and_policy(&class)
            }
        },
        name => class(name, context)
            .ok_or_else(|| forbidden(object, &format!("no PriorityClass with name {name} was found")))?,
    };
    if let Some(given) = read::opt_int(object, &["spec", "priority"]).filter(|it| *it != priority) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        );
        return Err(forbidden(object, &why));
    }
    if let Some(given) = read::opt_text(object, &["spec", "preemptionPolicy"]).filter(|it| *it != policy) {
        let why = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        );
        return Err(forbidden(object, &why));
    }
    object.set(&["spec", "priority"], priority);
    object.set(&["spec", "preemptionPolicy"], policy);
    Ok(())
}

/// The value and the preemption policy of a class.
fn class(name: &str, context: &Context<'_>) -> Option<(i64, String)> {
    if let Some(class) = (context.lookup)("priorityclasses", "", name) {
        return Some(value_and_policy(&class));
    }
    let (_, value) = priorityclass::SYSTEM.iter().find(|(class, _)| *class == name)?;
    Some((*value, PREEMPT.to_owned()))
}

fn value_and_policy(class: &Value) -> (i64, String) {
    let policy = read::opt_text(class, &["preemptionPolicy"]).unwrap_or(PREEMPT).to_owned();
    (read::int(class, &["value"]), policy)
}

/// A pod outlives the loss of its node for a while, unless it says for how long.
fn default_tolerations(object: &mut Value, context: &Context<'_>) {
    let mut tolerations = object.items(&["spec", "tolerations"]).to_vec();
    let before = tolerations.len();
    for taint in ["not-ready", "unreachable"] {
        let key = context.names.well_known_under("node", taint);
        let tolerated = tolerations[..before].iter().any(|it| {
            let fits = |field: &str, value: &str| matches!(it.text(&[field]), text if text.is_empty() || text == value);
            fits("key", &key) && fits("effect", "NoExecute")
        });
        if !tolerated {
            let mut toleration = Value::map();
            toleration.set(&["key"], key);
            toleration.set(&["operator"], "Exists");
            toleration.set(&["effect"], "NoExecute");
            toleration.set(&["tolerationSeconds"], TOLERATED_SECONDS);
            tolerations.push(toleration);
        }
    }
    if tolerations.len() > before {
        object.set(&["spec", "tolerations"], tolerations);
    }
}

fn runtime_class(object: &mut Value, context: &Context<'_>) -> Result<(), ApiError> {
    let class =
        match read::opt_text(object, &["spec", "runtimeClassName"]) {
            None => None,
            Some(name) => Some((context.lookup)("runtimeclasses", "", name).ok_or_else(|| {
                forbidden(object, &format!("pod rejected: RuntimeClass {name:?} not found"))
            })?),
        };
    let has_overhead = !read::map(object, &["spec", "overhead"]).is_empty();
    let fixed =
        class.as_ref().map(|class| read::map(class, &["overhead", "podFixed"])).filter(|it| !it.is_empty());
    match fixed {
        None if has_overhead => {
            const WHY: &str =
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
            return Err(forbidden(object, WHY));
        }
        Some(fixed) if has_overhead && read::map(object, &["spec", "overhead"]) != fixed => {
            const WHY: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
            return Err(forbidden(object, WHY));
        }
        Some(fixed) => object.set(&["spec", "overhead"], fixed.clone()),
        None => {}
    }
    match &class {
        Some(class) => scheduling_of(class, object),
        None => Ok(()),
    }
}

fn scheduling_of(class: &Value, object: &mut Value) -> Result<(), ApiError> {
    for (label, value) in read::map(class, &["scheduling", "nodeSelector"]).iter() {
        let wanted = read::text(value);
        if let Some(given) =
            read::opt_text(object, &["spec", "nodeSelector", label]).filter(|it| *it != wanted)
        {
            let why = format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{label}] = {wanted}; pod.spec.nodeSelector[{label}] = {given}"
            );
            return Err(forbidden(object, &why));
        }
        let spec = object.make_map().entry("spec").make_map();
        spec.entry("nodeSelector").make_map().insert(label.to_owned(), wanted);
    }
    let tolerations = class.items(&["scheduling", "tolerations"]);
    if !tolerations.is_empty() {
        let merged = scheduling::merge_tolerations(object.items(&["spec", "tolerations"]), tolerations);
        object.set(&["spec", "tolerations"], merged);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{context, json};

    fn refused(object: &str, context: &Context<'_>) -> String {
        admit(&mut json(object), None, context).map_err(|it| it.message).expect_err("refused")
    }

    #[test]
    fn priorities_come_from_classes() {
        let check = |class: &str, expected: i64| {
            let mut object = json(&format!(r#"{{"spec":{{"priorityClassName":{class:?}}}}}"#));
            admit(&mut object, None, &context()).unwrap();
            assert_eq!(read::int(&object, &["spec", "priority"]), expected);
            assert_eq!(object.text(&["spec", "preemptionPolicy"]), PREEMPT);
        };
        check("", 0);
        check("system-node-critical", 2_000_001_000);
        let text = refused(r#"{"metadata":{"name":"p"},"spec":{"priorityClassName":"x"}}"#, &context());
        assert_eq!(text, "pods \"p\" is forbidden: no PriorityClass with name x was found");
        assert!(refused(r#"{"spec":{"priority":-1}}"#, &context()).contains("(-1) must not be provided"));
    }

    #[test]
    fn lost_nodes_are_tolerated_for_a_while() {
        let check = |tolerations: &str, expected: usize| {
            let mut object = json(&format!(r#"{{"spec":{{"tolerations":{tolerations}}}}}"#));
            admit(&mut object, None, &context()).unwrap();
            assert_eq!(object.items(&["spec", "tolerations"]).len(), expected);
        };
        check("[]", 2);
        check(r#"[{"operator":"Exists"}]"#, 1);
        check(r#"[{"key":"node.kubernetes.io/not-ready","effect":"NoExecute"}]"#, 2);
        check(r#"[{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"}]"#, 3);
    }

    #[test]
    fn runtimes_cost_and_place() {
        let class = json(
            r#"{"overhead":{"podFixed":{"cpu":"250m"}},
                "scheduling":{"nodeSelector":{"r":"kata"},"tolerations":[{"key":"k","operator":"Exists"}]}}"#,
        );
        let lookup = |_: &str, _: &str, name: &str| (name == "kata").then(|| class.clone());
        let context = Context { lookup: &lookup, ..context() };
        let mut object = json(r#"{"spec":{"runtimeClassName":"kata","nodeSelector":{"x":"y"}}}"#);
        admit(&mut object, None, &context).unwrap();
        assert_eq!(object.at(&["spec", "overhead"]), Some(&json(r#"{"cpu":"250m"}"#)));
        assert_eq!(object.at(&["spec", "nodeSelector"]), Some(&json(r#"{"r":"kata","x":"y"}"#)));
        assert_eq!(object.items(&["spec", "tolerations"]).len(), 3);
        let check = |spec: &str, expected: &str| {
            let text = refused(&format!(r#"{{"metadata":{{"name":"p"}},"spec":{spec}}}"#), &context);
            assert_eq!(text, format!("pods \"p\" is forbidden: {expected}"));
        };
        check(r#"{"runtimeClassName":"none"}"#, "pod rejected: RuntimeClass \"none\" not found");
        check(
            r#"{"runtimeClassName":"kata","overhead":{"cpu":"1"}}"#,
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        );
        check(
            r#"{"overhead":{"cpu":"1"}}"#,
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        );
        check(
            r#"{"runtimeClassName":"kata","nodeSelector":{"r":"other"}}"#,
            "conflict: runtimeClass.scheduling.nodeSelector[r] = kata; pod.spec.nodeSelector[r] = other",
        );
    }

    #[test]
    fn updates_keep_what_was_filled_in() {
        let mut object = json(r#"{"spec":{"tolerations":[{"operator":"Exists"}]}}"#);
        let old = json(r#"{"spec":{"priority":5,"preemptionPolicy":"Never"}}"#);
        admit(&mut object, Some(&old), &context()).unwrap();
        assert_eq!(read::int(&object, &["spec", "priority"]), 5);
        assert_eq!(object.text(&["spec", "preemptionPolicy"]), "Never");
    }
}
