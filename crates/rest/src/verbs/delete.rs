//! Delete: at once, after a grace period, or when the last finalizer is gone.

use crate::model::context::{Context, Requester};
use crate::model::error::ApiError;
use crate::model::hooks::DeleteHooks;
use crate::model::metadata::{FOREGROUND, ORPHAN};
use crate::model::object::Object;
use crate::model::operation::Operation;
use crate::model::options::{DeleteOptions, Propagation};
use crate::pipeline::api::{AdmissionAttributes, Api, ReinvocationContext, RequestOptions};
use crate::pipeline::commit::store_error;
use crate::pipeline::request::ATTEMPTS;
use crate::storage::resource::Resource;
use bytes::Bytes;
use schema::{Value, encode, time};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use store::{Expect, Revision, StoreError};

/// The result of a delete.
pub enum DeleteOutcome {
    /// The object is removed; the response is a `Status` about it.
    Gone { uid: String },
    /// The response is the object, removed or terminating.
    Object { json: Bytes, gone: bool },
}

/// The effect of a delete.
#[derive(Debug, PartialEq)]
enum Step {
    /// None: it is terminating already.
    Pending,
    /// Remove it now.
    Remove,
    /// Keep it, marked as the next state says.
    Mark(Value),
    /// Mark it so that watchers see it go, then remove it.
    MarkAndRemove(Value),
}

/// Marks an object whose deletion begins.
pub(crate) type Mark = fn(&mut Value, &Context<'_>);

/// The step with the mark on an object that stays.
fn marked(step: Step, object: &Value, mark: impl FnOnce(&mut Value)) -> Step {
    match step {
        Step::Mark(mut next) => {
            mark(&mut next);
            Step::Mark(next)
        }
        Step::Pending => {
            let mut next = object.clone();
            mark(&mut next);
            if next == *object { Step::Pending } else { Step::Mark(next) }
        }
        gone => gone,
    }
}

impl Api {
    pub async fn delete(
        &self,
        resource: &Arc<Resource>,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
        user: &Requester,
    ) -> Result<DeleteOutcome, ApiError> {
        self.delete_marked(resource, namespace, name, options, user, None).await
    }

    /// Deletes one object of a collection: the request does not name it.
    pub(crate) async fn delete_unnamed(
        &self,
        resource: &Arc<Resource>,
        (namespace, name): (&str, &str),
        options: &DeleteOptions,
        user: &Requester,
    ) -> Result<DeleteOutcome, ApiError> {
        self.delete_named(resource, (namespace, name), "", options, user, None).await
    }

    /// Deletes an object; one that stays for its grace period or finalizers is marked.
    pub(crate) async fn delete_marked(
        &self,
        resource: &Arc<Resource>,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
        user: &Requester,
        mark: Option<Mark>,
    ) -> Result<DeleteOutcome, ApiError> {
        self.delete_named(resource, (namespace, name), name, options, user, mark).await
    }

    async fn delete_named(
        &self,
        resource: &Arc<Resource>,
        (namespace, name): (&str, &str),
        request_name: &str,
        options: &DeleteOptions,
        user: &Requester,
        mark: Option<Mark>,
    ) -> Result<DeleteOutcome, ApiError> {
        for _ in 0..ATTEMPTS {
            let current = resource.collection.cache.get(namespace, name);
            let current = current.ok_or_else(|| ApiError::not_found(resource.subject(name)))?;
            if let Some(deleted) =
                self.delete_once(resource, (&current, request_name), options, user, mark).await?
            {
                return Ok(deleted);
            }
        }
        Err(ApiError::modified(resource.subject(name)))
    }

    /// One attempt; `None` when another write was committed first.
    async fn delete_once(
        &self,
        resource: &Arc<Resource>,
        (current, request_name): (&Arc<Object>, &str),
        options: &DeleteOptions,
        user: &Requester,
        mark: Option<Mark>,
    ) -> Result<Option<DeleteOutcome>, ApiError> {
        resource.ready(std::slice::from_ref(current)).await?;
        let object = resource.tree(current)?;
        check_preconditions(resource, current, &object, options)?;
        // a terminating object that is held by more than finalizers needs no second admission
        let deleting = !object.text(&["metadata", "deletionTimestamp"]).is_empty();
        if deleting && mark.is_none() && resource.hooks.delete.holds.is_some_and(|holds| holds(&object)) {
            return Ok(Some(DeleteOutcome::Object { json: resource.json(current), gone: false }));
        }
        // an action has passed admission already
        if mark.is_none() {
            self.admit_deletion(resource, (current, request_name), &object, options, user).await?;
        }
        let step = self.with_context(user, |context| {
            if let Some(check) = resource.hooks.delete.check {
                check(&object, context)?;
            }
            let mut step = next_step(resource, object.clone(), options, context.now);
            if let (Step::Mark(next) | Step::MarkAndRemove(next), Some(begin)) =
                (&mut step, resource.hooks.delete.begin)
            {
                begin(next, context);
            }
            if let Some(mark) = mark {
                step = marked(step, &object, |next| mark(next, context));
            }
            Ok::<_, ApiError>(step)
        })?;
        match step {
            Step::Pending => Ok(Some(DeleteOutcome::Object { json: resource.json(current), gone: false })),
            Step::Remove => self.remove(resource, current, object, options).await,
            Step::Mark(next) => self.mark(resource, current, next, options).await,
            Step::MarkAndRemove(next) if options.dry_run => {
                self.remove(resource, current, next, options).await
            }
            Step::MarkAndRemove(next) => match self.put_marked(resource, current, &next).await? {
                Some(marked) => {
                    let mut last = next;
                    last.set(&["metadata", "resourceVersion"], marked.revision.to_string());
                    let removed = self.remove(resource, &marked, last.clone(), options).await?;
                    // another delete may have removed the marked object first
                    let cache = &resource.collection.cache;
                    let is_gone = || cache.get(&marked.namespace, &marked.name).is_none();
                    Ok(removed.or_else(|| is_gone().then(|| gone(resource, &last))))
                }
                None => Ok(None),
            },
        }
    }

    async fn admit_deletion(
        &self,
        resource: &Resource,
        (current, request_name): (&Arc<Object>, &str),
        object: &Value,
        options: &DeleteOptions,
        user: &Requester,
    ) -> Result<(), ApiError> {
        // a kind that begins its deletion itself names the uid as a precondition
        let mut formatted = Cow::Borrowed(options);
        if resource.hooks.delete.begin.is_some() && options.uid.is_none() {
            formatted.to_mut().uid = Some(object.text(&["metadata", "uid"]).to_owned());
        }
        let write = AdmissionAttributes {
            resource,
            operation: Operation::Delete,
            namespace: &current.namespace,
            name: &current.name,
            request_name,
            subresource: "",
            user,
            dry_run: options.dry_run,
            api: self,
            other: None,
            options: RequestOptions::Delete(&formatted),
            reinvocation: ReinvocationContext::default(),
        };
        self.mutate(&write, None, Some(object)).await?;
        self.validate(&write, &Value::Null, Some(object)).await
    }

    async fn remove(
        &self,
        resource: &Resource,
        current: &Object,
        mut object: Value,
        options: &DeleteOptions,
    ) -> Result<Option<DeleteOutcome>, ApiError> {
        if !options.dry_run {
            match self.remove_stored(resource, current, &object).await {
                // the last state has the revision of the removal
                Ok(revision) => object.set(&["metadata", "resourceVersion"], revision.0.to_string()),
                Err(StoreError::Conflict { .. }) => return Ok(None),
                Err(why) => return Err(store_error(why)),
            }
        }
        Ok(Some(gone(resource, &object)))
    }

    async fn mark(
        &self,
        resource: &Resource,
        current: &Object,
        next: Value,
        options: &DeleteOptions,
    ) -> Result<Option<DeleteOutcome>, ApiError> {
        if options.dry_run {
            return Ok(Some(DeleteOutcome::Object {
                json: encode::json(&next, &resource.kind.root).into(),
                gone: false,
            }));
        }
        let marked = self.put_marked(resource, current, &next).await?;
        Ok(marked.map(|object| DeleteOutcome::Object { json: resource.json(&object), gone: false }))
    }

    /// Stores the marked state; `None` when another write was committed first.
    async fn put_marked(
        &self,
        resource: &Resource,
        current: &Object,
        next: &Value,
    ) -> Result<Option<Arc<Object>>, ApiError> {
        let expect = Expect::Revision(Revision(current.revision));
        let next = resource.converted_for_store(next.clone()).await?;
        match self.put(resource, next, None, expect).await {
            Ok(object) => {
                resource.ready(std::slice::from_ref(&object)).await?;
                Ok(Some(object))
            }
            Err(StoreError::Conflict { .. }) => Ok(None),
            Err(why) => Err(store_error(why)),
        }
    }
}

fn check_preconditions(
    resource: &Resource,
    current: &Object,
    object: &Value,
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    let subject = resource.stored_subject(&current.name);
    let uid = object.text(&["metadata", "uid"]);
    if resource.hooks.delete.begin.is_some() {
        return check_as_update(resource, current, uid, options);
    }
    if let Some(named) = options.uid.as_deref().filter(|named| *named != uid) {
        return Err(ApiError::conflict(
            subject,
            &format!(
                "the UID in the precondition ({named}) does not match the UID in record ({uid}). The object might have been \
                 deleted and then recreated"
            ),
        ));
    }
    let revision = current.revision;
    if let Some(named) = options.resource_version.as_deref().filter(|named| named.parse() != Ok(revision)) {
        return Err(ApiError::conflict(
            subject,
            &format!(
                "the ResourceVersion in the precondition ({named}) does not match the ResourceVersion in record ({revision}). \
                 The object might have been modified"
            ),
        ));
    }
    Ok(())
}

/// Checks the preconditions of a kind whose deletion begins with an update: its errors are those of an update.
fn check_as_update(
    resource: &Resource,
    current: &Object,
    uid: &str,
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    let differs = |what: &str, named: &str, is: &str| {
        let why =
            format!("Precondition failed: {what} in precondition: {named}, {what} in object meta: {is}");
        Err(ApiError::conflict(resource.subject(&current.name), &why))
    };
    let revision = current.revision.to_string();
    match (options.uid.as_deref(), options.resource_version.as_deref()) {
        (Some(named), _) if named != uid => differs("UID", named, uid),
        (_, Some(named)) if named != revision => differs("ResourceVersion", named, &revision),
        _ => Ok(()),
    }
}

/// The next step of a deletion: a pure function of the object, the request and the time.
fn next_step(resource: &Resource, mut object: Value, options: &DeleteOptions, now: i64) -> Step {
    let requested = options.grace_period_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
    let deleting = !object.text(&["metadata", "deletionTimestamp"]).is_empty();
    let mut graceful = None;
    if let Some(grace) = resource.hooks.delete.grace {
        if deleting {
            let Some(given) = object.at(&["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_int)
            else {
                return Step::Remove;
            };
            match requested {
                // a second request may only shorten the time
                Some(seconds) if seconds < given => {
                    let end = time::to_unix(object.text(&["metadata", "deletionTimestamp"])).unwrap_or(now);
                    object.set(&["metadata", "deletionTimestamp"], time::format_time(end - given + seconds));
                    object.set(&["metadata", "deletionGracePeriodSeconds"], seconds);
                    graceful = Some(seconds);
                }
                _ if given > 0 => return Step::Pending,
                _ => {}
            }
        } else {
            let seconds = grace(&object, requested);
            object.set(&["metadata", "deletionTimestamp"], time::format_time(now + seconds));
            object.set(&["metadata", "deletionGracePeriodSeconds"], seconds);
            bump_generation(&mut object);
            graceful = Some(seconds);
        }
    }
    let begins_alone = resource.hooks.delete.begins_alone && !deleting;
    let changed = !resource.hooks.delete.uncollected
        && !begins_alone
        && adjust_finalizers(&mut object, options, &resource.hooks.delete);
    let finalizers = !object.items(&["metadata", "finalizers"]).is_empty();
    let held = finalizers || resource.hooks.delete.holds.is_some_and(|holds| holds(&object));
    if graceful.is_some_and(|seconds| seconds > 0) {
        return Step::Mark(object);
    }
    if !held && !deleting && resource.hooks.delete.begin.is_some() {
        object.set(&["metadata", "deletionTimestamp"], time::format_time(now));
        return Step::MarkAndRemove(object);
    }
    if !held {
        return if graceful.is_some() { Step::MarkAndRemove(object) } else { Step::Remove };
    }
    if deleting && !changed && graceful.is_none() {
        return Step::Pending;
    }
    if !deleting && graceful.is_none() {
        object.set(&["metadata", "deletionTimestamp"], time::format_time(now));
        if resource.hooks.delete.begin.is_none() {
            bump_generation(&mut object);
        }
    }
    // a kind that begins its deletion itself has no grace period
    if resource.hooks.delete.begin.is_none() {
        object.set(&["metadata", "deletionGracePeriodSeconds"], 0);
    }
    Step::Mark(object)
}

/// The result of a removal.
fn gone(resource: &Resource, object: &Value) -> DeleteOutcome {
    if resource.hooks.delete.returns_object {
        let json = encode::json(object, &resource.kind.root).into();
        return DeleteOutcome::Object { json, gone: true };
    }
    DeleteOutcome::Gone { uid: object.text(&["metadata", "uid"]).to_owned() }
}

fn bump_generation(object: &mut Value) {
    let generation = object.at(&["metadata", "generation"]).and_then(Value::as_int).unwrap_or(0);
    if generation > 0 {
        object.set(&["metadata", "generation"], generation + 1);
    }
}

/// Records the propagation policy as the finalizers that the garbage collector acts on.
fn adjust_finalizers(object: &mut Value, options: &DeleteOptions, hooks: &DeleteHooks) -> bool {
    let before: Vec<Value> = object.items(&["metadata", "finalizers"]).to_vec();
    let had = |name: &str| before.iter().any(|one| one.as_str() == Some(name));
    let (orphan, foreground) = match (options.orphan_dependents, options.propagation) {
        (Some(orphan), _) => (orphan, !orphan && hooks.waits_for_dependents),
        (None, Some(policy)) => (policy == Propagation::Orphan, policy == Propagation::Foreground),
        (None, None) => (had(ORPHAN) || hooks.orphans_dependents && !had(FOREGROUND), had(FOREGROUND)),
    };
    let mut after: Vec<Value> =
        before.iter().filter(|one| !matches!(one.as_str(), Some(ORPHAN | FOREGROUND))).cloned().collect();
    for (wanted, name) in [(orphan, ORPHAN), (foreground, FOREGROUND)] {
        if wanted {
            after.push(name.into());
        }
    }
    // a finalizer that is there twice counts once
    let set = |finalizers: &[Value]| -> BTreeSet<String> {
        finalizers.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    if set(&before) == set(&after) {
        return false;
    }
    if after.is_empty() {
        object.unset(&["metadata", "finalizers"]);
    } else {
        object.set(&["metadata", "finalizers"], after);
    }
    true
}
