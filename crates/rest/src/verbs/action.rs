//! Action: a post to a subresource that changes its object, such as a binding, or removes it, such as an eviction.

use crate::model::context::Context;
use crate::model::error::ApiError;
use crate::model::form::Form;
use crate::model::hooks::{ActionEffect, ActionHooks, ActionTarget};
use crate::model::metadata;
use crate::model::object::Object;
use crate::model::operation::Operation;
use crate::pipeline::api::AdmissionAttributes;
use crate::pipeline::api::Api;
use crate::pipeline::commit::store_error;
use crate::pipeline::decode::{ExpectedKind, Input};
use crate::pipeline::request::{ATTEMPTS, WriteRequest};
use crate::verbs::update::storage_key;
use schema::Value;
use store::{Expect, Revision, StoreError};

impl Api {
    /// Performs an action. The managed fields of the object do not change.
    pub async fn act(
        &self,
        request: &mut WriteRequest<'_>,
        action: &ActionHooks,
        input: &Input,
    ) -> Result<(), ApiError> {
        let Some(ty) = (action.body)() else { return Err(ApiError::no_such_path()) };
        let (kind, api_version) = (action.kind, version_of(action, input));
        let expected = ExpectedKind { ty, kind, api_version, registry: None, any_kind: false };
        let mut body = input.typed(&expected, request.options.field_validation, &mut request.warnings)?;
        request.user.record.record_object(&body, || schema::encode::json(&body, ty).into());
        check_name(&body, action, request)?;
        request.place(&mut body)?;
        request.dedup_owners(&mut body, true);
        // admission sees the first version of the body
        let form = Form { kind, api_version: action.api_version, ty };
        body.set(&["apiVersion"], form.api_version);
        self.track_as(request, request.resource, (ty, form.api_version), None, &mut body);
        let write = AdmissionAttributes {
            other: Some(form),
            ..request.attributes(self, Operation::Create, request.name)
        };
        self.mutate(&write, Some(&mut body), None).await?;
        (action.check)(&body)?;
        self.validate(&write, &body, None).await?;
        self.carry_out(request, action, &body).await
    }

    /// Performs a creation that is an action on the object of the same name in another resource. Admission sees the
    /// creation.
    pub async fn act_elsewhere(
        &self,
        request: &mut WriteRequest<'_>,
        there: ActionTarget,
        input: &Input,
    ) -> Result<(), ApiError> {
        let resources = self.resources();
        let resource = resources.get(&request.resource.api_version, there.plural);
        let resource = resource.ok_or_else(ApiError::no_such_path)?;
        let action = resource.hooks.subresources.actions.iter().find(|one| one.name == there.action);
        let action = action.ok_or_else(ApiError::method_not_allowed)?;
        let mut body = self.decode(request, input)?;
        // a new object has no identity
        metadata::clear_server_fields(&mut body);
        body.unset(&["metadata", "resourceVersion"]);
        request.place(&mut body)?;
        request.dedup_owners(&mut body, true);
        self.track(request, None, &mut body);
        let name = body.text(&["metadata", "name"]).to_owned();
        let write = request.attributes(self, Operation::Create, &name);
        self.mutate(&write, Some(&mut body), None).await?;
        (there.check)(&body)?;
        metadata::check_name_parameter(&name)?;
        self.validate(&write, &body, None).await?;
        let there = WriteRequest {
            resource,
            name: &name,
            subresource: action.name,
            warnings: Vec::new(),
            ..*request
        };
        self.carry_out(&there, action, &body).await
    }

    async fn carry_out(
        &self,
        request: &WriteRequest<'_>,
        action: &ActionHooks,
        body: &Value,
    ) -> Result<(), ApiError> {
        match &action.effect {
            ActionEffect::Change(change) => self.change(request, *change, body).await,
            ActionEffect::Delete(deletion) => self.budgeted_delete(request, deletion, body).await,
        }
    }

    async fn change(
        &self,
        request: &WriteRequest<'_>,
        change: fn(&mut Value, &Value, &Context<'_>) -> Result<(), ApiError>,
        body: &Value,
    ) -> Result<(), ApiError> {
        let resource = request.resource;
        for _ in 0..ATTEMPTS {
            let current = resource.collection.cache.get(request.namespace, request.name);
            let current = current.ok_or_else(|| ApiError::not_found(resource.subject(request.name)))?;
            let old = resource.tree(&current)?;
            check_preconditions(request, body, &old, &current)?;
            let mut next = old.clone();
            self.with_context(request.user, |context| change(&mut next, body, context))?;
            if request.options.dry_run || next == old {
                return Ok(());
            }
            match self.commit(request, next, None, Expect::Revision(Revision(current.revision))).await {
                Ok(_) => return Ok(()),
                Err(StoreError::Conflict { .. }) => {}
                Err(why) => return Err(store_error(why)),
            }
        }
        Err(ApiError::modified(resource.subject(request.name)))
    }
}

/// Checks the uid and the version that a body names.
fn check_preconditions(
    request: &WriteRequest<'_>,
    body: &Value,
    old: &Value,
    current: &Object,
) -> Result<(), ApiError> {
    let uid = old.text(&["metadata", "uid"]);
    let revision = current.revision.to_string();
    let preconditions = [("UID", "uid", uid), ("ResourceVersion", "resourceVersion", &*revision)];
    for (what, field, is) in preconditions {
        let wanted = body.text(&["metadata", field]);
        if !wanted.is_empty() && wanted != is {
            let key = storage_key(request, &current.name);
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
                 failed: {what} in precondition: {wanted}, {what} in object meta: {is}"
            );
            return Err(ApiError::conflict(request.resource.subject(&current.name), &why));
        }
    }
    Ok(())
}

/// The version of the body, if the action accepts it; otherwise the action's own.
fn version_of<'a>(action: &'a ActionHooks, input: &Input) -> &'a str {
    let given = match action.other_versions {
        [] => None,
        _ => input.api_version(),
    };
    let other = action.other_versions.iter().find(|one| Some(**one) == given.as_deref());
    other.copied().unwrap_or(action.api_version)
}

/// Checks that the body has the namespace and the name of the object.
fn check_name(body: &Value, action: &ActionHooks, request: &WriteRequest<'_>) -> Result<(), ApiError> {
    let namespace = body.text(&["metadata", "namespace"]);
    if !namespace.is_empty() && namespace != request.namespace {
        return Err(ApiError::wrong_namespace());
    }
    if body.text(&["metadata", "name"]) != request.name {
        let kind = action.kind;
        return Err(ApiError::bad_request(format!("name in URL does not match name in {kind} object")));
    }
    Ok(())
}
