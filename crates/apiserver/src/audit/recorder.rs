//! Sends the audit events of requests to all backends.

use super::batch_worker;
use super::event::{Dialect, Record};
use super::log::Log;
use super::metrics::Counters;
use super::options::{AuditError, Options};
use super::policy::{Level, Policy, Stage};
use super::sink::{Backend, Mode, Sink};
use super::webhook::Webhook;
use env::{MaybeReady, World};
use metrics::Counter;
use names::Names;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long a shutdown waits for pending events.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Records events.
pub struct Audit {
    pub(super) policy: Policy,
    pub(super) sinks: Vec<Arc<Sink>>,
    pub(super) counters: Counters,
    /// One per level, so that counting takes no lock.
    pub(super) levels: [Counter; 4],
    pub(super) world: World,
    stopping: watch::Sender<bool>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

impl Audit {
    /// Opens the backends. `None` without a policy, or without a backend.
    pub fn start(
        options: Options,
        names: &Names,
        world: &World,
        counters: &Counters,
        calls: &Arc<outbound::ClientMetrics>,
    ) -> Result<Option<Arc<Self>>, AuditError> {
        let (stopping, stopped) = watch::channel(false);
        let dialect = Arc::new(Dialect::new(names));
        let mut backends = Vec::new();
        if let Some(log) = options.log {
            let open = Log::open(&log.target, log.rotation, world.clone()).map_err(AuditError::Log)?;
            backends.push((Backend::Log(open, log.format), log.mode, log.truncate));
        }
        if let Some(hook) = options.webhook {
            let client = outbound::HttpClient::new(&hook.receiver, outbound::Limits::default())
                .map_err(AuditError::Webhook)?;
            client.measure(calls);
            let webhook = Webhook {
                client,
                initial_backoff: hook.initial_backoff,
                world: world.clone(),
                stopping: stopped.clone(),
            };
            backends.push((Backend::Webhook(Box::new(webhook)), hook.mode, hook.truncate));
        }
        let Some(policy) = options.policy else {
            if !backends.is_empty() {
                tracing::warn!("no audit policy: no events are recorded");
            }
            return Ok(None);
        };
        if backends.is_empty() {
            return Ok(None);
        }
        let (mut sinks, mut workers) = (Vec::new(), Vec::new());
        for (backend, mode, truncate) in backends {
            let strict = mode == Mode::BlockingStrict;
            let (batch, work) = match mode {
                Mode::Batch(options) => {
                    let (batch, work) = batch_worker::start(options, stopped.clone());
                    (Some(batch), Some(work))
                }
                _ => (None, None),
            };
            let (dialect, counters) = (dialect.clone(), counters.clone());
            let sink = Arc::new(Sink { backend, truncate, strict, batch, dialect, counters });
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

    /// Sends the event of a stage to all backends; returns whether the request may go on.
    pub(super) fn emit(&self, record: &Record, stage: Stage) -> MaybeReady<'static, bool> {
        if record.selection.omitted.has(stage) {
            return true.into();
        }
        self.counters.events.inc();
        let at = if stage == Stage::RequestReceived { record.received } else { self.world.now() };
        let (mut json, mut go_on, mut later) = (None, true, Vec::new());
        for sink in &self.sinks {
            match sink.accept(record, stage, at, &mut json) {
                MaybeReady::Now(delivered) => go_on &= delivered,
                MaybeReady::Later(delivered) => later.push(delivered),
            }
        }
        if later.is_empty() {
            return go_on.into();
        }
        MaybeReady::later(async move {
            for delivered in later {
                go_on &= delivered.await;
            }
            go_on
        })
    }

    /// Flushes pending events, within a timeout.
    pub async fn close(&self) {
        self.stopping.send_replace(true);
        let workers = std::mem::take(&mut *self.workers.lock());
        let all = async {
            for worker in workers {
                let _ = worker.await;
            }
        };
        if env::io::timeout(CLOSE_TIMEOUT, all).await.is_err() {
            tracing::error!("audit events are lost: they were not delivered before the shutdown");
        }
    }
}
