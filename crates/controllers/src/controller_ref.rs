//! Controller references: the objects of an owner, with adoption of orphans and release of objects that no longer match.
//!
//! An object has at most one controller, which its owner references name by uid. A loop adopts orphans (objects without
//! a controller) that its owner's selector matches, and releases objects that the selector no longer matches.
//!
//! Always true: an owner that is being deleted adopts nothing, and before the first adoption the owner is read from the
//! server: the owner in the informer may be deleted already, and its dependents would be collected.

use api::Resource;
use api::meta::v1::{LabelSelector, OwnerReference};
use apimachinery::labels::Selector;
use client::{Api, Change, Client, Failure, Informer, Key, Patch, Queue, WriteTracker, unless};
use serde_json::{Value, json};
use std::sync::Arc;

const BY_OWNER: &str = "owner";
const BY_SELECTOR: &str = "selector";

/// The owner reference that makes an owner the controller of an object.
pub fn controller_reference<O: Resource>(owner: &O) -> OwnerReference {
    OwnerReference {
        api_version: O::api_version(),
        kind: O::kind().name.to_string(),
        name: owner.name().to_owned(),
        uid: owner.uid().to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
        ..OwnerReference::default()
    }
}

/// The owner reference of an object's controller.
pub fn controller_of(object: &impl Resource) -> Option<&OwnerReference> {
    object.metadata().owner_references.iter().find(|it| it.controller == Some(true))
}

/// The key of an object's controller, if that is of kind `O`.
pub fn controller_key<O: Resource>(object: &impl Resource) -> Option<Key> {
    let controller = controller_of(object)?;
    let is_kind =
        controller.kind == O::kind().name && group(&controller.api_version) == group(&O::api_version());
    is_kind.then(|| Key::new(object.namespace(), &controller.name))
}

/// The group of an `apiVersion`; empty for the core group.
fn group(api_version: &str) -> &str {
    api_version.rsplit_once('/').map_or("", |(group, _)| group)
}

pub fn is_controlled_by(object: &impl Resource, owner: &impl Resource) -> bool {
    controller_of(object).is_some_and(|it| it.uid == owner.uid())
}

/// Parses a label selector. An absent or invalid one is `None`, which matches nothing.
pub fn selector(selector: Option<&LabelSelector>) -> Option<Selector> {
    Selector::try_from(selector?).ok()
}

/// Whether a selector matches an object. An empty selector matches nothing here.
pub fn matches(selector: Option<&Selector>, object: &impl Resource) -> bool {
    selector.is_some_and(|it| !it.is_empty() && it.matches(&object.metadata().labels))
}

/// Indexes objects by the uid of their controller, and orphans by their labels.
pub fn index<K: Resource>(informer: &Informer<K>) {
    informer.index(BY_OWNER, |object| match controller_of(object) {
        Some(controller) => vec![controller.uid.clone()],
        None => orphan_keys(object),
    });
}

/// The index keys of an orphan: its namespace, and each label in it. No uid begins with a slash.
fn orphan_keys(object: &impl Resource) -> Vec<String> {
    let namespace = object.namespace();
    let labels = object.metadata().labels.iter().map(|(key, value)| format!("/{namespace}/{key}={value}"));
    labels.chain([format!("/{namespace}")]).collect()
}

/// The index key that all orphans have which a selector matches: one of its labels, or else the namespace.
fn selector_key(namespace: &str, selector: &Selector) -> String {
    let label = selector.exact_label().map(|(key, value)| format!("/{key}={value}"));
    format!("/{namespace}{}", label.unwrap_or_default())
}

/// The objects that an owner controls.
pub fn controlled<K: Resource>(informer: &Informer<K>, owner: &impl Resource) -> Vec<Arc<K>> {
    controlled_by_uid(informer, owner.uid())
}

/// The objects that the owner with this uid controls.
pub fn controlled_by_uid<K: Resource>(informer: &Informer<K>, uid: &str) -> Vec<Arc<K>> {
    informer.by(BY_OWNER, uid)
}

/// The number of objects that an owner controls.
pub fn controlled_count<K: Resource>(informer: &Informer<K>, owner: &impl Resource) -> usize {
    informer.count_by(BY_OWNER, owner.uid())
}

/// The orphans of a namespace that a selector matches.
pub fn orphans<K: Resource>(informer: &Informer<K>, namespace: &str, selector: &Selector) -> Vec<Arc<K>> {
    let mut objects = informer.by(BY_OWNER, &selector_key(namespace, selector));
    objects.retain(|object| matches(Some(selector), &**object));
    objects
}

/// Indexes objects, and queues their owners: the controller of an object that changes, and every owner whose selector
/// matches a new orphan.
pub fn follow<O: Resource, K: Resource>(
    owned: &Informer<K>,
    owners: &Informer<O>,
    selector_of: fn(&O) -> Option<Selector>,
    queue: &Queue<Key>,
) {
    index(owned);
    owners.index(BY_SELECTOR, move |owner| {
        selector_of(owner).iter().map(|selector| selector_key(owner.namespace(), selector)).collect()
    });
    let (owners, queue) = (owners.clone(), queue.clone());
    owned.listen(move |change| {
        let object: &K = change.object();
        if let Change::Updated { old, .. } = change {
            let old: &K = old;
            if controller_of(old) != controller_of(object) {
                controller_key::<O>(old).into_iter().for_each(|key| queue.add(key));
            } else if controller_of(object).is_none() && old.metadata().labels == object.metadata().labels {
                return;
            }
        }
        if controller_of(object).is_some() {
            return controller_key::<O>(object).into_iter().for_each(|key| queue.add(key));
        }
        if change.is_deletion() || object.metadata().deletion_timestamp.is_some() {
            return;
        }
        for owner in orphan_keys(object).iter().flat_map(|key| owners.by(BY_SELECTOR, key)) {
            if matches(selector_of(&owner).as_ref(), object) {
                queue.add(Key::of(&*owner));
            }
        }
    });
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Mine,
    Adopt,
    Release,
    Ignore,
}

fn verdict(owner: &impl Resource, object: &impl Resource, matches: bool) -> Verdict {
    let owner_terminating = owner.metadata().deletion_timestamp.is_some();
    match controller_of(object) {
        Some(controller) if controller.uid != owner.uid() => Verdict::Ignore,
        Some(_) if matches => Verdict::Mine,
        Some(_) if owner_terminating => Verdict::Ignore,
        Some(_) => Verdict::Release,
        None if owner_terminating || !matches => Verdict::Ignore,
        None if object.metadata().deletion_timestamp.is_some() => Verdict::Ignore,
        None => Verdict::Adopt,
    }
}

/// Claims objects of a kind for owners.
pub struct Claims<'a, K> {
    pub client: &'a Client,
    pub written: &'a WriteTracker<K>,
    /// Added to adopted objects, removed from released ones.
    pub finalizer: Option<&'a str>,
    /// Objects for which this is false are ignored.
    pub looked_at: fn(&K) -> bool,
}

impl<K: Resource> Claims<'_, K> {
    /// Adopts and releases objects, and returns those of an owner. `fits` is a condition besides the selector.
    pub async fn claim<O: Resource>(
        &self,
        owner: &O,
        selector: Option<&Selector>,
        fits: impl Fn(&K) -> bool,
    ) -> Result<Vec<Arc<K>>, Failure> {
        let (informer, key) = (self.written.informer(), Key::of(owner));
        let mut mine = Vec::new();
        let fits = |object: &K| matches(selector, object) && fits(object);
        for object in controlled(informer, owner).into_iter().filter(|it| (self.looked_at)(it)) {
            match verdict(owner, &*object, fits(&object)) {
                Verdict::Mine => mine.push(object),
                Verdict::Release => self.release(&key, owner, &object).await?,
                Verdict::Adopt | Verdict::Ignore => {}
            }
        }
        let mut is_fresh = false;
        let orphans = selector.map(|it| orphans(informer, &key.namespace, it)).unwrap_or_default();
        for object in orphans.into_iter().filter(|it| (self.looked_at)(it)) {
            if verdict(owner, &*object, fits(&object)) != Verdict::Adopt {
                continue;
            }
            if !is_fresh {
                check_owner(self.client, owner).await?;
                is_fresh = true;
            }
            mine.extend(self.adopt(&key, owner, &object).await?);
        }
        Ok(mine)
    }

    async fn adopt<O: Resource>(&self, key: &Key, owner: &O, object: &K) -> Result<Option<Arc<K>>, Failure> {
        let reference = client::json_value(&controller_reference(owner));
        let mut metadata = json!({"uid": object.uid(), "ownerReferences": [reference]});
        if let Some(finalizer) = self.finalizer {
            metadata["finalizers"] = json!([finalizer]);
        }
        let patched = unless(404, self.patch(object, metadata).await)?;
        Ok(patched.map(|object| {
            self.written.wrote(key, &object);
            Arc::new(object)
        }))
    }

    async fn release<O: Resource>(&self, key: &Key, owner: &O, object: &K) -> Result<(), Failure> {
        let mut metadata =
            json!({"uid": object.uid(), "ownerReferences": [{"$patch": "delete", "uid": owner.uid()}]});
        if let Some(finalizer) = self.finalizer {
            metadata["$deleteFromPrimitiveList/finalizers"] = json!([finalizer]);
        }
        // invalid: another object has the name now, or the reference is removed already
        match unless(404, self.patch(object, metadata).await) {
            Ok(Some(released)) => self.written.wrote(key, &released),
            Ok(None) => {}
            Err(why) if why.is(422) => {}
            Err(why) => return Err(why.into()),
        }
        Ok(())
    }

    async fn patch(&self, object: &K, metadata: Value) -> Result<K, client::Error> {
        let patch = Patch::strategic(json!({ "metadata": metadata }));
        Api::<K>::beside(self.client, object).patch(object.name(), &patch).await
    }
}

/// Reads an owner from the server: it must be the same object, and not be terminating.
async fn check_owner<O: Resource>(client: &Client, owner: &O) -> Result<(), Failure> {
    let key = Key::of(owner);
    match Api::<O>::beside(client, owner).get_opt(owner.name()).await? {
        None => Err(Failure::Other(format!("{key} is gone"))),
        Some(now) if now.uid() != owner.uid() => {
            Err(Failure::Other(format!("{key} was replaced by another")))
        }
        Some(now) if now.metadata().deletion_timestamp.is_some() => {
            Err(Failure::Other(format!("{key} is being deleted")))
        }
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use api::apps::v1::ReplicaSet;
    use api::core::v1::{Pod, ReplicationController};
    use std::collections::BTreeMap;

    fn set(terminating: bool) -> ReplicaSet {
        let gone = terminating.then_some("2026-01-01T00:00:00Z");
        object(
            json!({"metadata": {"name": "a", "namespace": "ns", "uid": "mine", "deletionTimestamp": gone}}),
        )
    }

    fn pod(owner: Option<&str>, terminating: bool) -> Pod {
        let gone = terminating.then_some("2026-01-01T00:00:00Z");
        let mut owners = vec![json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "mine"})];
        let kind = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "controller": true});
        owners.extend(owner.map(|uid| {
            let mut it = kind.clone();
            it["uid"] = uid.into();
            it
        }));
        let meta =
            json!({"name": "p", "namespace": "ns", "ownerReferences": owners, "deletionTimestamp": gone});
        object(json!({ "metadata": meta }))
    }

    #[test]
    fn verdicts() {
        use Verdict::*;
        let of = |owner_terminating, controller, terminating, matches| {
            verdict(&set(owner_terminating), &pod(controller, terminating), matches)
        };
        assert_eq!(of(false, None, false, true), Adopt);
        assert_eq!(of(false, None, false, false), Ignore);
        assert_eq!(of(false, None, true, true), Ignore);
        assert_eq!(of(true, None, false, true), Ignore);
        assert_eq!(of(false, Some("mine"), false, true), Mine);
        assert_eq!(of(true, Some("mine"), false, true), Mine);
        assert_eq!(of(false, Some("mine"), true, true), Mine);
        assert_eq!(of(false, Some("mine"), false, false), Release);
        assert_eq!(of(true, Some("mine"), false, false), Ignore);
        assert_eq!(of(false, Some("other"), false, true), Ignore);
        assert_eq!(of(false, Some("other"), false, false), Ignore);
    }

    #[test]
    fn controllers_are_identified_by_kind_and_group() {
        let key = Some(Key::new("ns", "a"));
        assert_eq!(controller_key::<ReplicaSet>(&pod(Some("x"), false)), key);
        assert_eq!(controller_key::<ReplicationController>(&pod(Some("x"), false)), None);
        assert_eq!(controller_key::<ReplicaSet>(&pod(None, false)), None);
        assert!(is_controlled_by(&pod(Some("mine"), false), &set(false)));
        // an owner, but not the controller
        assert!(!is_controlled_by(&pod(None, false), &set(false)));
    }

    #[test]
    fn absent_empty_and_invalid_selectors_match_nothing() {
        let mut one = pod(None, false);
        one.metadata.labels.insert("a".to_owned(), "b".to_owned());
        let of = |json: Value| selector(Some(&object(json)));
        assert!(!matches(selector(None).as_ref(), &one));
        assert!(!matches(of(json!({})).as_ref(), &one));
        assert!(matches(of(json!({"matchLabels": {"a": "b"}})).as_ref(), &one));
        let odd = json!({"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]});
        assert!(!matches(of(odd).as_ref(), &one));
    }

    #[tokio::test]
    async fn owners_are_queued_and_orphans_found() {
        let labelled = |name: &str, version: u32, label: &str, owner: Option<&str>| {
            let mut it = pod(owner, false);
            it.metadata.name = name.to_owned();
            it.metadata.resource_version = version.to_string();
            it.metadata.labels = BTreeMap::from([("app".into(), label.into()), ("x".into(), "y".into())]);
            it
        };
        let owner = |name: &str, selector: Value| -> ReplicaSet {
            object(json!({
                "metadata": {"name": name, "namespace": "ns", "uid": name},
                "spec": {"selector": selector}
            }))
        };
        let (pods, sets) = (Informer::<Pod>::default(), Informer::<ReplicaSet>::default());
        let queue = Queue::new(&(env::Seeded::new(0, 0) as env::World));
        sets.apply(owner("web", json!({"matchLabels": {"app": "web", "x": "y"}})));
        sets.apply(owner("any", json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]})));
        sets.apply(owner("other", json!({"matchLabels": {"app": "other"}})));
        follow(&pods, &sets, |set| selector(set.spec.selector.as_deref()), &queue);
        let queued = async || {
            let mut names = Vec::new();
            while let Ok(Some(key)) = tokio::time::timeout(std::time::Duration::ZERO, queue.next()).await {
                queue.done(&key);
                names.push(key.name);
            }
            names.sort();
            names.join(" ")
        };
        pods.apply(labelled("p", 1, "web", None));
        assert_eq!(queued().await, "any web");
        // neither labels nor controller change
        pods.apply(labelled("p", 2, "web", None));
        assert_eq!(queued().await, "");
        pods.apply(labelled("p", 3, "other", None));
        assert_eq!(queued().await, "any other");
        let found = |label: &str| {
            let selector = selector(Some(&object(json!({"matchLabels": {"app": label}}))));
            orphans(&pods, "ns", &selector.unwrap()).len()
        };
        assert_eq!((found("web"), found("other")), (0, 1));
        // it gets a controller, and loses it
        pods.apply(labelled("p", 4, "other", Some("a")));
        assert_eq!((queued().await.as_str(), found("other")), ("a", 0));
        pods.apply(labelled("p", 5, "other", None));
        assert_eq!(queued().await, "a any other");
        pods.delete(&labelled("p", 6, "other", None));
        assert_eq!(queued().await, "");
    }
}
