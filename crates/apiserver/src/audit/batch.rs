//! Buffer of audit events for delivery in batches, so that no request waits for a backend.
//!
//! What always holds: what waits is bounded, in number and in bytes; beyond that events are lost, which is counted
//! and logged. Events are handed on in the order in which they came, and one list after the other unless whoever
//! takes them may be asked for several at a time. When the server ends, what waits is handed on first.

use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// How many bytes of events may wait: a count alone would let large bodies take all memory.
const MOST_BYTES: usize = 256 << 20;
/// Of lost events every so many are logged.
const LOGGED: u64 = 1000;

/// How events are gathered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Batching {
    /// How many may wait.
    pub buffer: usize,
    /// How many are handed on together.
    pub max_size: usize,
    /// How long fewer are waited for.
    pub max_wait: Duration,
    pub throttle: Option<Throttle>,
}

/// How often lists are handed on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throttle {
    pub per_second: f64,
    /// How many may follow each other without a pause.
    pub burst: u32,
}

/// Takes events, and has them handed on.
pub(super) struct Batch {
    waiting: mpsc::Sender<Bytes>,
    bytes: Arc<AtomicUsize>,
    lost: AtomicU64,
}

impl Batch {
    /// An empty buffer, the receiver of its events, and the number of bytes that wait.
    pub fn new(buffer: usize) -> (Self, mpsc::Receiver<Bytes>, Arc<AtomicUsize>) {
        let (waiting, events) = mpsc::channel(buffer.max(1));
        let bytes = Arc::<AtomicUsize>::default();
        (Batch { waiting, bytes: bytes.clone(), lost: AtomicU64::new(0) }, events, bytes)
    }

    /// Takes an event unless too many wait.
    pub fn push(&self, event: Bytes) -> bool {
        let size = event.len();
        if self.bytes.fetch_add(size, Ordering::Relaxed) + size <= MOST_BYTES
            && self.waiting.try_send(event).is_ok()
        {
            return true;
        }
        self.bytes.fetch_sub(size, Ordering::Relaxed);
        let before = self.lost.fetch_add(1, Ordering::Relaxed);
        if before.is_multiple_of(LOGGED) {
            tracing::error!(lost = before + 1, "audit events are lost: too many wait to be taken");
        }
        false
    }
}
