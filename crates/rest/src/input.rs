//! The body of a write: decoded against the kind that the URL names.

use crate::error::ApiError;
use crate::options::FieldValidation;
use crate::resource::Resource;
use bytes::Bytes;
use schema::decode::{self, DecodeError, Decoded};
use schema::table::Type;
use schema::{Value, yaml};

/// A body as it came.
#[derive(Debug, Clone)]
pub struct Input {
    pub bytes: Bytes,
    pub format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
}

/// A decoded tree without a table, and what was odd about its text.
pub struct Untyped {
    pub value: Value,
    pub oddities: Vec<String>,
}

impl Input {
    /// The object in the normal form of the resource's kind. Oddities become warnings or an error.
    pub fn object(
        &self,
        resource: &Resource,
        validation: FieldValidation,
        warnings: &mut Vec<String>,
    ) -> Result<Value, ApiError> {
        self.typed(&resource.kind.root, &resource.kind.name, &resource.api_version, validation, warnings)
    }

    /// The same for a kind that is no resource of its own.
    pub fn typed(
        &self,
        ty: &Type,
        kind: &str,
        api_version: &str,
        validation: FieldValidation,
        warnings: &mut Vec<String>,
    ) -> Result<Value, ApiError> {
        let version = api_version.rsplit('/').next().unwrap_or(api_version);
        let wrong = |why: &str| {
            ApiError::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: {why}"
            ))
        };
        let (decoded, mut oddities) = self.decode(ty, kind, &wrong)?;
        check_type(&decoded.value, kind, api_version)?;
        oddities.extend(decoded.oddities.iter().map(ToString::to_string));
        judge(oddities, validation, warnings).map_err(|why| wrong(&why))?;
        let mut value = decoded.value;
        value.set(&["kind"], kind);
        value.set(&["apiVersion"], api_version);
        Ok(value)
    }

    fn decode(
        &self,
        ty: &Type,
        kind: &str,
        wrong: &dyn Fn(&str) -> ApiError,
    ) -> Result<(Decoded, Vec<String>), ApiError> {
        let unrecognized = |why: &str| {
            let shown = shown(&self.bytes);
            ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): {why} ({shown})"
            ))
        };
        let syntax = |why: &dyn std::fmt::Display| {
            unrecognized(&format!("couldn't get version/kind; json parse error: {why}"))
        };
        let (result, notes) = match self.format {
            Format::Json => (decode::json(&self.bytes, ty), Vec::new()),
            Format::Yaml => {
                let document = yaml::parse(&self.bytes, yaml::Limits::default())
                    .map_err(|why| unrecognized(why.cause()))?;
                (decode::tree(document.value, ty), document.repeated)
            }
        };
        match result {
            Ok(decoded) => Ok((decoded, notes)),
            Err(DecodeError::Syntax(why)) => Err(syntax(&why)),
            Err(DecodeError::Type(why)) => {
                // a body of another kind is told so, rather than which of its fields do not fit
                if let Ok(other) = self.untyped() {
                    check_type(&other.value, kind, "")?;
                }
                Err(wrong(&why))
            }
        }
    }

    /// The tree as it is.
    pub fn untyped(&self) -> Result<Untyped, String> {
        match self.format {
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

/// Warns or refuses, as `fieldValidation` says; the error is the text of all oddities.
pub fn judge(
    oddities: Vec<String>,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<(), String> {
    match validation {
        FieldValidation::Strict if !oddities.is_empty() => {
            Err(format!("strict decoding error: {}", oddities.join(", ")))
        }
        FieldValidation::Warn => {
            warnings.extend(oddities);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The body's own kind and version must be those of the URL where it names them. An empty expected version
/// is not compared.
fn check_type(value: &Value, kind: &str, api_version: &str) -> Result<(), ApiError> {
    let (given_kind, given_version) = (value.text(&["kind"]), value.text(&["apiVersion"]));
    let version = given_version.rsplit('/').next().unwrap_or_default();
    let refused = |why: String| {
        Err(ApiError::bad_request(format!(
            "{given_kind} in version {version:?} cannot be handled as a {kind}: {why}"
        )))
    };
    let wrong_version = !given_version.is_empty() && !api_version.is_empty() && given_version != api_version;
    if !given_kind.is_empty() && given_kind != kind || wrong_version {
        return refused(format!(
            "no kind {given_kind:?} is registered for version {given_version:?} in this resource"
        ));
    }
    Ok(())
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
