//! Admission of pods: priority, tolerations, and overhead and scheduling of the runtime class.
//!
//! Each function is for one admission plugin; its error is the reason alone.

use crate::{node_selection as scheduling, read, scheduling::priorityclass};
use names::Names;
use rest::hooks::Context;
use schema::problem::quoted;
use schema::{Value, format};

const PREEMPT: &str = "PreemptLowerPriority";

/// Keeps the priority of the old object where an update omits it.
pub fn keep_priority(object: &mut Value, old: &Value) {
    for field in ["priority", "preemptionPolicy"] {
        if let Some(value) = old.at(&["spec", field])
            && !read::has(object, &["spec", field])
        {
            object.set(&["spec", field], value.clone());
        }
    }
}

/// Gives a new pod the priority of its class, or of the class for pods that name none.
pub fn give_priority(object: &mut Value, context: &Context<'_>) -> Result<(), String> {
    let (priority, policy) = match object.text(&["spec", "priorityClassName"]) {
        "" => match priorityclass::global_default(context) {
            None => (0, PREEMPT.to_owned()),
            Some(class) => {
                let name = class.text(&["metadata", "name"]).to_owned();
                object.set(&["spec", "priorityClassName"], name);
                value_and_policy(&class)
            }
        },
        name => (context.lookup)("priorityclasses", "", name)
            .map(|class| value_and_policy(&class))
            .ok_or_else(|| format!("no PriorityClass with name {name} was found"))?,
    };
    if let Some(given) = read::opt_int(object, &["spec", "priority"]).filter(|it| *it != priority) {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        ));
    }
    if let Some(given) = read::opt_text(object, &["spec", "preemptionPolicy"]).filter(|it| *it != policy) {
        return Err(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        ));
    }
    object.set(&["spec", "priority"], priority);
    object.set(&["spec", "preemptionPolicy"], policy);
    Ok(())
}

/// The value and the preemption policy of a class.
fn value_and_policy(class: &Value) -> (i64, String) {
    let policy = read::opt_text(class, &["preemptionPolicy"]).unwrap_or(PREEMPT).to_owned();
    (read::int(class, &["value"]), policy)
}

/// The default toleration seconds of pods for lost nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TolerationSeconds {
    pub not_ready: i64,
    pub unreachable: i64,
}

impl Default for TolerationSeconds {
    fn default() -> Self {
        TolerationSeconds { not_ready: 300, unreachable: 300 }
    }
}

/// A pod outlives the loss of its node for a while.
pub fn tolerate_lost_nodes(object: &mut Value, tolerated: TolerationSeconds, names: &Names) {
    let mut tolerations = object.items(&["spec", "tolerations"]).to_vec();
    let before = tolerations.len();
    for (taint, seconds) in [("not-ready", tolerated.not_ready), ("unreachable", tolerated.unreachable)] {
        let key = names.well_known_under("node", taint);
        let tolerated = tolerations[..before].iter().any(|it| {
            let fits = |field: &str, value: &str| matches!(it.text(&[field]), text if text.is_empty() || text == value);
            fits("key", &key) && fits("effect", "NoExecute")
        });
        if !tolerated {
            let mut toleration = Value::map();
            toleration.set(&["key"], key);
            toleration.set(&["operator"], "Exists");
            toleration.set(&["effect"], "NoExecute");
            toleration.set(&["tolerationSeconds"], seconds);
            tolerations.push(toleration);
        }
    }
    if tolerations.len() > before {
        object.set(&["spec", "tolerations"], tolerations);
    }
}

/// The error of a lookup of the runtime class by a name that no object can have.
pub fn runtime_class_error(object: &Value) -> Option<String> {
    format::lookup_error(read::opt_text(object, &["spec", "runtimeClassName"])?)
}

/// Sets the overhead and the scheduling constraints of the runtime class.
pub fn use_runtime(object: &mut Value, context: &Context<'_>) -> Result<(), String> {
    let Some(class) = runtime_class(object, context)? else { return Ok(()) };
    if read::has(&class, &["overhead"]) {
        let fixed = read::map(&class, &["overhead", "podFixed"]);
        let given = read::map(object, &["spec", "overhead"]);
        if !given.is_empty() && given != fixed {
            return Err(OTHER_OVERHEAD.to_owned());
        }
        if !fixed.is_empty() {
            object.set(&["spec", "overhead"], fixed.clone());
        }
    }
    scheduling_of(&class, object)
}

/// Refuses a pod that costs something else than its runtime does.
pub fn check_runtime(object: &Value, context: &Context<'_>) -> Result<(), String> {
    let class = runtime_class(object, context)?;
    let given = read::map(object, &["spec", "overhead"]);
    match class.filter(|class| read::has(class, &["overhead"])) {
        None if given.is_empty() => Ok(()),
        None => {
            Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
                .to_owned())
        }
        Some(class) if read::map(&class, &["overhead", "podFixed"]) == given => Ok(()),
        Some(_) => Err(OTHER_OVERHEAD.to_owned()),
    }
}

const OTHER_OVERHEAD: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

fn runtime_class(object: &Value, context: &Context<'_>) -> Result<Option<Value>, String> {
    let Some(name) = read::opt_text(object, &["spec", "runtimeClassName"]) else { return Ok(None) };
    let class = (context.lookup)("runtimeclasses", "", name);
    class.map(Some).ok_or_else(|| format!("pod rejected: RuntimeClass {} not found", quoted(name)))
}

fn scheduling_of(class: &Value, object: &mut Value) -> Result<(), String> {
    for (label, value) in read::map(class, &["scheduling", "nodeSelector"]).iter() {
        let wanted = read::text(value);
        if let Some(given) =
            read::opt_text(object, &["spec", "nodeSelector", label]).filter(|it| *it != wanted)
        {
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{label}] = {wanted}; pod.spec.nodeSelector[{label}] = {given}"
            ));
        }
        let spec = object.make_map().entry("spec").make_map();
        spec.entry("nodeSelector").make_map().insert(label.to_owned(), wanted);
    }
    if read::has(class, &["scheduling"]) {
        let tolerations = class.items(&["scheduling", "tolerations"]);
        let merged = scheduling::merge_tolerations(object.items(&["spec", "tolerations"]), tolerations);
        if !merged.is_empty() {
            object.set(&["spec", "tolerations"], merged);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json};

    #[test]
    fn priorities_come_from_classes() {
        let class = json(r#"{"value":7,"preemptionPolicy":"Never"}"#);
        let lookup = |_: &str, _: &str, name: &str| (name == "there").then(|| class.clone());
        let context = Context { lookup: &lookup, ..context() };
        let given = |spec: &str| {
            let mut object = json(&format!(r#"{{"spec":{spec}}}"#));
            give_priority(&mut object, &context)?;
            let policy = object.text(&["spec", "preemptionPolicy"]).to_owned();
            Ok::<_, String>((read::int(&object, &["spec", "priority"]), policy))
        };
        assert_eq!(given("{}"), Ok((0, PREEMPT.to_owned())));
        assert_eq!(given(r#"{"priorityClassName":"there"}"#), Ok((7, "Never".to_owned())));
        let none = given(r#"{"priorityClassName":"x"}"#);
        assert_eq!(none, Err("no PriorityClass with name x was found".to_owned()));
        for wrong in [r#"{"priority":-1}"#, r#"{"priorityClassName":"there","preemptionPolicy":"Other"}"#] {
            assert!(
                given(wrong).is_err_and(|why| why.contains("must not be provided in pod spec")),
                "{wrong}"
            );
        }
    }

    #[test]
    fn lost_nodes_are_tolerated_for_a_while() {
        let check = |tolerations: &str, expected: &[i64]| {
            let mut object = json(&format!(r#"{{"spec":{{"tolerations":{tolerations}}}}}"#));
            tolerate_lost_nodes(
                &mut object,
                TolerationSeconds { not_ready: 1, unreachable: 2 },
                context().names,
            );
            let seconds = object.items(&["spec", "tolerations"]).iter();
            let seconds: Vec<_> =
                seconds.filter_map(|it| read::opt_int(it, &["tolerationSeconds"])).collect();
            assert_eq!(seconds, expected, "{tolerations}");
        };
        check("[]", &[1, 2]);
        check(r#"[{"operator":"Exists"}]"#, &[]);
        check(r#"[{"key":"node.kubernetes.io/not-ready","effect":"NoExecute"}]"#, &[2]);
        check(r#"[{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"}]"#, &[1, 2]);
    }

    #[test]
    fn runtimes_cost_and_place() {
        let class = json(
            r#"{"overhead":{"podFixed":{"cpu":"250m"}},
                "scheduling":{"nodeSelector":{"r":"kata"},
                    "tolerations":[{"key":"k","operator":"Exists"},{"key":"k","operator":"Exists"}]}}"#,
        );
        let lookup = |_: &str, _: &str, name: &str| match name {
            "kata" => Some(class.clone()),
            "free" => Some(json("{}")),
            _ => None,
        };
        let context = Context { lookup: &lookup, ..context() };
        let mut object = json(
            r#"{"spec":{"runtimeClassName":"kata","nodeSelector":{"x":"y"},"tolerations":[{"key":"k","operator":"Exists"}]}}"#,
        );
        use_runtime(&mut object, &context).unwrap();
        check_runtime(&object, &context).unwrap();
        assert_eq!(object.at(&["spec", "overhead"]), Some(&json(r#"{"cpu":"250m"}"#)));
        assert_eq!(object.at(&["spec", "nodeSelector"]), Some(&json(r#"{"r":"kata","x":"y"}"#)));
        assert_eq!(object.items(&["spec", "tolerations"]).len(), 1);
        let check = |spec: &str, expected: &str| {
            let mut pod = json(&format!(r#"{{"spec":{spec}}}"#));
            let outcome = use_runtime(&mut pod, &context).and_then(|()| check_runtime(&pod, &context));
            assert_eq!(outcome, Err(expected.to_owned()), "{spec}");
        };
        const NONE: &str =
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
        check(r#"{"runtimeClassName":"none"}"#, "pod rejected: RuntimeClass \"none\" not found");
        check(r#"{"runtimeClassName":"kata","overhead":{"cpu":"1"}}"#, OTHER_OVERHEAD);
        check(r#"{"overhead":{"cpu":"1"}}"#, NONE);
        check(r#"{"runtimeClassName":"free","overhead":{"cpu":"1"}}"#, NONE);
        check(
            r#"{"runtimeClassName":"kata","nodeSelector":{"r":"other"}}"#,
            "conflict: runtimeClass.scheduling.nodeSelector[r] = kata; pod.spec.nodeSelector[r] = other",
        );
    }

    #[test]
    fn updates_keep_defaulted_fields() {
        let mut object = json(r#"{"spec":{}}"#);
        keep_priority(&mut object, &json(r#"{"spec":{"priority":5,"preemptionPolicy":"Never"}}"#));
        assert_eq!(object, json(r#"{"spec":{"priority":5,"preemptionPolicy":"Never"}}"#));
    }
}
