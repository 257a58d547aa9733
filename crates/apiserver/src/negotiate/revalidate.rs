//! Cache revalidation: `ETag` and `If-None-Match`.

use crate::serve::Body;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Response, StatusCode};

/// Whether `If-None-Match` contains a tag. `*` matches any, and weak tags match too.
fn matches(headers: &HeaderMap, tag: &str) -> bool {
    let mut listed = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    listed.any(|tags| {
        tags.trim() == "*" || tags.split(',').any(|one| one.trim().trim_start_matches("W/") == tag)
    })
}

/// Sets the `ETag`, and responds with 304 if the client has the document.
pub fn with_etag(mut response: Response<Body>, hash: &str, request: &HeaderMap) -> Response<Body> {
    let tag = format!("\"{hash}\"");
    if matches(request, &tag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = Body::Empty;
        response.headers_mut().remove(header::CONTENT_TYPE);
        response.headers_mut().remove(header::CONTENT_ENCODING);
    }
    if let Ok(value) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_tag_is_not_modified() {
        for (have, code) in [
            (&["\"A\""][..], 304),
            (&["W/\"A\""], 304),
            (&["\"B\" , \"A\""], 304),
            (&["\"B\"", "\"A\""], 304),
            (&["*"], 304),
            (&["\"B\""], 200),
            (&["A"], 200),
            (&["\"AA\""], 200),
            (&[], 200),
        ] {
            let mut request = HeaderMap::new();
            for one in have {
                request.append(header::IF_NONE_MATCH, HeaderValue::from_static(one));
            }
            let response = with_etag(Response::new(Body::full("x")), "A", &request);
            assert_eq!(response.status(), code, "{have:?}");
            assert_eq!(response.headers()[header::ETAG], "\"A\"");
            assert_eq!(matches!(response.body(), Body::Empty), code == 304);
        }
    }
}
