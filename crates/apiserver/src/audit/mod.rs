//! The record of what was done: who asked for what, when, and how it ended.
//!
//! ```text
//! authentication ─ RequestReceived ─ impersonation ─ authorization ─ work ─ ResponseComplete
//!        └ refused: ResponseStarted                                    └ watches: ResponseStarted before it
//! ```
//!
//! A request leaves a [`AuditContext`] while it is carried out. The policy says which requests are recorded and how much
//! of each; what is recorded goes to a log, a webhook, or both.
//!
//! What always holds: without a policy nothing is done per request. What is refused is recorded like what is done.
//! Bodies are in no record below the level `Request`. A request that was received has an end in the record, also
//! when its client goes away or the server makes a mistake.

mod batch;
mod context;
mod event;
mod json;
mod log;
mod policy;
mod sink;
#[cfg(test)]
mod tests;
mod webhook;

pub use batch::{Batching, Throttle};
pub(crate) use context::{AuditContext, ID};
pub(crate) use json::patch as patch_body;
pub use log::{Rotation, Target};
pub use policy::{BadPolicy, Level, Policy, Stage};
pub use sink::{Format, Mode, Truncate};

use batch::Batch;
use env::{MaybeReady, World};
use event::{Record, Words};
use metrics::{About, Counter, Family, Registry};
use names::Names;
use parking_lot::Mutex;
use sink::{Backend, Sink};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long the end of the server waits for events to be taken.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// What the operator decided about the record.
#[derive(Default)]
pub struct Options {
    /// Without a policy nothing is recorded.
    pub policy: Option<Policy>,
    pub log: Option<LogOptions>,
    pub webhook: Option<WebhookOptions>,
}

pub struct LogOptions {
    pub target: Target,
    pub format: Format,
    pub rotation: Rotation,
    pub mode: Mode,
    pub truncate: Option<Truncate>,
}

pub struct WebhookOptions {
    /// Whom to post to.
    pub receiver: outbound::Target,
    pub initial_backoff: Duration,
    pub mode: Mode,
    pub truncate: Option<Truncate>,
}

/// Why nothing can be recorded.
#[derive(Debug, thiserror::Error)]
pub enum BadAudit {
    #[error("the audit log cannot be written: {0}")]
    Log(std::io::Error),
    #[error("the receiver of audit events cannot be called: {0}")]
    Webhook(outbound::BadTarget),
}

const EVENTS: About = About::alpha("apiserver_audit_event_total", "Audit events that were made.");
const ERRORS: About =
    About::alpha("apiserver_audit_error_total", "Audit events that were lost, by what lost them.")
        .by(&["plugin"]);
const LEVELS: About =
    About::alpha("apiserver_audit_level_total", "Requests by level of their record.").by(&["level"]);
const REJECTED: About = About::alpha(
    "apiserver_audit_requests_rejected_total",
    "Requests that were refused since they could not be recorded.",
);

/// What the record has cost so far.
#[derive(Clone)]
pub struct Counters {
    events: Counter,
    errors: Family<Counter>,
    levels: Family<Counter>,
    rejected: Counter,
}

impl Counters {
    pub fn new(registry: &Registry) -> Self {
        Counters {
            events: registry.one(EVENTS),
            errors: registry.family(ERRORS),
            levels: registry.family(LEVELS),
            rejected: registry.one(REJECTED),
        }
    }

    fn lost(&self, plugin: &'static str, count: u64) {
        self.errors.of(&[plugin]).inc_by(count);
    }
}

/// Keeps the record.
pub struct Audit {
    policy: Policy,
    sinks: Vec<Arc<Sink>>,
    counters: Counters,
    /// One per level, so that counting takes no lock.
    levels: [Counter; 4],
    world: World,
    stopping: watch::Sender<bool>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

impl Audit {
    /// Opens what events go to. Nothing is there to be kept without a policy, or without somebody to take it.
    pub fn start(
        options: Options,
        names: &Names,
        world: &World,
        counters: &Counters,
        calls: &Arc<outbound::ClientMetrics>,
    ) -> Result<Option<Arc<Self>>, BadAudit> {
        let (stopping, stopped) = watch::channel(false);
        let words = Arc::new(Words::new(names));
        let mut wanted = Vec::new();
        if let Some(log) = options.log {
            let open = log::Log::open(&log.target, log.rotation, world.clone()).map_err(BadAudit::Log)?;
            wanted.push((Backend::Log(open, log.format), log.mode, log.truncate));
        }
        if let Some(hook) = options.webhook {
            let caller = outbound::HttpClient::new(&hook.receiver, outbound::Limits::default())
                .map_err(BadAudit::Webhook)?;
            caller.measure(calls);
            let webhook = webhook::Webhook {
                caller,
                initial_backoff: hook.initial_backoff,
                world: world.clone(),
                stopping: stopped.clone(),
            };
            wanted.push((Backend::Webhook(Box::new(webhook)), hook.mode, hook.truncate));
        }
        let Some(policy) = options.policy else {
            if !wanted.is_empty() {
                tracing::warn!("there is no audit policy: nothing is recorded");
            }
            return Ok(None);
        };
        if wanted.is_empty() {
            return Ok(None);
        }
        let (mut sinks, mut workers) = (Vec::new(), Vec::new());
        for (backend, mode, truncate) in wanted {
            let strict = mode == Mode::BlockingStrict;
            let (batch, work) = match mode {
                Mode::Batch(options) => {
                    let (batch, work) = Batch::start(options, stopped.clone());
                    (Some(batch), Some(work))
                }
                _ => (None, None),
            };
            let (words, counters) = (words.clone(), counters.clone());
            let sink = Arc::new(Sink { backend, truncate, strict, batch, words, counters });
            workers.extend(work.map(|work| work(sink.clone())));
            sinks.push(sink);
        }
        let level = |level: Level| counters.levels.of(&[level.name()]);
        let levels = [Level::None, Level::Metadata, Level::Request, Level::RequestResponse].map(level);
        Ok(Some(Arc::new(Audit {
            policy,
            sinks,
            counters: counters.clone(),
            levels,
            world: world.clone(),
            stopping,
            workers: Mutex::new(workers),
        })))
    }

    /// Hands the event of a stage to all who take events; says whether the request may go on.
    fn emit(&self, record: &Record, stage: Stage) -> MaybeReady<'static, bool> {
        if record.verdict.omitted.has(stage) {
            return true.into();
        }
        self.counters.events.inc();
        let at = if stage == Stage::RequestReceived { record.received } else { self.world.now() };
        let (mut json, mut go_on, mut later) = (None, true, Vec::new());
        for sink in &self.sinks {
            match sink.take(record, stage, at, &mut json) {
                MaybeReady::Now(taken) => go_on &= taken,
                MaybeReady::Later(taken) => later.push(taken),
            }
        }
        if later.is_empty() {
            return go_on.into();
        }
        MaybeReady::later(async move {
            for taken in later {
                go_on &= taken.await;
            }
            go_on
        })
    }

    /// Waits, for a while, until what waits has been taken.
    pub async fn close(&self) {
        self.stopping.send_replace(true);
        let workers = std::mem::take(&mut *self.workers.lock());
        let all = async {
            for worker in workers {
                let _ = worker.await;
            }
        };
        if tokio::time::timeout(LAST_WORDS, all).await.is_err() {
            tracing::error!("audit events are lost: nobody took them before the end");
        }
    }
}
