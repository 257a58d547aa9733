//! What creating, updating and patching share: who writes what where, and the way from a value to the store.

use crate::model::error::ApiError;
use crate::model::hooks::{Context, Requester};
use crate::model::metadata;
use crate::model::metrics::Timing;
use crate::model::object::{Draft, Object};
use crate::model::options::WriteOptions;
use crate::model::request_record::Step;
use crate::model::reserve::{Asked, Reservation};
use crate::pipeline::admission::{AdmissionAttributes, Given, Operation, Rounds};
use crate::pipeline::api::Api;
use crate::pipeline::decode::{Expected, Input};
use crate::storage::resource::Resource;
use bytes::Bytes;
use merge::managed;
use names::Names;
use schema::problem::Problems;
use schema::table::Type;
use schema::{Value, decode, defaults, encode};
use std::sync::Arc;
use store::{Expect, Revision, StoreError};

/// A write on its way.
pub struct WriteRequest<'a> {
    pub resource: &'a Arc<Resource>,
    pub namespace: &'a str,
    /// As the URL has it; empty when creating in a collection.
    pub name: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    pub options: &'a WriteOptions,
    pub user: &'a Requester,
    /// Who owns the fields that are written.
    pub manager: &'a str,
    /// The body already says who owns what, as an applied one does.
    pub owned: bool,
    /// What the client should know although the write succeeds.
    pub warnings: Vec<String>,
}

/// What a write gave.
pub struct WriteOutcome {
    pub created: bool,
    /// The object in the version of the request.
    pub json: Bytes,
    /// The revision at which it is kept; none where nothing is kept.
    pub revision: Option<u64>,
}

/// How often a write that names no version is tried again when others get in between.
pub(crate) const ATTEMPTS: usize = 20;

impl WriteRequest<'_> {
    pub(crate) fn admitted<'b>(
        &'b self,
        api: &'b Api,
        operation: Operation,
        name: &'b str,
    ) -> AdmissionAttributes<'b> {
        AdmissionAttributes {
            resource: self.resource,
            operation,
            namespace: self.namespace,
            name,
            asked_name: self.name,
            subresource: self.subresource,
            user: self.user,
            dry_run: self.options.dry_run,
            api,
            other: self.resource.view(self.subresource).map(|(_, served)| served.form()),
            given: Given::Write(self.options),
            rounds: Rounds::default(),
        }
    }

    /// The body must belong where it is sent.
    pub(crate) fn place(&self, object: &mut Value) -> Result<(), ApiError> {
        if !self.resource.kind.namespaced {
            object.unset(&["metadata", "namespace"]);
            return Ok(());
        }
        let given = object.text(&["metadata", "namespace"]);
        if given.is_empty() {
            object.set(&["metadata", "namespace"], self.namespace);
        } else if given != self.namespace {
            return Err(ApiError::wrong_namespace());
        }
        Ok(())
    }

    /// Declared defaults, then those that depend on other fields.
    pub(crate) fn default(&self, object: &mut Value, names: &Names) {
        defaults::apply(&self.resource.kind.root, object);
        if let Some(default) = self.resource.hooks.default {
            default(object, names);
        }
    }

    pub(crate) fn dedup_owners(&mut self, object: &mut Value) {
        let repeated = metadata::dedup_owners(object);
        if !repeated.is_empty() {
            self.warnings.push(format!(
                ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may \
                 reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
                repeated.join(", ")
            ));
        }
    }

    /// The same as a set.
    pub(crate) fn unowned_fields(&self) -> managed::FieldSet {
        let mut set = managed::FieldSet::default();
        // what belongs to the other side of the divide between wishes and state
        let other = match self.subresource {
            "" if self.has_status() => Some("status"),
            "status" => Some("spec"),
            _ => None,
        };
        for field in self.unowned().iter().chain(&other) {
            set.insert(field.split('.').map(|step| managed::Element::Field(step.into())));
        }
        set
    }

    /// Fields that this kind of write never owns.
    fn unowned(&self) -> &'static [&'static str] {
        let hooks = &self.resource.hooks;
        if self.subresource.is_empty() {
            return hooks.unowned;
        }
        hooks.subresources.iter().find(|one| one.name == self.subresource).map_or(&[], |one| one.unowned)
    }

    pub(crate) fn has_status(&self) -> bool {
        self.resource.subresource("status").is_some()
    }

    /// Puts the empty status, as a new object has it.
    pub(crate) fn clear_status(&self, object: &mut Value) {
        let field = self.resource.kind.root.field("status");
        match field.and_then(|(_, field)| decode::zero_when_absent(field)) {
            Some(empty) => object.set(&["status"], empty),
            None => drop(object.unset(&["status"])),
        }
    }

    /// All problems of an object, as one error.
    pub(crate) fn judge(&self, object: &Value, problems: Problems) -> Result<(), ApiError> {
        if problems.is_empty() {
            return Ok(());
        }
        let name = object.text(&["metadata", "name"]);
        Err(ApiError::invalid(self.resource.stored_subject(name), problems))
    }

    /// Takes away what a read of a custom resource would not show: unknown fields, and null where it is no value.
    /// Bodies come without these; only an apply and a view can bring them.
    pub(crate) fn prune(&self, object: &mut Value) {
        let table = &self.resource.kind.root;
        if table.loose
            && let Ok(read) = decode::tree(object.clone(), table)
        {
            *object = read.value;
        }
    }

    /// What the metadata's rules say about a new object.
    pub(crate) fn all_metadata_problems(&self, object: &Value) -> Problems {
        let mut problems = self.metadata_problems(object);
        problems.extend(metadata::check_finalizer_domains(object, &self.resource.hooks));
        problems
    }

    /// What the metadata's rules say about an object.
    pub(crate) fn metadata_problems(&self, object: &Value) -> Problems {
        metadata::check(object, self.resource.kind.namespaced, &self.resource.hooks)
    }

    /// What the rules say that were made while the server ran.
    pub(crate) fn made_problems(&self, object: &Value, old: Option<&Value>, timing: &Timing<'_>) -> Problems {
        self.resource
            .hooks
            .rules
            .as_ref()
            .map(|rules| rules.check(object, old, self.subresource, timing))
            .unwrap_or_default()
    }

    /// The resource whose kind clients write and read here.
    pub(crate) fn target(&self) -> &Arc<Resource> {
        self.resource.view(self.subresource).map_or(self.resource, |(_, served)| served)
    }

    /// The bytes of a state that is not stored, as if it were.
    pub(crate) fn encode(&self, object: &Value) -> Bytes {
        if let Some((view, served)) = self.resource.view(self.subresource) {
            return encode::json(&view.of(object, served), &served.kind.root).into();
        }
        let (resource, lists) = (self.resource, self.resource.hooks.empty_lists());
        if resource.hooks.convert.is_some() || resource.is_kept_otherwise() {
            let object = resource.from(resource, object.clone());
            return encode::as_stored(&object, &resource.kind.root, lists).into();
        }
        encode::as_stored(object, &resource.kind.root, lists).into()
    }
}

impl Api {
    /// The body of a write in the normal form of the resource's kind.
    pub(crate) fn read(&self, writing: &mut WriteRequest<'_>, input: &Input) -> Result<Value, ApiError> {
        let resource = writing.target().clone();
        let expected = Expected {
            ty: &resource.kind.root,
            kind: &resource.kind.name,
            api_version: &resource.api_version,
            known: &|version, kind| self.resources().has_kind(version, kind),
        };
        let object = input.typed(&expected, writing.options.field_validation, &mut writing.warnings);
        let declared =
            writing.resource.view(writing.subresource).is_some_and(|(view, _)| view.declared_at.is_some());
        let object = object.map_err(|why| if declared { unregistered(&resource) } else { why })?;
        if let Some(why) = resource.hooks.conversion_error.and_then(|of| of(&object)) {
            return Err(expected.unreadable(&why));
        }
        writing.user.notes.saw_object(&object, || {
            let mut shown = object.clone();
            defaults::apply(&resource.kind.root, &mut shown);
            if let Some(default) = resource.hooks.default {
                default(&mut shown, &self.names);
            }
            encode::as_stored(&shown, &resource.kind.root, resource.hooks.empty_lists()).into()
        });
        Ok(object)
    }

    /// Brings the record of who owns which field up to date. What this write cannot set has been put back to
    /// its old state before, so it is nobody's change.
    pub(crate) fn track(&self, writing: &WriteRequest<'_>, old: Option<&Value>, object: &mut Value) {
        let resource = writing.resource;
        self.track_as(writing, resource, (&resource.kind.root, &resource.api_version), old, object);
    }

    /// The same for an object of another type and version than are stored; `resource` knows what it becomes in
    /// other versions.
    pub(crate) fn track_as(
        &self,
        writing: &WriteRequest<'_>,
        resource: &Resource,
        (ty, api_version): (&Type, &str),
        old: Option<&Value>,
        object: &mut Value,
    ) {
        let now = schema::time::format_time(env::unix_seconds(&self.world));
        let reset = writing.unowned_fields();
        let write = managed::Write {
            ty,
            manager: writing.manager,
            api_version,
            subresource: writing.subresource,
            now: &now,
            reset: &reset,
            convert: Some(&|version, live, new| self.elsewhere(resource, version, live, new)),
        };
        managed::track(&write, old, object);
    }

    /// What becomes of a record of ownership in another version of the kind.
    pub(crate) fn elsewhere(
        &self,
        resource: &Resource,
        version: &str,
        live: Option<&Value>,
        new: &Value,
    ) -> managed::Elsewhere {
        let resources = self.resources();
        let other = resources.of_version(version).find(|one| one.kind.name == resource.kind.name);
        let Some(other) = other else { return managed::Elsewhere::Gone };
        // nobody is asked for the sake of the record alone
        let asks = |it: &Resource| it.hooks.fit.as_ref().is_some_and(|fit| fit.converter.is_some());
        if !Arc::ptr_eq(&other.collection, &resource.collection) || asks(resource) {
            return managed::Elsewhere::Unknown;
        }
        let there = |object: &Value| other.from(resource, object.clone());
        managed::Elsewhere::Converted { ty: other.kind.root.clone(), live: live.map(there), new: there(new) }
    }

    /// Stores a state and gives it back as it was published.
    pub(crate) async fn commit(
        &self,
        writing: &WriteRequest<'_>,
        object: Value,
        reservation: Option<Reservation>,
        expect: Expect,
    ) -> Result<Arc<Object>, StoreError> {
        let stored = self.commit_as(writing.resource, object, reservation, expect).await;
        writing.user.notes.reached(Step::Stored, self.world.elapsed());
        stored
    }

    /// Takes what the next state needs and writes it there.
    pub(crate) fn reserve(
        &self,
        writing: &WriteRequest<'_>,
        next: &mut Value,
        old: Option<&Value>,
        context: &Context<'_>,
    ) -> Result<Option<Reservation>, ApiError> {
        let Some(reserve) = &writing.resource.hooks.reserve else { return Ok(None) };
        let asked = Asked { dry_run: writing.options.dry_run, world: &self.world, context };
        reserve.reserve(next, old, &asked).map(Some)
    }

    /// Removes an object in its last state, with what it held.
    pub(crate) async fn remove_stored(
        &self,
        resource: &Resource,
        current: &Object,
        last: &Value,
    ) -> Result<Revision, StoreError> {
        let held = resource.hooks.reserve.as_ref().map(|reserve| reserve.release(last));
        self.storage.delete(&resource.collection, current, held).await
    }

    /// The same for whoever writes on the server's behalf: in the stored version, with the kind's lifetime.
    pub(crate) async fn commit_as(
        &self,
        resource: &Resource,
        object: Value,
        reservation: Option<Reservation>,
        expect: Expect,
    ) -> Result<Arc<Object>, StoreError> {
        let collection = &resource.collection;
        // what is written in the stored version is its own form
        let form = resource.hooks.fit.as_ref().filter(|fit| fit.stored == resource.api_version);
        let form = form.map_or(0, |fit| fit.form);
        let stored = resource.as_stored(object);
        let mut draft = Draft::made_for(&stored, collection, resource.hooks.empty_lists(), form);
        draft.reservation = reservation;
        let expires = match (resource.kind.expires, resource.hooks.lifetime_seconds) {
            (true, Some(seconds)) => Some(env::unix_seconds(&self.world) + seconds),
            _ => None,
        };
        self.storage.put(collection, draft, expect, expires).await
    }

    /// The tree of an object in the version of the request.
    pub fn tree(&self, resource: &Resource, object: &Object) -> Result<Value, ApiError> {
        let unreadable = |why: decode::DecodeError| {
            ApiError::internal_error(format!("the stored object {:?} cannot be read: {why}", object.name))
        };
        if let Some(fit) = &resource.hooks.fit {
            let json = resource.fitted_json(fit, object);
            return Ok(decode::canonical_json(&json, &resource.kind.root).map_err(unreadable)?.value);
        }
        let stored = object.value(&resource.collection.kind).map_err(unreadable)?;
        Ok(match resource.hooks.convert {
            None => stored,
            Some(convert) => resource.as_served(convert, stored),
        })
    }
}

/// Whatever is wrong with the view of a kind that a definition adds, clients know it as this.
fn unregistered(served: &Resource) -> ApiError {
    let version = served.api_version.rsplit('/').next().unwrap_or_default();
    ApiError::bad_request(format!(
        "no kind is registered for the type {version}.{} in scheme {:?}",
        served.kind.name,
        names::DEFINED_SCHEME
    ))
}

/// What the client hears when the store cannot do it.
pub fn store_error(why: StoreError) -> ApiError {
    match why {
        // each such write would be a line in the log while the disk is full, which the store has said once
        StoreError::Full { .. } => {
            ApiError::unavailable(format!("the store cannot take the write now: {why}"))
        }
        StoreError::TooLarge { .. } => ApiError::too_large(format!("Request entity too large: {why}")),
        other => {
            tracing::warn!(error = %other, "a write was not stored");
            ApiError::unavailable(format!("the store cannot take the write now: {other}"))
        }
    }
}
