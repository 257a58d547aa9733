//! The committer: the one thread that performs every write.
//!
//! It takes the queued writes, plans one batch, makes it durable with one sync, applies it to the state, passes it
//! to the subscriber, and only then answers. History is trimmed in small steps that ride along with batches, so no
//! write waits for a compaction; expiry and the remaining trimming happen when the queue is idle.
//!
//! If a commit fails, it is unknown whether its batch is durable. Then the log is reopened, which shows it:
//!
//! ```text
//!            commit fails                      reopen: the batch is not there
//! Sound ───────────────────► (reopen at once) ─────────────────────────────► Sound, writers get Unavailable
//!   ▲                            │     │ reopen: the batch is there
//!   │                            │     └───────────────────────────────────► Sound, published, writers get Ok
//!   │  reopen works, the batch   │ reopen fails
//!   │  is resolved as above      ▼
//!   └──────────────────────── FailedLog      every write tries to reopen first, and so does the timer
//! ```
//!
//! A full disk is not a failure: a batch that finds no space is completed with the log's reserved space. While the
//! disk is full, all history is dropped, writes that grow are refused, and each turn tries to free space first.
//!
//! So a revision is never given to two different writes, and every durable write is published.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use env::{World, unix_seconds};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::log::{Batch, Log};
use crate::queue::{Queue, QueueBatch, Request, Responder};
use crate::state::{GrowthLimit, Limits, Plan, State};
use crate::{Revision, Stats, StoreError, Subscriber};

/// How often the committer runs when no write arrives.
const QUIET: Duration = Duration::from_secs(1);
/// How long there must have been no write before the log is to rest.
const REST_AFTER: Duration = Duration::from_secs(1);
/// Without writes, trimming waits until this much can be trimmed, to sync less often.
const SLACK_SECS: i64 = 10;
/// Trimming steps of a batch: twice its writes, but at least this many.
const LEAST_STEPS: usize = 16;
/// By how much a value may grow while the disk is full: enough to set a deletion timestamp.
const GROWTH_WHEN_FULL: u32 = 1024;
/// Trimming steps when no write is queued.
const QUIET_STEPS: usize = 1024;

/// The state that the committer and the callers share.
pub(crate) struct Shared {
    pub queue: Queue,
    pub gauges: Gauges,
    /// Why the last batch could not be made durable, until one can.
    pub fault: Mutex<Option<StoreError>>,
    /// Becomes true when the committer has ended and the files are closed.
    pub stopped: watch::Sender<bool>,
}

/// Written by the committer, read by any thread.
#[derive(Default)]
pub(crate) struct Gauges {
    pub revision: AtomicU64,
    oldest: AtomicU64,
    live_keys: AtomicU64,
    history_records: AtomicU64,
    history_bytes: AtomicU64,
    file_bytes: AtomicU64,
    commits: AtomicU64,
    changes: AtomicU64,
    largest_batch: AtomicU64,
    commit_nanos: AtomicU64,
    conflicts: AtomicU64,
    failures: AtomicU64,
    full: AtomicBool,
}

pub(crate) struct Committer {
    pub log: Box<dyn Log>,
    pub state: State,
    pub limits: Limits,
    pub world: World,
    pub shared: Arc<Shared>,
    pub subscriber: Subscriber,
    /// Set while the log cannot be reopened.
    pub broken: Option<FailedLog>,
    /// When the last batch was committed (of `World::elapsed`), until the log rests.
    pub busy_since: Option<Duration>,
}

/// A failed log that has not been reopened yet.
pub(crate) struct FailedLog {
    /// The batch whose durability is unknown.
    unresolved: Plan,
    /// Opening a large file takes time: the earliest time (of `World::elapsed`) of the next attempt.
    not_before: Duration,
}

/// How much a turn may trim.
#[derive(Copy, Clone)]
enum Trimming {
    /// Along with writes.
    Steps(usize),
    /// Without writes, once it is worth a sync.
    Quiet,
    /// All due steps.
    Thorough,
}

/// The results of a batch by waiter. Each keeps its permit of the queue until it is answered.
type Results = Vec<(Responder, OwnedSemaphorePermit, Result<Revision, StoreError>)>;

impl Committer {
    pub(crate) fn run(mut self) {
        self.verify();
        loop {
            // writers that arrive during a commit are usually several: let runnable tasks join the next
            // batch, which costs the same for any number of writes
            if self.shared.queue.waiting() > 0 {
                thread::yield_now();
            }
            let taken = self.shared.queue.take(self.patience());
            let is_last = taken.last;
            self.answer_batch(taken);
            if is_last {
                break;
            }
        }
        self.log.close();
    }

    /// Before the first write: lets the log verify what opening took on trust.
    pub(crate) fn verify(&mut self) {
        let Err(error) = self.log.verify() else { return };
        tracing::error!(%error, "the store's file is not as it was written: writes are refused");
        *self.shared.fault.lock() = Some(error);
        self.broken = Some(FailedLog { unresolved: self.state.plan(), not_before: Duration::ZERO });
        self.mend(true);
    }

    /// Does what was taken from the queue.
    pub(crate) fn answer_batch(&mut self, mut taken: QueueBatch) {
        for probe in taken.probes.drain(..) {
            let _ = probe.send(());
        }
        let snapshots = std::mem::take(&mut taken.snapshots);
        self.turn(taken);
        for answer in snapshots {
            let snapshot = match self.broken {
                Some(_) => Err(self.reason()),
                None => self.log.snapshot(),
            };
            let _ = answer.send(snapshot);
        }
    }

    /// How long to wait for the next write before doing maintenance.
    fn patience(&self) -> Option<Duration> {
        let something_to_do = self.broken.is_some()
            || self.busy_since.is_some()
            || self.state.next_expiry().is_some()
            || self.state.history_records() > 0
            || self.log.is_full()
            || self.shared.fault.lock().is_some();
        something_to_do.then_some(QUIET)
    }

    fn turn(&mut self, taken: QueueBatch) {
        if let Some(error) = self.mend(!taken.ticks.is_empty()) {
            for request in taken.requests {
                let _ = request.answer.send(Err(error.clone()));
            }
            return;
        }
        if self.log.is_full()
            && let Err(error) = self.make_room()
        {
            for request in taken.requests {
                let _ = request.answer.send(Err(error.clone()));
            }
            return;
        }
        if taken.requests.is_empty() {
            self.probe();
            while self.batch(Vec::new(), Trimming::Quiet) && self.shared.queue.waiting() == 0 {}
            self.rest();
        } else {
            let steps = Trimming::Steps(LEAST_STEPS.max(2 * taken.requests.len()));
            self.batch(taken.requests, steps);
        }
        if !taken.ticks.is_empty() {
            while self.batch(Vec::new(), Trimming::Thorough) {}
        }
        for tick in taken.ticks {
            let _ = tick.send(());
        }
    }

    /// Plans and commits one batch; false if there was nothing to do or it failed.
    fn batch(&mut self, requests: Vec<Request>, trimming: Trimming) -> bool {
        let now = unix_seconds(&self.world);
        let mut plan = self.state.plan();
        let is_full = self.log.is_full();
        plan.growth = is_full.then(|| GrowthLimit {
            bytes: if self.log.is_low() { 0 } else { GROWTH_WHEN_FULL },
            error: self.log.full_error(),
        });
        let mut answers: Results = Vec::with_capacity(requests.len());
        for Request { write, answer, place } in requests {
            let result = self.state.admit(&mut plan, write, now);
            answers.push((answer, place, result));
        }
        self.state.expire(&mut plan, now);
        let steps = match trimming {
            Trimming::Steps(steps) => steps,
            Trimming::Thorough => QUIET_STEPS,
            // this batch is synced anyway, so it trims as well
            Trimming::Quiet if !plan.changes.is_empty() => QUIET_STEPS,
            Trimming::Quiet if self.state.trimming_due(now, SLACK_SECS, self.limits) => QUIET_STEPS,
            Trimming::Quiet => 0,
        };
        let limits = if is_full { Limits::NOTHING } else { self.limits };
        self.state.trim(&mut plan, now, steps, limits);
        if plan.is_empty() {
            self.state.abandon(plan);
            self.answer(answers);
            return false;
        }
        match self.commit(&plan) {
            Ok(()) => {
                self.publish(plan);
                self.answer(answers);
                true
            }
            Err(error) => self.failed(plan, answers, error),
        }
    }

    /// Lets the log rest once there has been no write for a while.
    fn rest(&mut self) {
        let Some(since) = self.busy_since else { return };
        let quiet = self.world.elapsed().saturating_sub(since) >= REST_AFTER;
        if !quiet || self.broken.is_some() || self.shared.queue.waiting() > 0 {
            return;
        }
        self.busy_since = None;
        match self.log.rest() {
            Ok(false) => {}
            Ok(true) => self.show(),
            Err(error) => {
                self.failed(self.state.plan(), Vec::new(), error);
            }
        }
    }

    fn commit(&mut self, plan: &Plan) -> Result<(), StoreError> {
        let start = self.world.elapsed();
        self.busy_since = Some(start);
        let Plan { changes, details, trims, meta, .. } = plan;
        let result = self.log.commit(&Batch { changes, details, trims, meta });
        let took = self.world.elapsed().saturating_sub(start);
        add(&self.shared.gauges.commit_nanos, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        result
    }

    /// Applies a durable batch and publishes it.
    fn publish(&mut self, plan: Plan) {
        let changes = self.state.apply(plan);
        let gauges = &self.shared.gauges;
        add(&gauges.commits, 1);
        add(&gauges.changes, changes.len() as u64);
        gauges.largest_batch.fetch_max(changes.len() as u64, Ordering::Relaxed);
        if !changes.is_empty() {
            (self.subscriber)(&changes);
        }
        self.show();
        self.note_health();
    }

    /// After a successful commit: records whether the disk is full, the only remaining fault.
    pub(crate) fn note_health(&self) {
        let full = self.log.is_full().then(|| self.log.full_error());
        self.shared.gauges.full.store(full.is_some(), Ordering::Relaxed);
        let mut fault = self.shared.fault.lock();
        if *fault == full {
            return;
        }
        match &full {
            Some(error) => tracing::error!(%error, "the disk is full: writes that need space are refused"),
            None => tracing::info!(revision = self.state.meta.newest, "the store works again"),
        }
        *fault = full;
    }

    /// Drops all history, and tries to free space.
    fn make_room(&mut self) -> Result<(), StoreError> {
        while self.batch(Vec::new(), Trimming::Thorough) && self.log.is_full() {}
        let room = match self.broken {
            Some(_) => return Err(self.reason()),
            None => self.log.make_room(),
        };
        if let Err(error) = room {
            self.failed(self.state.plan(), Vec::new(), error);
            return if self.broken.is_some() { Err(self.reason()) } else { Ok(()) };
        }
        self.show();
        self.note_health();
        Ok(())
    }

    fn answer(&self, answers: Results) {
        for (answer, _place, result) in answers {
            if matches!(result, Err(StoreError::Conflict { .. })) {
                add(&self.shared.gauges.conflicts, 1);
            }
            // the caller may be gone
            let _ = answer.send(result);
        }
    }

    /// After a failed commit: finds out at once, if possible, whether the batch is durable. True if it is.
    fn failed(&mut self, plan: Plan, answers: Results, error: StoreError) -> bool {
        tracing::error!(%error, "a batch could not be made durable");
        add(&self.shared.gauges.failures, 1);
        *self.shared.fault.lock() = Some(error.clone());
        self.broken = Some(FailedLog { unresolved: plan, not_before: Duration::ZERO });
        let newest = self.state.meta.newest;
        let still = self.mend(true);
        if still.is_none() && self.state.meta.newest > newest {
            self.answer(answers);
            return true;
        }
        // a conflict may be with a write of this batch, which did not happen either
        for (answer, ..) in answers {
            let _ = answer.send(Err(error.clone()));
        }
        false
    }

    /// Reopens a broken log. Returns the reason if that fails.
    fn mend(&mut self, at_once: bool) -> Option<StoreError> {
        let start = self.world.elapsed();
        let broken = self.broken.take()?;
        if start < broken.not_before && !at_once {
            self.broken = Some(broken);
            return Some(self.reason());
        }
        match self.log.reopen() {
            Ok(meta) if meta == self.state.meta => self.state.abandon(broken.unresolved),
            Ok(meta) if meta == broken.unresolved.meta => self.publish(broken.unresolved),
            outcome => {
                let error = outcome.err().unwrap_or_else(|| {
                    StoreError::Unavailable(
                        "its file was changed by another process; restart the server to read it".to_owned(),
                    )
                });
                tracing::error!(%error, "the store cannot be reopened");
                let took = self.world.elapsed().saturating_sub(start);
                let not_before = self.world.elapsed() + took * 4;
                self.broken = Some(FailedLog { not_before, ..broken });
                *self.shared.fault.lock() = Some(error.clone());
                return Some(error);
            }
        }
        None
    }

    /// After a failure, probes whether the disk accepts writes again, so that readiness returns by itself.
    fn probe(&mut self) {
        // a full disk is handled by freeing space
        if self.shared.fault.lock().is_none() || self.log.is_full() {
            return;
        }
        let plan = self.state.plan();
        match self.commit(&plan) {
            Ok(()) => self.publish(plan),
            Err(error) => {
                self.failed(plan, Vec::new(), error);
            }
        }
    }

    fn reason(&self) -> StoreError {
        let fault = self.shared.fault.lock().clone();
        fault.unwrap_or_else(|| StoreError::Unavailable("its last write failed".to_owned()))
    }

    /// Updates the gauges.
    pub(crate) fn show(&self) {
        let gauges = &self.shared.gauges;
        set(&gauges.oldest, self.state.meta.oldest);
        set(&gauges.live_keys, self.state.live_keys() as u64);
        set(&gauges.history_records, self.state.history_records() as u64);
        set(&gauges.history_bytes, self.state.history_bytes());
        set(&gauges.file_bytes, self.log.file_bytes());
        gauges.revision.store(self.state.meta.newest, Ordering::Release);
    }
}

impl Shared {
    pub(crate) fn new(world: World) -> Self {
        let (gauges, fault, stopped) = (Gauges::default(), Mutex::new(None), watch::Sender::new(false));
        Self { queue: Queue::new(world), gauges, fault, stopped }
    }

    pub(crate) fn oldest(&self) -> Revision {
        Revision(self.gauges.oldest.load(Ordering::Relaxed))
    }

    pub(crate) fn stats(&self) -> Stats {
        let gauges = &self.gauges;
        let get = |gauge: &AtomicU64| gauge.load(Ordering::Relaxed);
        Stats {
            revision: get(&gauges.revision),
            oldest: get(&gauges.oldest),
            live_keys: get(&gauges.live_keys),
            history_records: get(&gauges.history_records),
            history_bytes: get(&gauges.history_bytes),
            file_bytes: get(&gauges.file_bytes),
            commits: get(&gauges.commits),
            changes: get(&gauges.changes),
            largest_batch: get(&gauges.largest_batch),
            commit_nanos: get(&gauges.commit_nanos),
            conflicts: get(&gauges.conflicts),
            failures: get(&gauges.failures),
            full: gauges.full.load(Ordering::Relaxed),
            waiting: self.queue.waiting() as u64,
        }
    }
}

fn add(gauge: &AtomicU64, by: u64) {
    gauge.fetch_add(by, Ordering::Relaxed);
}

fn set(gauge: &AtomicU64, to: u64) {
    gauge.store(to, Ordering::Relaxed);
}
