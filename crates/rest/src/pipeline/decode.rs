//! Stage: decodes the body of a request against the kind that the URL names.

use crate::model::error::{ApiError, Subject};
use crate::model::options::FieldValidation;
use crate::model::request_record;
use crate::pipeline::api::Api;
use crate::pipeline::request::WriteRequest;
use crate::storage::resource::Resource;
use bytes::Bytes;
use schema::decode::{self, DecodeError, Decoded, Oddity};
use schema::problem::{Problem, quoted};
use schema::table::Type;
use schema::{Path, Value, encode, proto, yaml};

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

/// A tree that was decoded without a table, and the oddities of its text.
pub struct Untyped {
    pub value: Value,
    pub oddities: Vec<String>,
}

/// The kind that a body must have.
#[derive(Clone, Copy)]
pub struct Expected<'a> {
    pub ty: &'a Type,
    pub kind: &'a str,
    pub api_version: &'a str,
    /// Whether a version and kind are known, for the error message.
    pub known: &'a (dyn Fn(&str, &str) -> bool + Sync),
}

impl Expected<'_> {
    /// The error of a body of the expected kind and version that cannot be decoded.
    pub(crate) fn undecodable(&self, why: &str) -> ApiError {
        self.unhandled(self.kind, self.api_version, why)
    }

    /// The error of a body of this kind and version that cannot be decoded as the expected kind.
    fn unhandled(&self, kind: &str, api_version: &str, why: &str) -> ApiError {
        let version = api_version.rsplit('/').next().unwrap_or(api_version);
        ApiError::bad_request(format!(
            "{kind} in version {} cannot be handled as a {}: {why}",
            quoted(version),
            self.kind
        ))
    }
}

impl Input {
    /// The value in the normal form of the expected type. Oddities become warnings or an error.
    pub fn typed(
        &self,
        expected: &Expected<'_>,
        validation: FieldValidation,
        warnings: &mut Vec<String>,
    ) -> Result<Value, ApiError> {
        let Expected { kind, api_version, .. } = *expected;
        let wrong = |why: &str| expected.undecodable(why);
        let (decoded, mut oddities) = self.decode(expected, validation, &wrong)?;
        // the type of a custom resource is checked after its fields
        if !expected.ty.loose {
            check_type(&decoded.value, expected)?;
        }
        // a schema applies to objects of its own kind only
        let in_schema = !expected.ty.loose || is_of_kind(&decoded.value, kind, api_version);
        let seen = decoded.oddities.iter().filter(|it| in_schema || !is_of_schema(it));
        oddities.extend(seen.map(ToString::to_string));
        report_oddities(oddities, validation, warnings).map_err(|why| wrong(&why))?;
        if expected.ty.loose {
            check_type(&decoded.value, expected)?;
        }
        let mut value = decoded.value;
        value.set(&["kind"], kind);
        value.set(&["apiVersion"], api_version);
        Ok(value)
    }

    fn decode(
        &self,
        expected: &Expected<'_>,
        validation: FieldValidation,
        wrong: &dyn Fn(&str) -> ApiError,
    ) -> Result<(Decoded, Vec<String>), ApiError> {
        let (decoded, notes) = self.decode_any(expected, validation, wrong)?;
        if self.format != Format::Protobuf {
            self.check_head(&decoded.value, expected, validation)?;
        }
        Ok((decoded, notes))
    }

    /// Checks the syntax of the kind and the version of a body, before they are compared with those of the URL.
    fn check_head(
        &self,
        object: &Value,
        expected: &Expected<'_>,
        validation: FieldValidation,
    ) -> Result<(), ApiError> {
        if let Some(why) = untyped_field(object) {
            return Err(self.unrecognized(expected, &format!("{NO_TYPE}: {why}")));
        }
        let (kind, version) = (object.text(&["kind"]), object.text(&["apiVersion"]));
        if version.matches('/').count() > 1 {
            return Err(self.unrecognized(expected, &format!("unexpected GroupVersion string: {version}")));
        }
        let missing = |what: &str| {
            let body = String::from_utf8_lossy(&self.bytes);
            format!("Object '{what}' is missing in '{body}'")
        };
        if expected.ty.loose {
            // a custom resource must name its kind
            return match (kind, validation) {
                ("", FieldValidation::Ignore) => {
                    Err(expected.undecodable(&format!("Object 'Kind' is missing in '{}'", self.json())))
                }
                ("", _) => Err(self.unrecognized(expected, &missing("Kind"))),
                _ => Ok(()),
            };
        }
        match version.strip_suffix('/') {
            Some(group) if !group.is_empty() && group != group_of(expected.api_version) => {
                let kind = if kind.is_empty() { expected.kind } else { kind };
                let why = missing("apiVersion");
                Err(expected.unhandled(kind, "", &why))
            }
            _ => Ok(()),
        }
    }

    /// The body as JSON.
    fn json(&self) -> String {
        match (self.format, self.untyped()) {
            (Format::Yaml, Ok(untyped)) => {
                String::from_utf8_lossy(&encode::untyped(&untyped.value)).into_owned()
            }
            _ => String::from_utf8_lossy(&self.bytes).into_owned(),
        }
    }

    fn unrecognized(&self, expected: &Expected<'_>, why: &str) -> ApiError {
        let (kind, shown) = (expected.kind, shown(&self.bytes));
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {why} ({shown})"
        ))
    }

    fn decode_any(
        &self,
        expected: &Expected<'_>,
        validation: FieldValidation,
        wrong: &dyn Fn(&str) -> ApiError,
    ) -> Result<(Decoded, Vec<String>), ApiError> {
        let ty = expected.ty;
        let unrecognized = |why: &str| self.unrecognized(expected, why);
        let syntax = |why: &dyn std::fmt::Display| unrecognized(&format!("{NO_TYPE}: {why}"));
        if self.format == Format::Protobuf {
            let envelope = proto::open(&self.bytes).map_err(|why| unrecognized(&why.to_string()))?;
            let mut head = Value::map();
            head.set(&["kind"], envelope.kind.as_str());
            head.set(&["apiVersion"], envelope.api_version.as_str());
            check_type(&head, expected)?;
            let value = envelope.object(ty).map_err(|why| wrong(&why.to_string()))?;
            return Ok((Decoded { value, oddities: Vec::new() }, Vec::new()));
        }
        let (result, notes) = match self.format {
            Format::Json | Format::Protobuf => (decode::json(&self.bytes, ty), Vec::new()),
            Format::Yaml => {
                let document = yaml::parse(&self.bytes, yaml::Limits::default())
                    .map_err(|why| unrecognized(why.cause()))?;
                let mut repeated = document.repeated;
                if !repeated.is_empty() && (ty.loose || validation == FieldValidation::Strict) {
                    repeated = vec![format!("yaml: unmarshal errors:\n  {}", repeated.join("\n  "))];
                }
                (decode::tree(document.value, ty), repeated)
            }
        };
        match result {
            Ok(decoded) => Ok((decoded, notes)),
            Err(DecodeError::Syntax(why)) => Err(syntax(&why)),
            Err(DecodeError::NotAnObject(found)) => Err(syntax(&not_an_object(&found))),
            Err(DecodeError::Type(why)) => {
                // another kind is a better error than one of its fields
                if let Ok(other) = self.untyped() {
                    self.check_head(&other.value, expected, validation)?;
                    // embedded objects are known by the schema, which applies to objects of its own kind only
                    let in_schema = is_of_kind(&other.value, expected.kind, expected.api_version);
                    if ty.loose && (in_schema || is_of_own_metadata(&why)) {
                        let (kind, version) =
                            (other.value.text(&["kind"]), other.value.text(&["apiVersion"]));
                        return Err(expected.unhandled(kind, version, &why));
                    }
                    check_type(&other.value, expected)?;
                }
                Err(wrong(&why))
            }
        }
    }

    /// The version that the body names, whatever it holds otherwise.
    pub(crate) fn api_version(&self) -> Option<String> {
        match self.format {
            Format::Protobuf => proto::open(&self.bytes).ok().map(|envelope| envelope.api_version),
            _ => self.untyped().ok().map(|untyped| untyped.value.text(&["apiVersion"]).to_owned()),
        }
    }

    /// The tree as it is.
    pub fn untyped(&self) -> Result<Untyped, String> {
        match self.format {
            Format::Protobuf => Err("a protobuf message cannot be read without its type".to_owned()),
            Format::Json => {
                let decoded = decode::json_untyped(&self.bytes).map_err(|why| why.to_string())?;
                let oddities = decoded.oddities.iter().map(ToString::to_string).collect();
                Ok(Untyped { value: decoded.value, oddities })
            }
            Format::Yaml => {
                let document =
                    yaml::parse(&self.bytes, yaml::Limits::default()).map_err(|why| why.to_string())?;
                Ok(Untyped { value: document.value, oddities: document.repeated })
            }
        }
    }
}

impl Api {
    /// Decodes the body of a write into the normal form of the resource's kind.
    pub(crate) fn decode(&self, request: &mut WriteRequest<'_>, input: &Input) -> Result<Value, ApiError> {
        let resource = request.target();
        let expected = Expected {
            ty: &resource.kind.root,
            kind: &resource.kind.name,
            api_version: &resource.api_version,
            known: &|version, kind| self.resources().has_kind(version, kind),
        };
        let object = input.typed(&expected, request.options.field_validation, &mut request.warnings);
        let declared = request.view().is_some_and(|(view, _)| view.declared_at.is_some());
        let object = object.map_err(|why| if declared { unregistered(resource) } else { why })?;
        let hooks = &resource.hooks;
        if let Some(why) = hooks.decode.conversion_error.and_then(|of| of(&object)) {
            return Err(expected.undecodable(&why));
        }
        request.user.notes.record_object(&object, || {
            let mut shown = object.clone();
            resource.default(&mut shown, &self.names);
            encode::as_stored(&shown, &resource.kind.root, hooks.storage.empty_lists()).into()
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

/// Whether a mismatch is in the metadata of the object itself: such a message has no path.
fn is_of_own_metadata(why: &str) -> bool {
    why.starts_with("json: ")
}

/// Whether an oddity is found by the schema of a custom resource.
pub(crate) fn is_of_schema(oddity: &Oddity) -> bool {
    matches!(oddity, Oddity::Unknown(path) if !path.starts_with("metadata."))
}

/// The group of a version: `apps` of `apps/v1`, nothing of `v1`.
fn group_of(version: &str) -> &str {
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

/// Warns about oddities or rejects them, as `fieldValidation` requires; the error lists all of them.
pub fn report_oddities(
    oddities: Vec<String>,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<(), String> {
    match validation {
        FieldValidation::Strict if !oddities.is_empty() => {
            Err(format!("strict decoding error: {}", oddities.join(", ")))
        }
        FieldValidation::Warn => {
            let shown = request_record::count_shown(oddities.iter().map(String::as_str));
            warnings.extend(oddities.into_iter().take(shown));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Checks that the body's kind and version, where it names them, are those of the URL.
fn check_type(value: &Value, expected: &Expected<'_>) -> Result<(), ApiError> {
    let text = |field| match value.at(&[field]) {
        Some(Value::String(text)) if !text.is_empty() => text.as_str(),
        _ => "",
    };
    let (kind, version) = (text("kind"), text("apiVersion"));
    // the core group has no name
    let version = version.strip_prefix('/').unwrap_or(version);
    if expected.ty.loose {
        return check_custom_type(value, kind, version, expected);
    }
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
    let retired = names::is_retired(version, expected.api_version, kind);
    let served = group_of(version) == group_of(expected.api_version) && (expected.known)(version, kind);
    if kind == expected.kind && (retired || served) {
        return Err(other_version(version, expected));
    }
    let short = version.rsplit('/').next().unwrap_or_default();
    let why = if (expected.known)(version, kind) {
        let package = expected
            .api_version
            .split_once('/')
            .map_or("core", |(group, _)| group.split('.').next().unwrap_or(group));
        format!("converting ({short}.{kind}) to ({package}.{}): unknown conversion", expected.kind)
    } else {
        let scheme = names::scheme(&expected.ty.package);
        let (kind, version) = (quoted(kind), quoted(version));
        format!("no kind {kind} is registered for version {version} in scheme {scheme:?}")
    };
    Err(expected.unhandled(kind, version, &why))
}

fn other_version(version: &str, expected: &Expected<'_>) -> ApiError {
    ApiError::bad_request(format!(
        "the API version in the data ({version}) does not match the expected API version ({})",
        expected.api_version
    ))
}

/// Checks the kind and version of a custom resource.
fn check_custom_type(
    value: &Value,
    kind: &str,
    version: &str,
    expected: &Expected<'_>,
) -> Result<(), ApiError> {
    if version != expected.api_version {
        return Err(other_version(version, expected));
    }
    if kind == expected.kind {
        return Ok(());
    }
    let subject = Subject { group: group_of(version), kind, name: value.text(&["metadata", "name"]) };
    let why = format!("must be {}", expected.kind);
    Err(ApiError::invalid(subject, vec![Problem::invalid_text(&Path::ROOT.field("kind"), kind, &why)]))
}

/// The beginning of a body, for messages: text where it is an object, hexadecimal otherwise.
fn shown(bytes: &[u8]) -> String {
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
