//! Hands spans to a collector, many at a time.

use super::otlp;
use super::span::Span;
use crate::serve::LogThrottle;
use metrics::{About, Counter, Registry};
use outbound::{Dialer, Endpoint, GrpcClient, Limits};
use std::time::Duration;
use tokio::sync::mpsc::{self, Receiver, Sender};

/// How many requests' spans wait at the most.
const WAITING: usize = 2048;
/// How many spans go at a time, and how long they wait for more.
const TOGETHER: usize = 512;
const EVERY: Duration = Duration::from_secs(1);
/// A collector that takes longer is not there.
const LIMITS: Limits = Limits { time: Duration::from_secs(10), answer: 64 * 1024 };

const SENT: About = About::alpha("pintle_trace_spans_sent_total", "Spans that a collector took.");
const LOST: About = About::alpha("pintle_trace_spans_lost_total", "Spans that no collector took.");

/// Where spans are handed in.
pub(super) struct Exporter {
    queue: Sender<Vec<Span>>,
    lost: Counter,
}

impl Exporter {
    pub fn start(endpoint: Endpoint, way: Dialer, instance: String, registry: &Registry) -> Self {
        let (queue, waiting) = mpsc::channel(WAITING);
        let lost: Counter = registry.one(LOST);
        let work = Work {
            collector: GrpcClient::new(endpoint, LIMITS).by(way),
            instance,
            sent: registry.one(SENT),
            lost: lost.clone(),
            told: LogThrottle::default(),
        };
        tokio::spawn(work.run(waiting));
        Exporter { queue, lost }
    }

    /// Takes spans, unless too many wait.
    pub fn take(&self, spans: Vec<Span>) {
        let count = spans.len() as u64;
        if self.queue.try_send(spans).is_err() {
            self.lost.inc_by(count);
        }
    }
}

struct Work {
    collector: GrpcClient,
    instance: String,
    sent: Counter,
    lost: Counter,
    told: LogThrottle,
}

impl Work {
    async fn run(self, mut waiting: Receiver<Vec<Span>>) {
        let mut gathered = Vec::new();
        while let Some(first) = waiting.recv().await {
            gathered.extend(first);
            let full = async {
                while gathered.len() < TOGETHER
                    && let Some(more) = waiting.recv().await
                {
                    gathered.extend(more);
                }
            };
            let _ = tokio::time::timeout(EVERY, full).await;
            self.send(&std::mem::take(&mut gathered)).await;
        }
    }

    async fn send(&self, spans: &[Span]) {
        let count = spans.len() as u64;
        match self.collector.call(otlp::PROCEDURE, &otlp::request(spans, &self.instance)).await {
            Ok(_) => self.sent.inc_by(count),
            Err(why) => {
                self.lost.inc_by(count);
                if let Some(kept_back) = self.told.now() {
                    tracing::warn!(%why, spans = count, kept_back, "the collector of traces took nothing");
                }
            }
        }
    }
}
