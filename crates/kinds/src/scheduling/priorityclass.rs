//! PriorityClasses: the priority of pods. Values are immutable, at most one class is the default, and two classes
//! belong to the system.

use crate::check::{self, Problems};
use crate::{metadata, read};
use rest::error::{ApiError, Subject};
use rest::hooks::{
    Context, CreateHooks, DeleteHooks, Hooks, MetadataRules, ReadHooks, RepeatedMetadataErrors, UpdateHooks,
    WriteHooks,
};
use schema::problem::Problem;
use schema::{Path, Value};
use std::time::Duration;

/// Classes that exist in every cluster.
pub(crate) const SYSTEM: &[(&str, i64)] =
    &[("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
const SYSTEM_PREFIX: &str = "system-";
const HIGHEST_OF_USERS: i64 = 1_000_000_000;
const POLICIES: &[&str] = &["PreemptLowerPriority", "Never"];

pub fn hooks() -> Hooks {
    Hooks {
        create: CreateHooks {
            prepare: Some(|object, _| object.set(&["metadata", "generation"], 1)),
            validate: Some(|object, _| validate(object)),
            ..CreateHooks::default()
        },
        update: UpdateHooks { validate: Some(update), ..UpdateHooks::default() },
        write: WriteHooks {
            repeated_metadata_errors: RepeatedMetadataErrors(&[MetadataRules::Change]),
            ..WriteHooks::default()
        },
        delete: DeleteHooks { check: Some(may_delete), ..DeleteHooks::default() },
        read: ReadHooks { cells: Some(cells), ..ReadHooks::default() },
        ..Hooks::default()
    }
}

/// The classes of the system as JSON; they must exist before the first pod.
pub fn system_classes() -> impl Iterator<Item = Value> {
    SYSTEM.iter().map(|(name, value)| {
        let for_what = match *name {
            "system-node-critical" => "for pods that must not leave the node they run on",
            _ => "for pods that the cluster cannot do without, on whatever node",
        };
        let mut class = Value::map();
        class.set(&["metadata", "name"], *name);
        class.set(&["value"], *value);
        class.set(&["description"], for_what);
        class
    })
}

/// The class of pods that name none.
pub(crate) fn global_default(context: &Context<'_>) -> Option<Value> {
    let classes = (context.containing)("priorityclasses", "\"globalDefault\":true");
    let marked = classes.into_iter().filter(|class| read::flag(class, &["globalDefault"]));
    marked.min_by_key(|class| read::int(class, &["value"]))
}

/// Refuses a second class for pods that name none.
pub fn check_default(object: &Value, old: Option<&Value>, context: &Context<'_>) -> Result<(), String> {
    if !read::flag(object, &["globalDefault"]) {
        return Ok(());
    }
    let name = object.text(&["metadata", "name"]);
    match global_default(context) {
        Some(other) if old.is_none() || other.text(&["metadata", "name"]) != name => {
            let other = other.text(&["metadata", "name"]);
            Err(format!("PriorityClass {other} is already marked as default. Only one default can exist"))
        }
        _ => Ok(()),
    }
}

fn forbidden(name: &str, why: &str, context: &Context<'_>) -> ApiError {
    let group = context.names.group("scheduling");
    ApiError::object_forbidden(Subject { group: &group, kind: "priorityclasses", name }, why)
}

fn validate(object: &Value) -> Problems {
    let mut out = Problems::new();
    let (name, value) = (object.text(&["metadata", "name"]), read::int(object, &["value"]));
    if name.starts_with(SYSTEM_PREFIX) {
        if let Some(why) = not_of_the_system(object) {
            let path = Path::ROOT.field("metadata");
            let why = format!(
                "priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {why}"
            );
            out.push(Problem::forbidden(&path.field("name"), &why));
        }
    } else if value > HIGHEST_OF_USERS {
        let why = format!("maximum allowed value of a user defined priority is {HIGHEST_OF_USERS}");
        out.push(Problem::forbidden(&Path::ROOT.field("value"), &why));
    }
    if let Some(policy) = read::opt_text(object, &["preemptionPolicy"]) {
        check::one_of(policy, POLICIES, &Path::ROOT.field("preemptionPolicy"), &mut out);
    }
    out
}

/// The reason why a class is not a system class.
fn not_of_the_system(object: &Value) -> Option<String> {
    let name = object.text(&["metadata", "name"]);
    let Some((_, value)) = SYSTEM.iter().find(|(system, _)| *system == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if read::int(object, &["value"]) != *value {
        return Some(format!("value of {name} PriorityClass must be {value}"));
    }
    if read::flag(object, &["globalDefault"]) {
        return Some(format!("globalDefault of {name} PriorityClass must be false"));
    }
    None
}

fn update(new: &Value, old: &Value, _: &Context<'_>) -> Problems {
    let mut out = Problems::new();
    if read::int(new, &["value"]) != read::int(old, &["value"]) {
        out.push(Problem::forbidden(&Path::ROOT.field("value"), "may not be changed in an update."));
    }
    let policy = new.text(&["preemptionPolicy"]);
    if policy != old.text(&["preemptionPolicy"]) {
        let path = Path::ROOT.field("preemptionPolicy");
        out.push(Problem::invalid_text(&path, policy, "field is immutable"));
    }
    out
}

fn may_delete(object: &Value, context: &Context<'_>) -> Result<(), ApiError> {
    let name = object.text(&["metadata", "name"]);
    if !SYSTEM.iter().any(|(system, _)| *system == name) {
        return Ok(());
    }
    Err(forbidden(name, "this is a system priority class and cannot be deleted", context))
}

fn cells(object: &Value, now: Duration) -> Vec<Value> {
    vec![
        metadata::name(object),
        Value::Int(read::int(object, &["value"])),
        Value::Bool(read::flag(object, &["globalDefault"])),
        metadata::age(object, now),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json, problems};

    #[test]
    fn users_stay_below_the_system() {
        let check = |object: &str, expected: &[&str]| {
            assert_eq!(problems(&validate(&json(object))), expected, "{object}");
        };
        check(r#"{"metadata":{"name":"a"},"value":1000000000,"preemptionPolicy":"Never"}"#, &[]);
        check(
            r#"{"metadata":{"name":"a"},"value":1000000001}"#,
            &["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"],
        );
        check(
            r#"{"metadata":{"name":"system-node-critical"},"value":1}"#,
            &[concat!(
                "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. ",
                "error: value of system-node-critical PriorityClass must be 2000001000"
            )],
        );
        for class in system_classes() {
            assert_eq!(problems(&validate(&class)), [""; 0]);
            assert!(may_delete(&class, &context()).is_err());
        }
    }

    #[test]
    fn one_class_is_the_global_default() {
        let class = json(r#"{"metadata":{"name":"a"},"globalDefault":true}"#);
        let containing = |_: &str, _: &str| vec![class.clone()];
        let context = Context { containing: &containing, ..context() };
        assert!(check_default(&class, Some(&class), &context).is_ok());
        let refused = check_default(&class, None, &context).unwrap_err();
        assert_eq!(refused, "PriorityClass a is already marked as default. Only one default can exist");
    }
}
