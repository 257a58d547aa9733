//! Metrics, log lines and spans of one request, from its arrival to its response.
//!
//! However a request ends, it is counted once: when it is answered, when its client is gone, or when the server made
//! a mistake. One that took long leaves a line that says where the time went, every request does with `-v 3`.

use super::service::Service;
use crate::audit::ID;
use crate::discovery::metrics::Labels;
use crate::request::RequestInfo;
use crate::serve::{Body, Peer};
use crate::trace::{Told, Traced};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, header};
use rest::RequestRecord;
use std::fmt::Write as _;
use std::time::Duration;
use tracing::Level;

/// From here on a request took long.
const LONG: Duration = Duration::from_millis(500);

/// A request that is not answered yet.
pub(super) struct RequestScope<'a> {
    pub service: &'a Service,
    pub asked: &'a RequestInfo,
    pub parts: &'a Parts,
    pub peer: &'a Peer,
    pub came: Duration,
    traced: Option<Traced>,
    answered: bool,
}

impl<'a> RequestScope<'a> {
    pub fn new(
        service: &'a Service,
        asked: &'a RequestInfo,
        parts: &'a Parts,
        peer: &'a Peer,
        came: Duration,
    ) -> Self {
        let traced = service.tracing.as_ref().and_then(|tracing| tracing.begin(&parts.headers, came));
        RequestScope { service, asked, parts, peer, came, traced, answered: false }
    }

    /// What calls on its behalf say, if it is traced.
    pub fn traceparent(&self) -> Option<HeaderValue> {
        self.traced.as_ref().and_then(Traced::header)
    }

    pub fn labels(&self) -> Labels<'a> {
        Labels::of(self.asked, &self.parts.headers, &self.service.api)
    }

    fn took(&self) -> Duration {
        self.service.api.world.elapsed().saturating_sub(self.came)
    }

    /// There is an answer. What lasts is counted when it ends.
    pub fn answered(mut self, notes: &RequestRecord, response: Response<Body>) -> Response<Body> {
        self.answered = true;
        let took = self.took();
        self.tell(took, &response);
        self.end_span(took, notes, &response);
        if self.asked.verb == "watch" && matches!(response.body(), Body::Stream(_)) {
            return response;
        }
        if took >= LONG {
            self.tell_where_the_time_went(took, notes, &response);
        }
        let (labels, code) = (self.labels(), response.status());
        let requests = &self.service.metrics.requests;
        response.map(|body| requests.answered(&labels, code, (took, notes.elsewhere()), body))
    }

    /// The server made a mistake.
    pub fn broke(mut self) {
        self.answered = true;
        self.service.metrics.requests.broke(&self.labels(), self.took());
        tracing::error!(
            verb = self.labels().verb(),
            URI = self.uri(),
            "audit-ID" = text(self.parts.headers.get(ID)),
            srcIP = %self.peer.remote,
            "the server made a mistake with this request",
        );
    }

    fn end_span(&self, took: Duration, notes: &RequestRecord, response: &Response<Body>) {
        let (Some(tracing), Some(traced)) = (&self.service.tracing, &self.traced) else { return };
        let told = Told {
            method: self.parts.method.as_str(),
            target: self.uri(),
            agent: text(self.parts.headers.get(header::USER_AGENT)),
            peer: self.peer.remote.to_string(),
            id: text(id(response.headers(), &self.parts.headers)),
            code: response.status().as_u16(),
        };
        tracing.end(traced, took, notes, &told);
    }

    fn uri(&self) -> &str {
        self.parts.uri.path_and_query().map_or("/", |it| it.as_str())
    }

    /// The line of a request among those of all.
    fn tell(&self, took: Duration, response: &Response<Body>) {
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

    fn tell_where_the_time_went(&self, took: Duration, notes: &RequestRecord, response: &Response<Body>) {
        let Some(kept_back) = self.service.slow.now() else { return };
        let (mut steps, mut before) = (String::new(), self.came);
        for (step, at) in notes.steps() {
            // writing to a string cannot fail
            let _ = write!(steps, "{}={:?} ", step.name(), at.saturating_sub(before));
            before = before.max(at);
        }
        let _ = write!(steps, "answer={:?}", (self.came + took).saturating_sub(before));
        tracing::warn!(
            verb = self.labels().verb(),
            URI = self.uri(),
            ?took,
            steps,
            userAgent = text(self.parts.headers.get(header::USER_AGENT)),
            "audit-ID" = text(id(response.headers(), &self.parts.headers)),
            srcIP = %self.peer.remote,
            resp = response.status().as_u16(),
            kept_back,
            "a request took long",
        );
    }
}

/// The name of a request that client and server share: that of the record, or what the client calls it.
fn id<'a>(answer: &'a HeaderMap, request: &'a HeaderMap) -> Option<&'a HeaderValue> {
    answer.get(ID).or_else(|| request.get(ID))
}

fn text(value: Option<&HeaderValue>) -> &str {
    value.and_then(|value| value.to_str().ok()).unwrap_or("")
}

impl Drop for RequestScope<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.service.metrics.requests.aborted(&self.labels());
        }
    }
}
