//! Stage: restores the fields that a write cannot change, and records the field manager in the managed fields.

use crate::model::error::ApiError;
use crate::model::hooks::replace;
use crate::model::metadata::{self, SentFields};
use crate::pipeline::api::Api;
use crate::pipeline::request::{Write, WriteRequest};
use crate::storage::resource::Resource;
use merge::managed;
use schema::table::{ListKind, Ref, Shape, Type};
use schema::{Map, Value};
use std::sync::Arc;

/// Confines the object to the fields that the request can change, and records their manager. Returns the values that
/// the client sent for fields that the server decides.
pub(crate) fn record(api: &Api, write: &mut Write<'_, '_>) -> Result<Option<SentFields>, ApiError> {
    let Some(old) = write.old() else {
        confine(api, write);
        if !write.request.owned {
            api.track(write.request, None, &mut write.object);
        }
        return Ok(None);
    };
    let (request, resource) = (&*write.request, write.resource());
    let hooks = &resource.hooks;
    if !request.subresource.is_empty() && write.view.is_none() {
        let part = hooks.subresources.parts.iter().find(|one| one.name == request.subresource);
        write.part = Some(part.ok_or_else(ApiError::method_not_allowed)?);
    }
    let sent = metadata::sent_server_fields(&write.object);
    // a write through a view has recorded its manager in the form of the view
    let records = !request.owned && write.view.is_none();
    let owns_sent = hooks.write.owns_sent;
    if records && owns_sent {
        api.track(request, Some(old), &mut write.object);
    }
    let is_unreadable = records
        && !owns_sent
        && managed::has_unreadable_part(&resource.kind.root, &request.unowned_fields(), old, &write.object);
    confine(api, write);
    metadata::keep_server_fields(&mut write.object, old);
    if records && !owns_sent && !hooks.write.unrecorded.contains(&write.request.subresource) {
        let ignored = write.ignored_metadata();
        metadata::set_sent_deletion(&mut write.object, &sent, ignored);
        if is_unreadable {
            write.object.unset(&["metadata", "managedFields"]);
        } else {
            api.track(write.request, Some(old), &mut write.object);
        }
        metadata::keep_server_fields(&mut write.object, old);
    }
    for restore in [hooks.update.restore, write.part.and_then(|part| part.restore)].into_iter().flatten() {
        api.with_context(write.request.user, |context| restore(&mut write.object, old, context));
    }
    Ok(Some(sent))
}

/// Restores the fields that the request cannot change: of a new object, of a whole object, or outside of a part.
pub(crate) fn confine(api: &Api, write: &mut Write<'_, '_>) {
    let Some(old) = write.old() else { return metadata::clear_server_fields(&mut write.object) };
    let Some(part) = write.part else {
        let writes = write.resource().hooks.update.writes_status;
        let writes =
            writes.is_some_and(|of| api.with_context(write.request.user, |context| of(old, context)));
        if write.request.has_status() && !writes {
            let sent = write.object.unset(&["status"]).unwrap_or(Value::Null);
            write.ignored_part.get_or_insert(sent);
            replace(&mut write.object, old, "status");
        }
        return;
    };
    let mut next = old.clone();
    api.with_context(write.request.user, |context| (part.apply)(&mut next, &write.object, context));
    let unrecorded = write.resource().hooks.write.unrecorded.contains(&part.name);
    let source = if unrecorded { old } else { &write.object };
    let fields = source.at(&["metadata", "managedFields"]).cloned();
    let sent = std::mem::replace(&mut write.object, next);
    write.ignored_part.get_or_insert(sent);
    match fields {
        Some(fields) => write.object.set(&["metadata", "managedFields"], fields),
        None => drop(write.object.unset(&["metadata", "managedFields"])),
    }
}

impl WriteRequest<'_> {
    /// The fields that this request never owns.
    pub(crate) fn unowned_fields(&self) -> managed::FieldSet {
        let mut set = managed::FieldSet::default();
        // spec and status have separate writers
        let other = match self.subresource {
            "" if self.has_status() => Some("status"),
            "status" => Some("spec"),
            _ => None,
        };
        for field in self.declared_unowned().iter().chain(&other) {
            set.insert(field.split('.').map(|step| managed::Element::Field(step.into())));
        }
        set
    }

    fn declared_unowned(&self) -> &'static [&'static str] {
        let hooks = &self.resource.hooks;
        if self.subresource.is_empty() {
            return hooks.write.unowned;
        }
        let part = hooks.subresources.parts.iter().find(|one| one.name == self.subresource);
        part.map_or(&[], |one| one.unowned)
    }
}

impl Api {
    /// Updates the managed fields of an object. Fields that the request cannot change have been restored before, so
    /// they are no change of its manager.
    pub(crate) fn track(&self, request: &WriteRequest<'_>, old: Option<&Value>, object: &mut Value) {
        let resource = request.resource;
        self.track_as(request, resource, (&resource.kind.root, &resource.api_version), old, object);
    }

    /// Updates the managed fields of an object of another type and version than the resource's; `resource` converts
    /// it to other versions.
    pub(crate) fn track_as(
        &self,
        request: &WriteRequest<'_>,
        resource: &Resource,
        (ty, api_version): (&Type, &str),
        old: Option<&Value>,
        object: &mut Value,
    ) {
        let now = schema::time::format_time(env::unix_seconds(&self.world));
        let reset = request.unowned_fields();
        let write = managed::Write {
            ty,
            manager: request.manager,
            api_version,
            subresource: request.subresource,
            now: &now,
            reset: &reset,
            convert: Some(&|version, live, new| self.convert_to_version(resource, version, live, new)),
        };
        managed::track(&write, old, object);
    }

    /// Converts objects to another version of the kind, for managed fields that are recorded in that version.
    pub(crate) fn convert_to_version(
        &self,
        resource: &Resource,
        version: &str,
        live: Option<&Value>,
        new: &Value,
    ) -> managed::ConversionResult {
        let resources = self.resources();
        let other = resources.of_version(version).find(|one| one.kind.name == resource.kind.name);
        let Some(other) = other else { return managed::ConversionResult::Gone };
        // no converter is called for managed fields alone
        let converts = |it: &Resource| {
            it.hooks.storage.custom_versions.as_ref().is_some_and(|fit| fit.converter.is_some())
        };
        if !Arc::ptr_eq(&other.collection, &resource.collection) || converts(resource) {
            return managed::ConversionResult::Unknown;
        }
        // a comparison sees what a stored object of that version would lose
        let is_compared = live.is_some() && other.kind.root.loose;
        let is_of_kind = |one: &&Arc<Resource>| {
            one.kind.name == resource.kind.name && Arc::ptr_eq(&one.collection, &resource.collection)
        };
        let there = |object: &Value| {
            // an object that has been converted already is not in the version of the request
            let from = resources.of_version(object.text(&["apiVersion"])).find(is_of_kind);
            let from = from.map_or(resource, |found| &**found);
            let mut converted = other.from(from, object.clone());
            if is_compared {
                restore_fields(&other.kind.root, object, &mut converted);
            }
            converted
        };
        managed::ConversionResult::Converted {
            ty: other.kind.root.clone(),
            live: live.map(there),
            new: there(new),
        }
    }
}

/// Puts back what a conversion has dropped from a custom resource: nulls, and the content of values that are compared as a
/// whole.
fn restore_fields(ty: &Type, from: &Value, to: &mut Value) {
    let (Value::Map(from), Value::Map(to)) = (from, to) else { return };
    for (key, value) in from.iter() {
        if let Some((_, field)) = ty.field(key).filter(|(_, field)| !is_metadata(&field.name)) {
            restore_entry(&field.shape, key, value, to);
        }
    }
}

fn is_metadata(field: &str) -> bool {
    matches!(field, "apiVersion" | "kind" | "metadata")
}

fn restore_entry(shape: &Shape, key: &str, value: &Value, to: &mut Map) {
    match to.get_mut(key) {
        Some(inner) => restore(shape, value, inner),
        None if value.is_null() => drop(to.insert(key.to_owned(), Value::Null)),
        None => {}
    }
}

fn restore(shape: &Shape, from: &Value, to: &mut Value) {
    match (shape, from) {
        (Shape::Struct(ty), _) if ty.loose && !ty.atomic => restore_fields(ty, from, to),
        (Shape::Map(map), Value::Map(entries)) if !map.atomic => {
            if let Value::Map(to) = to {
                entries.iter().for_each(|(key, value)| restore_entry(&map.value, key, value, to));
            }
        }
        (Shape::Struct(Ref::Static(_)), _) | (Shape::Scalar(_), _) => {}
        (Shape::List(list), _) if list.kind != ListKind::Atomic => {}
        _ => *to = from.clone(),
    }
}
