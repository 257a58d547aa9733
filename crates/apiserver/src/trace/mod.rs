//! Traces of requests: one span for each request and for each of its steps, sent to a collector.
//!
//! ```text
//! KubernetesAPI ─ authentication ─ priorityandfairness ─ authorization ─ admission ─ store
//! ```
//!
//! A client that traces says so in `traceparent`, and what it decided about sampling holds; of the others a part is
//! drawn by lot. Calls that a traced request makes to webhooks carry its span on.
//!
//! What always holds: without a configuration nothing of this is done. Requests never wait for the collector: spans
//! that it does not take in time are lost, and counted.

mod configuration;
mod export;
mod otlp;
mod span;

pub use configuration::{BadConfiguration, Configuration};

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
    /// So many of a million requests are traced of which nobody has decided yet.
    per_million: u32,
    exporter: Exporter,
    world: World,
}

/// A request that is traced.
pub(crate) struct Traced {
    context: Context,
    parent: Option<SpanId>,
    /// When it came: since the epoch, and by the clock that never goes back.
    began: Duration,
    came: Duration,
}

/// What is told of a request besides its steps.
pub(crate) struct Told<'a> {
    pub method: &'a str,
    pub target: &'a str,
    pub agent: &'a str,
    pub peer: String,
    pub id: &'a str,
    pub code: u16,
}

impl Tracing {
    /// Spans are sent from now on, until all who could make some are gone.
    pub fn start(
        configuration: Configuration,
        way: Dialer,
        instance: String,
        world: World,
        registry: &Registry,
    ) -> Self {
        let per_million = configuration.per_million;
        let exporter = Exporter::start(configuration.endpoint, way, instance, registry);
        Tracing { per_million, exporter, world }
    }

    /// Whether a request is traced, and as what.
    pub fn begin(&self, headers: &HeaderMap, came: Duration) -> Option<Traced> {
        let given = headers.get(TRACEPARENT).and_then(|value| Context::parse(value.to_str().ok()?));
        let sampled = match given {
            Some(parent) => parent.sampled,
            None => {
                self.per_million > 0 && env::random_u64(&self.world) % 1_000_000 < u64::from(self.per_million)
            }
        };
        if !sampled {
            return None;
        }
        let trace = given.map_or_else(|| self.random(), |parent| parent.trace);
        let context = Context { trace, span: self.random(), sampled };
        let began = self.world.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(Traced { context, parent: given.map(|parent| parent.span), began, came })
    }

    fn random<const N: usize>(&self) -> [u8; N] {
        let mut out = [0; N];
        self.world.fill(&mut out);
        // nothing but zeros would mean that there is none
        out[N - 1] |= u8::from(out == [0; N]);
        out
    }

    /// A request is answered: hands over its span, and one for each of its steps.
    pub fn end(&self, traced: &Traced, took: Duration, notes: &RequestRecord, told: &Told<'_>) {
        let since = |at: Duration| traced.began + at.saturating_sub(traced.came);
        let (mut spans, mut before) = (Vec::with_capacity(8), traced.came);
        for (step, at) in notes.steps() {
            spans.push(Span {
                context: Context { span: self.random(), ..traced.context },
                parent: Some(traced.context.span),
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
            context: traced.context,
            parent: traced.parent,
            name: "KubernetesAPI",
            served: true,
            began: traced.began,
            ended: traced.began + took,
            attributes: vec![
                ("http.method", text(told.method)),
                ("http.target", text(told.target)),
                ("http.user_agent", text(told.agent)),
                ("net.peer.name", text(&told.peer)),
                ("audit-id", text(told.id)),
                ("http.status_code", Attribute::Number(told.code.into())),
            ],
            failed: told.code >= 500,
        });
        self.exporter.take(spans);
    }
}

impl Traced {
    /// What calls on its behalf say.
    pub fn header(&self) -> Option<HeaderValue> {
        self.context.header()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn contexts_are_read_and_written() {
        let read = Context::parse(GIVEN).unwrap();
        assert!(read.sampled && read.trace[0] == 0x0a && read.span[7] == 0x31);
        assert_eq!(read.header().unwrap(), GIVEN);
        assert!(!Context::parse(&GIVEN.replace("-01", "-00")).unwrap().sampled);
        assert!(Context::parse(&format!("{}-more", GIVEN.replacen("00", "01", 1))).is_some());
        for wrong in [
            "",
            "00",
            &format!("{GIVEN}-more"),
            &GIVEN.replacen("00", "ff", 1),
            &GIVEN.replace('a', "A"),
            &GIVEN.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &GIVEN.replace("b7ad6b7169203331", &"0".repeat(16)),
            &GIVEN[..GIVEN.len() - 1],
            "00-0af-b7-01",
        ] {
            assert_eq!(Context::parse(wrong), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn clients_decide_and_else_the_lot_does() {
        let world: World = env::Simulated::new(1_700_000_000, 3);
        let start = |per_million| {
            let endpoint = "localhost:1".parse().unwrap();
            let configuration = Configuration { endpoint, per_million };
            Tracing::start(configuration, Dialer::Direct, String::new(), world.clone(), &Registry::default())
        };
        let with = |text: &str| HeaderMap::from_iter([(TRACEPARENT, text.parse().unwrap())]);
        let (never, always, half) = (start(0), start(1_000_000), start(500_000));
        let traced = never.begin(&with(GIVEN), Duration::ZERO).unwrap();
        let given = Context::parse(GIVEN).unwrap();
        assert_eq!((traced.context.trace, traced.parent), (given.trace, Some(given.span)));
        assert_ne!(traced.context.span, given.span);
        assert!(always.begin(&with(&GIVEN.replace("-01", "-00")), Duration::ZERO).is_none());
        assert!(never.begin(&HeaderMap::new(), Duration::ZERO).is_none());
        let traced = always.begin(&with("nonsense"), Duration::ZERO).unwrap();
        assert!(traced.parent.is_none() && traced.context.trace != given.trace);
        let drawn = (0..1000).filter(|_| half.begin(&HeaderMap::new(), Duration::ZERO).is_some()).count();
        assert!((400..600).contains(&drawn), "{drawn}");
    }
}
