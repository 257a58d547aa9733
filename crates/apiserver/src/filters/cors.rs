//! CORS: allowed origins, and Strict-Transport-Security.
//!
//! Invariant: a page of an origin that is not allowed gets the ordinary response, without the headers that
//! would let its browser read it. Nothing here authenticates.

use crate::serve::Body;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use regex::Regex;

const METHODS: HeaderValue = HeaderValue::from_static("POST, GET, OPTIONS, PUT, DELETE, PATCH");
const HEADERS: HeaderValue = HeaderValue::from_static(
    "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since",
);
const EXPOSED: HeaderValue = HeaderValue::from_static("Date");

/// CORS and HSTS options.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Origins whose pages may send requests.
    pub origins: Vec<Origin>,
    /// Directives of `Strict-Transport-Security`.
    pub transport_security: Vec<String>,
}

/// A regular expression for origins, unanchored.
#[derive(Debug, Clone)]
pub struct Origin(Regex);

impl Origin {
    pub fn parse(pattern: &str) -> Result<Self, String> {
        Regex::new(pattern).map(Origin).map_err(|_| format!("{pattern:?} is no regular expression"))
    }
}

/// The configured headers.
#[derive(Debug, Default)]
pub(crate) struct Cors {
    origins: Vec<Origin>,
    transport_security: Option<HeaderValue>,
}

impl Cors {
    pub fn new(options: Options) -> Self {
        let directives = options.transport_security.join("; ");
        let transport_security = HeaderValue::from_str(&directives).ok().filter(|it| !it.is_empty());
        Cors { origins: options.origins, transport_security }
    }

    /// The origin of a request, if it is allowed.
    pub fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        if self.origins.is_empty() {
            return None;
        }
        let origin = headers.get(header::ORIGIN)?;
        let text = origin.to_str().ok()?;
        self.origins.iter().any(|Origin(pattern)| pattern.is_match(text)).then(|| origin.clone())
    }

    /// The response to a CORS preflight request.
    pub fn preflight(&self, method: &Method, allowed: Option<&HeaderValue>) -> Option<Response<Body>> {
        (*method == Method::OPTIONS && allowed.is_some()).then(|| {
            let mut response = Response::new(Body::Empty);
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        })
    }

    /// Adds the CORS and HSTS headers.
    pub fn add_headers(&self, headers: &mut HeaderMap, allowed: Option<HeaderValue>) {
        if let Some(directives) = &self.transport_security {
            headers.insert(header::STRICT_TRANSPORT_SECURITY, directives.clone());
        }
        let Some(origin) = allowed else { return };
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
    }
}
