//! The engine's handle for callers; the committer runs on its own thread, or with a paused clock on that of each caller:
//! then the order of all work does not depend on how fast it is.
//!
//! Dropping the handle closes the store as [`Store::close`] does, and waits for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use env::World;
use parking_lot::Mutex;

use crate::committer::{Committer, Shared};
use crate::log::Log;
use crate::state::{Limits, State};
use crate::{
    BoxFuture, MAX_KEY_BYTES, MAX_VALUE_BYTES, Op, Options, Revision, Snapshot, Stats, Store, StoreError,
    Subscriber, Write,
};

/// An engine of this process: see [`crate::embedded`] and [`crate::memory`].
pub struct Engine {
    shared: Arc<Shared>,
    /// The committer until [`Store::start`] runs it.
    resting: Mutex<Option<Committer>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The committer without a thread.
    in_place: Mutex<Option<InPlaceCommitter>>,
    world: World,
}

/// A committer that works when it is called.
struct InPlaceCommitter {
    committer: Committer,
    _epilogue: StopGuard,
}

impl Engine {
    pub(crate) fn new(log: Box<dyn Log>, state: State, options: &Options, world: World) -> Self {
        let shared = Arc::new(Shared::new(world.clone()));
        let limits = Limits::new(options);
        let subscriber: Subscriber = Box::new(|_| ());
        let committer = Committer {
            log,
            state,
            limits,
            world: world.clone(),
            shared: shared.clone(),
            subscriber,
            broken: None,
            // also a log that was opened after an end in the midst of writes
            busy_since: Some(world.elapsed()),
        };
        committer.show();
        committer.note_health();
        let (resting, thread, in_place) = (Mutex::new(Some(committer)), Mutex::default(), Mutex::default());
        Self { shared, resting, thread, in_place, world }
    }

    /// Does the queued work if no thread does it.
    fn work_in_place(&self) {
        let mut in_place = self.in_place.lock();
        // taken: a panic drops it, which closes the store
        let Some(mut working) = in_place.take() else { return };
        working.committer.answer_batch(self.shared.queue.take_now());
        *in_place = Some(working);
    }

    /// Closes the queue; the committer ends once it has answered the queued writes.
    fn begin_close(&self) {
        self.shared.queue.close();
        if let Some(InPlaceCommitter { committer, _epilogue }) = self.in_place.lock().take() {
            committer.run();
        }
        if let Some(mut never_started) = self.resting.lock().take() {
            never_started.log.close();
            drop(never_started);
            self.shared.queue.abandon();
            self.shared.stopped.send_replace(true);
        }
    }
}

impl Store for Engine {
    fn start(&self, subscriber: Subscriber) -> Result<(), StoreError> {
        let Some(mut committer) = self.resting.lock().take() else {
            return Err(StoreError::Unavailable("it has already been started or closed".to_owned()));
        };
        committer.subscriber = subscriber;
        let epilogue = StopGuard(self.shared.clone());
        if self.world.hold().is_active() {
            committer.verify();
            *self.in_place.lock() = Some(InPlaceCommitter { committer, _epilogue: epilogue });
            self.work_in_place();
            return Ok(());
        }
        let work = move || {
            let _epilogue = epilogue;
            committer.run();
        };
        let spawned = thread::Builder::new().name("store".to_owned()).spawn(work);
        let thread = spawned
            .map_err(|error| StoreError::Unavailable(format!("its thread cannot be started: {error}")))?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Revision, StoreError>> {
        Box::pin(async move {
            check_size(&write)?;
            env::pass_turns(&self.world).await;
            let answered = self.shared.queue.push(write).await?;
            self.work_in_place();
            let answer = answered.await.unwrap_or_else(|_| Err(StoreError::closing()));
            env::pass_turns(&self.world).await;
            answer
        })
    }

    fn revision(&self) -> Revision {
        Revision(self.shared.gauges.revision.load(Ordering::Acquire))
    }

    fn oldest(&self) -> Revision {
        self.shared.oldest()
    }

    fn stats(&self) -> Stats {
        self.shared.stats()
    }

    fn healthy(&self) -> Result<(), StoreError> {
        match &*self.shared.fault.lock() {
            Some(error) => Err(error.clone()),
            None if *self.shared.stopped.borrow() => Err(StoreError::closing()),
            None => Ok(()),
        }
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            if let Some(reached) = self.shared.queue.probe() {
                self.work_in_place();
                // on an error the committer has ended, which its health reports
                let _ = reached.await;
            }
            self.healthy()
        })
    }

    fn snapshot(&self) -> BoxFuture<'_, Result<Snapshot, StoreError>> {
        Box::pin(async move {
            let taken = self.shared.queue.snapshot().ok_or_else(StoreError::closing)?;
            self.work_in_place();
            taken.await.unwrap_or_else(|_| Err(StoreError::closing()))
        })
    }

    fn tick(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Some(done) = self.shared.queue.tick() {
                self.work_in_place();
                let _ = done.await;
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.begin_close();
        Box::pin(async move {
            // the sender lives as long as `self`, so waiting cannot fail
            let _ = self.shared.stopped.subscribe().wait_for(|stopped| *stopped).await;
        })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.begin_close();
        if let Some(committer) = self.thread.lock().take()
            && committer.thread().id() != thread::current().id()
        {
            // a panic of the committer has already been reported
            let _ = committer.join();
        }
    }
}

fn check_size(write: &Write) -> Result<(), StoreError> {
    let value = match &write.op {
        Op::Put { value, .. } => value.len(),
        Op::Delete => 0,
    };
    for (bytes, limit) in [(write.key.len(), MAX_KEY_BYTES), (value, MAX_VALUE_BYTES)] {
        if bytes > limit {
            return Err(StoreError::TooLarge { key: write.key.clone(), bytes, limit });
        }
    }
    Ok(())
}

/// Runs when the committer's thread ends, even by a panic, so that no caller waits forever.
struct StopGuard(Arc<Shared>);

impl Drop for StopGuard {
    fn drop(&mut self) {
        if thread::panicking() {
            // the cache may have missed a change, so the store must not continue
            let what = "its committer ended unexpectedly; restart the server".to_owned();
            *self.0.fault.lock() = Some(StoreError::Unavailable(what));
        }
        self.0.queue.abandon();
        self.0.stopped.send_replace(true);
    }
}
