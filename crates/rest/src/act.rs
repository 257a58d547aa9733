//! Act: a post to a subresource that changes its object.

use crate::api::{Api, Operation};
use crate::error::ApiError;
use crate::hooks::ActionHooks;
use crate::input::{Expected, Input};
use crate::write::{ATTEMPTS, Writing, store_error};
use store::{Expect, Revision, StoreError};

impl Api {
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
