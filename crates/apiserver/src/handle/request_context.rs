//! A request with its user, body and record.

use crate::request::RequestInfo;
use bytes::Bytes;
use http::{HeaderMap, header};
use rest::RequestRecord;
use std::sync::Arc;

/// The context of a request.
pub(crate) struct RequestContext<'a> {
    pub info: &'a RequestInfo,
    pub headers: &'a HeaderMap,
    pub user: Arc<auth::User>,
    pub body: Bytes,
    /// Id of the connection.
    pub connection: u64,
    /// Warnings, annotations and timings of the request.
    pub record: Arc<RequestRecord>,
}

impl RequestContext<'_> {
    pub fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}
