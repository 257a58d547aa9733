//! An environment that blocks threads: creation of the next objects waits for their uid and keeps its thread. It also
//! notes the work of bulk threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

use env::{Env, ManualClock};

use crate::{TIMEOUT, soon};

/// Blocks a number of threads that create objects.
#[derive(Default)]
pub struct ThreadBlocker {
    state: Mutex<State>,
    changed: Condvar,
    /// Whether a bulk thread has looked at the clock.
    bulk_work: AtomicBool,
}

#[derive(Default)]
struct State {
    /// The number of threads still to block.
    to_block: usize,
    blocked: usize,
    open: bool,
}

impl ThreadBlocker {
    /// Blocks the next `count` creations until [`ThreadBlocker::release`].
    pub fn block_next(&self, count: usize) {
        let mut state = self.state.lock().unwrap();
        (state.to_block, state.open) = (count, false);
    }

    /// The number of blocked threads.
    pub fn blocked(&self) -> usize {
        self.state.lock().unwrap().blocked
    }

    /// Waits until `count` threads are blocked.
    pub async fn wait_until_blocked(&self, count: usize) {
        let all = async {
            while self.blocked() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        soon("blocked threads", all).await;
    }

    /// Whether a bulk thread has worked since the last call.
    pub fn take_bulk_work(&self) -> bool {
        self.bulk_work.swap(false, Ordering::SeqCst)
    }

    fn note_thread(&self) {
        if std::thread::current().name().is_some_and(|name| name.starts_with("bulk")) {
            self.bulk_work.store(true, Ordering::SeqCst);
        }
    }

    pub fn release(&self) {
        let mut state = self.state.lock().unwrap();
        (state.to_block, state.open) = (0, true);
        self.changed.notify_all();
    }

    fn wait(&self) {
        let mut state = self.state.lock().unwrap();
        if state.to_block == 0 {
            return;
        }
        (state.to_block, state.blocked) = (state.to_block - 1, state.blocked + 1);
        // a server without free threads cannot release itself
        let (mut state, waited) =
            self.changed.wait_timeout_while(state, TIMEOUT / 4, |state| !state.open).unwrap();
        state.blocked -= 1;
        drop(state);
        assert!(!waited.timed_out(), "no other thread released this one");
    }
}

/// An [`Env`] with a [`ThreadBlocker`].
pub(crate) struct BlockingEnv {
    pub blocker: Arc<ThreadBlocker>,
    pub world: Arc<dyn ManualClock>,
}

impl Env for BlockingEnv {
    fn now(&self) -> SystemTime {
        self.blocker.note_thread();
        self.world.now()
    }

    fn elapsed(&self) -> Duration {
        self.blocker.note_thread();
        self.world.elapsed()
    }

    fn sleep_until(&self, at: Duration) -> env::Sleep {
        self.world.sleep_until(at)
    }

    fn fill(&self, bytes: &mut [u8]) {
        const UID_BYTES: usize = 16;
        if bytes.len() == UID_BYTES {
            self.blocker.wait();
        }
        self.world.fill(bytes);
    }
}
