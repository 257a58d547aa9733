//! Changes of objects that wait until the scheduler is free.

use std::time::Duration;

use parking_lot::Mutex;

use crate::scheduler::Scheduler;

/// A change, to be applied at a time.
pub(super) type Change = Box<dyn FnOnce(&mut Scheduler, Duration) + Send>;

/// See the module. Changes are applied in the order in which they came.
#[derive(Default)]
pub(super) struct Inbox(Mutex<Vec<Change>>);

impl Inbox {
    pub fn push(&self, change: Change) {
        self.0.lock().push(change);
    }

    pub fn apply_to(&self, scheduler: &mut Scheduler, now: Duration) {
        let changes = std::mem::take(&mut *self.0.lock());
        for change in changes {
            change(scheduler, now);
        }
    }
}
