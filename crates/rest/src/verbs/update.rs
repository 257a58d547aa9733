//! Update: the next state of an object, whole or of a part of it.

use crate::model::error::ApiError;
use crate::model::hooks::{MetadataRules, SubresourceHooks, replace};
use crate::model::metadata;
use crate::model::object::Object;
use crate::model::reserve::Reservation;
use crate::pipeline::admission::Operation;
use crate::pipeline::api::Api;
use crate::pipeline::decode::Input;
use crate::pipeline::write::{ATTEMPTS, WriteOutcome, WriteRequest, store_error};
use crate::storage::resource::Resource;
use merge::managed;
use schema::problem::{Problem, Problems, Reason};
use schema::{Value, rules};
use std::sync::Arc;
use store::{Expect, Revision, StoreError};

/// How the next state is found from the current one. Called again when somebody else was faster.
pub(crate) type Next<'n> = dyn Fn(&Value, &mut Vec<String>) -> Result<Value, ApiError> + Send + Sync + 'n;

impl Api {
    /// PUT: the body is the next state.
    pub async fn update(
        &self,
        writing: &mut WriteRequest<'_>,
        input: &Input,
    ) -> Result<WriteOutcome, ApiError> {
        let resource = writing.resource.clone();
        let mut body = self.read(writing, input)?;
        writing.place(&mut body)?;
        check_name(&body, writing.name)?;
        // duplicate owners are reported even where the object does not exist
        writing.dedup_owners(&mut body);
        let exists = resource.collection.cache.get(writing.namespace, writing.name).is_some();
        let uid = body.text(&["metadata", "uid"]);
        if !exists && !uid.is_empty() && resource.view(writing.subresource).is_none() {
            return Err(uid_conflict(&resource, writing.namespace, writing.name, uid, ""));
        }
        if !exists && resource.kind.put_creates && writing.subresource.is_empty() {
            forget_version(&mut body, writing)?;
            return self.create_object(writing, body).await;
        }
        self.replace(writing, &move |old, _| {
            let (asked, uid) = (body.text(&["metadata", "uid"]), old.text(&["metadata", "uid"]));
            if !asked.is_empty() && asked != uid {
                let (namespace, name) =
                    (old.text(&["metadata", "namespace"]), old.text(&["metadata", "name"]));
                return Err(uid_conflict(&resource, namespace, name, asked, uid));
            }
            Ok(body.clone())
        })
        .await
    }

    /// Changes an object in place. It may be done more than once, to what others have made of it; who wants only the
    /// state that they have seen names its version.
    pub async fn alter(
        &self,
        writing: &mut WriteRequest<'_>,
        change: &(dyn Fn(&mut Value) + Send + Sync),
    ) -> Result<WriteOutcome, ApiError> {
        self.replace(writing, &|old, _| {
            let mut next = old.clone();
            change(&mut next);
            Ok(next)
        })
        .await
    }

    /// Replaces an object by what `next` makes of it.
    pub(crate) async fn replace(
        &self,
        writing: &mut WriteRequest<'_>,
        next: &Next<'_>,
    ) -> Result<WriteOutcome, ApiError> {
        let resource = writing.resource.clone();
        let view = resource.view(writing.subresource).map(|(view, served)| (view, &**served));
        let warned = writing.warnings.len();
        for _ in 0..ATTEMPTS {
            writing.warnings.truncate(warned);
            let current = resource.collection.cache.get(writing.namespace, writing.name);
            let current = current.ok_or_else(|| ApiError::not_found(resource.subject(writing.name)))?;
            self.ready(&resource, std::slice::from_ref(&current)).await?;
            let old = self.tree(&resource, &current)?;
            let wanted = match view {
                None => next(&old, &mut writing.warnings)?,
                Some(view) => self.through(writing, view, &old, next).await?,
            };
            let version = self.check_version(writing, &wanted, &current);
            let (object, reservation) = self.settle(writing, wanted, &old, version).await?;
            let admitted = writing.admitted(self, Operation::Update, writing.name);
            match view {
                None => self.settle_admission(&admitted, &object, Some(&old)).await?,
                Some((view, served)) => {
                    let (object, old) = (view.of(&object, served), view.of(&old, served));
                    self.settle_admission(&admitted, &object, Some(&old)).await?;
                }
            }
            let answer = |stored: &Object| {
                let json = match view {
                    None => resource.json(stored),
                    Some(view) => self.view_json(&resource, stored, view)?,
                };
                Ok(WriteOutcome { created: false, json, revision: Some(stored.revision) })
            };
            if writing.options.dry_run {
                return Ok(WriteOutcome { created: false, json: writing.encode(&object), revision: None });
            }
            if resource.stores_same(&object, &old) && resource.is_current(&current) {
                let collection = &resource.collection;
                // what the store would keep in another form now is written for that alone
                if !self.storage.store.is_stale(&collection.key(&current.namespace, &current.name)) {
                    return answer(&current);
                }
            }
            let lost = if self.vanishes(writing, &object, &old) {
                let json = writing.encode(&object);
                match self.remove_stored(&resource, &current, &old).await {
                    Ok(_) => return Ok(WriteOutcome { created: false, json, revision: None }),
                    Err(why) => why,
                }
            } else {
                let expect = Expect::Revision(Revision(current.revision));
                let object = self.converted(&resource, object).await?;
                match self.commit(writing, object, reservation, expect).await {
                    Ok(stored) => {
                        self.ready(&resource, std::slice::from_ref(&stored)).await?;
                        return answer(&stored);
                    }
                    Err(why) => why,
                }
            };
            match lost {
                // somebody else was faster: look again, which tells a client that named a version
                StoreError::Conflict { .. } => {}
                other => return Err(store_error(other)),
            }
        }
        Err(ApiError::modified(resource.subject(writing.name)))
    }

    /// A version that the client names must be the current one.
    fn check_version(
        &self,
        writing: &WriteRequest<'_>,
        wanted: &Value,
        current: &Arc<Object>,
    ) -> Result<(), ApiError> {
        let asked = wanted.text(&["metadata", "resourceVersion"]);
        let resource = writing.resource;
        if asked.is_empty() || asked == "0" {
            if resource.kind.unconditional_update {
                return Ok(());
            }
            let problem = Problem {
                reason: Reason::Invalid,
                field: "metadata.resourceVersion".to_owned(),
                message: "Invalid value: 0x0: must be specified for an update".to_owned(),
            };
            return Err(ApiError::invalid(resource.subject(writing.name), vec![problem]));
        }
        let revision = parse_version(asked)?;
        if revision != current.revision {
            return Err(ApiError::modified(resource.subject(writing.name)));
        }
        Ok(())
    }

    /// From what the client wants to what will be stored: resets, defaults, ownership, admission, validation.
    async fn settle(
        &self,
        writing: &mut WriteRequest<'_>,
        wanted: Value,
        old: &Value,
        version: Result<(), ApiError>,
    ) -> Result<(Value, Option<Reservation>), ApiError> {
        let resource = writing.resource.clone();
        let mut object = wanted;
        writing.place(&mut object)?;
        writing.default(&mut object, &self.names);
        writing.dedup_owners(&mut object);
        let view = resource.view(writing.subresource).is_some();
        let part = match writing.subresource {
            "" => None,
            _ if view => None,
            name => Some(
                resource
                    .hooks
                    .subresources
                    .iter()
                    .find(|one| one.name == name)
                    .ok_or_else(ApiError::method_not_allowed)?,
            ),
        };
        let said = metadata::said_of_server_fields(&object);
        let unrecorded = resource.hooks.unrecorded.contains(&writing.subresource);
        let tracked = !view && resource.hooks.owns_asked;
        if tracked && !writing.owned {
            self.track(writing, Some(old), &mut object);
        }
        self.confine(writing, part, &mut object, old);
        metadata::keep_server_fields(&mut object, old);
        // a view has told who owns what
        let keeps_deletion = part.is_some_and(|part| part.keeps_deletion);
        if !writing.owned && !tracked && !view && !unrecorded {
            if !keeps_deletion {
                metadata::say_of_deletion(&mut object, &said);
            }
            self.track(writing, Some(old), &mut object);
            metadata::keep_server_fields(&mut object, old);
        }
        if let Some(restore) = resource.hooks.restore {
            self.with_context(writing.user, |context| restore(&mut object, old, context));
        }
        // and has been admitted as such
        if !view {
            // what only the server decides is shown as the client said it
            metadata::say_of_server_fields(&mut object, said);
            let admitted = writing.admitted(self, Operation::Update, writing.name);
            self.admit(&admitted, Some(&mut object), Some(old)).await?;
            if admitted.rounds.was_changed() {
                writing.place(&mut object)?;
                writing.dedup_owners(&mut object);
                self.confine(writing, part, &mut object, old);
            }
            if keeps_deletion {
                for field in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
                    object.unset(&["metadata", field]);
                }
            }
            metadata::keep_server_fields(&mut object, old);
        }
        // who may not write hears that, however old what they wrote is
        version?;
        let (problems, reservation) = self.with_context(writing.user, |context| {
            let mut reservation = None;
            if part.is_none() {
                reservation = self.reserve(writing, &mut object, Some(old), context)?;
                if let Some(prepare) = resource.hooks.prepare_update {
                    prepare(&mut object, old, context);
                }
                let differs = resource.hooks.changes_generation.unwrap_or(content_differs);
                if resource.kind.counts_generation && differs(&object, old) {
                    let generation = old.at(&["metadata", "generation"]).and_then(Value::as_int).unwrap_or(0);
                    object.set(&["metadata", "generation"], generation + 1);
                }
            }
            // what the client leaves out of the metadata is the same version of the same object
            object.set(&["metadata", "resourceVersion"], old.text(&["metadata", "resourceVersion"]));
            let declared = writing.metadata_problems(&object);
            let changed = metadata::check_update(&object, old);
            let domains = metadata::check_finalizer_domains(&object, &resource.hooks);
            // clients know these told twice over: as rules of all objects, and again as rules of the kind
            let state = || declared.iter().chain(&domains).cloned();
            let change = || changed.iter().chain(&domains).cloned();
            let mut problems: Problems = declared.iter().chain(&changed).cloned().collect();
            let repeated =
                part.map_or(resource.hooks.repeated_metadata_errors, |part| part.repeated_metadata_errors);
            for rules in repeated.0 {
                match rules {
                    MetadataRules::State => problems.extend(state()),
                    MetadataRules::Change => problems.extend(change()),
                }
            }
            problems.extend(rules::check(&resource.kind.root, &mut object));
            let check = match part {
                Some(part) => part.validate,
                None => resource.hooks.validate_update,
            };
            problems.extend(check.map(|check| check(&object, old, context)).unwrap_or_default());
            problems.extend(rules::check_immutable(&resource.kind.root, old, &object));
            problems.extend(writing.made_problems(&object, Some(old), &self.timing()));
            Ok::<_, ApiError>((problems, reservation))
        })?;
        writing.judge(&object, problems)?;
        if writing.owned || view {
            writing.prune(&mut object);
        }
        // a write that changes nothing but the times of its own record changes nothing
        managed::keep_times(old, &mut object);
        if let (Some(warn), None) = (resource.hooks.warn, part) {
            writing.warnings.extend(warn(&object, Some(old)));
        }
        Ok((object, reservation))
    }

    /// Puts back what this write cannot change, be it the object or a part of it.
    fn confine(
        &self,
        writing: &WriteRequest<'_>,
        part: Option<&SubresourceHooks>,
        object: &mut Value,
        old: &Value,
    ) {
        let Some(part) = part else {
            if writing.has_status() {
                replace(object, old, "status");
            }
            return;
        };
        let mut next = old.clone();
        self.with_context(writing.user, |context| (part.apply)(&mut next, object, context));
        let hooks = &writing.resource.hooks;
        let source = if hooks.unrecorded.contains(&part.name) { old } else { &*object };
        let fields = source.at(&["metadata", "managedFields"]).cloned();
        *object = next;
        match fields {
            Some(fields) => object.set(&["metadata", "managedFields"], fields),
            None => {
                object.unset(&["metadata", "managedFields"]);
            }
        }
    }

    /// Whether this update is what a deleted object was waiting for.
    fn vanishes(&self, writing: &WriteRequest<'_>, next: &Value, old: &Value) -> bool {
        let left = old.at(&["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_int).unwrap_or(0);
        let waiting = left == 0 && !old.text(&["metadata", "deletionTimestamp"]).is_empty();
        let held = writing.resource.hooks.holds.is_some_and(|holds| holds(next));
        waiting && !held && next.items(&["metadata", "finalizers"]).is_empty()
    }
}

/// The object must bear the name that the URL has.
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

/// A write that creates what it did not find has no version; a dry run shows the one that was sent.
pub(crate) fn forget_version(object: &mut Value, writing: &WriteRequest<'_>) -> Result<(), ApiError> {
    let version = object.text(&["metadata", "resourceVersion"]);
    if !version.is_empty() {
        parse_version(version)?;
    }
    if !writing.options.dry_run {
        object.unset(&["metadata", "resourceVersion"]);
    }
    Ok(())
}

fn parse_version(text: &str) -> Result<u64, ApiError> {
    text.parse().map_err(|_| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let why = if digits { "value out of range" } else { "invalid syntax" };
        ApiError::internal(format!("strconv.ParseUint: parsing {text:?}: {why}"))
    })
}

fn uid_conflict(resource: &Resource, namespace: &str, name: &str, asked: &str, uid: &str) -> ApiError {
    let key = resource.collection.key(namespace, name);
    let key = key.strip_prefix("/registry").unwrap_or(&key);
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: \
         UID in precondition: {asked}, UID in object meta: {uid}"
    );
    ApiError::conflict(resource.subject(name), &why)
}

/// Whether anything but metadata and status changed.
fn content_differs(next: &Value, old: &Value) -> bool {
    let (Value::Map(next), Value::Map(old)) = (next, old) else { return true };
    let content = |key: &str| !matches!(key, "metadata" | "status" | "kind" | "apiVersion");
    !next.iter().filter(|(key, _)| content(key)).eq(old.iter().filter(|(key, _)| content(key)))
}
