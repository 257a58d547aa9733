//! Create: a new object.

use crate::admission::Operation;
use crate::api::Api;
use crate::error::ApiError;
use crate::input::Input;
use crate::metadata;
use crate::write::{Writing, Written, store_error};
use schema::Value;
use store::{Expect, StoreError};

impl Api {
    pub async fn create(&self, writing: &mut Writing<'_>, input: &Input) -> Result<Written, ApiError> {
        let object = self.read(writing, input)?;
        self.create_object(writing, object).await
    }

    /// Creates from a decoded body.
    pub(crate) async fn create_object(
        &self,
        writing: &mut Writing<'_>,
        mut object: Value,
    ) -> Result<Written, ApiError> {
        let resource = writing.resource.clone();
        writing.place(&mut object)?;
        writing.default(&mut object, &self.names);
        self.confine_new(writing, &mut object)?;
        if !writing.owned {
            self.track(writing, None, &mut object);
        }
        let asked = object.text(&["metadata", "name"]).to_owned();
        let admitted = writing.admitted(self, Operation::Create, &asked);
        self.admit(&admitted, Some(&mut object), None).await?;
        if admitted.rounds.was_changed() {
            self.confine_new(writing, &mut object)?;
        }
        let (problems, reservation) = self.with_context(writing.user, |context| {
            metadata::stamp_new(&mut object, &self.world);
            if let Some(prepare) = resource.hooks.prepare_create {
                prepare(&mut object, context);
            }
            if resource.kind.counts_generation {
                object.set(&["metadata", "generation"], 1);
            }
            if resource.hooks.names_itself && object.text(&["metadata", "name"]).is_empty() {
                object.set(&["metadata", "name"], metadata::new_uid(&self.world));
            }
            let reservation = self.reserve(writing, &mut object, None, context)?;
            let mut problems = writing.declared_problems(&mut object);
            if let Some(validate) = resource.hooks.validate_create {
                problems.extend(validate(&object, context));
            }
            problems.extend(writing.made_problems(&object, None));
            if resource.hooks.told_twice {
                problems.extend(problems.clone());
            }
            Ok::<_, ApiError>((problems, reservation))
        })?;
        let name = object.text(&["metadata", "name"]).to_owned();
        writing.judge(&object, problems)?;
        if let Some(complete) = resource.hooks.complete {
            complete(&mut object);
        }
        if let Some(warn) = resource.hooks.warn {
            writing.warnings.extend(warn(&object, None));
        }
        let exists = resource.collection.cache.get(writing.namespace, &name).is_some();
        let versioned = !object.text(&["metadata", "resourceVersion"]).is_empty();
        // what will not be stored is told last, and nothing must be charged for it
        let mut admitted =
            writing.admitted(self, Operation::Create, if asked.is_empty() { &name } else { &asked });
        admitted.dry_run |= exists || versioned;
        self.settle_admission(&admitted, &object, None).await?;
        let generated = !object.text(&["metadata", "generateName"]).is_empty();
        let taken = || {
            let subject = resource.subject(&name);
            let mut error = if generated {
                ApiError::generate_name_conflict(subject)
            } else {
                ApiError::already_exists(subject)
            };
            let existing = resource.collection.cache.get(writing.namespace, &name);
            let existing = existing.and_then(|it| self.tree(&resource, &it).ok()).unwrap_or_default();
            if !existing.text(&["metadata", "deletionTimestamp"]).is_empty() {
                error.message = format!("object is being deleted: {}", error.message);
            }
            error
        };
        if versioned && !writing.options.dry_run {
            return Err(ApiError::internal("resourceVersion should not be set on objects to be created"));
        }
        if exists {
            return Err(taken());
        }
        if writing.options.dry_run {
            return Ok(Written { created: true, json: writing.encode(&object), revision: None });
        }
        object.set(&["metadata", "resourceVersion"], "");
        let object = self.converted(&resource, object).await?;
        match self.commit(writing, object, reservation, Expect::Absent).await {
            Ok(stored) => {
                self.ready(&resource, std::slice::from_ref(&stored)).await?;
                Ok(Written { created: true, json: resource.json(&stored), revision: Some(stored.revision) })
            }
            Err(StoreError::Conflict { .. }) => Err(taken()),
            Err(why) => Err(store_error(why)),
        }
    }

    /// Takes away what nobody can give a new object.
    fn confine_new(&self, writing: &mut Writing<'_>, object: &mut Value) -> Result<(), ApiError> {
        writing.place(object)?;
        writing.dedup_owners(object);
        metadata::forget_deletion(object);
        if writing.has_status() && !writing.resource.hooks.keeps_status_on_create {
            writing.clear_status(object);
        }
        Ok(())
    }
}
