//! The exporter of spans: sends them to a collector in batches.

use super::otlp;
use super::span::Span;
use crate::serve::LogThrottle;
use grpc::otlp::trace_service_client::TraceServiceClient;
use metrics::{Counter, Descriptor, Registry};
use outbound::{Channel, Dialer, Endpoint, RpcError};
use std::time::Duration;
use tokio::sync::mpsc::{self, Receiver, Sender};

/// How many requests' spans may be queued.
const MAX_QUEUED: usize = 2048;
/// Maximum number of spans of a batch, and how long it waits for more.
const BATCH: usize = 512;
const BATCH_DELAY: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest response.
const MAX_RESPONSE: usize = 64 * 1024;

const SENT: Descriptor =
    Descriptor::alpha("pintle_trace_spans_sent_total", "Spans that a collector accepted.");
const LOST: Descriptor =
    Descriptor::alpha("pintle_trace_spans_lost_total", "Spans that no collector accepted.");

/// The queue of spans to export.
pub(super) struct Exporter {
    queue: Sender<Vec<Span>>,
    lost: Counter,
}

impl Exporter {
    pub fn start(endpoint: Endpoint, dialer: Dialer, instance: String, registry: &Registry) -> Self {
        let (queue, receiver) = mpsc::channel(MAX_QUEUED);
        let lost: Counter = registry.one(LOST);
        let worker = Worker {
            channel: Channel::plain(&endpoint, dialer).map_err(|why| why.to_string()),
            instance,
            sent: registry.one(SENT),
            lost: lost.clone(),
            throttle: LogThrottle::default(),
        };
        tokio::spawn(worker.run(receiver));
        Exporter { queue, lost }
    }

    /// Queues spans, unless the queue is full.
    pub fn take(&self, spans: Vec<Span>) {
        let count = spans.len() as u64;
        if self.queue.try_send(spans).is_err() {
            self.lost.inc_by(count);
        }
    }
}

struct Worker {
    channel: Result<Channel, String>,
    instance: String,
    sent: Counter,
    lost: Counter,
    throttle: LogThrottle,
}

impl Worker {
    async fn run(self, mut queue: Receiver<Vec<Span>>) {
        let mut gathered = Vec::new();
        while let Some(first) = queue.recv().await {
            gathered.extend(first);
            let full = async {
                while gathered.len() < BATCH
                    && let Some(more) = queue.recv().await
                {
                    gathered.extend(more);
                }
            };
            let _ = env::io::timeout(BATCH_DELAY, full).await;
            self.send(&std::mem::take(&mut gathered)).await;
        }
    }

    async fn send(&self, spans: &[Span]) {
        let count = spans.len() as u64;
        match self.export(spans).await {
            Ok(()) => self.sent.inc_by(count),
            Err(why) => {
                self.lost.inc_by(count);
                if let Some(suppressed) = self.throttle.now() {
                    tracing::warn!(%why, spans = count, suppressed, "the trace collector did not accept the spans");
                }
            }
        }
    }

    async fn export(&self, spans: &[Span]) -> Result<(), RpcError> {
        let channel = self.channel.as_ref().map_err(|why| RpcError::Unsent(why.clone()))?;
        let mut client = TraceServiceClient::new(channel.clone()).max_decoding_message_size(MAX_RESPONSE);
        let request = otlp::request(spans, &self.instance);
        channel.within(TIMEOUT, client.export(request)).await.map(drop)
    }
}
