//! Whose an object is: finding those of an owner, adopting what fits and letting go what does not.
//!
//! An object has at most one controller, which its owner references name by uid. A loop adopts objects without one that
//! its owner's selector matches, and releases those that the selector no longer matches.
//!
//! What always holds: nothing is adopted for an owner that is going away, and before the first adoption the owner is
//! read anew: the one that the informer shows may be gone, and what is adopted in its name would be collected.

use client::informer::{Change, Informer, Watchable};
use client::retry_on_conflict::{NamespacedObject, beside};
use client::{Failure, Key, Queue, WriteTracker, unless};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::api::{Patch, PatchParams};
use kube::core::{Expression, Selector, SelectorExt};
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};
use std::sync::Arc;

const BY_OWNER: &str = "owner";
const BY_SELECTOR: &str = "selector";

/// The reference by which an owner controls an object.
pub fn controller_reference<O: Resource<DynamicType = ()>>(owner: &O) -> OwnerReference {
    OwnerReference {
        api_version: O::api_version(&()).into_owned(),
        kind: O::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Who controls an object.
pub fn controller_of(object: &impl Resource) -> Option<&OwnerReference> {
    object.meta().owner_references.as_deref()?.iter().find(|it| it.controller == Some(true))
}

/// Who controls an object, if it is one of these.
pub fn controller_key<O: Resource<DynamicType = ()>>(object: &impl ResourceExt) -> Option<Key> {
    let controller = controller_of(object)?;
    let group = controller.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let same = controller.kind == O::kind(&()) && group == O::group(&());
    same.then(|| Key::new(object.namespace().unwrap_or_default(), &controller.name))
}

pub fn is_controlled_by(object: &impl Resource, owner: &impl Resource) -> bool {
    controller_of(object).is_some_and(|it| Some(&it.uid) == owner.meta().uid.as_ref())
}

/// What a selector matches; one that cannot be understood matches nothing, and so does none.
pub fn selector(selector: Option<&LabelSelector>) -> Option<Selector> {
    selector.cloned()?.try_into().ok()
}

/// A selector that names no labels matches nothing here: what asks for everything was not meant.
pub fn matches(selector: Option<&Selector>, object: &impl ResourceExt) -> bool {
    selector.is_some_and(|it| !it.selects_all() && it.matches(object.labels()))
}

/// From now on objects are found by who controls them, and those without a controller by their labels.
pub fn index<K: Watchable>(informer: &Informer<K>) {
    informer.index(BY_OWNER, |object| match controller_of(object) {
        Some(controller) => vec![controller.uid.clone()],
        None => places(object),
    });
}

/// Where something lies that has these labels. No uid begins like this.
fn places(object: &impl Resource) -> Vec<String> {
    let meta = object.meta();
    let namespace = meta.namespace.as_deref().unwrap_or("");
    let labels = meta.labels.iter().flatten().map(|(key, value)| format!("/{namespace}/{key}={value}"));
    labels.chain([format!("/{namespace}")]).collect()
}

/// Where everything lies that a selector matches: what has one of its labels is looked at, not all there is.
fn place(namespace: &str, selector: &Selector) -> String {
    let label = selector.clone().into_iter().find_map(|it| match it {
        Expression::Equal(key, value) => Some(format!("/{key}={value}")),
        _ => None,
    });
    format!("/{namespace}{}", label.unwrap_or_default())
}

/// What an owner controls.
pub fn controlled<K: Watchable>(informer: &Informer<K>, owner: &impl Resource) -> Vec<Arc<K>> {
    controlled_by_uid(informer, owner.meta().uid.as_deref().unwrap_or_default())
}

/// What the owner with this uid controls.
pub fn controlled_by_uid<K: Watchable>(informer: &Informer<K>, uid: &str) -> Vec<Arc<K>> {
    informer.by(BY_OWNER, uid)
}

/// What nobody controls in a namespace, and a selector matches.
pub fn orphans<K: Watchable>(informer: &Informer<K>, namespace: &str, selector: &Selector) -> Vec<Arc<K>> {
    let mut found = informer.by(BY_OWNER, &place(namespace, selector));
    found.retain(|object| matches(Some(selector), &**object));
    found
}

/// From now on owners are looked at when something of theirs changes, or when something comes that they may adopt.
pub fn follow<O, K>(
    owned: &Informer<K>,
    owners: &Informer<O>,
    selector_of: fn(&O) -> Option<Selector>,
    queue: &Queue<Key>,
) where
    O: Watchable + Resource<DynamicType = ()>,
    K: Watchable,
{
    index(owned);
    owners.index(BY_SELECTOR, move |owner| {
        let namespace = owner.meta().namespace.as_deref().unwrap_or("");
        selector_of(owner).iter().map(|selector| place(namespace, selector)).collect()
    });
    let (owners, queue) = (owners.clone(), queue.clone());
    owned.listen(move |change| {
        let object: &K = change.object();
        if let Change::Updated { old, .. } = change {
            let old: &K = old;
            if controller_of(old) != controller_of(object) {
                controller_key::<O>(old).into_iter().for_each(|key| queue.add(key));
            } else if controller_of(object).is_none() && old.labels() == object.labels() {
                return;
            }
        }
        if controller_of(object).is_some() {
            return controller_key::<O>(object).into_iter().for_each(|key| queue.add(key));
        }
        if change.is_deletion() || object.meta().deletion_timestamp.is_some() {
            return;
        }
        for owner in places(object).iter().flat_map(|place| owners.by(BY_SELECTOR, place)) {
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
    let leaving = owner.meta().deletion_timestamp.is_some();
    match controller_of(object) {
        Some(controller) if Some(&controller.uid) != owner.meta().uid.as_ref() => Verdict::Ignore,
        Some(_) if matches => Verdict::Mine,
        Some(_) if leaving => Verdict::Ignore,
        Some(_) => Verdict::Release,
        None if leaving || !matches || object.meta().deletion_timestamp.is_some() => Verdict::Ignore,
        None => Verdict::Adopt,
    }
}

/// How objects of a kind are claimed.
pub struct Claims<'a, K> {
    pub client: &'a Client,
    pub written: &'a WriteTracker<K>,
    /// What is put on objects that are adopted, and taken from those that are released.
    pub finalizer: Option<&'a str>,
    /// Others are left as they are, whosever they are.
    pub looked_at: fn(&K) -> bool,
}

impl<K: NamespacedObject + Watchable> Claims<'_, K> {
    /// The objects that are an owner's, after adopting and releasing. Besides the selector `fits` must agree.
    pub async fn claim<O: NamespacedObject>(
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
                still_there(self.client, owner).await?;
                is_fresh = true;
            }
            mine.extend(self.adopt(&key, owner, &object).await?);
        }
        Ok(mine)
    }

    async fn adopt<O: NamespacedObject>(
        &self,
        key: &Key,
        owner: &O,
        object: &K,
    ) -> Result<Option<Arc<K>>, Failure> {
        let mut metadata = json!({"uid": object.uid(), "ownerReferences": [controller_reference(owner)]});
        if let Some(finalizer) = self.finalizer {
            metadata["finalizers"] = json!([finalizer]);
        }
        let patched = unless(404, self.patch(object, metadata).await)?;
        Ok(patched.map(|object| {
            self.written.wrote(key, &object);
            Arc::new(object)
        }))
    }

    async fn release<O: NamespacedObject>(&self, key: &Key, owner: &O, object: &K) -> Result<(), Failure> {
        let mut metadata =
            json!({"uid": object.uid(), "ownerReferences": [{"$patch": "delete", "uid": owner.uid()}]});
        if let Some(finalizer) = self.finalizer {
            metadata["$deleteFromPrimitiveList/finalizers"] = json!([finalizer]);
        }
        // refused as invalid: it is another object by now, or nobody's already
        match unless(404, self.patch(object, metadata).await) {
            Ok(Some(released)) => self.written.wrote(key, &released),
            Ok(None) => {}
            Err(kube::Error::Api(answer)) if answer.code == 422 => {}
            Err(why) => return Err(why.into()),
        }
        Ok(())
    }

    async fn patch(&self, object: &K, metadata: Value) -> Result<K, kube::Error> {
        let patch = Patch::Strategic(json!({ "metadata": metadata }));
        beside::<K>(self.client, object).patch(&object.name_any(), &PatchParams::default(), &patch).await
    }
}

/// Reads an owner anew: it must be the same, and not be going away.
async fn still_there<O: NamespacedObject>(client: &Client, owner: &O) -> Result<(), Failure> {
    let found = unless(404, beside::<O>(client, owner).get(&owner.name_any()).await)?;
    let key = Key::of(owner);
    match found {
        None => Err(Failure::Other(format!("{key} is gone"))),
        Some(now) if now.uid() != owner.uid() => Err(Failure::Other(format!("{key} is another by now"))),
        Some(now) if now.meta().deletion_timestamp.is_some() => {
            Err(Failure::Other(format!("{key} is going away")))
        }
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use k8s_openapi::api::core::v1::{Pod, ReplicationController};

    fn set(leaving: bool) -> ReplicaSet {
        let gone = leaving.then_some("2026-01-01T00:00:00Z");
        let json =
            json!({"metadata": {"name": "a", "namespace": "ns", "uid": "mine", "deletionTimestamp": gone}});
        serde_json::from_value(json).unwrap()
    }

    fn pod(owner: Option<&str>, leaving: bool) -> Pod {
        let gone = leaving.then_some("2026-01-01T00:00:00Z");
        let mut owners = vec![json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "mine"})];
        let kind = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "controller": true});
        owners.extend(owner.map(|uid| {
            let mut it = kind.clone();
            it["uid"] = uid.into();
            it
        }));
        let meta =
            json!({"name": "p", "namespace": "ns", "ownerReferences": owners, "deletionTimestamp": gone});
        serde_json::from_value(json!({ "metadata": meta })).unwrap()
    }

    #[test]
    fn what_is_claimed() {
        use Verdict::*;
        let of = |owner_leaves, controller, leaves, matches| {
            verdict(&set(owner_leaves), &pod(controller, leaves), matches)
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
    fn controllers_are_known_by_kind_and_group() {
        let key = Some(Key::new("ns", "a"));
        assert_eq!(controller_key::<ReplicaSet>(&pod(Some("x"), false)), key);
        assert_eq!(controller_key::<ReplicationController>(&pod(Some("x"), false)), None);
        assert_eq!(controller_key::<ReplicaSet>(&pod(None, false)), None);
        assert!(is_controlled_by(&pod(Some("mine"), false), &set(false)));
        // an owner that is not the controller
        assert!(!is_controlled_by(&pod(None, false), &set(false)));
    }

    #[test]
    fn a_selector_that_says_nothing_selects_nothing() {
        let mut one = pod(None, false);
        one.labels_mut().insert("a".to_owned(), "b".to_owned());
        let of = |json: Value| selector(Some(&serde_json::from_value(json).unwrap()));
        assert!(!matches(selector(None).as_ref(), &one));
        assert!(!matches(of(json!({})).as_ref(), &one));
        assert!(matches(of(json!({"matchLabels": {"a": "b"}})).as_ref(), &one));
        let odd = json!({"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]});
        assert!(!matches(of(odd).as_ref(), &one));
    }

    #[tokio::test]
    async fn owners_are_told_and_orphans_found() {
        let labelled = |name: &str, version: u32, label: &str, owner: Option<&str>| {
            let mut it = pod(owner, false);
            it.metadata.name = Some(name.to_owned());
            it.metadata.resource_version = Some(version.to_string());
            it.labels_mut().extend([("app".to_owned(), label.to_owned()), ("x".to_owned(), "y".to_owned())]);
            it
        };
        let owner = |name: &str, selector: Value| -> ReplicaSet {
            let json = json!({
                "metadata": {"name": name, "namespace": "ns", "uid": name},
                "spec": {"selector": selector}
            });
            serde_json::from_value(json).unwrap()
        };
        let (pods, sets) = (Informer::<Pod>::default(), Informer::<ReplicaSet>::default());
        let queue = Queue::default();
        sets.apply(owner("web", json!({"matchLabels": {"app": "web", "x": "y"}})));
        sets.apply(owner("any", json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]})));
        sets.apply(owner("other", json!({"matchLabels": {"app": "other"}})));
        follow(&pods, &sets, |set| selector(set.spec.as_ref().map(|it| &it.selector)), &queue);
        let told = async || {
            let mut names = Vec::new();
            while let Ok(Some(key)) = tokio::time::timeout(std::time::Duration::ZERO, queue.next()).await {
                queue.done(&key);
                names.push(key.name);
            }
            names.sort();
            names.join(" ")
        };
        pods.apply(labelled("p", 1, "web", None));
        assert_eq!(told().await, "any web");
        // nothing that matters to anybody
        pods.apply(labelled("p", 2, "web", None));
        assert_eq!(told().await, "");
        pods.apply(labelled("p", 3, "other", None));
        assert_eq!(told().await, "any other");
        let found = |label: &str| {
            let selector =
                selector(Some(&serde_json::from_value(json!({"matchLabels": {"app": label}})).unwrap()));
            orphans(&pods, "ns", &selector.unwrap()).len()
        };
        assert_eq!((found("web"), found("other")), (0, 1));
        // it comes to belong to one, and goes
        pods.apply(labelled("p", 4, "other", Some("a")));
        assert_eq!((told().await.as_str(), found("other")), ("a", 0));
        pods.apply(labelled("p", 5, "other", None));
        assert_eq!(told().await, "a any other");
        pods.delete(&labelled("p", 6, "other", None));
        assert_eq!(told().await, "");
    }
}
