//! Views: a subresource that shows its object as another kind, and takes writes of that kind.
//!
//! A view has one field in common with its object, and a write can change nothing else. Who owns that field is
//! kept in the object; in the view the same owners are shown under the view's own paths and version, so that
//! patches and applies see them, and what becomes of them there is taken back:
//!
//! ```text
//! object   a, apps/v1: spec.replicas spec.template        b, apps/v1: metadata.labels
//! view     a, autoscaling/v1: spec.replicas
//! write    by c, through the view
//! object   a, apps/v1: spec.template    b, apps/v1: metadata.labels    c, apps/v1: spec.replicas
//! ```
//!
//! Always true: a write through a view is an update of the object in every other respect, with its rules.

use crate::model::error::{ApiError, Subject};
use crate::model::metadata;
use crate::model::object::Object;
use crate::pipeline::admission::Operation;
use crate::pipeline::api::Api;
use crate::pipeline::write::WriteRequest;
use crate::storage::resource::Resource;
use crate::verbs::update::Next;
use bytes::Bytes;
use merge::managed::{self, Element, Entry, FieldSet, Managed};
use schema::problem::Problems;
use schema::table::{Kind, Ref, Text};
use schema::{Value, defaults, encode};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How one kind's objects are seen as another.
#[derive(Clone)]
pub struct View {
    /// Of the subresource.
    pub name: Text,
    pub kind: Ref<Kind>,
    /// Where the common field stands in the object.
    pub inside: Vec<Text>,
    /// Where it stands in the view.
    pub outside: Vec<Text>,
    /// What it is when the view leaves it out.
    pub absent: Value,
    /// Everything of the view but its kind and metadata.
    pub show: Arc<dyn Fn(&Value) -> Value + Send + Sync>,
    /// Rules of the view beyond those of its metadata and table.
    pub validate: fn(&Value) -> Problems,
    pub cells: Option<fn(&Value, Duration) -> Vec<Value>>,
    pub missing: Missing,
    /// A definition says where the common field stands: an object without it cannot be read, and a write need not
    /// name a version. The path is told as it was written there.
    pub declared_at: Option<Text>,
}

/// How clients are told that there is no object to view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// As a missing object: `things.group`.
    Object,
    /// As a missing part of it: `things/view.group`.
    Part,
    /// As a missing part, in the group of the view.
    PartOfView,
}

impl View {
    /// The view of an object, as clients read it.
    pub fn of(&self, object: &Value, served: &Resource) -> Value {
        let mut view = (self.show)(object);
        view.set(&["kind"], &*served.kind.name);
        view.set(&["apiVersion"], &*served.api_version);
        for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(value) = object.at(&["metadata", field]) {
                view.set(&["metadata", field], value.clone());
            }
        }
        view
    }

    fn json(&self, object: &Value, served: &Resource) -> Bytes {
        encode::json(&self.of(object, served), &served.kind.root).into()
    }

    fn owners(&self) -> Owners<'_> {
        Owners { inside: &self.inside, outside: &self.outside }
    }
}

/// Who owns the common field, seen from inside and from outside.
struct Owners<'a> {
    inside: &'a [Text],
    outside: &'a [Text],
}

impl Owners<'_> {
    /// The owners of the common field, as a view of this version shows them.
    fn shown(&self, object: &Value, api_version: &str) -> Managed {
        let (inside, outside) = (steps(self.inside), set(self.outside));
        let mut managed = entries(object);
        managed.entries.retain(|entry| entry.fields.contains(&inside));
        for entry in &mut managed.entries {
            entry.fields = outside.clone().into();
            entry.api_version = api_version.to_owned();
        }
        managed
    }

    /// The owners of the whole object after a write, given those that the view has then. Whoever came to own the
    /// field here has no time of its own, as clients know it.
    fn kept(&self, old: &Value, view: &Value, api_version: &str) -> Managed {
        let (inside, outside) = (steps(self.inside), steps(self.outside));
        let shared = set(self.inside);
        let mut shown = entries(view).entries;
        shown.retain(|entry| entry.fields.contains(&outside));
        // by who applied them, each once, in their order
        let mut applied: HashMap<_, VecDeque<usize>> = HashMap::new();
        for (at, entry) in
            shown.iter().enumerate().filter(|(_, entry)| entry.operation == managed::Operation::Apply)
        {
            applied.entry(writer(entry)).or_default().push_back(at);
        }
        let (mut kept, mut met) = (Vec::new(), HashSet::new());
        for mut entry in entries(old).entries {
            if entry.fields.contains(&inside) {
                let applies = entry.operation == managed::Operation::Apply;
                let same = applies.then(|| applied.get_mut(&writer(&entry))?.pop_front()).flatten();
                match same {
                    Some(at) => {
                        met.insert(at);
                    }
                    None => entry.fields.subtract(&shared),
                }
            }
            if !entry.fields.is_empty() {
                kept.push(entry);
            }
        }
        let new = shown.into_iter().enumerate().filter(|(at, _)| !met.contains(at));
        kept.extend(new.map(|(_, entry)| Entry {
            api_version: api_version.to_owned(),
            time: None,
            fields: shared.clone().into(),
            ..entry
        }));
        Managed { entries: kept }
    }
}

/// One who applies is the same in every version; one who updates is another in each, and so never here.
fn writer(entry: &Entry) -> (String, String) {
    (entry.manager.clone(), entry.subresource.clone())
}

fn entries(object: &Value) -> Managed {
    let entries = object.items(&["metadata", "managedFields"]);
    Managed::decode(entries, entries).unwrap_or_default()
}

fn steps(path: &[Text]) -> Vec<Element> {
    path.iter().map(|step| Element::Field(step.clone())).collect()
}

fn set(path: &[Text]) -> FieldSet {
    let mut set = FieldSet::new();
    set.insert(steps(path));
    set
}

fn at<'v>(value: &'v Value, path: &[Text]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, step| value.as_map()?.get(step)).filter(|it| !it.is_null())
}

fn put(mut value: &mut Value, path: &[Text], new: Value) {
    for step in path {
        value = value.make_map().entry(step.clone());
    }
    *value = new;
}

fn put_owners(object: &mut Value, managed: Managed) {
    match managed.encode() {
        Some(entries) => object.set(&["metadata", "managedFields"], entries),
        None => drop(object.unset(&["metadata", "managedFields"])),
    }
}

/// The number of replicas where there is none, as a patch finds it.
const MISSING: Value = Value::Int(i32::MIN as i64);

impl Api {
    /// The view of an object, at least as new as `resource_version` asks.
    pub async fn get_view(
        &self,
        resource: &Resource,
        subresource: &str,
        namespace: &str,
        name: &str,
        resource_version: &str,
    ) -> Result<Bytes, ApiError> {
        let (view, served) = resource.view(subresource).ok_or_else(ApiError::no_such_path)?;
        let found = self.get(resource, namespace, name, resource_version).await;
        let object = found.map_err(|why| match why.code {
            404 if view.missing != Missing::Object => {
                let kind = format!("{}/{subresource}", resource.kind.plural);
                let of_view = view.missing == Missing::PartOfView;
                let group = if of_view { &served.group } else { &resource.group };
                ApiError::not_found(Subject { group, kind: &kind, name })
            }
            _ => why,
        })?;
        let tree = self.tree(resource, &object)?;
        if let Some(path) = view.declared_at.as_ref().filter(|_| at(&tree, &view.inside).is_none()) {
            return Err(ApiError::internal_error(format!("the spec replicas field {path:?} does not exist")));
        }
        Ok(view.json(&tree, served))
    }

    pub(crate) fn view_json(
        &self,
        resource: &Resource,
        object: &Object,
        (view, served): (&View, &Resource),
    ) -> Result<Bytes, ApiError> {
        Ok(view.json(&self.tree(resource, object)?, served))
    }

    /// The next state of an object, of which `next` knows the view only.
    pub(crate) async fn through(
        &self,
        writing: &mut WriteRequest<'_>,
        (view, served): (&View, &Resource),
        old: &Value,
        next: &Next<'_>,
    ) -> Result<Value, ApiError> {
        let mut shown = view.of(old, served);
        put_owners(&mut shown, view.owners().shown(old, &served.api_version));
        // a number that nobody could want stands for one that is not there
        let missing = view.declared_at.as_ref().filter(|_| at(old, &view.inside).is_none());
        if missing.is_some() {
            put(&mut shown, &view.outside, MISSING);
        }
        let mut wanted = next(&shown, &mut writing.warnings)?;
        if let Some(path) = missing.filter(|_| at(&wanted, &view.outside) == Some(&MISSING)) {
            return Err(ApiError::bad_request(format!("the spec replicas field {path:?} cannot be empty")));
        }
        writing.place(&mut wanted)?;
        defaults::apply(&served.kind.root, &mut wanted);
        // the owners of a field that a definition names lose it, and the writer does not get it
        let unrecorded = view.declared_at.is_some() && !writing.owned;
        if !writing.owned {
            let form = (&*served.kind.root, &*served.api_version);
            self.track_as(writing, served, form, Some(&shown), &mut wanted);
        }
        let admitted = writing.admitted(self, Operation::Update, writing.name);
        self.admit(&admitted, Some(&mut wanted), Some(&shown)).await?;
        if admitted.rounds.was_changed() {
            writing.place(&mut wanted)?;
        }
        let mut problems = metadata::check(&wanted, writing.resource.kind.namespaced, &served.hooks);
        problems.extend((view.validate)(&wanted));
        if !problems.is_empty() {
            let name = wanted.text(&["metadata", "name"]);
            return Err(ApiError::invalid(served.stored_subject(name), problems));
        }
        let mut object = old.clone();
        put(&mut object, &view.inside, at(&wanted, &view.outside).unwrap_or(&view.absent).clone());
        let version = wanted.text(&["metadata", "resourceVersion"]);
        if view.declared_at.is_none() || !version.is_empty() {
            object.set(&["metadata", "resourceVersion"], version);
        }
        let owned = if unrecorded { &Value::Null } else { &wanted };
        put_owners(&mut object, view.owners().kept(old, owned, &writing.resource.api_version));
        Ok(object)
    }
}

impl Resource {
    /// A subresource that is a view, with the resource that it is served as.
    pub fn view(&self, subresource: &str) -> Option<(&View, &Arc<Resource>)> {
        let at = self.hooks.views.iter().position(|view| view.name == subresource)?;
        Some((&self.hooks.views[at], self.views.get(at)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::decode;

    const PATH: [Text; 2] = [Text::Borrowed("spec"), Text::Borrowed("replicas")];
    const OWNERS: Owners<'static> = Owners { inside: &PATH, outside: &PATH };

    fn object(entries: &[(&str, &str, &str)]) -> Value {
        let mut object = Value::map();
        let entries = entries.iter().map(|(manager, operation, fields)| {
            let text = format!(
                r#"{{"manager":{manager:?},"operation":{operation:?},"apiVersion":"apps/v1","fieldsType":"FieldsV1",
                    "time":"2020-01-01T00:00:00Z","fieldsV1":{fields}}}"#
            );
            decode::json_untyped(text.as_bytes()).expect("JSON of a test").value
        });
        object.set(&["metadata", "managedFields"], entries.collect::<Vec<_>>());
        object
    }

    fn told(managed: &Managed) -> Vec<(String, String, usize, bool)> {
        let told =
            |it: &Entry| (it.manager.clone(), it.api_version.clone(), it.fields.len(), it.time.is_some());
        managed.entries.iter().map(told).collect()
    }

    fn with_owners(managed: Managed) -> Value {
        let mut view = Value::map();
        put_owners(&mut view, managed);
        view
    }

    const BOTH: &str = r#"{"f:spec":{"f:replicas":{},"f:paused":{}}}"#;
    const OTHER: &str = r#"{"f:spec":{"f:paused":{}}}"#;

    #[test]
    fn owners_of_the_common_field_are_shown() {
        let managed =
            OWNERS.shown(&object(&[("a", "Apply", BOTH), ("b", "Update", OTHER)]), "autoscaling/v1");
        assert_eq!(told(&managed), [("a".to_owned(), "autoscaling/v1".to_owned(), 1, true)]);
    }

    #[test]
    fn whoever_is_not_shown_any_more_has_lost_the_field() {
        let old = object(&[("a", "Apply", BOTH), ("b", "Update", OTHER)]);
        let mut shown = OWNERS.shown(&old, "autoscaling/v1");
        // as it was: everybody keeps everything
        let kept = OWNERS.kept(&old, &with_owners(shown.clone()), "apps/v1");
        let entry = |manager: &str, fields, timed| (manager.to_owned(), "apps/v1".to_owned(), fields, timed);
        assert_eq!(told(&kept), [entry("a", 2, true), entry("b", 1, true)]);
        // somebody else has it
        shown.entries[0].manager = "c".to_owned();
        let kept = OWNERS.kept(&old, &with_owners(shown), "apps/v1");
        assert_eq!(told(&kept), [entry("a", 1, true), entry("b", 1, true), entry("c", 1, false)]);
        // nobody has it
        let kept = OWNERS.kept(&old, &Value::map(), "apps/v1");
        assert_eq!(told(&kept), [entry("a", 1, true), entry("b", 1, true)]);
    }
}
