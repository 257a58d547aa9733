//! Documents that a client may have already: `ETag` and `If-None-Match`.

use crate::serve::Body;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Response, StatusCode};

/// Whether a client has what this tag stands for. Tags are listed with commas, `*` is any, and weak ones are as good:
/// what matters is that the client need not be sent it again.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let mut listed = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    listed.any(|tags| {
        tags.trim() == "*" || tags.split(',').any(|one| one.trim().trim_start_matches("W/") == tag)
    })
}

/// Tags an answer, and leaves out what the client has already.
pub fn tagged(mut response: Response<Body>, hash: &str, asked: &HeaderMap) -> Response<Body> {
    let tag = format!("\"{hash}\"");
    if is_known(asked, &tag) {
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
    fn who_has_it_is_not_sent_it_again() {
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
            let mut asked = HeaderMap::new();
            for one in have {
                asked.append(header::IF_NONE_MATCH, HeaderValue::from_static(one));
            }
            let response = tagged(Response::new(Body::full("x")), "A", &asked);
            assert_eq!(response.status(), code, "{have:?}");
            assert_eq!(response.headers()[header::ETAG], "\"A\"");
            assert_eq!(matches!(response.body(), Body::Empty), code == 304);
        }
    }
}
