//! Apply: server-side apply. The next state is the current one with the applied configuration merged in, unless
//! another manager owns a field.

use crate::model::error::{ApiError, Cause, Details, Subject};
use crate::model::options::FieldValidation;
use crate::pipeline::api::Api;
use crate::pipeline::decode::{Format, Input, report_strict_errors, type_name};
use crate::pipeline::request::{ATTEMPTS, WriteOutcome, WriteRequest};
use crate::verbs::update::{check_name, check_namespace, clear_version};
use merge::{ApplyError, ApplyWrite};
use schema::decode::DecodeError;
use schema::time::parse_time;
use schema::{Value, decode};
use std::sync::atomic::{AtomicBool, Ordering};

/// The manager whose client-side record of applied fields is migrated.
const CLIENT: &str = "kubectl";
/// The annotation of that record, below the client's own domain.
const LAST_APPLIED: &str = "last-applied-configuration";

impl Api {
    pub async fn apply(
        &self,
        request: &mut WriteRequest<'_>,
        input: &Input,
    ) -> Result<WriteOutcome, ApiError> {
        let resource = request.target().clone();
        let name = request.name;
        let is_there = |it: &WriteRequest<'_>| it.resource.collection.cache.get(it.namespace, name).is_some();
        // only an object as a whole can be created
        if !is_there(request) && !request.subresource.is_empty() {
            return Err(ApiError::not_found(request.resource.subject(name)));
        }
        let input = Input { bytes: input.bytes.clone(), format: Format::Yaml };
        let untyped =
            input.untyped().map_err(|why| ApiError::bad_request(format!("error decoding YAML: {why}")))?;
        let validation = request.options.field_validation;
        let config = untyped.value;
        check_config(&config, request)?;
        let last_applied = self.names.well_known_under(CLIENT, LAST_APPLIED);
        let now = schema::time::format_time(env::unix_seconds(&self.world));
        let reset = request.unowned_fields();
        let write = ApplyWrite {
            ty: &resource.kind.root,
            manager: request.manager,
            api_version: &resource.api_version,
            subresource: request.subresource,
            now: &now,
            force: request.options.force.unwrap_or(false),
            reset: &reset,
            convert: Some(&|version, live, new| self.convert_to_version(&resource, version, live, new)),
            last_applied: (request.manager == CLIENT).then_some(&last_applied),
        };
        let namespace = request.namespace;
        // the strict errors of the text are reported once the configuration has been merged
        let (strict_errors, merged) = (untyped.strict_errors, AtomicBool::new(false));
        let next = |live: Option<&Value>| -> Result<Value, ApiError> {
            let mut applied = merge::apply(&write, live, &config).map_err(apply_error)?;
            let ty = &resource.kind.root;
            if ty.loose {
                drop_unreadable(&mut applied.object);
            }
            // only an error shows the merged object, so it is merged again for that
            let refused = |why: DecodeError| {
                let again = merge::apply(&write, live, &config).ok();
                let misfit = again.and_then(|applied| merge::strategic::misfit(ty, &applied.object));
                let (object, version) = (merge::described(&config), gvk(&config));
                ApiError::internal(format!(
                    "failed to convert new object ({object}) to proper version: unable to convert unstructured object to \
                     {version}: {}",
                    misfit.unwrap_or_else(|| why.to_string())
                ))
            };
            let changed = applied.changed;
            let mut decoded = decode::applied(applied.object, ty).map_err(refused)?;
            if let Some(why) = resource.hooks.decode.conversion_error.and_then(|of| of(&decoded.value)) {
                let object = merge::described(&config);
                return Err(ApiError::internal(format!(
                    "failed to convert to unversioned ({object}): {why}"
                )));
            }
            if validation == FieldValidation::Strict && !strict_errors.is_empty() {
                let errors = strict_errors.join("\n  ");
                return Err(ApiError::bad_request(format!(
                    "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {errors}"
                )));
            }
            merged.store(true, Ordering::Relaxed);
            // an apply that changes nothing leaves the object as it is, even without a default of this version
            if changed {
                resource.default(&mut decoded.value, &self.names);
            }
            if live.is_none() {
                check_no_uid(&decoded.value, resource.subject(name))?;
            }
            if resource.kind.namespaced {
                check_namespace(&config, namespace)?;
            }
            if changed && !config.text(&["metadata", "name"]).is_empty() {
                check_name(&config, name)?;
            }
            Ok(decoded.value)
        };
        request.owned = true;
        let replaced = |old: &Value| -> Result<Value, ApiError> {
            let object = next(Some(old))?;
            check_name(&object, name)?;
            Ok(object)
        };
        let (warned, mut attempts) = (request.warnings.len(), 0);
        let outcome = loop {
            request.warnings.truncate(warned);
            let exists = is_there(request);
            let outcome = if exists || !request.subresource.is_empty() {
                self.replace(request, &|old, _| replaced(old)).await
            } else {
                match next(None).and_then(|object| check_new(object, request)) {
                    Ok(object) => self.create_object(request, object).await,
                    Err(why) => Err(why),
                }
            };
            // if another write has created or deleted the object meanwhile, an apply is of the other form
            attempts += 1;
            let is_overtaken = |why: &ApiError| match exists {
                true => why.code == 404 && request.subresource.is_empty(),
                false => why.reason == "AlreadyExists",
            };
            let is_other = outcome.as_ref().is_err_and(is_overtaken) && is_there(request) != exists;
            if !is_other || attempts == ATTEMPTS {
                break outcome;
            }
        };
        if merged.load(Ordering::Relaxed) && validation == FieldValidation::Warn {
            report_strict_errors(strict_errors, validation, &mut request.warnings)
                .map_err(ApiError::bad_request)?;
        }
        outcome
    }
}

/// Drops times and numbers in the metadata of a custom resource that cannot be read. The server sets all of them.
fn drop_unreadable(object: &mut Value) {
    for (field, is_time) in [
        ("creationTimestamp", true),
        ("deletionTimestamp", true),
        ("generation", false),
        ("deletionGracePeriodSeconds", false),
    ] {
        let path = ["metadata", field];
        let readable = match object.at(&path) {
            None => true,
            Some(Value::String(text)) => is_time && parse_time(text).is_ok(),
            // whole numbers have been read as integers, if they are in range
            Some(value) => !is_time && value.as_int().is_some(),
        };
        if !readable {
            object.unset(&path);
        }
    }
}

/// Checks an object that an apply creates.
fn check_new(mut object: Value, request: &WriteRequest<'_>) -> Result<Value, ApiError> {
    check_name(&object, request.name)?;
    clear_version(&mut object, request)?;
    Ok(object)
}

/// Checks that an object that is not there has no uid.
fn check_no_uid(object: &Value, subject: Subject<'_>) -> Result<(), ApiError> {
    let uid = object.text(&["metadata", "uid"]);
    if uid.is_empty() {
        return Ok(());
    }
    let why =
        format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
    Err(ApiError::conflict(subject, &why))
}

/// Checks the kind and version of an applied configuration.
fn check_config(config: &Value, request: &WriteRequest<'_>) -> Result<(), ApiError> {
    if !matches!(config, Value::Map(_) | Value::Null) {
        return Err(ApiError::bad_request(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value \
             of type map[string]interface {{}}",
            type_name(config)
        )));
    }
    let resource = request.target();
    let version = config.text(&["apiVersion"]);
    if version != resource.api_version {
        return Err(ApiError::bad_request(format!(
            "Incorrect version specified in apply patch. Specified patch version: {version}, expected: {}",
            resource.api_version
        )));
    }
    let kind = config.text(&["kind"]);
    if kind != resource.kind.name {
        return Err(ApiError::bad_request(format!(
            "Incorrect kind specified in apply patch. Specified patch kind: {kind}, expected: {}",
            resource.kind.name
        )));
    }
    Ok(())
}

/// The type of an object as error texts name it: `group/version, Kind=kind`.
fn gvk(config: &Value) -> String {
    let described = merge::described(config);
    described.split_once("; ").map_or(String::new(), |(_, gvk)| gvk.to_owned())
}

fn apply_error(why: ApplyError) -> ApiError {
    let (code, message) = (why.code(), why.to_string());
    match why {
        ApplyError::Conflicts(conflicts) => {
            let causes = conflicts.listed.iter().map(|one| Cause {
                reason: "FieldManagerConflict".to_owned(),
                message: one.message(),
                field: one.field.clone(),
            });
            let details = Details { causes: causes.collect(), ..Details::default() };
            ApiError {
                code: 409,
                reason: "Conflict".into(),
                message,
                details: Some(Box::new(details)),
                continue_token: String::new(),
            }
        }
        _ if code == 400 => ApiError::bad_request(message),
        _ => ApiError::internal(message),
    }
}
