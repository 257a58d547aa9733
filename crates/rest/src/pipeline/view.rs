//! Stage: a write through a view, which becomes the next state of the object.
//!
//! A view has one field in common with its object, and a write can change nothing else. The object records the owners
//! of that field; the view shows the same owners under its own paths and version, so that patches and applies see
//! them, and their changes are copied back:
//!
//! ```text
//! object   a, apps/v1: spec.replicas spec.template        b, apps/v1: metadata.labels
//! view     a, autoscaling/v1: spec.replicas
//! write    by c, through the view
//! object   a, apps/v1: spec.template    b, apps/v1: metadata.labels    c, apps/v1: spec.replicas
//! ```
//!
//! Invariant: a write through a view is an update of the object in every other respect, with its rules.

use crate::model::error::{ApiError, Subject};
use crate::model::metadata;
use crate::model::operation::Operation;
use crate::model::view::{View, field_at};
use crate::pipeline::api::Api;
use crate::pipeline::request::{UpdateFn, WriteRequest};
use crate::storage::resource::Resource;
use merge::managed::{self, Element, Entry, FieldSet, ManagedFields};
use schema::table::Text;
use schema::{Value, defaults};
use std::collections::{HashMap, HashSet, VecDeque};

/// The owners of the common field, by its path in the object and in the view.
struct Owners<'a> {
    inside: &'a [Text],
    outside: &'a [Text],
}

impl<'a> Owners<'a> {
    fn of(view: &'a View) -> Self {
        Owners { inside: &view.inside, outside: &view.outside }
    }

    /// The owners of the common field, as a view of this version shows them.
    fn served_entries(&self, object: &Value, api_version: &str) -> ManagedFields {
        let (inside, outside) = (steps(self.inside), set(self.outside));
        let mut managed = entries(object);
        managed.entries.retain(|entry| entry.fields.contains(&inside));
        for entry in &mut managed.entries {
            entry.fields = outside.clone().into();
            entry.api_version = api_version.to_owned();
        }
        managed
    }

    /// The owners of the whole object after a write, given those that the view has then. A new owner of the field has
    /// no time, as upstream records it.
    fn kept(&self, old: &Value, view: &Value, api_version: &str) -> ManagedFields {
        let (inside, outside) = (steps(self.inside), steps(self.outside));
        let shared = set(self.inside);
        let formatted = entries(view).entries;
        // by manager, each once, in their order; one that applies any field of the view keeps what it has, as upstream
        let mut applied: HashMap<_, VecDeque<usize>> = HashMap::new();
        for (at, entry) in
            formatted.iter().enumerate().filter(|(_, entry)| entry.operation == managed::Operation::Apply)
        {
            applied.entry(applier(entry)).or_default().push_back(at);
        }
        let (mut kept, mut met) = (Vec::new(), HashSet::new());
        for mut entry in entries(old).entries {
            if entry.fields.contains(&inside) {
                let applies = entry.operation == managed::Operation::Apply;
                let same = applies.then(|| applied.get_mut(&applier(&entry))?.pop_front()).flatten();
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
        let is_new = |at, entry: &Entry| !met.contains(&at) && entry.fields.contains(&outside);
        let new = formatted.into_iter().enumerate().filter(|(at, entry)| is_new(*at, entry));
        kept.extend(new.map(|(_, entry)| Entry {
            api_version: api_version.to_owned(),
            time: None,
            fields: shared.clone().into(),
            ..entry
        }));
        ManagedFields { entries: kept }
    }
}

/// The identity of a manager that applies: it is the same in every version.
fn applier(entry: &Entry) -> (String, String) {
    (entry.manager.clone(), entry.subresource.clone())
}

fn entries(object: &Value) -> ManagedFields {
    let entries = object.items(&["metadata", "managedFields"]);
    ManagedFields::decode(entries, entries).unwrap_or_default()
}

fn steps(path: &[Text]) -> Vec<Element> {
    path.iter().map(|step| Element::Field(step.clone())).collect()
}

fn set(path: &[Text]) -> FieldSet {
    let mut set = FieldSet::new();
    set.insert(steps(path));
    set
}

fn put(mut value: &mut Value, path: &[Text], new: Value) {
    for step in path {
        value = value.make_map().entry(step.clone());
    }
    *value = new;
}

/// The path of the first value above a field that is not a map.
fn unsettable(mut value: &Value, path: &[Text]) -> Option<String> {
    let (_, above) = path.split_last()?;
    for (nth, step) in above.iter().enumerate() {
        value = value.as_map()?.get(step)?;
        if value.as_map().is_none() {
            return Some(format!(".{}", path[..=nth].join(".")));
        }
    }
    None
}

fn put_owners(object: &mut Value, managed: ManagedFields) {
    match managed.encode() {
        Some(entries) => object.set(&["metadata", "managedFields"], entries),
        None => drop(object.unset(&["metadata", "managedFields"])),
    }
}

/// Checks that a view names the uid of its object, if it names one. Its version is checked at the write.
fn check_uid(request: &WriteRequest<'_>, wanted: &Value, old: &Value) -> Result<(), ApiError> {
    let (named, uid) = (wanted.text(&["metadata", "uid"]), old.text(&["metadata", "uid"]));
    if named.is_empty() || named == uid {
        return Ok(());
    }
    let resource = request.resource;
    let kind = format!("{}/{}", resource.kind.plural, request.subresource);
    let subject = Subject { group: &resource.group, kind: &kind, name: request.name };
    let why = format!("Precondition failed: UID in precondition: {named}, UID in object meta: {uid}");
    Err(ApiError::conflict(subject, &why))
}

/// The number of replicas that a patch finds where there is none.
const MISSING: Value = Value::Int(i32::MIN as i64);

impl Api {
    /// The next state of an object, given the next state of its view.
    pub(crate) async fn through(
        &self,
        request: &mut WriteRequest<'_>,
        (view, served): (&View, &Resource),
        old: &Value,
        next: &UpdateFn<'_>,
    ) -> Result<Value, ApiError> {
        view.check(old)?;
        let mut formatted = view.of(old, served.form());
        put_owners(&mut formatted, Owners::of(view).served_entries(old, &served.api_version));
        // an impossible number marks an absent field
        let missing = view.declared_at.as_ref().filter(|_| field_at(old, &view.inside).is_none());
        if missing.is_some() {
            put(&mut formatted, &view.outside, MISSING);
        }
        let mut wanted = next(&formatted, &mut request.warnings)?;
        if let Some(path) = missing.filter(|_| field_at(&wanted, &view.outside) == Some(&MISSING)) {
            return Err(ApiError::bad_request(format!("the spec replicas field {path:?} cannot be empty")));
        }
        request.place(&mut wanted)?;
        defaults::apply(&served.kind.root, &mut wanted);
        // a field that a definition declares loses its owners, and gets no new one
        let unrecorded = view.declared_at.is_some() && !request.owned;
        if !request.owned {
            let form = (&*served.kind.root, &*served.api_version);
            self.track_as(request, served, form, Some(&formatted), &mut wanted);
        }
        let attributes = request.attributes(self, Operation::Update, request.name);
        self.mutate(&attributes, Some(&mut wanted), Some(&formatted)).await?;
        if attributes.reinvocation.should_reinvoke() {
            request.place(&mut wanted)?;
        }
        let mut problems = metadata::check(&wanted, request.resource.kind.namespaced, &served.hooks);
        problems.extend((view.validate)(&wanted));
        if !problems.is_empty() {
            let name = wanted.text(&["metadata", "name"]);
            return Err(ApiError::invalid(served.stored_subject(name), problems));
        }
        // the view of a custom resource is not checked
        if view.declared_at.is_none() {
            check_uid(request, &wanted, old)?;
        }
        let mut object = old.clone();
        if let (Some(_), Some(place)) = (&view.declared_at, unsettable(&object, &view.inside)) {
            let why = format!("value cannot be set because {place} is not a map[string]interface{{}}");
            return Err(ApiError::internal(why));
        }
        put(&mut object, &view.inside, field_at(&wanted, &view.outside).unwrap_or(&view.absent).clone());
        let version = wanted.text(&["metadata", "resourceVersion"]);
        if view.declared_at.is_none() || !version.is_empty() {
            object.set(&["metadata", "resourceVersion"], version);
        }
        let owned = if unrecorded { &Value::Null } else { &wanted };
        put_owners(&mut object, Owners::of(view).kept(old, owned, &request.resource.api_version));
        Ok(object)
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

    fn summary(managed: &ManagedFields) -> Vec<(String, String, usize, bool)> {
        let entry =
            |it: &Entry| (it.manager.clone(), it.api_version.clone(), it.fields.len(), it.time.is_some());
        managed.entries.iter().map(entry).collect()
    }

    fn with_owners(managed: ManagedFields) -> Value {
        let mut view = Value::map();
        put_owners(&mut view, managed);
        view
    }

    const BOTH: &str = r#"{"f:spec":{"f:replicas":{},"f:paused":{}}}"#;
    const OTHER: &str = r#"{"f:spec":{"f:paused":{}}}"#;

    #[test]
    fn owners_of_the_replicas_are_listed() {
        let managed =
            OWNERS.served_entries(&object(&[("a", "Apply", BOTH), ("b", "Update", OTHER)]), "autoscaling/v1");
        assert_eq!(summary(&managed), [("a".to_owned(), "autoscaling/v1".to_owned(), 1, true)]);
    }

    #[test]
    fn an_owner_that_the_view_drops_loses_the_field() {
        let old = object(&[("a", "Apply", BOTH), ("b", "Update", OTHER)]);
        let mut formatted = OWNERS.served_entries(&old, "autoscaling/v1");
        // unchanged: every owner keeps its fields
        let kept = OWNERS.kept(&old, &with_owners(formatted.clone()), "apps/v1");
        let entry = |manager: &str, fields, timed| (manager.to_owned(), "apps/v1".to_owned(), fields, timed);
        assert_eq!(summary(&kept), [entry("a", 2, true), entry("b", 1, true)]);
        // another owner
        formatted.entries[0].manager = "c".to_owned();
        let kept = OWNERS.kept(&old, &with_owners(formatted), "apps/v1");
        assert_eq!(summary(&kept), [entry("a", 1, true), entry("b", 1, true), entry("c", 1, false)]);
        // the same manager with another field of the view only
        let kept = OWNERS.kept(&old, &object(&[("a", "Apply", r#"{"f:status":{}}"#)]), "apps/v1");
        assert_eq!(summary(&kept), [entry("a", 2, true), entry("b", 1, true)]);
        let kept = OWNERS.kept(&old, &object(&[("a", "Update", r#"{"f:status":{}}"#)]), "apps/v1");
        assert_eq!(summary(&kept), [entry("a", 1, true), entry("b", 1, true)]);
        // no owner
        let kept = OWNERS.kept(&old, &Value::map(), "apps/v1");
        assert_eq!(summary(&kept), [entry("a", 1, true), entry("b", 1, true)]);
    }
}
