//! Decodes the options of a request from its body.
//!
//! Options belong to no group: they come under the version of any group, in each format. Their error messages are
//! shorter than those of objects, as upstream has them.

use crate::model::error::ApiError;
use crate::pipeline::decode::{Format, Input, NO_TYPE, not_an_object, untyped_field};
use names::SCHEME_OF_OPTIONS;
use schema::decode::{self, DecodeError};
use schema::problem::quoted;
use schema::table::Type;
use schema::{Value, proto, yaml};

/// Types besides options that belong to no group either.
const OF_ANY_GROUP: [&str; 7] = [
    "CreateOptions",
    "UpdateOptions",
    "Status",
    "APIVersions",
    "APIGroup",
    "APIGroupList",
    "APIResourceList",
];

/// Types that exist only in the group of metadata.
const OF_META: [&str; 8] = [
    "PatchOptions",
    "ListOptions",
    "GetOptions",
    "WatchEvent",
    "Table",
    "TableOptions",
    "PartialObjectMetadata",
    "PartialObjectMetadataList",
];

impl Input {
    /// The options of a kind, which belongs to the group of metadata.
    pub fn options(&self, ty: &Type, kind: &str, meta_group: &str) -> Result<Value, ApiError> {
        let meta = format!("{meta_group}/v1");
        if self.format == Format::Protobuf {
            let envelope = proto::open(&self.bytes).map_err(|why| ApiError::bad_request(why.to_string()))?;
            let version = Some(&*envelope.api_version).filter(|version| is_version(version)).unwrap_or("");
            check(version, &envelope.kind, kind, &meta)?;
            return envelope.object(ty).map_err(|why| ApiError::bad_request(why.to_string()));
        }
        let checked = |value: &Value| {
            let version = value.text(&["apiVersion"]);
            if !is_version(version) {
                return Err(ApiError::bad_request(format!("unexpected GroupVersion string: {version}")));
            }
            check(version, value.text(&["kind"]), kind, &meta)
        };
        let decoded = match self.format {
            Format::Yaml => {
                let document = yaml::parse(&self.bytes, yaml::Limits::default());
                let document = document.map_err(|why| ApiError::bad_request(why.cause()))?;
                decode::tree_with_integers(document.value, document.integers, ty)
            }
            Format::Json | Format::Protobuf => decode::json(&self.bytes, ty),
        };
        let no_type = |why: String| ApiError::bad_request(format!("{NO_TYPE}: {why}"));
        match decoded {
            Ok(decoded) => checked(&decoded.value).map(|()| decoded.value),
            Err(DecodeError::Syntax(why)) => Err(no_type(why.to_string())),
            Err(DecodeError::NotAnObject(found)) => Err(no_type(not_an_object(&found))),
            Err(DecodeError::Type(why)) => {
                // another kind is a better error than one of its fields
                if let Ok(other) = self.untyped() {
                    if let Some(why) = untyped_field(&other.value) {
                        return Err(no_type(why));
                    }
                    checked(&other.value)?;
                }
                Err(ApiError::bad_request(why))
            }
        }
    }
}

/// Whether a text can be the version of a group.
fn is_version(text: &str) -> bool {
    text.matches('/').count() < 2
}

fn check(version: &str, kind: &str, expected: &str, meta: &str) -> Result<(), ApiError> {
    if kind.is_empty() || kind == expected {
        return Ok(());
    }
    let version = if version.is_empty() { meta } else { version };
    let is_known = OF_ANY_GROUP.contains(&kind) || version == meta && OF_META.contains(&kind);
    Err(ApiError::bad_request(if is_known {
        format!("converting (v1.{kind}) to (v1.{expected}): unknown conversion")
    } else {
        let (kind, version) = (quoted(kind), quoted(version));
        format!("no kind {kind} is registered for version {version} in scheme {SCHEME_OF_OPTIONS:?}")
    }))
}
