//! A request with its user, body and record.

use crate::outgoing::forwarding::RequestBody;
use crate::request::RequestInfo;
use crate::serve::{NO_CONNECTION, Peer};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, header};
use parking_lot::Mutex;
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
    /// Of a request that is forwarded to a node; its body was not read.
    pub stream: Option<RequestStream<'a>>,
}

/// The parts of a request that is streamed to another server.
pub(crate) struct RequestStream<'a> {
    pub parts: &'a Parts,
    pub peer: &'a Peer,
    pub body: Mutex<Option<RequestBody>>,
}

impl RequestContext<'_> {
    /// Whether it comes from a component in the process of the server.
    pub fn is_in_process(&self) -> bool {
        self.connection == NO_CONNECTION
    }

    pub fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}
