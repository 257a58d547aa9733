//! Guards that the clock of a [`Paused`](crate::Paused) world minds: for work outside of the tasks of its runtime, and for
//! work to which every tick of upkeep matters.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Keeps a paused clock from moving while it lives. In other worlds it has no effect.
#[must_use]
#[derive(Default)]
pub struct Hold(Option<Arc<AtomicUsize>>);

impl Hold {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Some(count.clone()))
    }
}

impl Hold {
    /// Whether a clock stands still because of it.
    pub fn is_active(&self) -> bool {
        self.0.is_some()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(count) = &self.0 {
            count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Keeps a paused clock from leaving out ticks of [`Upkeep`](crate::Upkeep) while it lives. In other worlds it has no
/// effect.
#[must_use]
#[derive(Default)]
pub struct ExactSteps {
    _count: Hold,
}

impl ExactSteps {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        Self { _count: Hold::new(count) }
    }
}
