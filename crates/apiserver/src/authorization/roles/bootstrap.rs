//! Creates and reconciles the bootstrap roles and bindings.
//!
//! Invariants: only bindings to another role are deleted, and recreated, because a roleRef is immutable; an
//! object with `autoupdate: "false"` is left alone.

use super::defaults::{self, BootstrapObject};
use super::read;
use crate::loopback;
use crate::server::StartError;
use auth::rbac::{Rule, compacted, missing};
use futures_util::{StreamExt, TryStreamExt, stream};
use rest::options::DeleteOptions;
use rest::{Api, ApiError, Resource};
use schema::{Map, Value};
use std::sync::Arc;

/// Concurrent writes: enough for the store to batch them, and few enough to bound memory at startup.
const CONCURRENCY: usize = 8;

/// Reconciles all bootstrap objects for the enabled gates.
pub(crate) async fn ensure(api: &Arc<Api>, enabled_gates: &[String]) -> Result<(), StartError> {
    let group_version = format!("{}/v1", api.names.group("rbac.authorization"));
    let annotation = defaults::autoupdate_annotation(&api.names);
    let steps = defaults::all(&api.names, enabled_gates).into_iter().filter_map(|mut desired| {
        if desired.plural == "clusterroles" && desired.name == defaults::BASIC_USER {
            desired.permit_self_review(api);
        }
        let resource = api.resources().get(&group_version, desired.plural).cloned()?;
        let step = match api.lookup(desired.plural, &desired.namespace, &desired.name) {
            None => Step::Create(desired.object.clone()),
            Some(existing) => step(&existing, &desired, &annotation),
        };
        (step != Step::Nothing).then_some((resource, desired, step))
    });
    let writes = steps.map(|(resource, desired, step)| async move {
        let done = apply_step(api, &resource, &desired, step).await;
        loopback::ignore_conflict(done).map_err(|why| StartError::System { name: desired.name, why })
    });
    stream::iter(writes).buffer_unordered(CONCURRENCY).try_collect().await
}

/// The write that reconciles an object.
#[derive(Debug, PartialEq)]
enum Step {
    Nothing,
    Create(Value),
    Update(Value),
    /// Deleted, and recreated like this.
    Replace(Value),
}

fn step(existing: &Value, desired: &BootstrapObject, annotation: &str) -> Step {
    let annotations = existing.at(&["metadata", "annotations"]).and_then(Value::as_map);
    if annotations.and_then(|all| all.get(annotation)).and_then(Value::as_str) == Some("false") {
        return Step::Nothing;
    }
    let desired = &desired.object;
    let mut next = existing.clone();
    for field in ["labels", "annotations"] {
        let desired_map = desired.at(&["metadata", field]).and_then(Value::as_map);
        complete_map(&mut next, field, desired_map.unwrap_or(&Map::new()));
    }
    if desired.at(&["roleRef"]).is_some() {
        if existing.at(&["roleRef"]) != desired.at(&["roleRef"]) {
            let mut recreated = desired.clone();
            recreated.set(&["subjects"], existing.items(&["subjects"]).to_vec());
            complete_list(&mut recreated, &["subjects"], desired.items(&["subjects"]));
            return Step::Replace(recreated);
        }
        complete_list(&mut next, &["subjects"], desired.items(&["subjects"]));
    } else {
        complete_rules(&mut next, desired);
        let selectors: &[&'static str] = &["aggregationRule", "clusterRoleSelectors"];
        complete_list(&mut next, selectors, desired.items(selectors));
    }
    if next == *existing { Step::Nothing } else { Step::Update(next) }
}

fn complete_map(next: &mut Value, field: &'static str, desired: &Map) {
    for (key, value) in desired.iter() {
        let existing = next.at(&["metadata", field]).and_then(Value::as_map);
        if existing.is_some_and(|map| map.contains(key)) {
            continue;
        }
        let mut map = existing.cloned().unwrap_or_default();
        map.insert(key.to_owned(), value.clone());
        next.set(&["metadata", field], map);
    }
}

fn complete_list(next: &mut Value, path: &[&'static str], desired: &[Value]) {
    let mut items = next.items(path).to_vec();
    let before = items.len();
    items.extend(desired.iter().filter(|one| !next.items(path).contains(one)).cloned());
    if items.len() > before {
        next.set(path, items);
    }
}

/// Adds the missing permissions.
fn complete_rules(next: &mut Value, desired: &Value) {
    let (held, desired) = (read::rules(next), read::rules(desired));
    let (held, desired): (Vec<_>, Vec<_>) = (held.iter().collect(), desired.iter().collect());
    let lacking = missing(&held, &desired).unwrap_or_default();
    if lacking.is_empty() {
        return;
    }
    let mut rules = next.items(&["rules"]).to_vec();
    rules.extend(compacted(lacking).iter().map(rule_value));
    next.set(&["rules"], rules);
}

fn rule_value(rule: &Rule) -> Value {
    let lists = [
        ("verbs", &rule.verbs),
        ("apiGroups", &rule.api_groups),
        ("resources", &rule.resources),
        ("resourceNames", &rule.names),
        ("nonResourceURLs", &rule.paths),
    ];
    let mut out = Value::map();
    for (field, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        out.set(&[field], crate::string_lists::texts(list));
    }
    out
}

async fn apply_step(
    api: &Api,
    resource: &Arc<Resource>,
    desired: &BootstrapObject,
    step: Step,
) -> Result<(), ApiError> {
    let (object, name) = match step {
        Step::Nothing => return Ok(()),
        Step::Create(object) => (object, ""),
        Step::Update(object) => (object, &*desired.name),
        Step::Replace(object) => {
            let options = DeleteOptions::default();
            api.delete(resource, &desired.namespace, &desired.name, &options, &loopback::own_user()).await?;
            (object, "")
        }
    };
    let target = loopback::WriteTarget { resource, namespace: &desired.namespace, name, subresource: "" };
    loopback::write(api, target, &object).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use names::Names;

    #[test]
    fn missing_rules_are_added() {
        let names = Names::kubernetes();
        let all = defaults::all(&names, &[]);
        let annotation = defaults::autoupdate_annotation(&names);
        let of = |plural: &str, name: &str| {
            all.iter().find(|one| one.plural == plural && one.name == name).unwrap()
        };
        for one in &all {
            assert_eq!(step(&one.object, one, &annotation), Step::Nothing, "{}", one.name);
        }
        let role = of("clusterroles", "cluster-admin");
        let mut less = role.object.clone();
        less.set(&["rules"], role.object.items(&["rules"])[..1].to_vec());
        less.unset(&["metadata", "labels"]);
        assert_eq!(step(&less, role, &annotation), Step::Update(role.object.clone()));
        let mut annotations = Map::new();
        annotations.insert(annotation.clone(), "false");
        less.set(&["metadata", "annotations"], annotations);
        assert_eq!(step(&less, role, &annotation), Step::Nothing);
        let view = of("clusterroles", "view");
        let mut none = view.object.clone();
        none.unset(&["aggregationRule"]);
        assert_eq!(step(&none, view, &annotation), Step::Update(view.object.clone()));
        let binding = of("clusterrolebindings", "system:public-info-viewer");
        let mut less = binding.object.clone();
        less.set(&["subjects"], binding.object.items(&["subjects"])[..1].to_vec());
        assert_eq!(step(&less, binding, &annotation), Step::Update(binding.object.clone()));
        less.set(&["roleRef", "name"], "other");
        assert_eq!(step(&less, binding, &annotation), Step::Replace(binding.object.clone()));
    }
}
