//! Responses in plain text, for paths and failures outside of the API's own types.

use crate::serve::Body;
use http::{Response, StatusCode, header};
use schema::problem::quoted;

pub(crate) fn text(code: u16, text: String) -> Response<Body> {
    let mut response = Response::new(Body::full(text));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-cache, private"));
    response
}

/// 429 with `Retry-After`.
pub(super) fn too_many_requests(seconds: u32, why: &str) -> Response<Body> {
    let mut response = text(429, why.to_owned());
    response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from(seconds));
    response
}

/// 500 for a failure before authorization; its text is escaped for browsers.
pub(super) fn internal_error(uri: &http::Uri, why: &str) -> Response<Body> {
    let target = uri.path_and_query().map_or("", |it| it.as_str());
    let message = format!("Internal Server Error: {}: {why}\n", quoted(target));
    text(500, message.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"))
}

pub(super) fn not_found() -> Response<Body> {
    text(404, "404 page not found\n".to_owned())
}
