//! Decodes the body of a custom resource.
//!
//! Upstream decodes such a body without a type, applies the schema of the version that the body names, and then compares
//! the version with the URL. A body of another group or kind has no schema; only its metadata is checked here, and its
//! kind is refused by the validation of the object that it makes (`validate`), after conflicts and objects that do not exist.

use crate::model::error::ApiError;
use crate::model::options::FieldValidation;
use crate::pipeline::decode::{
    ExpectedKind, Format, Input, is_of_kind, is_of_schema, other_version, report_strict_errors,
};
use schema::decode::{DecodeError, Decoded, StrictError};
use schema::{Path, Value, decode, proto};

impl Input {
    /// The value in the normal form of a custom kind.
    pub(super) fn custom(
        &self,
        expected: &ExpectedKind<'_>,
        validation: FieldValidation,
        warnings: &mut Vec<String>,
    ) -> Result<Value, ApiError> {
        if self.format == Format::Protobuf {
            return Err(self.custom_message(expected));
        }
        let decode_as = |ty| {
            let result = self.decode_as(ty, validation);
            result.map_err(|why| self.unrecognized(expected, why.cause()))
        };
        let (mut result, repeated) = decode_as(expected.ty)?;
        let untyped;
        let object = match &result {
            Ok(decoded) => decoded,
            Err(DecodeError::Type(_)) => {
                if let Some(why) = self.syntax_error() {
                    return Err(self.not_json(expected, &why));
                }
                let value = self.untyped().map(|it| it.value).unwrap_or_default();
                untyped = Decoded { value, strict_errors: Vec::new() };
                &untyped
            }
            Err(why) => return Err(self.not_json(expected, why)),
        };
        self.check_custom_head(object, expected, validation)?;
        let head = head_of(&object.value);
        let (kind, version) = (head.text(&["kind"]), head.text(&["apiVersion"]));
        if version.is_empty() && self.untyped().is_ok_and(|it| has_null_version(&it.value)) {
            return Err(expected.unhandled(kind, version, NULL_VERSION));
        }
        let in_schema = is_of_kind(&head, expected.kind, expected.api_version);
        if in_schema && version != expected.api_version {
            result = match expected.registry.and_then(|registry| registry.custom_type(version, kind)) {
                Some(ty) => decode_as(&ty)?.0,
                None => {
                    result.map(|decoded| Decoded { strict_errors: self.without_schema(&decoded), ..decoded })
                }
            };
        }
        let decoded = match result {
            Ok(decoded) => decoded,
            Err(DecodeError::Type(why)) if in_schema || is_of_own_metadata(&why) => {
                return Err(expected.unhandled(kind, version, &why));
            }
            Err(why) => {
                check_version(version, expected)?;
                if expected.takes(kind) {
                    return Err(expected.undecodable(&why.to_string()));
                }
                self.without_own_fields(expected)?
            }
        };
        let found = decoded.strict_errors.iter().filter(|it| in_schema || !is_of_schema(it));
        let strict_errors = repeated.into_iter().chain(found.map(ToString::to_string)).collect();
        report_strict_errors(strict_errors, validation, warnings).map_err(|why| match version {
            "" => ApiError::bad_request(NO_VERSION.to_owned()),
            _ => ExpectedKind { kind, ..*expected }.unhandled(kind, version, &why),
        })?;
        check_version(version, expected)?;
        let mut value = decoded.value;
        value.set(&["kind"], if expected.takes(kind) { expected.kind } else { kind });
        Ok(value)
    }

    /// The metadata of an object of another kind, which is what is read of it.
    fn without_own_fields(&self, expected: &ExpectedKind<'_>) -> Result<Decoded, ApiError> {
        let mut value = self.untyped().map(|it| it.value).unwrap_or_default();
        if let Value::Map(fields) = &mut value {
            fields.retain(|key, _| IMPLICIT.contains(&key));
        }
        let decoded = decode::tree(value, expected.ty);
        decoded.map_err(|why| expected.undecodable(&why.to_string()))
    }

    /// The error of a protobuf message: no custom resource has that form.
    fn custom_message(&self, expected: &ExpectedKind<'_>) -> ApiError {
        let envelope = match proto::open(&self.bytes) {
            Ok(envelope) => envelope,
            Err(why) => return self.unrecognized(expected, &why.to_string()),
        };
        let or = |text: String, default: &str| if text.is_empty() { default.to_owned() } else { text };
        let kind = or(envelope.kind, expected.kind);
        let version = or(envelope.api_version, expected.api_version);
        expected.unhandled(&kind, &version, "Object 'Kind' is missing in 'object has no kind field '")
    }

    /// Checks the syntax of kind and version, and that there is a kind.
    fn check_custom_head(
        &self,
        object: &Decoded,
        expected: &ExpectedKind<'_>,
        validation: FieldValidation,
    ) -> Result<(), ApiError> {
        let respelled = self.respelled_head(object, expected)?;
        let head = respelled.as_ref().unwrap_or(&object.value);
        self.check_head(head, expected)?;
        let is_version = object.value.text(&["apiVersion"]).matches('/').count() < 2;
        if is_version && !object.value.text(&["kind"]).is_empty() {
            return Ok(());
        }
        if validation != FieldValidation::Ignore {
            let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(&self.bytes));
            return Err(self.unrecognized(expected, &why));
        }
        let (kind, version) = (head.text(&["kind"]), head.text(&["apiVersion"]));
        let kind = if kind.is_empty() { expected.kind } else { kind };
        let version = if version.is_empty() { expected.api_version } else { version };
        Err(expected.unhandled(kind, version, &format!("Object 'Kind' is missing in '{}'", self.json())))
    }

    /// The strict errors of an object whose version has no schema: every field of its own is unknown.
    fn without_schema(&self, decoded: &Decoded) -> Vec<StrictError> {
        let others = decoded.strict_errors.iter().filter(|it| !is_of_schema(it)).cloned();
        let untyped = self.untyped().map(|it| it.value).unwrap_or_default();
        let Value::Map(fields) = untyped else { return others.collect() };
        let own = fields.iter().map(|(key, _)| key).filter(|key| !IMPLICIT.contains(key));
        others.chain(own.map(|key| StrictError::Unknown(Path::ROOT.field(key).to_string()))).collect()
    }
}

const IMPLICIT: &[&str] = &["apiVersion", "kind", "metadata"];

/// The error of an object without a version that has strict errors.
const NO_VERSION: &str = "Object 'apiVersion' is missing in 'object has no apiVersion field'";

/// The error of a custom resource whose version is null, which is another one than that of a missing version.
pub(crate) const NULL_VERSION: &str =
    ".apiVersion accessor error: <nil> is of the type <nil>, expected string";

pub(crate) fn has_null_version(object: &Value) -> bool {
    object.as_map().and_then(|fields| fields.get("apiVersion")).is_some_and(Value::is_null)
}

/// Kind, version and name of an object.
fn head_of(object: &Value) -> Value {
    let mut head = Value::map();
    for path in [&["kind"][..], &["apiVersion"], &["metadata", "name"]] {
        head.set(path, object.text(path));
    }
    head
}

/// Whether a mismatch is in the metadata of the object itself: such a message has no path.
fn is_of_own_metadata(why: &str) -> bool {
    why.starts_with("json: ") || why.starts_with("parsing time ")
}

/// Checks that a custom resource has the version of the URL.
fn check_version(version: &str, expected: &ExpectedKind<'_>) -> Result<(), ApiError> {
    // the core group has no name
    let version = version.strip_prefix('/').unwrap_or(version);
    if version == expected.api_version { Ok(()) } else { Err(other_version(version, expected)) }
}
