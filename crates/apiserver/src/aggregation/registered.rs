//! The objects of the versions that are served here, made and kept by the server itself.
//!
//! What always holds: an object without the server's label is left alone. The built-in versions are set right once, at
//! the start, and are the administrator's from then on; those of custom resources are kept right as long as they are
//! served. Whether a version is served does not depend on its object.

use super::routes::Priority;
use crate::loopback;
use futures_util::{StreamExt, stream};
use names::Names;
use rest::Resources;
use rest::options::DeleteOptions;
use rest::{Api, ApiError, Resource};
use schema::Value;
use schema::table::Kind;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Stems of the built-in groups with their priorities, and those of their versions.
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
];

/// The group of these objects, which no object is registered for: it is always the first.
pub(super) const OWN_GROUP: &str = "apiregistration";

const CUSTOM: Priority = Priority { group: 1000, version: 100 };

/// The priorities of a version that is served here, unless its object says otherwise.
pub(crate) fn priorities(kind: &Kind) -> Priority {
    if !kind.kind_first {
        return CUSTOM;
    }
    if kind.group.stem == OWN_GROUP {
        return Priority { group: i64::MAX, version: 15 };
    }
    let known = BUILT_IN.iter().find(|(stem, ..)| kind.group.stem == *stem);
    let (group, versions) = known.map_or((15000, &[][..]), |(_, group, versions)| (*group, *versions));
    let version = versions.iter().find(|(name, _)| kind.version == *name).map_or(9, |(_, version)| *version);
    Priority { group, version }
}

/// A version that is to have an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    group: String,
    version: String,
    priority: Priority,
    /// Kept right as long as it is served, rather than once.
    always: bool,
}

/// The value of the label where an object is set right once, and where it always is.
const ONCE: &str = "onstart";
const ALWAYS: &str = "true";

fn label(names: &Names) -> String {
    names.well_known_under(&format!("{}-aggregator", names.prefix), "automanaged")
}

/// All versions that are served here, by the names of their objects.
pub(super) fn wanted(resources: &Resources) -> BTreeMap<String, Wanted> {
    let mut all = BTreeMap::new();
    for resource in resources.all.iter().filter(|it| it.kind.group.stem != OWN_GROUP || !it.kind.kind_first) {
        let kind = &*resource.kind;
        let made = || Wanted {
            group: resource.group.clone(),
            version: kind.version.to_string(),
            priority: priorities(kind),
            always: !kind.kind_first,
        };
        let one = all.entry(format!("{}.{}", kind.version, resource.group)).or_insert_with(made);
        // custom kinds in a built-in version leave it what it is
        if kind.kind_first && one.always {
            *one = made();
        }
    }
    all
}

impl Wanted {
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

/// What is to be done about an object.
#[derive(Debug, PartialEq)]
enum Step {
    Nothing,
    Create(Value),
    Update(Value),
    Delete,
}

fn step(
    name: &str,
    there: Option<&Value>,
    wanted: Option<&Wanted>,
    (starting, names): (bool, &Names),
) -> Step {
    let Some(there) = there else {
        let due = wanted.filter(|it| it.always || starting);
        return due.map_or(Step::Nothing, |it| Step::Create(it.object(name, names)));
    };
    let labels = there.at(&["metadata", "labels"]).and_then(Value::as_map);
    let managed = labels.and_then(|all| all.get(&label(names))).and_then(Value::as_str);
    let ours = managed == Some(ALWAYS) || managed == Some(ONCE) && starting;
    match wanted {
        _ if !ours => Step::Nothing,
        None => Step::Delete,
        Some(wanted) if there.at(&["spec"]) == Some(&wanted.spec()) => Step::Nothing,
        Some(wanted) => {
            let mut next = there.clone();
            next.set(&["spec"], wanted.spec());
            Step::Update(next)
        }
    }
}

/// How many are written side by side, for the store to take them in few batches.
const AT_ONCE: usize = 8;

/// Sets all of them right, once.
pub(super) async fn begin(api: &Api, own: &Arc<Resource>, wanted: &BTreeMap<String, Wanted>) {
    let there = own.collection.cache.snapshot();
    let there = there.range(None, None).map(|(_, object)| object.name.to_string());
    let names: BTreeSet<String> = there.chain(wanted.keys().cloned()).collect();
    let settled = names.into_iter().map(|name| async move {
        settle(api, own, &name, wanted.get(&name), true).await;
    });
    stream::iter(settled).buffer_unordered(AT_ONCE).collect::<()>().await;
}

/// Sets one right.
pub(super) async fn settle(
    api: &Api,
    own: &Arc<Resource>,
    name: &str,
    wanted: Option<&Wanted>,
    starting: bool,
) {
    let there = own.collection.cache.get("", name);
    let there = there.and_then(|object| object.value(&own.collection.kind).ok());
    let done = match step(name, there.as_ref(), wanted, (starting, &api.names)) {
        Step::Nothing => return,
        Step::Create(object) => write(api, own, "", &object).await,
        Step::Update(object) => write(api, own, name, &object).await,
        Step::Delete => {
            let options = DeleteOptions::default();
            api.delete(own, "", name, &options, &loopback::itself()).await.map(drop)
        }
    };
    match done {
        // the change that was faster is looked at next
        Ok(()) | Err(ApiError { code: 404 | 409, .. }) => {}
        Err(why) => tracing::warn!(name, %why, "the object of an API version is not as it should be"),
    }
}

async fn write(api: &Api, own: &Arc<Resource>, name: &str, object: &Value) -> Result<(), ApiError> {
    let place = loopback::Place { resource: own, namespace: "", name, subresource: "" };
    loopback::write(api, place, object).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted_one(always: bool) -> Wanted {
        let priority = if always { CUSTOM } else { Priority { group: 17800, version: 15 } };
        Wanted { group: "apps".to_owned(), version: "v1".to_owned(), priority, always }
    }

    #[test]
    fn what_is_managed_is_set_right_and_nothing_else_is_touched() {
        let names = Names::kubernetes();
        let (once, always) = (wanted_one(false), wanted_one(true));
        let made = |it: &Wanted| it.object("v1.apps", &names);
        let changed = |it: &Wanted| {
            let mut object = made(it);
            object.set(&["spec", "versionPriority"], 7);
            object
        };
        let mut others = changed(&always);
        others.unset(&["metadata", "labels"]);
        let check = |there: Option<&Value>, wanted: Option<&Wanted>, start: Step, later: Step| {
            assert_eq!(step("v1.apps", there, wanted, (true, &names)), start);
            assert_eq!(step("v1.apps", there, wanted, (false, &names)), later);
        };
        check(None, None, Step::Nothing, Step::Nothing);
        check(None, Some(&once), Step::Create(made(&once)), Step::Nothing);
        check(None, Some(&always), Step::Create(made(&always)), Step::Create(made(&always)));
        check(Some(&others), None, Step::Nothing, Step::Nothing);
        check(Some(&others), Some(&always), Step::Nothing, Step::Nothing);
        check(Some(&made(&once)), Some(&once), Step::Nothing, Step::Nothing);
        check(Some(&made(&once)), None, Step::Delete, Step::Nothing);
        check(Some(&changed(&once)), Some(&once), Step::Update(made(&once)), Step::Nothing);
        check(Some(&made(&always)), None, Step::Delete, Step::Delete);
        let set_right = || Step::Update(made(&always));
        check(Some(&changed(&always)), Some(&always), set_right(), set_right());
    }

    #[test]
    fn every_built_in_version_has_priorities() {
        for kind in kinds::tables::KINDS.iter().filter(|kind| kind.group.stem != OWN_GROUP) {
            let Priority { group, version } = priorities(kind);
            assert!(group > 15000, "{} {}", kind.group.stem, kind.version);
            let known = BUILT_IN.iter().find(|(stem, ..)| kind.group.stem == *stem).unwrap();
            assert!(known.2.contains(&(&*kind.version, version)), "{} {}", kind.group.stem, kind.version);
        }
    }
}
