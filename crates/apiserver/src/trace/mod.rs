//! Tracing of requests: one span per request and per step, sent to a collector.
//!
//! ```text
//! KubernetesAPI ─ authentication ─ priorityandfairness ─ authorization ─ admission ─ store
//! ```
//!
//! Webhook calls of a traced request carry its span on. Without a configuration nothing is traced.

mod configuration;

pub use configuration::{Configuration, InvalidConfiguration};

use env::World;
use http::{HeaderMap, HeaderValue};
use metrics::Registry;
use outbound::trace::{OpenSpan, Span, SpanContext, SpanKind, Tracer, TracerOptions};
use outbound::{Dialer, TRACEPARENT};
use rest::RequestRecord;
use std::time::Duration;

/// Traces requests.
pub(crate) struct Tracing(Tracer);

/// The span of a request.
pub(crate) struct RequestSpan {
    open: OpenSpan,
    /// The start of the request by the monotonic clock.
    received: Duration,
}

/// Attributes of a request's span.
pub(crate) struct SpanAttributes<'a> {
    pub method: &'a str,
    pub target: &'a str,
    pub agent: &'a str,
    pub peer: String,
    pub id: &'a str,
    pub code: u16,
}

impl Tracing {
    pub fn start(
        configuration: Configuration,
        dialer: Dialer,
        instance: String,
        world: World,
        registry: &Registry,
    ) -> Self {
        let Configuration { endpoint, per_million } = configuration;
        let resource = vec![("service.name", "apiserver".to_owned()), ("service.instance.id", instance)];
        Tracing(Tracer::start(TracerOptions { endpoint, per_million, resource }, dialer, world, registry))
    }

    /// Starts a span, if the request is sampled.
    pub fn begin(&self, headers: &HeaderMap, received: Duration) -> Option<RequestSpan> {
        let remote = headers.get(TRACEPARENT).and_then(SpanContext::of_header);
        self.0.begin(remote).map(|open| RequestSpan { open, received })
    }

    /// Exports the span of a request, and one for each of its steps.
    pub fn end(
        &self,
        span: &RequestSpan,
        took: Duration,
        record: &RequestRecord,
        attributes: &SpanAttributes<'_>,
    ) {
        let RequestSpan { open, received } = *span;
        let since = |at: Duration| open.began + at.saturating_sub(received);
        let (mut spans, mut before) = (Vec::with_capacity(8), received);
        for (step, at) in record.steps() {
            spans.push(Span {
                context: self.0.sibling(open.context),
                parent: Some(open.context.span),
                name: step.name().into(),
                kind: SpanKind::Internal,
                began: since(before),
                ended: since(at.max(before)),
                attributes: Vec::new(),
                failed: false,
            });
            before = before.max(at);
        }
        spans.push(Span {
            context: open.context,
            parent: open.parent,
            name: "KubernetesAPI".into(),
            kind: SpanKind::Server,
            began: open.began,
            ended: open.began + took,
            attributes: vec![
                ("http.method", attributes.method.into()),
                ("http.target", attributes.target.into()),
                ("http.user_agent", attributes.agent.into()),
                ("net.peer.name", attributes.peer.as_str().into()),
                ("audit-id", attributes.id.into()),
                ("http.status_code", i64::from(attributes.code).into()),
            ],
            failed: attributes.code >= 500,
        });
        self.0.export(spans);
    }
}

impl RequestSpan {
    /// The `traceparent` of outgoing calls.
    pub fn header(&self) -> Option<HeaderValue> {
        self.open.context.header()
    }
}
