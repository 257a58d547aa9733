//! APIServices of the versions that are served locally, created and reconciled by the server.
//!
//! Invariants: objects without the server's label are left alone. Those of built-in versions are reconciled
//! once, at the start, and then belong to the administrator; those of custom resources are reconciled as long
//! as they are served. Serving does not depend on these objects.

use super::routes::Priority;
use crate::{loopback, resource_metrics};
use futures_util::{StreamExt, stream};
use names::Names;
use rest::Resources;
use rest::options::DeleteOptions;
use rest::{Api, ApiError, Resource};
use schema::Value;
use schema::table::Kind;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Built-in groups by stem with their priorities, and those of their versions.
const BUILT_IN: &[(&str, i64, &[(&str, i64)])] = &[
    ("", 18000, &[("v1", 1)]),
    ("apps", 17800, &[("v1", 15)]),
    ("events", 17750, &[("v1", 15), ("v1beta1", 5)]),
    ("authentication", 17700, &[("v1", 15), ("v1alpha1", 1)]),
    ("authorization", 17600, &[("v1", 15)]),
    ("autoscaling", 17500, &[("v1", 15), ("v2", 30), ("v2beta1", 9), ("v2beta2", 1)]),
    ("batch", 17400, &[("v1", 15), ("v1beta1", 9)]),
    ("certificates", 17300, &[("v1", 15)]),
    ("networking", 17200, &[("v1", 15), ("v1alpha1", 1)]),
    ("policy", 17100, &[("v1", 15), ("v1beta1", 9)]),
    ("rbac.authorization", 17000, &[("v1", 15)]),
    ("storage", 16800, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)]),
    ("apiextensions", 16700, &[("v1", 15)]),
    ("admissionregistration", 16700, &[("v1", 15), ("v1beta1", 12), ("v1alpha1", 9)]),
    ("scheduling", 16600, &[("v1", 15)]),
    ("coordination", 16500, &[("v1", 15)]),
    ("node", 16300, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)]),
    ("discovery", 16200, &[("v1", 15), ("v1beta1", 12)]),
    ("flowcontrol.apiserver", 16100, &[("v1beta3", 18), ("v1beta2", 15), ("v1beta1", 12), ("v1alpha1", 9)]),
    ("internal.apiserver", 16000, &[("v1alpha1", 9)]),
    ("resource", 15900, &[("v1alpha1", 9)]),
    ("metrics", 15100, &[("v1beta1", 9)]),
];

/// The group of APIServices, which has no APIService itself and is always the first.
pub(super) const OWN_GROUP: &str = "apiregistration";

const CUSTOM: Priority = Priority { group: 1000, version: 100 };

/// The default priorities of a local version.
pub(crate) fn priorities(kind: &Kind) -> Priority {
    if !kind.kind_first {
        return CUSTOM;
    }
    if kind.group.stem == OWN_GROUP {
        return Priority { group: i64::MAX, version: 15 };
    }
    let group = BUILT_IN.iter().find(|(stem, ..)| kind.group.stem == *stem);
    let (group, versions) = group.map_or((15000, &[][..]), |(_, group, versions)| (*group, *versions));
    let version = versions.iter().find(|(name, _)| kind.version == *name).map_or(9, |(_, version)| *version);
    Priority { group, version }
}

/// A local version that needs an APIService.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LocalVersion {
    group: String,
    version: String,
    priority: Priority,
    /// Whether it is reconciled continuously rather than once.
    always: bool,
    /// Whether an APIService with a service takes its place.
    is_replaceable: bool,
}

/// Whether another server may serve a built-in version instead.
pub(super) fn is_replaceable(kind: &Kind) -> bool {
    kind.gate == resource_metrics::GATE
}

/// The label values for reconciliation once, and always.
const ONCE: &str = "onstart";
const ALWAYS: &str = "true";

fn label(names: &Names) -> String {
    names.well_known_under(&format!("{}-aggregator", names.prefix), "automanaged")
}

/// All local versions, by the names of their APIServices.
pub(super) fn local_versions(resources: &Resources) -> BTreeMap<String, LocalVersion> {
    let mut all = BTreeMap::new();
    for resource in resources.all.iter().filter(|it| it.kind.group.stem != OWN_GROUP || !it.kind.kind_first) {
        let kind = &*resource.kind;
        let object_of = || LocalVersion {
            group: resource.group.clone(),
            version: kind.version.to_string(),
            priority: priorities(kind),
            always: !kind.kind_first,
            is_replaceable: is_replaceable(kind),
        };
        let one = all.entry(format!("{}.{}", kind.version, resource.group)).or_insert_with(object_of);
        // custom kinds do not change a built-in version
        if kind.kind_first && one.always {
            *one = object_of();
        }
    }
    all
}

impl LocalVersion {
    fn spec(&self) -> Value {
        let mut spec = Value::map();
        if !self.group.is_empty() {
            spec.set(&["group"], &*self.group);
        }
        spec.set(&["version"], &*self.version);
        spec.set(&["groupPriorityMinimum"], self.priority.group);
        spec.set(&["versionPriority"], self.priority.version);
        spec
    }

    fn object(&self, name: &str, names: &Names) -> Value {
        let mut labels = schema::Map::new();
        labels.insert(label(names), if self.always { ALWAYS } else { ONCE });
        let mut object = Value::map();
        object.set(&["metadata", "name"], name);
        object.set(&["metadata", "labels"], labels);
        object.set(&["spec"], self.spec());
        object
    }
}

/// The write that reconciles an object.
#[derive(Debug, PartialEq)]
enum Step {
    Nothing,
    Create(Value),
    Update(Value),
    Delete,
}

fn step(
    name: &str,
    existing: Option<&Value>,
    local_version: Option<&LocalVersion>,
    (starting, names): (bool, &Names),
) -> Step {
    let Some(existing) = existing else {
        let due = local_version.filter(|it| it.always || starting);
        return due.map_or(Step::Nothing, |it| Step::Create(it.object(name, names)));
    };
    let labels = existing.at(&["metadata", "labels"]).and_then(Value::as_map);
    let managed = labels.and_then(|all| all.get(&label(names))).and_then(Value::as_str);
    let ours = managed == Some(ALWAYS) || managed == Some(ONCE) && starting;
    let is_remote = existing.at(&["spec", "service"]).is_some_and(|it| !it.is_null());
    match local_version {
        _ if !ours => Step::Nothing,
        // the administrator gave it a server, and with it took it over
        _ if is_remote && local_version.is_none_or(|it| it.is_replaceable) => Step::Nothing,
        None => Step::Delete,
        Some(local_version) if existing.at(&["spec"]) == Some(&local_version.spec()) => Step::Nothing,
        Some(local_version) => {
            let mut next = existing.clone();
            next.set(&["spec"], local_version.spec());
            Step::Update(next)
        }
    }
}

/// Concurrent writes, so that the store batches them.
const CONCURRENCY: usize = 8;

/// Reconciles all objects at the start.
pub(super) async fn begin(api: &Api, own: &Arc<Resource>, local_versions: &BTreeMap<String, LocalVersion>) {
    let existing = own.collection.cache.snapshot();
    let existing = existing.range(None, None).map(|(_, object)| object.name.to_string());
    let names: BTreeSet<String> = existing.chain(local_versions.keys().cloned()).collect();
    let settled = names.into_iter().map(|name| async move {
        reconcile(api, own, &name, local_versions.get(&name), true).await;
    });
    stream::iter(settled).buffer_unordered(CONCURRENCY).collect::<()>().await;
}

/// Reconciles one object.
pub(super) async fn reconcile(
    api: &Api,
    own: &Arc<Resource>,
    name: &str,
    local_version: Option<&LocalVersion>,
    starting: bool,
) {
    let existing = own.collection.cache.get("", name);
    let existing = existing.and_then(|object| object.value(&own.collection.kind).ok());
    let done = match step(name, existing.as_ref(), local_version, (starting, &api.names)) {
        Step::Nothing => return,
        Step::Create(object) => write(api, own, "", &object).await,
        Step::Update(object) => write(api, own, name, &object).await,
        Step::Delete => {
            let options = DeleteOptions::default();
            api.delete(own, "", name, &options, &loopback::own_user()).await.map(drop)
        }
    };
    match done {
        // the concurrent change is handled next
        Ok(()) | Err(ApiError { code: 404 | 409, .. }) => {}
        Err(why) => tracing::warn!(name, %why, "an APIService could not be reconciled"),
    }
}

async fn write(api: &Api, own: &Arc<Resource>, name: &str, object: &Value) -> Result<(), ApiError> {
    let target = loopback::WriteTarget { resource: own, namespace: "", name, subresource: "" };
    loopback::write(api, target, object).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(always: bool) -> LocalVersion {
        let priority = if always { CUSTOM } else { Priority { group: 17800, version: 15 } };
        LocalVersion {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            priority,
            always,
            is_replaceable: false,
        }
    }

    #[test]
    fn managed_objects_are_reconciled_and_others_are_not() {
        let names = Names::kubernetes();
        let (once, always) = (version(false), version(true));
        let object_of = |it: &LocalVersion| it.object("v1.apps", &names);
        let changed = |it: &LocalVersion| {
            let mut object = object_of(it);
            object.set(&["spec", "versionPriority"], 7);
            object
        };
        let mut others = changed(&always);
        others.unset(&["metadata", "labels"]);
        let check =
            |existing: Option<&Value>, local_version: Option<&LocalVersion>, start: Step, later: Step| {
                assert_eq!(step("v1.apps", existing, local_version, (true, &names)), start);
                assert_eq!(step("v1.apps", existing, local_version, (false, &names)), later);
            };
        check(None, None, Step::Nothing, Step::Nothing);
        check(None, Some(&once), Step::Create(object_of(&once)), Step::Nothing);
        check(None, Some(&always), Step::Create(object_of(&always)), Step::Create(object_of(&always)));
        check(Some(&others), None, Step::Nothing, Step::Nothing);
        check(Some(&others), Some(&always), Step::Nothing, Step::Nothing);
        check(Some(&object_of(&once)), Some(&once), Step::Nothing, Step::Nothing);
        check(Some(&object_of(&once)), None, Step::Delete, Step::Nothing);
        check(Some(&changed(&once)), Some(&once), Step::Update(object_of(&once)), Step::Nothing);
        check(Some(&object_of(&always)), None, Step::Delete, Step::Delete);
        let replaceable = LocalVersion { is_replaceable: true, ..version(false) };
        let mut taken_over = object_of(&replaceable);
        taken_over.set(&["spec", "service", "name"], "metrics-server");
        check(Some(&taken_over), Some(&replaceable), Step::Nothing, Step::Nothing);
        check(Some(&taken_over), None, Step::Nothing, Step::Nothing);
        check(Some(&taken_over), Some(&once), Step::Update(object_of(&once)), Step::Nothing);
        let set_right = || Step::Update(object_of(&always));
        check(Some(&changed(&always)), Some(&always), set_right(), set_right());
    }

    #[test]
    fn every_built_in_version_has_priorities() {
        for kind in kinds::tables::KINDS.iter().filter(|kind| kind.group.stem != OWN_GROUP) {
            let Priority { group, version } = priorities(kind);
            assert!(group > 15000, "{} {}", kind.group.stem, kind.version);
            let group = BUILT_IN.iter().find(|(stem, ..)| kind.group.stem == *stem).unwrap();
            assert!(group.2.contains(&(&*kind.version, version)), "{} {}", kind.group.stem, kind.version);
        }
    }
}
