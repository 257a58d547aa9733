//! Space that is set aside beside the store's file, for the moment at which the file system is full.
//!
//! ```text
//!                 a page finds no space: one step is given back to the file system
//!  Whole ────────────────────────────────────────────────────────────────────────► Drawn   the store is full
//!    ▲                                                                              │  │  ▲
//!    └──────────────── all of it can be set aside again ────────────────────────────┘  └──┘ another step
//! ```
//!
//! The batch under way is completed with it; from then on only writes that free space, or take hardly any, draw on it.
//! A file system that cannot set space aside has a reserve of nothing: there a full disk makes batches fail.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::backend::Backend;

/// How much is given back at a time: little, as others may write to the same file system.
const STEP: u64 = 1 << 20;

pub(crate) struct Reserve {
    backend: Arc<dyn Backend>,
    size: AtomicU64,
    /// The size of the reserve now.
    held: AtomicU64,
    full: AtomicBool,
}

impl Reserve {
    /// The size that an earlier engine left, until [`Reserve::fill`].
    pub(crate) fn new(backend: Arc<dyn Backend>, size: u64) -> Self {
        let held = AtomicU64::new(backend.aside().unwrap_or(0));
        Self { backend, size: AtomicU64::new(size), held, full: AtomicBool::new(false) }
    }

    /// Reserves the missing space; true if all of it is reserved, so that the file system is not full.
    pub(crate) fn fill(&self) -> bool {
        let size = self.size.load(Ordering::Relaxed);
        if self.held.load(Ordering::Relaxed) < size {
            match self.backend.set_aside(size) {
                Ok(()) => self.held.store(size, Ordering::Relaxed),
                Err(error) if is_full(&error) => {
                    self.full.store(true, Ordering::Relaxed);
                    self.give_back_to(self.held.load(Ordering::Relaxed));
                    return false;
                }
                Err(error) => {
                    tracing::debug!(%error, "no space can be set aside for a full disk");
                    self.size.store(0, Ordering::Relaxed);
                }
            }
        }
        self.full.store(false, Ordering::Relaxed);
        true
    }

    /// Gives one step back, so that a page finds space; false if there is nothing left.
    pub(crate) fn draw(&self) -> bool {
        self.full.store(true, Ordering::Relaxed);
        let held = self.held.load(Ordering::Relaxed);
        held > 0 && self.give_back_to(held.saturating_sub(STEP))
    }

    fn give_back_to(&self, bytes: u64) -> bool {
        match self.backend.set_aside(bytes) {
            Ok(()) => {
                self.held.store(bytes, Ordering::Relaxed);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "the space that was set aside cannot be given back");
                false
            }
        }
    }

    /// Whether a page found no space since the reserve was whole.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// The space that must become free before the reserve is whole again.
    pub(crate) fn missing(&self) -> u64 {
        self.size.load(Ordering::Relaxed).saturating_sub(self.held.load(Ordering::Relaxed))
    }

    /// Whether less than half is left.
    pub(crate) fn is_low(&self) -> bool {
        self.held.load(Ordering::Relaxed) < self.size.load(Ordering::Relaxed) / 2
    }
}

/// Whether an error says that there is no space.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
