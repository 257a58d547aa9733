//! Tracing of requests: one span per request and per step, sent to a collector.
//!
//! ```text
//! KubernetesAPI ─ authentication ─ priorityandfairness ─ authorization ─ admission ─ store
//! ```
//!
//! A client that traces sends `traceparent`, and its sampling decision holds; other requests are sampled
//! randomly. Webhook calls of a traced request carry its span on.
//!
//! Invariants: without a configuration nothing is traced. Requests never wait for the collector: spans that
//! it does not accept in time are lost, and counted.

mod configuration;
mod export;
mod otlp;
mod span;

pub use configuration::{Configuration, InvalidConfiguration};

use env::World;
use export::Exporter;
use http::{HeaderMap, HeaderValue};
use metrics::Registry;
use outbound::{Dialer, TRACEPARENT};
use rest::RequestRecord;
use span::{Attribute, Context, Span, SpanId};
use std::time::{Duration, UNIX_EPOCH};

/// Traces requests.
pub(crate) struct Tracing {
    /// How many of a million requests are sampled, unless their client decides.
    per_million: u32,
    exporter: Exporter,
    world: World,
}

/// The span of a request.
pub(crate) struct RequestSpan {
    context: Context,
    parent: Option<SpanId>,
    /// Start of the request: since the epoch, and by the monotonic clock.
    began: Duration,
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
    /// Starts the exporter, which runs until all senders are dropped.
    pub fn start(
        configuration: Configuration,
        dialer: Dialer,
        instance: String,
        world: World,
        registry: &Registry,
    ) -> Self {
        let per_million = configuration.per_million;
        let exporter = Exporter::start(configuration.endpoint, dialer, instance, registry);
        Tracing { per_million, exporter, world }
    }

    /// Starts a span, if the request is sampled.
    pub fn begin(&self, headers: &HeaderMap, received: Duration) -> Option<RequestSpan> {
        let remote = headers.get(TRACEPARENT).and_then(|value| Context::parse(value.to_str().ok()?));
        let sampled = match remote {
            Some(parent) => parent.sampled,
            None => {
                self.per_million > 0 && env::random_u64(&self.world) % 1_000_000 < u64::from(self.per_million)
            }
        };
        if !sampled {
            return None;
        }
        let trace = remote.map_or_else(|| self.random(), |parent| parent.trace);
        let context = Context { trace, span: self.random(), sampled };
        let began = self.world.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(RequestSpan { context, parent: remote.map(|parent| parent.span), began, received })
    }

    fn random<const N: usize>(&self) -> [u8; N] {
        let mut out = [0; N];
        self.world.fill(&mut out);
        // an all-zero id is invalid
        out[N - 1] |= u8::from(out == [0; N]);
        out
    }

    /// Exports the span of a request, and one for each of its steps.
    pub fn end(
        &self,
        span: &RequestSpan,
        took: Duration,
        record: &RequestRecord,
        attributes: &SpanAttributes<'_>,
    ) {
        let since = |at: Duration| span.began + at.saturating_sub(span.received);
        let (mut spans, mut before) = (Vec::with_capacity(8), span.received);
        for (step, at) in record.steps() {
            spans.push(Span {
                context: Context { span: self.random(), ..span.context },
                parent: Some(span.context.span),
                name: step.name(),
                served: false,
                began: since(before),
                ended: since(at.max(before)),
                attributes: Vec::new(),
                failed: false,
            });
            before = before.max(at);
        }
        let text = |text: &str| Attribute::Text(text.to_owned());
        spans.push(Span {
            context: span.context,
            parent: span.parent,
            name: "KubernetesAPI",
            served: true,
            began: span.began,
            ended: span.began + took,
            attributes: vec![
                ("http.method", text(attributes.method)),
                ("http.target", text(attributes.target)),
                ("http.user_agent", text(attributes.agent)),
                ("net.peer.name", text(&attributes.peer)),
                ("audit-id", text(attributes.id)),
                ("http.status_code", Attribute::Number(attributes.code.into())),
            ],
            failed: attributes.code >= 500,
        });
        self.exporter.take(spans);
    }
}

impl RequestSpan {
    /// The `traceparent` of outgoing calls.
    pub fn header(&self) -> Option<HeaderValue> {
        self.context.header()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE_HEADER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn contexts_are_read_and_written() {
        let read = Context::parse(TRACE_HEADER).unwrap();
        assert!(read.sampled && read.trace[0] == 0x0a && read.span[7] == 0x31);
        assert_eq!(read.header().unwrap(), TRACE_HEADER);
        assert!(!Context::parse(&TRACE_HEADER.replace("-01", "-00")).unwrap().sampled);
        assert!(Context::parse(&format!("{}-more", TRACE_HEADER.replacen("00", "01", 1))).is_some());
        for wrong in [
            "",
            "00",
            &format!("{TRACE_HEADER}-more"),
            &TRACE_HEADER.replacen("00", "ff", 1),
            &TRACE_HEADER.replace('a', "A"),
            &TRACE_HEADER.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &TRACE_HEADER.replace("b7ad6b7169203331", &"0".repeat(16)),
            &TRACE_HEADER[..TRACE_HEADER.len() - 1],
            "00-0af-b7-01",
        ] {
            assert_eq!(Context::parse(wrong), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn clients_decide_and_otherwise_sampling_does() {
        let world: World = env::Simulated::new(1_700_000_000, 3);
        let start = |per_million| {
            let endpoint = "localhost:1".parse().unwrap();
            let configuration = Configuration { endpoint, per_million };
            Tracing::start(configuration, Dialer::Direct, String::new(), world.clone(), &Registry::default())
        };
        let with = |text: &str| HeaderMap::from_iter([(TRACEPARENT, text.parse().unwrap())]);
        let (never, always, half) = (start(0), start(1_000_000), start(500_000));
        let span = never.begin(&with(TRACE_HEADER), Duration::ZERO).unwrap();
        let remote = Context::parse(TRACE_HEADER).unwrap();
        assert_eq!((span.context.trace, span.parent), (remote.trace, Some(remote.span)));
        assert_ne!(span.context.span, remote.span);
        assert!(always.begin(&with(&TRACE_HEADER.replace("-01", "-00")), Duration::ZERO).is_none());
        assert!(never.begin(&HeaderMap::new(), Duration::ZERO).is_none());
        let span = always.begin(&with("nonsense"), Duration::ZERO).unwrap();
        assert!(span.parent.is_none() && span.context.trace != remote.trace);
        let drawn = (0..1000).filter(|_| half.begin(&HeaderMap::new(), Duration::ZERO).is_some()).count();
        assert!((400..600).contains(&drawn), "{drawn}");
    }
}
