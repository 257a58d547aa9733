//! Patch: the next state is a function of the current one.

use crate::model::error::{ApiError, Subject};
use crate::model::options::FieldValidation;
use crate::pipeline::api::Api;
use crate::pipeline::decode::{
    Input, NO_TYPE, is_of_kind, is_of_schema, not_an_object, report_strict_errors, type_name,
};
use crate::pipeline::decode_custom::{NULL_VERSION, has_null_version};
use crate::pipeline::request::{WriteOutcome, WriteRequest};
use crate::verbs::update::{check_name, check_namespace};
use merge::json_patch::Form;
use merge::{Error, JsonPatch, document};
use schema::decode::{DecodeError, Decoded, Numbers, TypeMeta};
use schema::problem::{Problem, quoted};
use schema::table::{Field, Shape, Type};
use schema::{Map, Path, Value, decode, encode};

/// The formats of patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchKind {
    Json,
    Merge,
    /// Merges lists by the keys that the table names.
    Strategic,
}

enum Patch {
    Json(JsonPatch),
    Merge(Value),
    Strategic(Value),
}

impl Api {
    pub async fn patch(
        &self,
        request: &mut WriteRequest<'_>,
        kind: PatchKind,
        input: &Input,
    ) -> Result<WriteOutcome, ApiError> {
        let resource = request.target().clone();
        let validation = request.options.field_validation;
        let (namespaced, namespace, name) =
            (request.resource.kind.namespaced, request.namespace, request.name);
        let is_part = !request.subresource.is_empty() && request.view().is_none();
        let parsed = parse(kind, input, validation);
        // the error of an invalid patch comes after that of a missing object
        if parsed.is_err() {
            let current = request.resource.collection.cache.get(request.namespace, name);
            current.ok_or_else(|| ApiError::not_found(request.resource.subject(name)))?;
        }
        // the strict errors of the text are reported with those of the patched object, once it has its type
        let (patch, text_errors) = parsed?;
        // a patch can point into managed fields, which are kept as text
        let into_record = kind == PatchKind::Json && mentions(&input.bytes, RECORD.as_bytes());
        self.replace(request, &|old, warnings| {
            let opened = into_record.then(|| decode::open(old));
            let old = opened.as_ref().unwrap_or(old);
            let ty = &resource.kind.root;
            // only an error shows the patched object, so it is patched again for that
            let refused = |why: &str| match patch.apply(ty, old) {
                Ok(_) => misfit(&patch.patch_text(ty, old, input), why),
                Err(why) => patch_error(&why),
            };
            let patched = patch.apply(ty, old).map_err(|why| match why {
                Error::Misfit { why, .. } => misfit(&patch.patch_text(ty, old, input), &why),
                other => patch_error(&other),
            })?;
            let read = !ty.loose && !matches!(patch, Patch::Strategic(_));
            if read && is_without_version(&patched, old) {
                // an object without a version is decoded as metadata
                let metadata = match ty.field("metadata") {
                    Some((_, Field { shape: Shape::Struct(metadata), .. })) => Some(metadata),
                    _ => None,
                };
                let is_known = |field: &str| {
                    matches!(field, "kind" | "apiVersion")
                        || metadata.is_some_and(|ty| ty.field(field).is_some())
                };
                let fields = patched.as_map().into_iter().flat_map(Map::keys);
                let unknown = fields.filter(|field| !is_known(field));
                let unknown = unknown.map(|field| format!("unknown field {}", quoted(field)));
                let strict_errors = text_errors.iter().cloned().chain(unknown).collect();
                report_strict_errors(strict_errors, validation, warnings).map_err(|why| refused(&why))?;
                let mut nameless = Value::map();
                nameless.set(&["metadata", "name"], patched.text(&["name"]));
                check_name(&nameless, name)?;
                return Err(refused("the kind and version of an object cannot change"));
            }
            // the type is read first, and from keys in any case
            if (read || ty.loose)
                && let Some(why) = TypeMeta::of_tree(&patched).mismatch
            {
                return Err(refused(&format!("{NO_TYPE}: {why}")));
            }
            if ty.loose && patched.as_map().is_some() && patched.text(&["kind"]).is_empty() {
                let formatted = patch.patch_text(ty, old, input);
                return Err(refused(&format!("Object 'Kind' is missing in '{formatted}'")));
            }
            if ty.loose && has_null_version(&patched) {
                return Err(refused(NULL_VERSION));
            }
            let mut decoded = patch.fit(patched, ty).map_err(|why| match why {
                DecodeError::NotAnObject(found) if !ty.loose => {
                    refused(&format!("{NO_TYPE}: {}", not_an_object(&found)))
                }
                other => {
                    // the error is the first of the text, whose order the tree has lost
                    let text = patch.patch_text(ty, old, input);
                    let first = decode::json(text.as_bytes(), ty).err().filter(|_| read);
                    refused(&first.unwrap_or(other).to_string())
                }
            })?;
            // strict errors have the order of the text, too
            if read && decoded.strict_errors.len() > 1 {
                let text = patch.patch_text(ty, old, input);
                if let Ok(again) = decode::json(text.as_bytes(), ty) {
                    decoded.strict_errors = again.strict_errors;
                }
            }
            // a schema applies to objects of its own kind only
            let is_same_kind = is_of_kind(&decoded.value, old.text(&["kind"]), old.text(&["apiVersion"]));
            let in_schema = !ty.loose || is_same_kind;
            let strict_errors = decoded.strict_errors.iter().filter(|it| in_schema || !is_of_schema(it));
            let strict_errors = strict_errors.map(ToString::to_string);
            let strict_errors = text_errors.iter().cloned().chain(strict_errors).collect();
            // an object of another kind, which is refused below, has no strict errors of this one; without a kind, the
            // object keeps its own
            let keeps_kind = is_same_kind
                || decoded.value.text(&["kind"]).is_empty()
                    && decoded.value.text(&["apiVersion"]) == old.text(&["apiVersion"]);
            if !read || ty.loose || keeps_kind {
                report_strict_errors(strict_errors, validation, warnings).map_err(|why| refused(&why))?;
            }
            if let Some(why) = resource.hooks.decode.conversion_error.and_then(|of| of(&decoded.value)) {
                let read = !matches!(patch, Patch::Strategic(_));
                return Err(if read { refused(&why) } else { ApiError::internal(why) });
            }
            if namespaced {
                check_namespace(&decoded.value, namespace)?;
            }
            check_name(&decoded.value, name)?;
            if ty.loose {
                if decoded.value.text(&["apiVersion"]).is_empty() {
                    let why = "Object 'apiVersion' is missing in 'object has no apiVersion field'";
                    return Err(ApiError::internal_error(why));
                }
                // a write of the status keeps the kind and version that the object has; the type of others is validated
                if is_part {
                    for field in ["kind", "apiVersion"] {
                        decoded.value.set(&[field], old.text(&[field]));
                    }
                }
                return Ok(decoded.value);
            }
            // the object keeps its type where a patch removes it
            let strategic = matches!(patch, Patch::Strategic(_));
            for field in ["kind", "apiVersion"] {
                // a strategic patch is merged into the type of the object, whatever it says about it
                if strategic || field == "kind" && decoded.value.text(&[field]).is_empty() {
                    decoded.value.set(&[field], old.text(&[field]));
                }
            }
            let same = |field| decoded.value.text(&[field]) == old.text(&[field]);
            if !same("kind") || !same("apiVersion") {
                return Err(refused("the kind and version of an object cannot change"));
            }
            Ok(decoded.value)
        })
        .await
    }
}

/// The metadata field of managed fields.
const RECORD: &str = "managedFields";

fn mentions(text: &[u8], word: &[u8]) -> bool {
    // escapes can spell a word in other ways, so their presence counts as a mention
    text.contains(&b'\\') || memchr::memmem::find(text, word).is_some()
}

/// The patch, and the strict errors of its text.
fn parse(
    kind: PatchKind,
    input: &Input,
    validation: FieldValidation,
) -> Result<(Patch, Vec<String>), ApiError> {
    // the form is checked only where its strict errors are reported, and never that of a strategic patch
    let form = if validation == FieldValidation::Ignore { Form::Unchecked } else { Form::Checked };
    let undecodable = |why: String| {
        ApiError::bad_request(match (kind, form) {
            (PatchKind::Strategic, _) | (PatchKind::Json, Form::Unchecked) => why,
            (PatchKind::Merge, Form::Unchecked) => NO_MERGE_PATCH.to_owned(),
            (_, Form::Checked) => format!("error decoding patch: {why}"),
        })
    };
    let untyped = input.untyped().map_err(undecodable)?;
    match kind {
        PatchKind::Json => {
            let (patch, unknown) = JsonPatch::parse(&untyped.value, form).map_err(|why| patch_error(&why))?;
            let repeated =
                untyped.strict_errors.iter().map(|strict_error| format!("json patch {strict_error}"));
            Ok((Patch::Json(patch), repeated.chain(unknown).collect()))
        }
        PatchKind::Merge | PatchKind::Strategic => {
            // a null strategic patch changes nothing
            let nothing = kind == PatchKind::Strategic && untyped.value.is_null();
            if kind == PatchKind::Merge && untyped.value.is_null() {
                return Err(ApiError::bad_request(NO_MERGE_PATCH));
            }
            let list = kind == PatchKind::Merge && matches!(untyped.value, Value::List(_));
            let list = list && form == Form::Unchecked;
            if !nothing && !list && !matches!(untyped.value, Value::Map(_)) {
                let found = type_name(&untyped.value);
                let why =
                    format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
                return Err(undecodable(why));
            }
            let patch = match kind {
                PatchKind::Merge => Patch::Merge(untyped.value),
                _ => Patch::Strategic(untyped.value),
            };
            Ok((patch, untyped.strict_errors))
        }
    }
}

/// Whether a patch has removed the version of an object, and changed no more of its type.
fn is_without_version(patched: &Value, old: &Value) -> bool {
    let Some(map) = patched.as_map() else { return false };
    let text = |field| map.get(field).filter(|it| !it.is_null()).map_or(Some(""), Value::as_str);
    // upstream reads a lone `/` as no group and no version, too
    matches!(text("apiVersion"), Some("" | "/"))
        && (text("kind") == Some("") || map.get("kind") == old.at(&["kind"]))
}

/// The error of a body that is no merge patch.
const NO_MERGE_PATCH: &str = "Invalid JSON Patch";

impl Patch {
    fn apply(&self, ty: &Type, object: &Value) -> Result<Value, Error> {
        let mut object = object.clone();
        match self {
            Patch::Json(patch) => patch.apply(object),
            Patch::Strategic(patch) => merge::strategic_merge(ty, object, patch),
            Patch::Merge(patch) => {
                merge::merge_patch(&mut object, patch.clone())?;
                Ok(object)
            }
        }
    }
}

impl Patch {
    /// The normal form of the patched object. A merge decodes only the fields that it has touched.
    fn fit(&self, patched: Value, ty: &Type) -> Result<Decoded, DecodeError> {
        match self {
            Patch::Merge(Value::Map(patch)) => decode::refit(patched, ty, patch.keys(), Numbers::Refuse),
            Patch::Strategic(Value::Map(patch)) if patch.keys().all(|key| !key.starts_with('$')) => {
                decode::refit(patched, ty, patch.keys(), Numbers::Wrap)
            }
            Patch::Strategic(_) => decode::converted(patched, ty),
            _ => decode::tree(patched, ty),
        }
    }

    /// The patched object, or the spent strategic patch, as the error shows it.
    fn patch_text(&self, ty: &Type, old: &Value, input: &Input) -> String {
        if let Patch::Strategic(patch) = self {
            return merge::strategic::format_spent(ty, old, patch);
        }
        // custom resources are written in the order of names
        let object = if ty.loose { encode::untyped(&decode::open(old)) } else { encode::json(old, ty) };
        let (object, patch) = (String::from_utf8_lossy(&object), String::from_utf8_lossy(&input.bytes));
        match self {
            Patch::Json(_) => document::json_patched(&object, &patch),
            _ => document::merge_patched(&object, &patch),
        }
    }
}

/// The error of a patched object that does not have its type.
fn misfit(formatted: &str, why: &str) -> ApiError {
    let problem = Problem::invalid_text(&Path::ROOT.field("patch"), formatted, why);
    ApiError::invalid(Subject { group: "", kind: "", name: "" }, vec![problem])
}

fn patch_error(why: &Error) -> ApiError {
    match (why, why.code()) {
        (Error::Misfit { patch, why }, _) => misfit(patch, why),
        (_, 413) => ApiError::too_large(why.to_string()),
        (_, 422) => ApiError::unprocessable(why.to_string()),
        (_, 500) => ApiError::internal(why.to_string()),
        _ => ApiError::bad_request(why.to_string()),
    }
}
