//! Validation of HTTP/1 `Host` headers. Exactly one valid host is required; otherwise 400 with upstream's
//! texts.

use super::Body;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version, header};
use hyper::ext::ReasonPhrase;

/// The response to a request without a valid host.
pub(super) fn refuse(version: Version, headers: &HeaderMap) -> Option<Response<Body>> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let text = match (hosts.next(), hosts.next()) {
        (Some(_), Some(_)) => "400 Bad Request",
        (None, _) if version >= Version::HTTP_11 => "400 Bad Request: missing required Host header",
        (Some(host), None) if !host.as_bytes().iter().all(is_host_byte) => {
            "400 Bad Request: malformed Host header"
        }
        _ => return None,
    };
    let mut response = Response::new(Body::full(text));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    if let Some(reason) = text.strip_prefix("400 ") {
        response.extensions_mut().insert(ReasonPhrase::from_static(reason.as_bytes()));
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    Some(response)
}

/// Whether a byte may be part of a URL host with its port.
fn is_host_byte(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$%&()*+,-.:;=['_]~".contains(byte)
}
