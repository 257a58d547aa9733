//! Act: a post to a subresource that changes its object.

use crate::api::{Admitted, Api, Operation};
use crate::error::ApiError;
use crate::hooks::{ActionHooks, Requester};
use crate::input::{Expected, Input};
use crate::options::FieldValidation;
use crate::resource::Resource;
use crate::write::{ATTEMPTS, Writing, store_error};
use store::{Expect, Revision, StoreError};

impl Api {
    /// The name that a body gives itself, where it is one of this resource and could be created here.
    pub fn name_in(
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
        let write =
            Admitted { resource, operation, namespace, name: &name, subresource, user, dry_run, api: self };
        self.admit(&write, Some(&mut body), None)?;
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
        let expected =
            Expected { ty, kind: action.kind, api_version: action.api_version, known: &|_, _| false };
        let body = input.typed(&expected, writing.options.field_validation, &mut writing.warnings)?;
        if body.text(&["metadata", "name"]) != writing.name {
            let why = format!("name in URL does not match name in {} object", action.kind);
            return Err(ApiError::bad_request(why));
        }
        self.admit(&writing.admitted(self, Operation::Create, writing.name), None, None)?;
        for _ in 0..ATTEMPTS {
            let current = resource.collection.cache.get(writing.namespace, writing.name);
            let current = current.ok_or_else(|| ApiError::not_found(resource.subject(writing.name)))?;
            let old = self.tree(&resource, &current)?;
            let mut next = old.clone();
            self.admit(
                &writing.admitted(self, Operation::Update, writing.name),
                Some(&mut next),
                Some(&old),
            )?;
            self.with_context(writing.user, |context| (action.act)(&mut next, &body, context))?;
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
