//! Update: the next state of an object, whole or of a part of it.

use crate::model::error::{ApiError, Subject};
use crate::pipeline::api::Api;
use crate::pipeline::decode::Input;
use crate::pipeline::request::{ATTEMPTS, Base, UpdateFn, WriteError, WriteOutcome, WriteRequest};
use crate::pipeline::validate::parse_version;
use schema::Value;

impl Api {
    /// PUT: the body is the next state.
    pub async fn update(
        &self,
        request: &mut WriteRequest<'_>,
        input: &Input,
    ) -> Result<WriteOutcome, ApiError> {
        let resource = request.resource;
        let mut body = self.decode(request, input)?;
        request.place(&mut body)?;
        check_name(&body, request.name)?;
        // duplicate owners are reported even where the object does not exist
        request.dedup_owners(&mut body, true);
        let exists = resource.collection.cache.get(request.namespace, request.name).is_some();
        let uid = body.text(&["metadata", "uid"]);
        if !exists && !uid.is_empty() && resource.view(request.subresource).is_none() {
            return Err(uid_conflict(
                &storage_key(request, request.name),
                resource.subject(request.name),
                uid,
                "",
            ));
        }
        if !exists && resource.kind.put_creates && request.subresource.is_empty() {
            clear_version(&mut body, request)?;
            return self.create_object(request, body).await;
        }
        let key = storage_key(request, request.name);
        self.replace(request, &move |old, _| {
            let (named, uid) = (body.text(&["metadata", "uid"]), old.text(&["metadata", "uid"]));
            if !named.is_empty() && named != uid {
                return Err(uid_conflict(
                    &key,
                    resource.subject(old.text(&["metadata", "name"])),
                    named,
                    uid,
                ));
            }
            Ok(body.clone())
        })
        .await
    }

    /// Changes an object in place. `change` may run more than once, on the results of other writes; a caller that
    /// requires the state that it has seen sets the version.
    pub async fn alter(
        &self,
        request: &mut WriteRequest<'_>,
        change: &(dyn Fn(&mut Value) + Send + Sync),
    ) -> Result<WriteOutcome, ApiError> {
        self.replace(request, &|old, _| {
            let mut next = old.clone();
            change(&mut next);
            Ok(next)
        })
        .await
    }

    /// Replaces an object by its next state, and tries again when another write is committed first.
    pub(crate) async fn replace(
        &self,
        request: &mut WriteRequest<'_>,
        next: &UpdateFn<'_>,
    ) -> Result<WriteOutcome, ApiError> {
        let resource = request.resource;
        let view = request.view();
        let warned = request.warnings.len();
        for _ in 0..ATTEMPTS {
            request.warnings.truncate(warned);
            let stored = resource.collection.cache.get(request.namespace, request.name);
            let stored = stored.ok_or_else(|| ApiError::not_found(resource.subject(request.name)))?;
            resource.ready(std::slice::from_ref(&stored)).await?;
            let base = Base { tree: resource.tree(&stored)?, stored };
            let object = match view {
                None => next(&base.tree, &mut request.warnings)?,
                Some(view) => self.through(request, view, &base.tree, next).await?,
            };
            match self.write(request, Some(&base), object).await {
                Err(WriteError::Conflict) => {}
                Err(WriteError::Api(why)) => return Err(why),
                Ok(outcome) => return Ok(outcome),
            }
        }
        Err(ApiError::modified(resource.subject(request.name)))
    }
}

/// Checks that the object has the name of the URL.
pub(crate) fn check_name(object: &Value, url: &str) -> Result<(), ApiError> {
    match object.text(&["metadata", "name"]) {
        "" => Err(ApiError::bad_request(format!(
            "the name of the object ({url} based on URL) was undeterminable: name must be provided"
        ))),
        name if name != url => Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({url})"
        ))),
        _ => Ok(()),
    }
}

/// Checks that the object is in the namespace of the request, if it names one.
pub(crate) fn check_namespace(object: &Value, namespace: &str) -> Result<(), ApiError> {
    let given = object.text(&["metadata", "namespace"]);
    if given.is_empty() || given == namespace { Ok(()) } else { Err(ApiError::wrong_namespace()) }
}

/// Clears the version of an object that an update or apply creates; a dry run shows it.
pub(crate) fn clear_version(object: &mut Value, request: &WriteRequest<'_>) -> Result<(), ApiError> {
    let version = object.text(&["metadata", "resourceVersion"]);
    if !version.is_empty() {
        parse_version(version)?;
    }
    if !request.options.dry_run {
        object.unset(&["metadata", "resourceVersion"]);
    }
    Ok(())
}

/// The key of an object as errors about preconditions show it: a dry run does not know the prefix of the store.
pub(crate) fn storage_key(request: &WriteRequest<'_>, name: &str) -> String {
    let key = request.resource.collection.key(request.namespace, name);
    match key.strip_prefix("/registry") {
        Some(below) if request.options.dry_run => below.to_owned(),
        _ => key.to_string(),
    }
}

fn uid_conflict(key: &str, subject: Subject<'_>, named: &str, uid: &str) -> ApiError {
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: \
         UID in precondition: {named}, UID in object meta: {uid}"
    );
    ApiError::conflict(subject, &why)
}
