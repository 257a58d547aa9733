//! Act: a post to a subresource that changes its object, or takes it away.

use crate::admission::{Admitted, Form, Given, Operation, Rounds};
use crate::api::Api;
use crate::error::ApiError;
use crate::hooks::{Act, ActionHooks, Context, Requester};
use crate::input::{Expected, Input};
use crate::options::FieldValidation;
use crate::resource::Resource;
use crate::write::{ATTEMPTS, Writing, store_error};
use schema::Value;
use store::{Expect, Revision, StoreError};

impl Api {
    /// The name that a body gives itself, where it is one of this resource and could be created here.
    pub async fn name_in(
        &self,
        resource: &Resource,
        namespace: &str,
        user: &Requester,
        input: &Input,
    ) -> Result<String, ApiError> {
        let expected = Expected {
            ty: &resource.kind.root,
            kind: &resource.kind.name,
            api_version: &resource.api_version,
            known: &|version, kind| self.resources().has_kind(version, kind),
        };
        let mut body = input.typed(&expected, FieldValidation::Ignore, &mut Vec::new())?;
        let given = body.text(&["metadata", "namespace"]);
        if !given.is_empty() && given != namespace {
            return Err(ApiError::wrong_namespace());
        }
        let name = body.text(&["metadata", "name"]).to_owned();
        let check = resource.hooks.acts_on.map(|there| there.check);
        let (operation, subresource, dry_run) = (Operation::Create, "", false);
        let write = Admitted {
            resource,
            operation,
            namespace,
            name: &name,
            asked_name: "",
            subresource,
            user,
            dry_run,
            api: self,
            other: None,
            given: Given::Nothing,
            rounds: Rounds::default(),
        };
        self.admit(&write, Some(&mut body), None).await?;
        check.map_or(Ok(()), |check| check(&body))?;
        if name.is_empty() { Err(ApiError::bad_request("Name parameter required.")) } else { Ok(name) }
    }

    /// Carries the action out. Who owns which field does not change by it.
    pub async fn act(
        &self,
        writing: &mut Writing<'_>,
        action: &ActionHooks,
        input: &Input,
    ) -> Result<(), ApiError> {
        let resource = writing.resource.clone();
        let Some(ty) = (action.body)() else { return Err(ApiError::no_such_path()) };
        let form = Form { kind: action.kind, api_version: version_of(action, input), ty };
        let expected = Expected { ty, kind: form.kind, api_version: form.api_version, known: &|_, _| false };
        let mut body = input.typed(&expected, writing.options.field_validation, &mut writing.warnings)?;
        writing.user.notes.saw_object(&body, || schema::encode::json(&body, ty).into());
        check_place(&body, action, writing)?;
        let write = Admitted { other: Some(form), ..writing.admitted(self, Operation::Create, writing.name) };
        self.admit(&write, Some(&mut body), None).await?;
        self.settle_admission(&write, &body, None).await?;
        match &action.act {
            Act::Change(change) => self.change(writing, &resource, *change, &body).await,
            Act::Remove(removal) => self.remove_for(writing, removal, &body).await,
        }
    }

    async fn change(
        &self,
        writing: &mut Writing<'_>,
        resource: &Resource,
        change: fn(&mut Value, &Value, &Context<'_>) -> Result<(), ApiError>,
        body: &Value,
    ) -> Result<(), ApiError> {
        for _ in 0..ATTEMPTS {
            let current = resource.collection.cache.get(writing.namespace, writing.name);
            let current = current.ok_or_else(|| ApiError::not_found(resource.subject(writing.name)))?;
            let old = self.tree(resource, &current)?;
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

/// The version that the body says it is of, where it is one of those that will do.
fn version_of<'a>(action: &'a ActionHooks, input: &Input) -> &'a str {
    let given = match action.other_versions {
        [] => None,
        _ => input.untyped().ok().map(|untyped| untyped.value.text(&["apiVersion"]).to_owned()),
    };
    let other = action.other_versions.iter().find(|one| Some(**one) == given.as_deref());
    other.copied().unwrap_or(action.api_version)
}

/// What is posted must bear the name of the object, and its namespace if any.
fn check_place(body: &Value, action: &ActionHooks, writing: &Writing<'_>) -> Result<(), ApiError> {
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
