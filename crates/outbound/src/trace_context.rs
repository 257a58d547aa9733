//! Trace context propagation: calls made on behalf of a traced request carry its `traceparent` header.

use http::HeaderName;
use http::header::HeaderValue;

/// The W3C header with the parent span.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

tokio::task_local! {
    static PARENT: HeaderValue;
}

/// Runs a future whose calls belong to a span.
pub async fn within<F: Future>(parent: HeaderValue, work: F) -> F::Output {
    PARENT.scope(parent, work).await
}

/// The current span, if any.
pub(crate) fn parent() -> Option<HeaderValue> {
    PARENT.try_with(HeaderValue::clone).ok()
}
