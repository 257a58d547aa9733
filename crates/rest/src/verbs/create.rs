//! Create: a new object.

use crate::model::error::ApiError;
use crate::model::metadata;
use crate::pipeline::admission::Operation;
use crate::pipeline::api::Api;
use crate::pipeline::decode::Input;
use crate::pipeline::write::{ATTEMPTS, WriteOutcome, WriteRequest, store_error};
use schema::problem::Problems;
use schema::{Value, rules};
use store::{Expect, StoreError};

/// Why an object was not created.
enum CreateError {
    Told(ApiError),
    /// Another process took something that it was to have: there may be another.
    Race,
}

impl From<ApiError> for CreateError {
    fn from(why: ApiError) -> Self {
        CreateError::Told(why)
    }
}

impl Api {
    pub async fn create(
        &self,
        writing: &mut WriteRequest<'_>,
        input: &Input,
    ) -> Result<WriteOutcome, ApiError> {
        let object = self.read(writing, input)?;
        self.create_object(writing, object).await
    }

    /// Creates from a decoded body.
    pub(crate) async fn create_object(
        &self,
        writing: &mut WriteRequest<'_>,
        object: Value,
    ) -> Result<WriteOutcome, ApiError> {
        let warned = writing.warnings.len();
        if writing.resource.hooks.reserve.is_some() {
            for _ in 0..ATTEMPTS {
                match self.create_once(writing, object.clone()).await {
                    Err(CreateError::Race) => writing.warnings.truncate(warned),
                    Err(CreateError::Told(why)) => return Err(why),
                    Ok(written) => return Ok(written),
                }
            }
        }
        match self.create_once(writing, object).await {
            Ok(written) => Ok(written),
            Err(CreateError::Told(why)) => Err(why),
            Err(CreateError::Race) => {
                Err(ApiError::internal_error("what it needs was taken by others again and again".to_owned()))
            }
        }
    }

    async fn create_once(
        &self,
        writing: &mut WriteRequest<'_>,
        mut object: Value,
    ) -> Result<WriteOutcome, CreateError> {
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
        // whoever may change the object has seen the state that it was sent with
        if writing.has_status() && !resource.hooks.keeps_status_on_create {
            writing.clear_status(&mut object);
        }
        let (problems, reservation) = self.with_context(writing.user, |context| {
            metadata::stamp_new(&mut object, &self.world);
            if let Some(prepare) = resource.hooks.prepare_create {
                prepare(&mut object, context);
            }
            if resource.kind.counts_generation {
                object.set(&["metadata", "generation"], 1);
            }
            if resource.hooks.generates_name && object.text(&["metadata", "name"]).is_empty() {
                object.set(&["metadata", "name"], metadata::new_uid(&self.world));
            }
            let reservation = self.reserve(writing, &mut object, None, context)?;
            // a kind whose own rules leave metadata out tells what is wrong there when nothing else is
            let checks_metadata = !resource.hooks.repeated_metadata_errors.0.is_empty();
            let mut problems = Problems::new();
            if checks_metadata {
                problems.extend(writing.all_metadata_problems(&object));
            }
            problems.extend(rules::check(&resource.kind.root, &mut object));
            if let Some(validate) = resource.hooks.validate_create {
                problems.extend(validate(&object, context));
            }
            problems.extend(writing.made_problems(&object, None, &self.timing()));
            if !checks_metadata && problems.is_empty() {
                problems = writing.all_metadata_problems(&object);
            }
            if resource.hooks.repeats_create_errors {
                problems.extend(problems.clone());
            }
            Ok::<_, ApiError>((problems, reservation))
        })?;
        let name = object.text(&["metadata", "name"]).to_owned();
        writing.judge(&object, problems)?;
        if writing.owned {
            writing.prune(&mut object);
        }
        if let Some(complete) = resource.hooks.complete {
            complete(&mut object);
        }
        if let Some(warn) = resource.hooks.warn {
            writing.warnings.extend(warn(&object, None));
        }
        let exists = resource.collection.cache.get(writing.namespace, &name).is_some();
        // what is no number is no version, and left out
        let version = object.text(&["metadata", "resourceVersion"]).parse::<u64>();
        let versioned = version.is_ok_and(|version| version > 0);
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
            let why = "resourceVersion should not be set on objects to be created";
            return Err(ApiError::internal(why).into());
        }
        if exists {
            return Err(taken().into());
        }
        if writing.options.dry_run {
            return Ok(WriteOutcome { created: true, json: writing.encode(&object), revision: None });
        }
        object.set(&["metadata", "resourceVersion"], "");
        let object = self.converted(&resource, object).await?;
        match self.commit(writing, object, reservation, Expect::Absent).await {
            Ok(stored) => {
                self.ready(&resource, std::slice::from_ref(&stored)).await?;
                Ok(WriteOutcome {
                    created: true,
                    json: resource.json(&stored),
                    revision: Some(stored.revision),
                })
            }
            Err(StoreError::Conflict { key, .. })
                if key != resource.collection.key(writing.namespace, &name) =>
            {
                Err(CreateError::Race)
            }
            Err(StoreError::Conflict { .. }) => Err(taken().into()),
            Err(why) => Err(store_error(why).into()),
        }
    }

    /// Takes away what nobody can give a new object.
    fn confine_new(&self, writing: &mut WriteRequest<'_>, object: &mut Value) -> Result<(), ApiError> {
        writing.place(object)?;
        writing.dedup_owners(object);
        metadata::forget_past(object);
        Ok(())
    }
}
