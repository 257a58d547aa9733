//! Patch: the next state is a function of the current one.

use crate::api::Api;
use crate::error::{ApiError, Subject};
use crate::input::{Input, judge};
use crate::update::check_patched_name;
use crate::write::{Writing, Written};
use merge::JsonPatch;
use schema::problem::Problem;
use schema::{Path, Value, decode};

/// The formats of patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchKind {
    Json,
    Merge,
}

enum Patch {
    Json(JsonPatch),
    Merge(Value),
}

impl Api {
    pub async fn patch(
        &self,
        writing: &mut Writing<'_>,
        kind: PatchKind,
        input: &Input,
    ) -> Result<Written, ApiError> {
        let resource = writing.resource.clone();
        let validation = writing.options.field_validation;
        let patch = parse(kind, input, writing)?;
        let (namespace, name, subresource) = (writing.namespace, writing.name, writing.subresource);
        let (options, user, manager) = (writing.options, writing.user, writing.manager);
        self.replace(writing, &|old, warnings| {
            let patched = patch.apply(old.clone())?;
            let shown = || String::from_utf8_lossy(&schema::encode::untyped(&patched)).into_owned();
            let decoded = decode::tree(patched.clone(), &resource.kind.root).map_err(|why| {
                let problem = Problem::invalid_text(&Path::ROOT.field("patch"), &shown(), &why.to_string());
                ApiError::invalid(Subject { group: "", kind: "", name: "" }, vec![problem])
            })?;
            let oddities = decoded.oddities.iter().map(ToString::to_string).collect();
            judge(oddities, validation, warnings).map_err(|why| {
                let problem = Problem::invalid_text(&Path::ROOT.field("patch"), &shown(), &why);
                ApiError::invalid(Subject { group: "", kind: "", name: "" }, vec![problem])
            })?;
            let next = decoded.value;
            let place = Writing {
                resource: &resource,
                namespace,
                name,
                subresource,
                options,
                user,
                manager,
                warnings: Vec::new(),
            };
            check_patched_name(&next, &place)?;
            Ok(next)
        })
        .await
    }
}

fn parse(kind: PatchKind, input: &Input, writing: &mut Writing<'_>) -> Result<Patch, ApiError> {
    let undecodable = |why: String| ApiError::bad_request(format!("error decoding patch: {why}"));
    let untyped = input.untyped().map_err(undecodable)?;
    let validation = writing.options.field_validation;
    match kind {
        PatchKind::Json => {
            let (patch, oddities) = JsonPatch::parse(&untyped.value).map_err(|why| patch_error(&why))?;
            judge(oddities, validation, &mut writing.warnings).map_err(ApiError::bad_request)?;
            Ok(Patch::Json(patch))
        }
        PatchKind::Merge => {
            if !matches!(untyped.value, Value::Map(_)) {
                let found = match untyped.value {
                    Value::List(_) => "array",
                    Value::String(_) => "string",
                    Value::Bool(_) => "bool",
                    Value::Null => "null",
                    _ => "number",
                };
                let why =
                    format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
                return Err(undecodable(why));
            }
            judge(untyped.oddities, validation, &mut writing.warnings).map_err(ApiError::bad_request)?;
            Ok(Patch::Merge(untyped.value))
        }
    }
}

impl Patch {
    fn apply(&self, mut object: Value) -> Result<Value, ApiError> {
        match self {
            Patch::Json(patch) => patch.apply(object).map_err(|why| patch_error(&why)),
            Patch::Merge(patch) => {
                merge::merge_patch(&mut object, patch.clone()).map_err(|why| patch_error(&why))?;
                Ok(object)
            }
        }
    }
}

fn patch_error(why: &merge::Error) -> ApiError {
    match why.code() {
        413 => ApiError::too_large(why.to_string()),
        422 => ApiError::unprocessable(why.to_string()),
        _ => ApiError::bad_request(why.to_string()),
    }
}
