//! Stage: decodes the body of a request against the kind that the URL names.

use crate::model::error::ApiError;
use crate::model::options::FieldValidation;
use crate::model::request_record;
use crate::pipeline::api::Api;
use crate::pipeline::request::WriteRequest;
use crate::storage::registry::ResourceRegistry;
use crate::storage::resource::Resource;
use bytes::Bytes;
use schema::decode::{self, DecodeError, Decoded, StrictError, TypeMeta};
use schema::problem::quoted;
use schema::table::Type;
use schema::{Value, encode, proto, yaml};

/// The body of a request.
#[derive(Debug, Clone)]
pub struct Input {
    pub bytes: Bytes,
    pub format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
    Protobuf,
}

/// A tree that was decoded without a table, and the strict errors of its text.
pub struct UntypedObject {
    pub value: Value,
    pub strict_errors: Vec<String>,
}

/// The kind that a body must have.
#[derive(Clone, Copy)]
pub struct ExpectedKind<'a> {
    pub ty: &'a Type,
    pub kind: &'a str,
    pub api_version: &'a str,
    /// The other kinds, for their errors.
    pub registry: Option<&'a ResourceRegistry>,
    /// Whether the kind of a custom resource does not matter, as in a write of its status.
    pub any_kind: bool,
}

impl ExpectedKind<'_> {
    pub(super) fn takes(&self, kind: &str) -> bool {
        self.any_kind || kind == self.kind
    }

    /// The error of a body of the expected kind and version that cannot be decoded.
    pub(crate) fn undecodable(&self, why: &str) -> ApiError {
        self.unhandled(self.kind, self.api_version, why)
    }

    /// The error of a body of this kind and version that cannot be decoded as the expected kind.
    pub(super) fn unhandled(&self, kind: &str, api_version: &str, why: &str) -> ApiError {
        let version = api_version.rsplit('/').next().unwrap_or(api_version);
        ApiError::bad_request(format!(
            "{kind} in version {} cannot be handled as a {}: {why}",
            quoted(version),
            self.kind
        ))
    }
}

impl Input {
    /// The value in the normal form of the expected type. Strict errors become warnings or an error.
    pub fn typed(
        &self,
        expected: &ExpectedKind<'_>,
        validation: FieldValidation,
        warnings: &mut Vec<String>,
    ) -> Result<Value, ApiError> {
        if expected.ty.loose {
            return self.custom(expected, validation, warnings);
        }
        let wrong = |why: &str| expected.undecodable(why);
        let (decoded, mut strict_errors) = self.decode_any(expected, validation, warnings)?;
        if self.format != Format::Protobuf {
            let head = self.respelled_head(&decoded, expected)?;
            let head = head.as_ref().unwrap_or(&decoded.value);
            self.check_head(head, expected)?;
            self.check_type(head, expected, validation, warnings)?;
        }
        strict_errors.extend(decoded.strict_errors.iter().map(ToString::to_string));
        report_strict_errors(strict_errors, validation, warnings).map_err(|why| wrong(&why))?;
        let mut value = decoded.value;
        value.set(&["kind"], expected.kind);
        value.set(&["apiVersion"], expected.api_version);
        Ok(value)
    }

    /// The kind and the version of a body that names one of them under a key in another case, or more than once.
    pub(super) fn respelled_head(
        &self,
        decoded: &Decoded,
        expected: &ExpectedKind<'_>,
    ) -> Result<Option<Value>, ApiError> {
        let is_odd = |it: &StrictError| match it {
            StrictError::Unknown(path) => TypeMeta::is_other_spelling(path),
            StrictError::Duplicate(path) => path == "kind" || path == "apiVersion",
        };
        let keys = match &decoded.value {
            Value::Map(map) => map.iter().any(|(key, _)| TypeMeta::is_other_spelling(key)),
            _ => false,
        };
        if !keys && !decoded.strict_errors.iter().any(is_odd) {
            return Ok(None);
        }
        let meta = self.type_meta();
        if let Some(why) = meta.mismatch {
            return Err(self.unrecognized(expected, &format!("{NO_TYPE}: {why}")));
        }
        let mut head = Value::map();
        head.set(&["kind"], meta.kind);
        head.set(&["apiVersion"], meta.api_version);
        Ok(Some(head))
    }

    pub(super) fn type_meta(&self) -> TypeMeta {
        match self.format {
            Format::Yaml => self.untyped().map(|it| TypeMeta::of_tree(&it.value)).unwrap_or_default(),
            _ => TypeMeta::of_json(&self.bytes).unwrap_or_default(),
        }
    }

    /// Checks the syntax of the kind and the version of a body, before they are compared with those of the URL.
    pub(super) fn check_head(&self, head: &Value, expected: &ExpectedKind<'_>) -> Result<(), ApiError> {
        if let Some(why) = untyped_field(head) {
            let why = self.type_meta().mismatch.unwrap_or(why);
            return Err(self.unrecognized(expected, &format!("{NO_TYPE}: {why}")));
        }
        let (kind, version) = (head.text(&["kind"]), head.text(&["apiVersion"]));
        if version.matches('/').count() > 1 {
            return Err(self.unrecognized(expected, &format!("unexpected GroupVersion string: {version}")));
        }
        match version.strip_suffix('/') {
            Some(group)
                if !expected.ty.loose && !group.is_empty() && group != group_of(expected.api_version) =>
            {
                let kind = if kind.is_empty() { expected.kind } else { kind };
                let body = String::from_utf8_lossy(&self.bytes);
                Err(expected.unhandled(kind, "", &format!("Object 'apiVersion' is missing in '{body}'")))
            }
            _ => Ok(()),
        }
    }

    /// The body as JSON.
    pub(super) fn json(&self) -> String {
        match (self.format, self.untyped()) {
            (Format::Yaml, Ok(untyped)) => {
                let json = encode::untyped(&untyped.value);
                encode::escape_html(&String::from_utf8_lossy(&json)).into_owned()
            }
            _ => String::from_utf8_lossy(&self.bytes).into_owned(),
        }
    }

    pub(super) fn unrecognized(&self, expected: &ExpectedKind<'_>, why: &str) -> ApiError {
        let (kind, formatted) = (expected.kind, format_value(&self.bytes));
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {why} ({formatted})"
        ))
    }

    fn decode_any(
        &self,
        expected: &ExpectedKind<'_>,
        validation: FieldValidation,
        warnings: &mut Vec<String>,
    ) -> Result<(Decoded, Vec<String>), ApiError> {
        let ty = expected.ty;
        let unrecognized = |why: &str| self.unrecognized(expected, why);
        if self.format == Format::Protobuf {
            let envelope = proto::open(&self.bytes).map_err(|why| unrecognized(&why.to_string()))?;
            let mut head = Value::map();
            head.set(&["kind"], envelope.kind.as_str());
            head.set(&["apiVersion"], envelope.api_version.as_str());
            self.check_type(&head, expected, validation, warnings)?;
            let value = envelope.object(ty).map_err(|why| expected.undecodable(&why.to_string()))?;
            return Ok((Decoded { value, strict_errors: Vec::new() }, Vec::new()));
        }
        let (result, repeated) = self.decode_as(ty, validation).map_err(|why| unrecognized(why.cause()))?;
        match result {
            Ok(decoded) => Ok((decoded, repeated)),
            Err(DecodeError::Type(why)) => {
                if let Some(why) = self.syntax_error() {
                    return Err(self.not_json(expected, &why));
                }
                // another kind is a better error than one of its fields
                if let Ok(other) = self.untyped() {
                    let other = Decoded { value: other.value, strict_errors: Vec::new() };
                    let head = self.respelled_head(&other, expected)?;
                    let head = head.as_ref().unwrap_or(&other.value);
                    self.check_head(head, expected)?;
                    self.check_type(head, expected, validation, warnings)?;
                }
                Err(expected.undecodable(&why))
            }
            Err(why) => Err(self.not_json(expected, &why)),
        }
    }

    /// The first error of the syntax of JSON, which is reported before any mismatch of types.
    pub(super) fn syntax_error(&self) -> Option<DecodeError> {
        match self.format {
            Format::Json => decode::json_untyped(&self.bytes).err(),
            Format::Yaml | Format::Protobuf => None,
        }
    }

    /// The error of text that is no object.
    pub(super) fn not_json(&self, expected: &ExpectedKind<'_>, why: &DecodeError) -> ApiError {
        let why = match why {
            DecodeError::NotAnObject(found) => not_an_object(found),
            other => other.to_string(),
        };
        self.unrecognized(expected, &format!("{NO_TYPE}: {why}"))
    }

    /// Decodes text against a type, and lists the keys that YAML has twice.
    pub(super) fn decode_as(
        &self,
        ty: &Type,
        validation: FieldValidation,
    ) -> Result<(Result<Decoded, DecodeError>, Vec<String>), yaml::YamlError> {
        if self.format != Format::Yaml {
            return Ok((decode::json(&self.bytes, ty), Vec::new()));
        }
        let document = yaml::parse(&self.bytes, yaml::Limits::default())?;
        let mut repeated = document.repeated;
        if !repeated.is_empty() && validation == FieldValidation::Strict {
            repeated = vec![format!("yaml: unmarshal errors:\n  {}", repeated.join("\n  "))];
        }
        Ok((decode::tree_with_integers(document.value, document.integers, ty), repeated))
    }

    /// Decodes the body as another kind; the outcome is its strict errors, or why it cannot be decoded.
    fn decode_other(&self, ty: &Type, validation: FieldValidation) -> Result<Vec<String>, String> {
        if self.format == Format::Protobuf {
            let envelope = proto::open(&self.bytes).map_err(|why| why.to_string())?;
            return envelope.object(ty).map(|_| Vec::new()).map_err(|why| why.to_string());
        }
        match self.decode_as(ty, validation) {
            Ok((Ok(decoded), repeated)) => {
                let strict_errors = decoded.strict_errors.iter().map(ToString::to_string);
                Ok(repeated.into_iter().chain(strict_errors).collect())
            }
            Ok((Err(DecodeError::Type(why)), _)) => Err(why),
            _ => Ok(Vec::new()),
        }
    }

    /// Checks that the body's kind and version, where it names them, are those of the URL. A body of another served
    /// kind is decoded as that first, so that its own errors are reported before the comparison.
    fn check_type(
        &self,
        head: &Value,
        expected: &ExpectedKind<'_>,
        validation: FieldValidation,
        warnings: &mut Vec<String>,
    ) -> Result<(), ApiError> {
        let (kind, version) = (head.text(&["kind"]), head.text(&["apiVersion"]));
        // the core group has no name
        let version = version.strip_prefix('/').unwrap_or(version);
        let (kind, version) = (
            if kind.is_empty() { expected.kind } else { kind },
            match version.strip_suffix('/') {
                Some(group) if group == group_of(expected.api_version) => expected.api_version,
                _ if version.is_empty() => expected.api_version,
                _ => version,
            },
        );
        if kind == expected.kind && version == expected.api_version {
            return Ok(());
        }
        let scheme = names::scheme(&expected.ty.package);
        let other = expected.registry.and_then(|registry| registry.builtin_type(version, kind));
        let other = other.filter(|ty| names::scheme(&ty.package) == scheme || ty.package == META_PACKAGE);
        let decoded = other.as_ref().map_or(Ok(Vec::new()), |ty| self.decode_other(ty, validation));
        let strict_errors = decoded.map_err(|why| expected.unhandled(kind, version, &why))?;
        let retired = names::is_retired(version, expected.api_version, kind);
        let served = group_of(version) == group_of(expected.api_version) && other.is_some();
        if kind == expected.kind && (retired || served) {
            report_strict_errors(strict_errors, validation, warnings)
                .map_err(|why| expected.unhandled(kind, version, &why))?;
            return Err(other_version(version, expected));
        }
        let short = version.rsplit('/').next().unwrap_or_default();
        let why = if other.is_some() {
            let package = expected
                .api_version
                .split_once('/')
                .map_or("core", |(group, _)| group.split('.').next().unwrap_or(group));
            format!("converting ({short}.{kind}) to ({package}.{}): unknown conversion", expected.kind)
        } else {
            let (kind, version) = (quoted(kind), quoted(version));
            format!("no kind {kind} is registered for version {version} in scheme {scheme:?}")
        };
        Err(expected.unhandled(kind, version, &why))
    }

    /// The version that the body names, whatever it holds otherwise.
    pub(crate) fn api_version(&self) -> Option<String> {
        match self.format {
            Format::Protobuf => proto::open(&self.bytes).ok().map(|envelope| envelope.api_version),
            _ => self.untyped().ok().map(|untyped| untyped.value.text(&["apiVersion"]).to_owned()),
        }
    }

    /// The tree as it is.
    pub fn untyped(&self) -> Result<UntypedObject, String> {
        match self.format {
            Format::Protobuf => Err("a protobuf message cannot be read without its type".to_owned()),
            Format::Json => {
                let decoded = decode::json_untyped(&self.bytes).map_err(|why| why.to_string())?;
                let strict_errors = decoded.strict_errors.iter().map(ToString::to_string).collect();
                Ok(UntypedObject { value: decoded.value, strict_errors })
            }
            Format::Yaml => {
                let document =
                    yaml::parse(&self.bytes, yaml::Limits::default()).map_err(|why| why.to_string())?;
                Ok(UntypedObject { value: document.value, strict_errors: document.repeated })
            }
        }
    }
}

impl Api {
    /// Decodes the body of a write into the normal form of the resource's kind.
    pub(crate) fn decode(&self, request: &mut WriteRequest<'_>, input: &Input) -> Result<Value, ApiError> {
        let resource = request.target();
        let expected = ExpectedKind {
            ty: &resource.kind.root,
            kind: &resource.kind.name,
            api_version: &resource.api_version,
            registry: Some(self),
            any_kind: !request.subresource.is_empty() && request.view().is_none(),
        };
        let object = input.typed(&expected, request.options.field_validation, &mut request.warnings);
        let declared = request.view().is_some_and(|(view, _)| view.declared_at.is_some());
        let object = object.map_err(|why| if declared { unregistered(resource) } else { why })?;
        let hooks = &resource.hooks;
        if let Some(why) = hooks.decode.conversion_error.and_then(|of| of(&object)) {
            return Err(expected.undecodable(&why));
        }
        request.user.record.record_object(&object, || {
            let mut formatted = object.clone();
            resource.default(&mut formatted, &self.names);
            encode::as_stored(&formatted, &resource.kind.root, hooks.storage.empty_lists()).into()
        });
        Ok(object)
    }
}

/// The error of a view that a custom resource definition declares: upstream's, for every problem.
fn unregistered(served: &Resource) -> ApiError {
    let version = served.api_version.rsplit('/').next().unwrap_or_default();
    ApiError::bad_request(format!(
        "no kind is registered for the type {version}.{} in scheme {:?}",
        served.kind.name,
        names::DEFINED_SCHEME
    ))
}

/// The package of the kinds that belong to every group.
const META_PACKAGE: &str = "apimachinery.pkg.apis.meta.v1";

/// The beginning of the error of an object without a type.
pub(crate) const NO_TYPE: &str = "couldn't get version/kind; json parse error";

/// The name of a value's type, as JSON errors have it.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Map(_) | Value::Json(_) => "object",
        Value::List(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Null => "null",
        Value::Int(_) | Value::Float(_) => "number",
    }
}

/// Whether a body is of a kind, in any version.
pub(crate) fn is_of_kind(object: &Value, kind: &str, api_version: &str) -> bool {
    object.text(&["kind"]) == kind && group_of(object.text(&["apiVersion"])) == group_of(api_version)
}

/// Whether an strict error is found by the schema of a custom resource.
pub(crate) fn is_of_schema(strict_error: &StrictError) -> bool {
    matches!(strict_error, StrictError::Unknown(path) if !path.starts_with("metadata."))
}

/// The group of a version: `apps` of `apps/v1`, nothing of `v1`.
pub(super) fn group_of(version: &str) -> &str {
    version.rsplit_once('/').map_or("", |(group, _)| group)
}

/// The error of an object whose version or kind is no text.
pub(crate) fn untyped_field(object: &Value) -> Option<String> {
    ["apiVersion", "kind"].into_iter().find_map(|field| match object.at(&[field]) {
        None | Some(Value::String(_) | Value::Null) => None,
        Some(other) => {
            let found = type_name(other);
            Some(format!("json: cannot unmarshal {found} into Go struct field .{field} of type string"))
        }
    })
}

/// The error of a body that is no object.
pub(crate) fn not_an_object(found: &str) -> String {
    let wanted = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
    format!("json: cannot unmarshal {found} into Go value of type {wanted}")
}

/// Warns about strict errors or rejects them, as `fieldValidation` requires; the error lists all of them.
pub fn report_strict_errors(
    strict_errors: Vec<String>,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<(), String> {
    match validation {
        FieldValidation::Strict if !strict_errors.is_empty() => {
            Err(format!("strict decoding error: {}", strict_errors.join(", ")))
        }
        FieldValidation::Warn => {
            let formatted = request_record::count_fitting(strict_errors.iter().map(String::as_str));
            warnings.extend(strict_errors.into_iter().take(formatted));
            Ok(())
        }
        _ => Ok(()),
    }
}

pub(super) fn other_version(version: &str, expected: &ExpectedKind<'_>) -> ApiError {
    ApiError::bad_request(format!(
        "the API version in the data ({version}) does not match the expected API version ({})",
        expected.api_version
    ))
}

/// The beginning of a body, for messages: text where it is an object, hexadecimal otherwise.
fn format_value(bytes: &[u8]) -> String {
    const LIMIT: usize = 30;
    if bytes.is_empty() {
        return "<empty>".to_owned();
    }
    let (head, more) = if bytes.len() > LIMIT { (&bytes[..LIMIT], " ...") } else { (bytes, "") };
    match std::str::from_utf8(head) {
        Ok(text) if text.starts_with('{') => format!("{text}{more}"),
        _ => head.iter().map(|byte| format!("{byte:02x}")).chain([more.to_owned()]).collect(),
    }
}
