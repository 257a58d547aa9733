//! Tracing: spans of requests and calls, sent to a collector over OTLP.
//!
//! A caller that traces sends `traceparent`, and its sampling decision holds; other requests are sampled randomly. Calls
//! made on behalf of a span carry it on ([`within`](crate::within)).
//!
//! Invariants: nothing waits for the collector but [`Tracer::flush`]: spans that it does not accept in time are lost, and
//! counted.

mod channel;
mod export;
mod otlp;
mod span;

pub use channel::{CallBody, TracedChannel};
pub use span::{Attribute, OpenSpan, Span, SpanContext, SpanId, SpanKind};

use crate::{Dialer, Endpoint, trace_context};
use env::World;
use export::Exporter;
use metrics::Registry;
use std::borrow::Cow;
use std::time::{Duration, UNIX_EPOCH};

/// The longest wait for the last spans.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// What a tracer is made from.
#[derive(Debug, Clone)]
pub struct TracerOptions {
    /// The collector.
    pub endpoint: Endpoint,
    /// How many of a million traces are sampled, unless a caller decides.
    pub per_million: u32,
    /// Attributes of the process.
    pub resource: Vec<(&'static str, String)>,
}

/// Samples traces, and sends their spans.
pub struct Tracer {
    per_million: u32,
    exporter: Exporter,
    world: World,
}

impl Tracer {
    /// Starts the exporter, which runs until the tracer is dropped.
    pub fn start(options: TracerOptions, dialer: Dialer, world: World, registry: &Registry) -> Self {
        let TracerOptions { endpoint, per_million, resource } = options;
        Tracer { per_million, exporter: Exporter::start(endpoint, dialer, resource, registry), world }
    }

    /// Starts a span below another one, or a trace; `None` if it is not sampled.
    pub fn begin(&self, parent: Option<SpanContext>) -> Option<OpenSpan> {
        let is_sampled = match parent {
            Some(parent) => parent.sampled,
            None => {
                self.per_million > 0 && env::random_u64(&self.world) % 1_000_000 < u64::from(self.per_million)
            }
        };
        if !is_sampled {
            return None;
        }
        let trace = parent.map_or_else(|| self.random(), |parent| parent.trace);
        let context = SpanContext { trace, span: self.random(), sampled: true };
        Some(OpenSpan { context, parent: parent.map(|it| it.span), began: self.now() })
    }

    /// Starts a span of a call that is made on behalf of the current span, if there is one.
    pub fn begin_call(&self) -> Option<OpenSpan> {
        self.begin(trace_context::parent().and_then(|it| SpanContext::of_header(&it)))
    }

    /// Ends a span now, and sends it.
    pub fn end(
        &self,
        open: OpenSpan,
        name: impl Into<Cow<'static, str>>,
        kind: SpanKind,
        attributes: Vec<(&'static str, Attribute)>,
        failed: bool,
    ) {
        let OpenSpan { context, parent, began } = open;
        let name = name.into();
        let span = Span { context, parent, name, kind, began, ended: self.now(), attributes, failed };
        self.export(vec![span]);
    }

    /// The context of another span of the same trace.
    pub fn sibling(&self, context: SpanContext) -> SpanContext {
        SpanContext { span: self.random(), ..context }
    }

    /// The time since the epoch.
    pub fn now(&self) -> Duration {
        self.world.now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn random<const N: usize>(&self) -> [u8; N] {
        let mut out = [0; N];
        self.world.fill(&mut out);
        // an all-zero id is invalid
        out[N - 1] |= u8::from(out == [0; N]);
        out
    }

    /// Sends finished spans.
    pub fn export(&self, spans: Vec<Span>) {
        self.exporter.take(spans);
    }

    /// Waits until the spans that were exported before have been sent, for a few seconds at most.
    pub async fn flush(&self) {
        let _ = env::io::timeout(FLUSH_TIMEOUT, self.exporter.flush()).await;
    }
}

#[cfg(test)]
mod tests;
