//! Sends the audit events of requests to all backends.

use super::batch_worker;
use super::event::{Record, Words};
use super::log::Log;
use super::metrics::Counters;
use super::options::{BadAudit, Options};
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

/// How long the end of the server waits for events to be taken.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// Keeps the record.
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
            let open = Log::open(&log.target, log.rotation, world.clone()).map_err(BadAudit::Log)?;
            wanted.push((Backend::Log(open, log.format), log.mode, log.truncate));
        }
        if let Some(hook) = options.webhook {
            let caller = outbound::HttpClient::new(&hook.receiver, outbound::Limits::default())
                .map_err(BadAudit::Webhook)?;
            caller.measure(calls);
            let webhook = Webhook {
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
                    let (batch, work) = batch_worker::start(options, stopped.clone());
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
    pub(super) fn emit(&self, record: &Record, stage: Stage) -> MaybeReady<'static, bool> {
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
