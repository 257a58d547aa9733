//! The store of revisions: reads for any thread, and one thread that writes.
//!
//! A write is a function that runs on the [`Writer`] of the next batch. Functions that wait run in one transaction of
//! the file, one after the other; each sees the changes of those before it. Once the transaction is durable its
//! revisions are published, and only then the callers get their answers. Reads and watches see published revisions.
//!
//! An error of the file ends all writing: what the file has is then unknown, and a new start finds out.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use env::World;
use grpc::etcd::KeyValue;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::database::{Database, Loader, Location, Meta, OpenError};
use crate::error::Error;
use crate::history::History;
use crate::index::{Index, KeyVersion, Revision};
use crate::leases::Leases;
use crate::metrics::Metrics;
use crate::shared::{Limits, Shared, State};
use crate::writer::Writer;

/// Writes that may wait for the writing thread.
const MAX_WAITING: usize = 4096;
/// Writes in one batch.
const MAX_BATCH: usize = 1024;
/// Keys that a compaction looks at with each batch.
const PRUNE_STEP: usize = 2000;

/// A function for the writing thread. The function that it returns sends the answer, once the outcome is known.
type Job = Box<dyn FnOnce(&mut Writer<'_, '_>) -> Result<Answer, Error> + Send>;
type Answer = Box<dyn FnOnce(Result<(), Error>) + Send>;

enum Command {
    Job(Job),
    Defragment(oneshot::Sender<Result<(), Error>>),
    /// Answers once the rows before the compacted revision are gone.
    AwaitPruning(oneshot::Sender<()>),
    Close,
}

/// See the module.
pub struct Engine {
    shared: Arc<Shared>,
    commands: mpsc::Sender<Command>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    /// Opens a store, and creates it if it does not exist.
    pub fn open(
        location: &Location,
        limits: Limits,
        world: World,
        metrics: Metrics,
    ) -> Result<Self, OpenError> {
        let fresh = Meta {
            cluster_id: env::random_u64(&world),
            member_id: env::random_u64(&world),
            revision: 1,
            compacted: -1,
            applied: 0,
            alarms: 0,
        };
        let mut loaded =
            LoadedState { now: world.elapsed(), index: Index::default(), leases: Leases::default() };
        let (database, meta) = Database::open(location, fresh, &mut loaded)?;
        let state = State {
            index: loaded.index,
            revision: meta.revision,
            compacted: meta.compacted,
            applied: meta.applied,
            alarms: meta.alarms,
            history: History::default(),
        };
        let shared = Arc::new(Shared {
            database,
            state: RwLock::new(state),
            leases: Mutex::new(loaded.leases),
            leases_changed: Notify::new(),
            limits,
            world,
            metrics,
            cluster_id: meta.cluster_id,
            member_id: meta.member_id,
            published: watch::Sender::new(meta.revision),
            fault: watch::Sender::new(None),
            watchers: AtomicUsize::new(0),
        });
        let (commands, waiting) = mpsc::channel(MAX_WAITING);
        // a compaction may have been interrupted by the end of the process
        let pruning = (meta.compacted >= 0).then(Pruning::default);
        let committer = Committer { shared: shared.clone(), waiting, pruning, awaiting_pruning: Vec::new() };
        let thread =
            std::thread::Builder::new().name("etcd-writer".to_owned()).spawn(move || committer.run())?;
        Ok(Self { shared, commands, thread: Mutex::new(Some(thread)) })
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Runs a function on the writing thread, and returns its result once its changes are durable and published. An
    /// error of the function itself leaves the others of the batch alone; it must not have changed anything.
    pub async fn write<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Writer<'_, '_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, answer) = oneshot::channel();
        let job: Job = Box::new(move |writer| {
            let result = change(writer);
            if let Err(error @ Error::Storage(_)) = result {
                let _ = sender.send(Err(error.clone()));
                return Err(error);
            }
            Ok(Box::new(move |durable: Result<(), Error>| {
                // the caller may be gone
                let _ = sender.send(durable.and(result));
            }))
        });
        self.commands.send(Command::Job(job)).await.map_err(|_| self.shared.stop_reason())?;
        answer.await.unwrap_or_else(|_| Err(self.shared.stop_reason()))
    }

    /// Moves the file's pages together; all else waits.
    pub async fn defragment(&self) -> Result<(), Error> {
        let (sender, answer) = oneshot::channel();
        self.commands.send(Command::Defragment(sender)).await.map_err(|_| self.shared.stop_reason())?;
        answer.await.unwrap_or_else(|_| Err(self.shared.stop_reason()))
    }

    /// Waits until the rows before the compacted revision are gone from the file.
    pub async fn await_pruning(&self) -> Result<(), Error> {
        let (sender, answer) = oneshot::channel();
        self.commands.send(Command::AwaitPruning(sender)).await.map_err(|_| self.shared.stop_reason())?;
        answer.await.map_err(|_| self.shared.stop_reason())
    }

    /// Finishes the writes that wait, and closes the file.
    pub async fn close(&self) {
        if self.commands.send(Command::Close).await.is_ok() {
            self.commands.closed().await;
        }
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // a panic of the thread has been reported
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
        // tasks that end later hold the state, but not the file
        let shared = self.shared.clone();
        let _ = tokio::task::spawn_blocking(move || shared.database.close()).await;
    }
}

/// Collects the state while the file is read.
struct LoadedState {
    now: Duration,
    index: Index,
    leases: Leases,
}

impl Loader for LoadedState {
    fn row(&mut self, at: Revision, kv: KeyValue) -> Result<(), String> {
        if kv.key.is_empty() {
            return Err(format!("revision {} has no key", at.main));
        }
        let before = self.index.get(&kv.key, i64::MAX).map_or(0, |it| it.lease);
        self.leases.attach(&kv.key, before, kv.lease);
        let KeyValue { create_revision: created, version, lease, .. } = kv;
        self.index.push(&kv.key, KeyVersion { at, created, version, lease });
        Ok(())
    }

    fn lease(&mut self, id: i64, ttl: i64) {
        self.leases.grant(id, ttl, self.now);
    }
}

/// The position of a compaction: the last key that it has looked at.
#[derive(Default)]
struct Pruning {
    after: Option<Bytes>,
}

/// The writing thread.
struct Committer {
    shared: Arc<Shared>,
    waiting: mpsc::Receiver<Command>,
    pruning: Option<Pruning>,
    awaiting_pruning: Vec<oneshot::Sender<()>>,
}

impl Committer {
    fn run(mut self) {
        loop {
            let first = match self.pruning {
                // pruning goes on while nothing waits
                Some(_) => self.waiting.try_recv().ok(),
                None => self.waiting.blocking_recv(),
            };
            let (mut jobs, mut after) = (Vec::new(), None);
            let mut next = first;
            while let Some(command) = next.take() {
                match command {
                    Command::Job(job) => jobs.push(job),
                    other => after = Some(other),
                }
                if after.is_none() && jobs.len() < MAX_BATCH {
                    next = self.waiting.try_recv().ok();
                }
            }
            if self.pruning.is_none() && jobs.is_empty() && after.is_none() {
                // every handle is gone
                return;
            }
            if let Err(error) = self.commit(jobs) {
                tracing::error!(%error, "writes end here");
                self.shared.fault.send_replace(Some(error));
                return;
            }
            match after {
                Some(Command::Defragment(sender)) => {
                    let _ = sender.send(self.shared.database.defragment());
                }
                Some(Command::AwaitPruning(sender)) => self.awaiting_pruning.push(sender),
                Some(Command::Close) => {
                    self.waiting.close();
                    // those that came before the queue was closed
                    while let Ok(command) = self.waiting.try_recv() {
                        if let Command::Job(job) = command
                            && let Err(error) = self.commit(vec![job])
                        {
                            self.shared.fault.send_replace(Some(error));
                            return;
                        }
                    }
                    return;
                }
                Some(Command::Job(_)) | None => {}
            }
            if self.pruning.is_none() {
                for sender in self.awaiting_pruning.drain(..) {
                    let _ = sender.send(());
                }
            }
        }
    }

    /// Runs functions and a step of pruning in one transaction, publishes their changes, and answers.
    fn commit(&mut self, jobs: Vec<Job>) -> Result<(), Error> {
        let shared = self.shared.clone();
        let mut answers = Vec::with_capacity(jobs.len());
        let mut changes = Vec::new();
        let mut next = *self.shared.published.borrow();
        let began = shared.world.elapsed();
        let mut is_changed = false;
        let committed = shared.database.write(|transaction| {
            let mut writer = Writer::new(&shared, transaction, next)?;
            for job in jobs {
                answers.push(job(&mut writer)?);
            }
            if writer.has_compacted() {
                self.pruning = Some(Pruning::default());
            }
            if let Some(pruning) = &mut self.pruning {
                let compacted = writer.compacted();
                let (rows, last) =
                    shared.state.write().index.prune(pruning.after.as_ref(), compacted, PRUNE_STEP);
                writer.remove_rows(&rows)?;
                match last {
                    Some(last) => pruning.after = Some(last),
                    None => self.pruning = None,
                }
            }
            (is_changed, next, changes) = writer.finish(transaction)?;
            Ok(is_changed)
        });
        if committed.is_ok() {
            if is_changed {
                shared.metrics.commit.took(shared.world.elapsed().saturating_sub(began));
            }
            let mut state = shared.state.write();
            state.revision = next;
            changes.drain(..).for_each(|it| state.history.push(Arc::new(it)));
            drop(state);
            shared.published.send_if_modified(|published| std::mem::replace(published, next) != next);
        }
        for answer in answers {
            answer(committed.clone());
        }
        committed
    }
}
