//! Metrics, log lines and spans of one request, from its arrival to its response.
//!
//! Each request is counted once, however it ends: with a response, with a disconnect, or with a panic. A slow
//! one is logged with the time of each step, and every request is with `-v 3`.

use super::service::Service;
use crate::audit::ID;
use crate::discovery::metrics::Labels;
use crate::request::RequestInfo;
use crate::serve::{Body, Peer};
use crate::trace::{RequestSpan, SpanAttributes};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, header};
use rest::RequestRecord;
use std::fmt::Write as _;
use std::time::Duration;
use tracing::Level;

/// Minimum duration of a slow request.
const LONG: Duration = Duration::from_millis(500);

/// A request without a response yet.
pub(super) struct RequestScope<'a> {
    pub service: &'a Service,
    pub info: &'a RequestInfo,
    pub parts: &'a Parts,
    pub peer: &'a Peer,
    pub received: Duration,
    span: Option<RequestSpan>,
    is_complete: bool,
}

impl<'a> RequestScope<'a> {
    pub fn new(
        service: &'a Service,
        info: &'a RequestInfo,
        parts: &'a Parts,
        peer: &'a Peer,
        received: Duration,
    ) -> Self {
        let span = service.tracing.as_ref().and_then(|tracing| tracing.begin(&parts.headers, received));
        RequestScope { service, info, parts, peer, received, span, is_complete: false }
    }

    /// The `traceparent` of outgoing calls, if the request is traced.
    pub fn traceparent(&self) -> Option<HeaderValue> {
        self.span.as_ref().and_then(RequestSpan::header)
    }

    pub fn labels(&self) -> Labels<'a> {
        Labels::of(self.info, &self.parts.headers, &self.service.api)
    }

    fn took(&self) -> Duration {
        self.service.api.world.elapsed().saturating_sub(self.received)
    }

    /// Counts the response. A long-running one is counted when it ends.
    pub fn complete(mut self, record: &RequestRecord, response: Response<Body>) -> Response<Body> {
        self.is_complete = true;
        let took = self.took();
        self.log(took, &response);
        self.end_span(took, record, &response);
        if self.info.verb == "watch" && matches!(response.body(), Body::Stream(_)) {
            return response;
        }
        if took >= LONG {
            self.log_steps(took, record, &response);
        }
        let (labels, code) = (self.labels(), response.status());
        let requests = &self.service.metrics.requests;
        response.map(|body| requests.record_response(&labels, code, (took, record.webhook_duration()), body))
    }

    /// Counts and logs a panic.
    pub fn record_panic(mut self) {
        self.is_complete = true;
        self.service.metrics.requests.record_panic(&self.labels(), self.took());
        tracing::error!(
            verb = self.labels().verb(),
            URI = self.uri(),
            "audit-ID" = text(self.parts.headers.get(ID)),
            srcIP = %self.peer.remote,
            "a request handler panicked",
        );
    }

    fn end_span(&self, took: Duration, record: &RequestRecord, response: &Response<Body>) {
        let (Some(tracing), Some(span)) = (&self.service.tracing, &self.span) else { return };
        let attributes = SpanAttributes {
            method: self.parts.method.as_str(),
            target: self.uri(),
            agent: text(self.parts.headers.get(header::USER_AGENT)),
            peer: self.peer.remote.to_string(),
            id: text(id(response.headers(), &self.parts.headers)),
            code: response.status().as_u16(),
        };
        tracing.end(span, took, record, &attributes);
    }

    fn uri(&self) -> &str {
        self.parts.uri.path_and_query().map_or("/", |it| it.as_str())
    }

    /// The log line of a request.
    fn log(&self, took: Duration, response: &Response<Body>) {
        if !tracing::enabled!(target: "access", Level::INFO) {
            return;
        }
        tracing::info!(
            target: "access",
            verb = self.labels().verb(),
            URI = self.uri(),
            latency = ?took,
            userAgent = text(self.parts.headers.get(header::USER_AGENT)),
            "audit-ID" = text(id(response.headers(), &self.parts.headers)),
            srcIP = %self.peer.remote,
            resp = response.status().as_u16(),
            "HTTP",
        );
    }

    fn log_steps(&self, took: Duration, record: &RequestRecord, response: &Response<Body>) {
        let Some(suppressed) = self.service.slow.now() else { return };
        let (mut steps, mut before) = (String::new(), self.received);
        for (step, at) in record.steps() {
            // writing to a string cannot fail
            let _ = write!(steps, "{}={:?} ", step.name(), at.saturating_sub(before));
            before = before.max(at);
        }
        let _ = write!(steps, "answer={:?}", (self.received + took).saturating_sub(before));
        tracing::warn!(
            verb = self.labels().verb(),
            URI = self.uri(),
            ?took,
            steps,
            userAgent = text(self.parts.headers.get(header::USER_AGENT)),
            "audit-ID" = text(id(response.headers(), &self.parts.headers)),
            srcIP = %self.peer.remote,
            resp = response.status().as_u16(),
            suppressed,
            "a request took long",
        );
    }
}

/// The request id that client and server share: the audit id, or the client's own.
fn id<'a>(answer: &'a HeaderMap, request: &'a HeaderMap) -> Option<&'a HeaderValue> {
    answer.get(ID).or_else(|| request.get(ID))
}

fn text(value: Option<&HeaderValue>) -> &str {
    value.and_then(|value| value.to_str().ok()).unwrap_or("")
}

impl Drop for RequestScope<'_> {
    fn drop(&mut self) {
        if !self.is_complete {
            self.service.metrics.requests.record_abort(&self.labels());
        }
    }
}
