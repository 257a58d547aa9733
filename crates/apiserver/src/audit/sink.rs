//! An audit backend with its mode, truncation and error handling.
//!
//! ```text
//! record ─ form ─ too large? without bodies ─┬─ batch: gathered, handed on later
//!                                            └─ blocking: handed on before the request goes on
//! ```
//!
//! Invariant: every lost event is counted under the plugin that lost it.

use super::batch::{Batch, Batching};
use super::event::{Dialect, Record};
use super::log::Log;
use super::metrics::Counters;
use super::policy::{Level, Stage};
use super::webhook::Webhook;
use bytes::Bytes;
use env::MaybeReady;
use std::sync::Arc;
use std::time::SystemTime;

/// Whether a request waits for the delivery of its event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mode {
    Batch(Batching),
    Blocking,
    /// A failed first event also fails the request.
    BlockingStrict,
}

/// Size limits of an event and of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncate {
    pub max_event_bytes: usize,
    pub max_batch_bytes: usize,
}

/// The format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Legacy,
}

pub(super) enum Backend {
    Log(Log, Format),
    Webhook(Box<Webhook>),
}

impl Backend {
    fn name(&self) -> &'static str {
        match self {
            Backend::Log(..) => "log",
            Backend::Webhook(_) => "webhook",
        }
    }
}

pub(super) struct Sink {
    pub backend: Backend,
    pub truncate: Option<Truncate>,
    pub strict: bool,
    /// `None` in blocking modes.
    pub batch: Option<Batch>,
    pub dialect: Arc<Dialect>,
    pub counters: Counters,
}

impl Sink {
    /// Accepts the event of a stage; returns whether the request may go on. `json` is encoded once for all
    /// sinks.
    pub fn accept(
        self: &Arc<Self>,
        record: &Record,
        stage: Stage,
        at: SystemTime,
        json: &mut Option<Bytes>,
    ) -> MaybeReady<'static, bool> {
        let Some(event) = self.encode(record, stage, at, json) else {
            self.counters.lost("truncate", 1);
            tracing::error!("an audit event is lost: it is too large even without bodies");
            return (!self.strict).into();
        };
        if let Some(batch) = &self.batch {
            if !batch.push(event) {
                self.counters.lost("buffered", 1);
            }
            return true.into();
        }
        let strict = self.strict;
        match Sink::deliver(self, vec![event]) {
            MaybeReady::Now(delivered) => (delivered || !strict).into(),
            MaybeReady::Later(delivery) => MaybeReady::later(async move { delivery.await || !strict }),
        }
    }

    fn encode(
        &self,
        record: &Record,
        stage: Stage,
        at: SystemTime,
        json: &mut Option<Bytes>,
    ) -> Option<Bytes> {
        let legacy = matches!(self.backend, Backend::Log(_, Format::Legacy));
        if legacy && self.truncate.is_none() {
            return Some(record.line(stage).into());
        }
        let mut event =
            json.get_or_insert_with(|| record.json(stage, at, &self.dialect, false).into()).clone();
        if let Some(Truncate { max_event_bytes, .. }) = self.truncate {
            if event.len() > max_event_bytes && record.selection.level >= Level::Request {
                event = record.json(stage, at, &self.dialect, true).into();
            }
            if event.len() > max_event_bytes {
                return None;
            }
        }
        Some(if legacy { record.line(stage).into() } else { event })
    }

    /// Splits events into batches within the size limit.
    pub fn split(&self, events: Vec<Bytes>) -> Vec<Vec<Bytes>> {
        let Some(Truncate { max_batch_bytes, .. }) = self.truncate else { return vec![events] };
        let (mut all, mut bytes) = (vec![Vec::new()], 0);
        for event in events {
            if bytes > 0 && bytes + event.len() > max_batch_bytes {
                all.push(Vec::new());
                bytes = 0;
            }
            bytes += event.len();
            if let Some(last) = all.last_mut() {
                last.push(event);
            }
        }
        all
    }

    /// Delivers events; returns whether that succeeded.
    pub fn deliver(sink: &Arc<Self>, events: Vec<Bytes>) -> MaybeReady<'static, bool> {
        match &sink.backend {
            Backend::Log(log, _) => {
                let mut lines = Vec::with_capacity(events.iter().map(|event| event.len() + 1).sum());
                for event in &events {
                    lines.extend_from_slice(event);
                    lines.push(b'\n');
                }
                let written = log.write(&lines).map_err(|why| why.to_string());
                sink.report_delivery(events.len(), written).into()
            }
            Backend::Webhook(_) => {
                let sink = sink.clone();
                MaybeReady::later(async move {
                    let Backend::Webhook(webhook) = &sink.backend else { return false };
                    let posted = webhook.post(&events, &sink.dialect).await;
                    sink.report_delivery(events.len(), posted)
                })
            }
        }
    }

    fn report_delivery(&self, count: usize, outcome: Result<(), String>) -> bool {
        let Err(why) = outcome else { return true };
        let name = self.backend.name();
        self.counters.lost(name, count as u64);
        tracing::error!(to = name, count, %why, "audit events are lost");
        false
    }
}
