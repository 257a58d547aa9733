//! The exporter of spans: sends them to a collector in batches.

use super::otlp;
use super::span::Span;
use crate::{Channel, Dialer, Endpoint, LogThrottle, RpcError};
use grpc::otlp::trace_service_client::TraceServiceClient;
use metrics::{Counter, Descriptor, Registry};
use std::time::Duration;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::oneshot;

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

enum Message {
    Spans(Vec<Span>),
    /// Is answered once all spans before it have been sent.
    Flush(oneshot::Sender<()>),
}

/// The queue of spans to export.
pub(super) struct Exporter {
    queue: Sender<Message>,
    lost: Counter,
}

impl Exporter {
    pub fn start(
        endpoint: Endpoint,
        dialer: Dialer,
        resource: Vec<(&'static str, String)>,
        registry: &Registry,
    ) -> Self {
        let (queue, receiver) = mpsc::channel(MAX_QUEUED);
        let lost: Counter = registry.one(LOST);
        let worker = Worker {
            channel: Channel::plain(&endpoint, dialer).map_err(|why| why.to_string()),
            resource,
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
        if self.queue.try_send(Message::Spans(spans)).is_err() {
            self.lost.inc_by(count);
        }
    }

    /// Waits until all queued spans have been sent or lost.
    pub async fn flush(&self) {
        let (done, sent) = oneshot::channel();
        if self.queue.send(Message::Flush(done)).await.is_ok() {
            let _ = sent.await;
        }
    }
}

struct Worker {
    channel: Result<Channel, String>,
    resource: Vec<(&'static str, String)>,
    sent: Counter,
    lost: Counter,
    throttle: LogThrottle,
}

/// Spans that wait for others, and those who wait for them.
#[derive(Default)]
struct Batch {
    spans: Vec<Span>,
    waiters: Vec<oneshot::Sender<()>>,
}

impl Batch {
    fn add(&mut self, message: Message) {
        match message {
            Message::Spans(spans) => self.spans.extend(spans),
            Message::Flush(waiter) => self.waiters.push(waiter),
        }
    }

    fn is_due(&self) -> bool {
        self.spans.len() >= BATCH || !self.waiters.is_empty()
    }
}

impl Worker {
    async fn run(self, mut queue: Receiver<Message>) {
        while let Some(first) = queue.recv().await {
            let mut batch = Batch::default();
            batch.add(first);
            let full = async {
                while !batch.is_due()
                    && let Some(more) = queue.recv().await
                {
                    batch.add(more);
                }
            };
            let _ = env::io::timeout(BATCH_DELAY, full).await;
            if !batch.spans.is_empty() {
                self.send(&batch.spans).await;
            }
            for waiter in batch.waiters {
                // the waiter may have given up
                let _ = waiter.send(());
            }
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
        let request = otlp::request(spans, &self.resource);
        channel.within(TIMEOUT, client.export(request)).await.map(drop)
    }
}
