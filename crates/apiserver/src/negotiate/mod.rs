//! Content negotiation: media types of requests and responses.

mod accept;
mod compress;
mod pretty;
mod revalidate;
pub(crate) mod status;
pub mod table;

pub use accept::{Form, Offer, Output, Transform};
pub(crate) use accept::{accepts_any, prefers_aggregated};
pub use compress::{MIN_BYTES, accepts_gzip, gzip};
pub use pretty::{Indenter, is_pretty_requested, pretty};
pub use revalidate::with_etag;

use http::{HeaderMap, header};
use names::Names;
use rest::ApiError;
use rest::Format;

const APPLY: &str = "application/apply-patch+yaml";

/// The format of a body by its content type.
pub fn body_format(content_type: Option<&str>, names: &Names) -> Result<Format, ApiError> {
    let mut parts = content_type.unwrap_or("application/json").split(';').map(str::trim);
    let media = parts.next().unwrap_or("").to_ascii_lowercase();
    // parameters must be `name=value`, otherwise it is no media type
    let proper = parts.all(|part| part.is_empty() || part.split_once('=').is_some());
    let protobuf = names.protobuf_media_type();
    match &*media {
        "" | "application/json" if proper => Ok(Format::Json),
        "application/yaml" if proper => Ok(Format::Yaml),
        media if proper && media == protobuf => Ok(Format::Protobuf),
        _ => Err(ApiError::unsupported_media_type(&["application/json", "application/yaml", &protobuf])),
    }
}

/// Whether a patch is a server-side apply.
pub fn is_apply(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    patch_type(content_type) == APPLY
}

/// The media type of a patch, without parameters.
pub fn patch_type(content_type: Option<&str>) -> &str {
    content_type.unwrap_or("").split(';').next().unwrap_or("").trim()
}
