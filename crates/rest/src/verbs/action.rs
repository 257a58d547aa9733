//! Act: a post to a subresource that changes its object, or takes it away.

use crate::model::error::ApiError;
use crate::model::hooks::{Act, ActionHooks, ActsOn, Context};
use crate::model::object::Object;
use crate::pipeline::admission::{AdmissionAttributes, Form, Operation};
use crate::pipeline::api::Api;
use crate::pipeline::decode::{Expected, Input};
use crate::pipeline::write::{ATTEMPTS, WriteRequest, store_error};
use crate::storage::resource::Resource;
use schema::Value;
use store::{Expect, Revision, StoreError};

impl Api {
    /// Carries the action out. Who owns which field does not change by it.
    pub async fn act(
        &self,
        writing: &mut WriteRequest<'_>,
        action: &ActionHooks,
        input: &Input,
    ) -> Result<(), ApiError> {
        let Some(ty) = (action.body)() else { return Err(ApiError::no_such_path()) };
        let (kind, api_version) = (action.kind, version_of(action, input));
        let expected = Expected { ty, kind, api_version, known: &|_, _| false };
        let mut body = input.typed(&expected, writing.options.field_validation, &mut writing.warnings)?;
        writing.user.notes.saw_object(&body, || schema::encode::json(&body, ty).into());
        check_name(&body, action, writing)?;
        writing.place(&mut body)?;
        // whatever version it was sent in, it is admitted as one of the first
        let form = Form { kind, api_version: action.api_version, ty };
        body.set(&["apiVersion"], form.api_version);
        self.track_as(writing, writing.resource, (ty, form.api_version), None, &mut body);
        let write = AdmissionAttributes {
            other: Some(form),
            ..writing.admitted(self, Operation::Create, writing.name)
        };
        self.admit(&write, Some(&mut body), None).await?;
        (action.check)(&body)?;
        self.settle_admission(&write, &body, None).await?;
        self.carry_out(writing, action, &body).await
    }

    /// The same for a creation that is an action on the object of the same name in another resource. It is admitted
    /// as what it was asked for.
    pub async fn act_elsewhere(
        &self,
        writing: &mut WriteRequest<'_>,
        there: ActsOn,
        input: &Input,
    ) -> Result<(), ApiError> {
        let resources = self.resources();
        let resource = resources.get(&writing.resource.api_version, there.plural);
        let resource = resource.ok_or_else(ApiError::no_such_path)?;
        let action = resource.hooks.actions.iter().find(|one| one.name == there.action);
        let action = action.ok_or_else(ApiError::method_not_allowed)?;
        let mut body = self.read(writing, input)?;
        // what is created by itself has no identity yet, whatever it says
        body.unset(&["metadata", "uid"]);
        body.unset(&["metadata", "resourceVersion"]);
        writing.place(&mut body)?;
        self.track(writing, None, &mut body);
        let name = body.text(&["metadata", "name"]).to_owned();
        let write = writing.admitted(self, Operation::Create, &name);
        self.admit(&write, Some(&mut body), None).await?;
        (there.check)(&body)?;
        if name.is_empty() {
            return Err(ApiError::bad_request("Name parameter required."));
        }
        self.settle_admission(&write, &body, None).await?;
        let there = WriteRequest {
            resource,
            name: &name,
            subresource: action.name,
            warnings: Vec::new(),
            ..*writing
        };
        self.carry_out(&there, action, &body).await
    }

    async fn carry_out(
        &self,
        writing: &WriteRequest<'_>,
        action: &ActionHooks,
        body: &Value,
    ) -> Result<(), ApiError> {
        match &action.act {
            Act::Change(change) => self.change(writing, *change, body).await,
            Act::Remove(removal) => self.remove_for(writing, removal, body).await,
        }
    }

    async fn change(
        &self,
        writing: &WriteRequest<'_>,
        change: fn(&mut Value, &Value, &Context<'_>) -> Result<(), ApiError>,
        body: &Value,
    ) -> Result<(), ApiError> {
        let resource = writing.resource;
        for _ in 0..ATTEMPTS {
            let current = resource.collection.cache.get(writing.namespace, writing.name);
            let current = current.ok_or_else(|| ApiError::not_found(resource.subject(writing.name)))?;
            let old = self.tree(resource, &current)?;
            check_preconditions(resource, body, &old, &current)?;
            let mut next = old.clone();
            self.with_context(writing.user, |context| change(&mut next, body, context))?;
            if writing.options.dry_run || next == old {
                return Ok(());
            }
            match self.commit(writing, next, None, Expect::Revision(Revision(current.revision))).await {
                Ok(_) => return Ok(()),
                Err(StoreError::Conflict { .. }) => {}
                Err(why) => return Err(store_error(why)),
            }
        }
        Err(ApiError::modified(resource.subject(writing.name)))
    }
}

/// A body that names a uid or a version means that state of the object and no other.
fn check_preconditions(
    resource: &Resource,
    body: &Value,
    old: &Value,
    current: &Object,
) -> Result<(), ApiError> {
    let uid = old.text(&["metadata", "uid"]);
    let revision = current.revision.to_string();
    let names = [("UID", "uid", uid), ("ResourceVersion", "resourceVersion", &*revision)];
    for (what, field, is) in names {
        let wanted = body.text(&["metadata", field]);
        if !wanted.is_empty() && wanted != is {
            let key = resource.collection.key(&current.namespace, &current.name);
            let key = key.strip_prefix("/registry").unwrap_or(&key);
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
                 failed: {what} in precondition: {wanted}, {what} in object meta: {is}"
            );
            return Err(ApiError::conflict(resource.subject(&current.name), &why));
        }
    }
    Ok(())
}

/// The version that the body says it is of, where it is one of those that will do.
fn version_of<'a>(action: &'a ActionHooks, input: &Input) -> &'a str {
    let given = match action.other_versions {
        [] => None,
        _ => input.untyped().ok().map(|untyped| untyped.value.text(&["apiVersion"]).to_owned()),
    };
    let other = action.other_versions.iter().find(|one| Some(**one) == given.as_deref());
    other.copied().unwrap_or(action.api_version)
}

/// What is posted must bear the name of the object.
fn check_name(body: &Value, action: &ActionHooks, writing: &WriteRequest<'_>) -> Result<(), ApiError> {
    let namespace = body.text(&["metadata", "namespace"]);
    if !namespace.is_empty() && namespace != writing.namespace {
        return Err(ApiError::wrong_namespace());
    }
    if body.text(&["metadata", "name"]) != writing.name {
        let kind = action.kind;
        return Err(ApiError::bad_request(format!("name in URL does not match name in {kind} object")));
    }
    Ok(())
}
