//! Stage: the compare-and-set at the store, and the response.

use crate::model::error::ApiError;
use crate::model::object::{Draft, Object};
use crate::model::request_record::Step;
use crate::model::reserve::Reservation;
use crate::model::versions::CustomVersions;
use crate::pipeline::api::Api;
use crate::pipeline::request::{Base, Write, WriteError, WriteOutcome, WriteRequest};
use crate::storage::resource::Resource;
use schema::Value;
use std::sync::Arc;
use store::{Expect, Revision, StoreError};

/// Why a new object cannot be stored.
pub(crate) enum Obstacle {
    /// An object of the name exists.
    Exists,
    /// It names a version. A dry run ignores this.
    Versioned,
    Both,
}

/// Finds the obstacle to a new object. The next state of an object has none.
pub(crate) fn obstacle(write: &Write<'_, '_>) -> Option<Obstacle> {
    if write.base.is_some() {
        return None;
    }
    let name = write.object.text(&["metadata", "name"]);
    let exists = write.resource().collection.cache.get(write.request.namespace, name).is_some();
    // text that is no number is ignored
    let version = write.object.text(&["metadata", "resourceVersion"]).parse::<u64>();
    match (exists, version.is_ok_and(|version| version > 0)) {
        (false, false) => None,
        (true, false) => Some(Obstacle::Exists),
        (false, true) => Some(Obstacle::Versioned),
        (true, true) => Some(Obstacle::Both),
    }
}

/// Stores a new object.
pub(crate) async fn create(
    api: &Api,
    write: Write<'_, '_>,
    obstacle: Option<Obstacle>,
    reservation: Option<Reservation>,
) -> Result<WriteOutcome, WriteError> {
    let (resource, Write { request, mut object, .. }) = (write.resource(), write);
    let dry_run = request.options.dry_run;
    if !dry_run && matches!(obstacle, Some(Obstacle::Versioned | Obstacle::Both)) {
        let why = "resourceVersion should not be set on objects to be created";
        return Err(ApiError::internal(why).into());
    }
    if matches!(obstacle, Some(Obstacle::Exists | Obstacle::Both)) {
        return Err(already_exists(request, object.text(&["metadata", "name"]), is_generated(&object)).into());
    }
    if dry_run {
        return Ok(WriteOutcome { created: true, json: request.encode(&object), revision: None });
    }
    object.set(&["metadata", "resourceVersion"], "");
    let (name, generated) = (object.text(&["metadata", "name"]).to_owned(), is_generated(&object));
    let object = resource.converted_for_store(object).await?;
    match api.commit(request, object, reservation, Expect::Absent).await {
        Ok(stored) => {
            resource.ready(std::slice::from_ref(&stored)).await?;
            let (json, revision) = (resource.json(&stored), Some(stored.revision));
            Ok(WriteOutcome { created: true, json, revision })
        }
        Err(StoreError::Conflict { key, .. }) => {
            match key == resource.collection.key(request.namespace, &name) {
                true => Err(already_exists(request, &name, generated).into()),
                // a value that it reserves was allocated by another process
                false => Err(WriteError::Conflict),
            }
        }
        Err(why) => Err(store_error(why).into()),
    }
}

fn is_generated(object: &Value) -> bool {
    !object.text(&["metadata", "generateName"]).is_empty()
}

/// The error of a new object whose name is taken.
fn already_exists(request: &WriteRequest<'_>, name: &str, generated: bool) -> ApiError {
    let resource = request.resource;
    let subject = resource.subject(name);
    let mut error = match generated {
        true => ApiError::generate_name_conflict(subject),
        false => ApiError::already_exists(subject),
    };
    let existing = resource.collection.cache.get(request.namespace, name);
    let existing = existing.and_then(|it| resource.tree(&it).ok()).unwrap_or_default();
    if !existing.text(&["metadata", "deletionTimestamp"]).is_empty() {
        error.message = format!("object is being deleted: {}", error.message);
    }
    error
}

/// Stores the next state of an object, or removes it if it was deleted and has lost its last finalizer.
pub(crate) async fn update(
    api: &Api,
    write: Write<'_, '_>,
    base: &Base,
    reservation: Option<Reservation>,
) -> Result<WriteOutcome, WriteError> {
    let (resource, Write { request, view, object, .. }) = (write.resource(), write);
    let Base { stored: current, tree: old } = base;
    let outcome = |stored: &Object| {
        let json = match view {
            None => resource.json(stored),
            Some((view, served)) => view.json(&resource.tree(stored)?, served.form()),
        };
        Ok(WriteOutcome { created: false, json, revision: Some(stored.revision) })
    };
    if request.options.dry_run {
        return Ok(WriteOutcome { created: false, json: request.encode(&object), revision: None });
    }
    if resource.stores_same(&object, old) && resource.is_current(current) {
        // a value that the store would keep in another form now is written nevertheless
        let key = resource.collection.key(&current.namespace, &current.name);
        if !api.storage.store.is_stale(&key) {
            return outcome(current);
        }
    }
    let failure = if is_last_update(resource, &object, old) {
        let json = request.encode(&object);
        match api.remove_stored(resource, current, old).await {
            Ok(_) => return Ok(WriteOutcome { created: false, json, revision: None }),
            Err(why) => why,
        }
    } else {
        let expect = Expect::Revision(Revision(current.revision));
        let object = resource.converted_for_store(object).await?;
        match api.commit(request, object, reservation, expect).await {
            Ok(stored) => {
                resource.ready(std::slice::from_ref(&stored)).await?;
                return outcome(&stored);
            }
            Err(why) => why,
        }
    };
    match failure {
        // the next attempt reports a conflict to a client that named a version
        StoreError::Conflict { .. } => Err(WriteError::Conflict),
        other => Err(store_error(other).into()),
    }
}

/// Whether an update removes the last finalizer of a deleted object.
fn is_last_update(resource: &Resource, next: &Value, old: &Value) -> bool {
    let left = old.at(&["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_int).unwrap_or(0);
    let waiting = left == 0 && !old.text(&["metadata", "deletionTimestamp"]).is_empty();
    let held = resource.hooks.delete.holds.is_some_and(|holds| holds(next));
    waiting && !held && next.items(&["metadata", "finalizers"]).is_empty()
}

impl Api {
    /// Stores a state; returns it as published.
    pub(crate) async fn commit(
        &self,
        request: &WriteRequest<'_>,
        object: Value,
        reservation: Option<Reservation>,
        expect: Expect,
    ) -> Result<Arc<Object>, StoreError> {
        let stored = self.put(request.resource, object, reservation, expect).await;
        request.user.record.reached(Step::Stored, self.world.elapsed());
        stored
    }

    /// Stores a state in the stored version, with the lifetime of its kind.
    pub(crate) async fn put(
        &self,
        resource: &Resource,
        object: Value,
        reservation: Option<Reservation>,
        expect: Expect,
    ) -> Result<Arc<Object>, StoreError> {
        let (collection, hooks) = (&resource.collection, &resource.hooks.storage);
        // an object that is written in the stored version is its own form, unless a read adds the default of the
        // status that a new object cannot have
        let own =
            |fit: &&CustomVersions| fit.stored == resource.api_version && !resource.lacks_default(&object);
        let form = hooks.custom_versions.as_ref().filter(own);
        let form = form.map_or(0, |fit| fit.form);
        let stored = resource.as_stored(object);
        let mut draft = Draft::new(&stored, collection.index(), hooks.empty_lists(), form);
        draft.reservation = reservation;
        let expires = match (resource.kind.expires, hooks.lifetime_seconds) {
            (true, Some(seconds)) => Some(env::unix_seconds(&self.world) + seconds),
            _ => None,
        };
        self.storage.put(collection, draft, expect, expires).await
    }

    /// Removes an object in its last state, and frees the values that it held.
    pub(crate) async fn remove_stored(
        &self,
        resource: &Resource,
        current: &Object,
        last: &Value,
    ) -> Result<Revision, StoreError> {
        let held = resource.hooks.write.reserve.as_ref().map(|reserve| reserve.release(last));
        self.storage.delete(&resource.collection, current, held).await
    }
}

/// The API error of a failed write to the store.
pub fn store_error(why: StoreError) -> ApiError {
    match why {
        // the store has logged a full disk once; a line for each write would fill the log
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
