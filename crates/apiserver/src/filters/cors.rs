//! CORS: allowed origins, and Strict-Transport-Security.
//!
//! What always holds: pages that nobody allowed get the answer of anybody else, without the headers that would let a
//! browser show it to them. Nothing here decides who is calling.

use crate::serve::Body;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use regex::Regex;

const METHODS: HeaderValue = HeaderValue::from_static("POST, GET, OPTIONS, PUT, DELETE, PATCH");
const HEADERS: HeaderValue = HeaderValue::from_static(
    "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since",
);
const EXPOSED: HeaderValue = HeaderValue::from_static("Date");

/// What the operator decided.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Origins of pages that may ask.
    pub origins: Vec<Origin>,
    /// Directives of `Strict-Transport-Security`.
    pub transport_security: Vec<String>,
}

/// A pattern of origins, found anywhere in one unless it says where.
#[derive(Debug, Clone)]
pub struct Origin(Regex);

impl Origin {
    pub fn parse(pattern: &str) -> Result<Self, String> {
        Regex::new(pattern).map(Origin).map_err(|_| format!("{pattern:?} is no regular expression"))
    }
}

/// What the operator decided, ready to be told.
#[derive(Debug, Default)]
pub(crate) struct Browsers {
    origins: Vec<Origin>,
    transport_security: Option<HeaderValue>,
}

impl Browsers {
    pub fn new(options: Options) -> Self {
        let directives = options.transport_security.join("; ");
        let transport_security = HeaderValue::from_str(&directives).ok().filter(|it| !it.is_empty());
        Browsers { origins: options.origins, transport_security }
    }

    /// The origin of a request, if its pages may ask.
    pub fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        if self.origins.is_empty() {
            return None;
        }
        let origin = headers.get(header::ORIGIN)?;
        let text = origin.to_str().ok()?;
        self.origins.iter().any(|Origin(pattern)| pattern.is_match(text)).then(|| origin.clone())
    }

    /// The answer to a browser that asks whether it may ask.
    pub fn preflight(&self, method: &Method, allowed: Option<&HeaderValue>) -> Option<Response<Body>> {
        (*method == Method::OPTIONS && allowed.is_some()).then(|| {
            let mut answer = Response::new(Body::Empty);
            *answer.status_mut() = StatusCode::NO_CONTENT;
            answer
        })
    }

    /// Adds what browsers look at.
    pub fn tell(&self, headers: &mut HeaderMap, allowed: Option<HeaderValue>) {
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
