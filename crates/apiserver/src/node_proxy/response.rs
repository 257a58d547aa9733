//! Responses of agents and proxied servers, as clients of this server get them.

use super::links::LinkTarget;
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use rest::{ApiError, Details};
use schema::problem::quoted;

/// How much is read of an error.
const ERROR_LIMIT: usize = 50_000;

/// The error of a response that is none of success.
pub async fn error(status: StatusCode, body: Incoming, resource: &str, name: &str) -> ApiError {
    let read = Limited::new(body, ERROR_LIMIT).collect().await;
    let body = read.map(|it| it.to_bytes()).unwrap_or_default();
    error_of(status, &body, resource, name)
}

fn error_of(status: StatusCode, body: &Bytes, resource: &str, name: &str) -> ApiError {
    let text = String::from_utf8_lossy(body).into_owned();
    let (reason, message) = match status.as_u16() {
        500 => return ApiError::internal_error(text),
        400 => return ApiError::bad_request(text),
        401 => ("Unauthorized", "the server has asked for the client to provide credentials".to_owned()),
        403 => ("Forbidden", text),
        404 => ("NotFound", "the server could not find the requested resource".to_owned()),
        405 => {
            ("MethodNotAllowed", "the server does not allow this method on the requested resource".to_owned())
        }
        429 => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later".to_owned(),
        ),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request".to_owned()),
        504 => (
            "Timeout",
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned(),
        ),
        code if code > 500 => (
            "InternalError",
            format!("an error on the server ({}) has prevented the request from succeeding", quoted(&text)),
        ),
        code => (
            "",
            format!("the server responded with the status code {code} but did not return more information"),
        ),
    };
    let mut error = ApiError::internal(format!("{message} ( {resource} {name})"));
    error.code = status.as_u16();
    error.reason = reason.into();
    error.details =
        Some(Box::new(Details { name: name.to_owned(), kind: resource.to_owned(), ..Details::default() }));
    error
}

/// Rewrites a redirect within the proxied server to the path of the proxy; false if there is none.
pub fn rewrite_location(headers: &mut HeaderMap, target: &LinkTarget) -> bool {
    let Some(location) = headers.get(header::LOCATION) else { return false };
    let rewritten = location.to_str().ok().and_then(|location| target.rewrite(location));
    if let Some(value) = rewritten.and_then(|it| HeaderValue::try_from(it).ok()) {
        headers.insert(header::LOCATION, value);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_agents_become_errors_of_the_api() {
        let check = |code: u16, text: &'static str| {
            let status = StatusCode::from_u16(code).unwrap();
            let error = error_of(status, &Bytes::from_static(text.as_bytes()), "pods/log", "p");
            format!("{} {} {}", error.code, error.reason, error.message)
        };
        assert_eq!(check(400, "container waits"), "400 BadRequest container waits");
        assert_eq!(check(500, "x"), "500 InternalError Internal error occurred: x");
        assert_eq!(
            check(404, "no"),
            "404 NotFound the server could not find the requested resource ( pods/log p)"
        );
        assert_eq!(check(403, "Forbidden (user=u)"), "403 Forbidden Forbidden (user=u) ( pods/log p)");
        assert_eq!(
            check(502, "bad"),
            "502 InternalError an error on the server (\"bad\") has prevented the request from succeeding ( pods/log p)"
        );
    }

    #[test]
    fn redirects_stay_within_the_proxy() {
        let target = LinkTarget {
            prefix: "/api/v1/namespaces/d/pods/p/proxy".to_owned(),
            host: "10.0.0.1:80".to_owned(),
            client_host: "localhost:8001".to_owned(),
        };
        for (location, expected) in [
            ("/a", "/api/v1/namespaces/d/pods/p/proxy/a"),
            ("/a/?b#c", "/api/v1/namespaces/d/pods/p/proxy/a/?b#c"),
            ("http://10.0.0.1:80/a", "/api/v1/namespaces/d/pods/p/proxy/a"),
            ("http://other/a", "http://other/a"),
            ("a", "a"),
            ("/api/v1/namespaces/d/pods/p/proxy/a", "/api/v1/namespaces/d/pods/p/proxy/a"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::LOCATION, HeaderValue::from_static(location));
            assert!(rewrite_location(&mut headers, &target));
            assert_eq!(headers[header::LOCATION], expected);
        }
    }
}
