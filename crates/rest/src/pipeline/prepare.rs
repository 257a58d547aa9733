//! Stage: the fields that the server and the kind decide, before and after validation.

use crate::model::context::Context;
use crate::model::error::ApiError;
use crate::model::metadata;
use crate::model::reserve::{Reservation, ReserveRequest};
use crate::pipeline::api::Api;
use crate::pipeline::request::Write;
use merge::managed;
use schema::{Value, decode};

/// Completes the object for validation, and allocates the values that it holds.
pub(crate) fn before_validation(
    api: &Api,
    write: &mut Write<'_, '_>,
    context: &Context<'_>,
) -> Result<Option<Reservation>, ApiError> {
    let resource = write.resource();
    let Some(old) = write.old() else { return prepare_new(api, write, context) };
    let mut reservation = None;
    if write.part.is_none() {
        reservation = reserve(api, write, context)?;
        if let Some(prepare) = resource.hooks.update.prepare {
            prepare(&mut write.object, old, context);
        }
        let differs = resource.hooks.update.changes_generation.unwrap_or(content_differs);
        if resource.kind.counts_generation && differs(&write.object, old) {
            let generation = old.at(&["metadata", "generation"]).and_then(Value::as_int).unwrap_or(0);
            write.object.set(&["metadata", "generation"], generation + 1);
        }
    }
    // the version has been compared; validation sees the stored one
    write.object.set(&["metadata", "resourceVersion"], old.text(&["metadata", "resourceVersion"]));
    Ok(reservation)
}

fn prepare_new(
    api: &Api,
    write: &mut Write<'_, '_>,
    context: &Context<'_>,
) -> Result<Option<Reservation>, ApiError> {
    let (resource, object) = (write.resource(), &mut write.object);
    metadata::stamp_new(object, &api.world);
    if let Some(prepare) = resource.hooks.create.prepare {
        prepare(object, context);
    }
    if resource.kind.counts_generation {
        object.set(&["metadata", "generation"], 1);
    }
    if resource.hooks.create.generates_name && object.text(&["metadata", "name"]).is_empty() {
        object.set(&["metadata", "name"], metadata::new_uid(&api.world));
    }
    reserve(api, write, context)
}

fn reserve(
    api: &Api,
    write: &mut Write<'_, '_>,
    context: &Context<'_>,
) -> Result<Option<Reservation>, ApiError> {
    let Some(reserve) = &write.resource().hooks.write.reserve else { return Ok(None) };
    let request = ReserveRequest { dry_run: write.request.options.dry_run, world: &api.world, context };
    reserve.reserve(&mut write.object, write.base.map(|base| &base.tree), &request).map(Some)
}

/// Completes a valid object, and collects its warnings.
pub(crate) fn after_validation(write: &mut Write<'_, '_>) {
    let resource = write.resource();
    if write.request.owned || write.view.is_some() {
        prune(write);
    }
    let old = write.old();
    match old {
        None => {
            if let Some(complete) = resource.hooks.create.complete {
                complete(&mut write.object);
            }
        }
        // as for other writes before (`mutate`); an applied object and that of a view are complete only now
        Some(old) if (write.request.owned || write.view.is_some()) && !write.applies_server_fields => {
            managed::keep_times(old, &mut write.object);
        }
        Some(_) => {}
    }
    if let (Some(warn), None) = (resource.hooks.write.warn, write.part) {
        write.request.warnings.extend(warn(&write.object, old));
    }
}

/// Removes fields that a read of a custom resource would not show: unknown fields, and null where it is no value.
/// Bodies are decoded without these; only an apply and a view can add them.
fn prune(write: &mut Write<'_, '_>) {
    let table = &write.resource().kind.root;
    if table.loose
        && let Ok(read) = decode::tree(write.object.clone(), table)
    {
        write.object = read.value;
    }
}

/// Whether anything but metadata and status differs.
fn content_differs(next: &Value, old: &Value) -> bool {
    let (Value::Map(next), Value::Map(old)) = (next, old) else { return true };
    let content = |key: &str| !matches!(key, "metadata" | "status" | "kind" | "apiVersion");
    !next.iter().filter(|(key, _)| content(key)).eq(old.iter().filter(|(key, _)| content(key)))
}
