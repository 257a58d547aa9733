//! On whose behalf calls are made: those that are made while a traced request is carried out say so, in the header
//! that servers have in common.

use http::HeaderName;
use http::header::HeaderValue;

/// The header that says which span a request belongs to.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

tokio::task_local! {
    static PARENT: HeaderValue;
}

/// Does some work, whose calls belong to a span.
pub async fn within<F: Future>(parent: HeaderValue, work: F) -> F::Output {
    PARENT.scope(parent, work).await
}

/// The span that calls belong to now, if any.
pub(crate) fn parent() -> Option<HeaderValue> {
    PARENT.try_with(HeaderValue::clone).ok()
}
