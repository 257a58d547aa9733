//! Apply: the next state is the current one with the applier's wishes merged in, where nobody else objects.

use crate::api::Api;
use crate::error::{ApiError, Cause, Details};
use crate::input::{Format, Input, judge};
use crate::patch::type_name;
use crate::update::check_name;
use crate::write::{Writing, Written};
use merge::{ApplyError, ApplyWrite};
use schema::{Value, decode};

/// The manager whose older, client-side record of what it applied is taken over.
const CLIENT: &str = "kubectl";
/// Where that record is kept, below the client's own domain.
const LAST_APPLIED: &str = "last-applied-configuration";

impl Api {
    pub async fn apply(&self, writing: &mut Writing<'_>, input: &Input) -> Result<Written, ApiError> {
        let resource = writing.target().clone();
        let input = Input { bytes: input.bytes.clone(), format: Format::Yaml };
        let untyped =
            input.untyped().map_err(|why| ApiError::bad_request(format!("error decoding YAML: {why}")))?;
        let validation = writing.options.field_validation;
        judge(untyped.oddities, validation, &mut writing.warnings)
            .map_err(|why| ApiError::bad_request(format!("error decoding YAML: {why}")))?;
        let config = untyped.value;
        check_config(&config, writing)?;
        let last_applied = self.names.well_known_under(CLIENT, LAST_APPLIED);
        let now = schema::time::format_time(ambient::unix_seconds(&self.world));
        let reset = writing.unowned_fields();
        let write = ApplyWrite {
            ty: &resource.kind.root,
            manager: writing.manager,
            api_version: &resource.api_version,
            subresource: writing.subresource,
            now: &now,
            force: writing.options.force.unwrap_or(false),
            reset: &reset,
            convert: Some(&|version, live, new| self.elsewhere(&resource, version, live, new)),
            last_applied: (writing.manager == CLIENT).then_some(&last_applied),
        };
        let next = |live: Option<&Value>| -> Result<Value, ApiError> {
            let applied = merge::apply(&write, live, &config).map_err(apply_error)?;
            let decoded = decode::applied(applied.object, &resource.kind.root);
            let value = decoded.map_err(|why| ApiError::internal(why.to_string()))?.value;
            Ok(value)
        };
        let name = writing.name;
        writing.owned = true;
        let exists = resource.collection.cache.get(writing.namespace, name).is_some();
        if !exists && writing.subresource.is_empty() {
            let mut object = next(None)?;
            check_name(&object, name)?;
            object.unset(&["metadata", "resourceVersion"]);
            if !object.text(&["metadata", "uid"]).is_empty() {
                let uid = object.text(&["metadata", "uid"]);
                let why = format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                );
                return Err(ApiError::conflict(resource.subject(name), &why));
            }
            return self.create_object(writing, object).await;
        }
        self.replace(writing, &|old, _| {
            let object = next(Some(old))?;
            check_name(&object, name)?;
            Ok(object)
        })
        .await
    }
}

/// What is applied must say what it is, and belong to the place it is sent to.
fn check_config(config: &Value, writing: &Writing<'_>) -> Result<(), ApiError> {
    if !matches!(config, Value::Map(_) | Value::Null) {
        return Err(ApiError::bad_request(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value \
             of type map[string]interface {{}}",
            type_name(config)
        )));
    }
    let resource = writing.target();
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
    let namespace = config.text(&["metadata", "namespace"]);
    if !namespace.is_empty() && namespace != writing.namespace {
        return Err(ApiError::wrong_namespace());
    }
    // what exists has its name already
    if config.text(&["metadata", "name"]).is_empty() { Ok(()) } else { check_name(config, writing.name) }
}

fn apply_error(why: ApplyError) -> ApiError {
    let (code, message) = (why.code(), why.to_string());
    match why {
        ApplyError::Conflicts(conflicts) => {
            let causes = conflicts.told.iter().map(|one| Cause {
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
