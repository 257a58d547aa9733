//! Work that holds its thread: a server whose next objects wait for their uid, without giving up the thread that they
//! are made on.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

use env::{Env, Simulated};

use crate::{TIMEOUT, soon};

/// Holds the threads that make objects, as many as it was told.
#[derive(Default)]
pub struct Hold {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// How many more are to be held.
    to_hold: usize,
    holding: usize,
    open: bool,
}

impl Hold {
    /// The next so many objects wait until [`Hold::release`].
    pub fn next(&self, count: usize) {
        let mut state = self.state.lock().unwrap();
        (state.to_hold, state.open) = (count, false);
    }

    /// How many are being held.
    pub fn holding(&self) -> usize {
        self.state.lock().unwrap().holding
    }

    /// Waits until so many are being held.
    pub async fn until_holding(&self, count: usize) {
        let all = async {
            while self.holding() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        soon("work that is held", all).await;
    }

    pub fn release(&self) {
        let mut state = self.state.lock().unwrap();
        (state.to_hold, state.open) = (0, true);
        self.changed.notify_all();
    }

    fn wait(&self) {
        let mut state = self.state.lock().unwrap();
        if state.to_hold == 0 {
            return;
        }
        (state.to_hold, state.holding) = (state.to_hold - 1, state.holding + 1);
        // a server that is held up altogether cannot release itself
        let (mut state, waited) =
            self.changed.wait_timeout_while(state, TIMEOUT / 4, |state| !state.open).unwrap();
        state.holding -= 1;
        drop(state);
        assert!(!waited.timed_out(), "nothing else went on while this thread was held");
    }
}

/// The world of such a server.
pub(crate) struct Holding {
    pub hold: Arc<Hold>,
    pub world: Arc<Simulated>,
}

impl Env for Holding {
    fn now(&self) -> SystemTime {
        self.world.now()
    }

    fn elapsed(&self) -> Duration {
        self.world.elapsed()
    }

    fn fill(&self, bytes: &mut [u8]) {
        const UID_BYTES: usize = 16;
        if bytes.len() == UID_BYTES {
            self.hold.wait();
        }
        self.world.fill(bytes);
    }
}
