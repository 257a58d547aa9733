//! `/simulation/faults`: the faults of a cluster for tests.
//!
//! GET returns the rules with their counts, PUT replaces them, DELETE removes them; each returns the rules that are then
//! in force. The body of PUT is a document in YAML or JSON. Only who may use this path, the administrators by default,
//! injects faults.

use super::request_context::RequestContext;
use super::service::Service;
use crate::serve::Body;
use http::header::{self, HeaderValue};
use http::{Method, Response};
use rest::ApiError;

impl Service {
    pub(super) fn serve_faults(&self, context: &RequestContext<'_>) -> Result<Response<Body>, ApiError> {
        let Some(faults) = &self.faults else { return Err(ApiError::no_such_path()) };
        match context.info.method {
            Method::GET => {}
            Method::PUT => faults
                .replace(&context.body)
                .map_err(|mistakes| ApiError::bad_request(mistakes.join("; ")))?,
            Method::DELETE => faults.clear(),
            _ => return Err(ApiError::method_not_allowed()),
        }
        if context.info.method != Method::GET {
            tracing::info!(user = context.user.name, "the faults were replaced");
        }
        let mut response = Response::new(Body::full(schema::encode::untyped(&faults.document())));
        let media = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, media);
        Ok(response)
    }
}
