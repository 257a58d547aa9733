//! Creates and reconciles the bootstrap roles and bindings of every cluster.
//!
//! What always holds: nothing is taken away from an object but a binding to another role, which cannot be changed
//! and is made anew; and an object whose annotation says so is left alone.

use super::defaults::{self, Wanted};
use super::read;
use crate::loopback;
use crate::server::StartError;
use auth::rbac::{Rule, compacted, missing};
use futures_util::{StreamExt, TryStreamExt, stream};
use rest::options::DeleteOptions;
use rest::{Api, ApiError, Resource};
use schema::{Map, Value};
use std::sync::Arc;

/// How many are written side by side: enough for the store to take them in few batches, and few enough that
/// what a start needs of memory is no more than what serving needs.
const AT_ONCE: usize = 8;

/// Brings all of them about that there are where these gates are open.
pub(crate) async fn ensure(api: &Arc<Api>, opened: &[String]) -> Result<(), StartError> {
    let group_version = format!("{}/v1", api.names.group("rbac.authorization"));
    let annotation = defaults::kept_up_annotation(&api.names);
    let steps = defaults::all(&api.names, opened).into_iter().filter_map(|mut wanted| {
        if wanted.plural == "clusterroles" && wanted.name == defaults::BASIC_USER {
            wanted.permit_self_review(api);
        }
        let resource = api.resources().get(&group_version, wanted.plural).cloned()?;
        let step = match api.lookup(wanted.plural, &wanted.namespace, &wanted.name) {
            None => Step::Create(wanted.object.clone()),
            Some(there) => step(&there, &wanted, &annotation),
        };
        (step != Step::Nothing).then_some((resource, wanted, step))
    });
    let writes = steps.map(|(resource, wanted, step)| async move {
        let done = take(api, &resource, &wanted, step).await;
        loopback::or_another_did(done).map_err(|why| StartError::System { name: wanted.name, why })
    });
    stream::iter(writes).buffer_unordered(AT_ONCE).try_collect().await
}

/// What is to be done about an object.
#[derive(Debug, PartialEq)]
enum Step {
    Nothing,
    Create(Value),
    Update(Value),
    /// Removed, and made like this.
    Replace(Value),
}

fn step(there: &Value, wanted: &Wanted, annotation: &str) -> Step {
    let annotations = there.at(&["metadata", "annotations"]).and_then(Value::as_map);
    if annotations.and_then(|all| all.get(annotation)).and_then(Value::as_str) == Some("false") {
        return Step::Nothing;
    }
    let wanted = &wanted.object;
    let mut next = there.clone();
    for field in ["labels", "annotations"] {
        let given = wanted.at(&["metadata", field]).and_then(Value::as_map);
        complete_map(&mut next, field, given.unwrap_or(&Map::new()));
    }
    if wanted.at(&["roleRef"]).is_some() {
        if there.at(&["roleRef"]) != wanted.at(&["roleRef"]) {
            let mut anew = wanted.clone();
            anew.set(&["subjects"], there.items(&["subjects"]).to_vec());
            complete_list(&mut anew, &["subjects"], wanted.items(&["subjects"]));
            return Step::Replace(anew);
        }
        complete_list(&mut next, &["subjects"], wanted.items(&["subjects"]));
    } else {
        complete_rules(&mut next, wanted);
        let selectors: &[&'static str] = &["aggregationRule", "clusterRoleSelectors"];
        complete_list(&mut next, selectors, wanted.items(selectors));
    }
    if next == *there { Step::Nothing } else { Step::Update(next) }
}

fn complete_map(next: &mut Value, field: &'static str, wanted: &Map) {
    for (key, value) in wanted.iter() {
        let there = next.at(&["metadata", field]).and_then(Value::as_map);
        if there.is_some_and(|map| map.contains(key)) {
            continue;
        }
        let mut map = there.cloned().unwrap_or_default();
        map.insert(key.to_owned(), value.clone());
        next.set(&["metadata", field], map);
    }
}

fn complete_list(next: &mut Value, path: &[&'static str], wanted: &[Value]) {
    let mut items = next.items(path).to_vec();
    let before = items.len();
    items.extend(wanted.iter().filter(|one| !next.items(path).contains(one)).cloned());
    if items.len() > before {
        next.set(path, items);
    }
}

/// Adds what the wanted rules permit and those that are there do not.
fn complete_rules(next: &mut Value, wanted: &Value) {
    let (held, wanted) = (read::rules(next), read::rules(wanted));
    let (held, wanted): (Vec<_>, Vec<_>) = (held.iter().collect(), wanted.iter().collect());
    let lacking = missing(&held, &wanted).unwrap_or_default();
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
        out.set(&[field], crate::reviews::texts(list));
    }
    out
}

async fn take(api: &Api, resource: &Arc<Resource>, wanted: &Wanted, step: Step) -> Result<(), ApiError> {
    let (object, name) = match step {
        Step::Nothing => return Ok(()),
        Step::Create(object) => (object, ""),
        Step::Update(object) => (object, &*wanted.name),
        Step::Replace(object) => {
            let options = DeleteOptions::default();
            api.delete(resource, &wanted.namespace, &wanted.name, &options, &loopback::itself()).await?;
            (object, "")
        }
    };
    let place = loopback::Place { resource, namespace: &wanted.namespace, name, subresource: "" };
    loopback::write(api, place, &object).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use names::Names;

    #[test]
    fn what_lacks_something_is_completed() {
        let names = Names::kubernetes();
        let all = defaults::all(&names, &[]);
        let annotation = defaults::kept_up_annotation(&names);
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
        let mut kept = Map::new();
        kept.insert(annotation.clone(), "false");
        less.set(&["metadata", "annotations"], kept);
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
