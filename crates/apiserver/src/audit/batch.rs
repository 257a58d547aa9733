//! Buffer of audit events for delivery in batches, so that no request waits for a backend.
//!
//! Invariants: the buffer is bounded, in events and in bytes; beyond that events are lost, which is counted
//! and logged. Events are delivered in order, one batch after the other unless the backend accepts concurrent
//! batches. The buffer is flushed at shutdown.

use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// Maximum bytes of buffered events: a count alone would let large bodies exhaust memory.
const MAX_BYTES: usize = 256 << 20;
/// One of so many lost events is logged.
const LOG_EVERY: u64 = 1000;

/// Options of batching.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Batching {
    /// Maximum number of buffered events.
    pub buffer: usize,
    /// Maximum number of events per batch.
    pub max_size: usize,
    /// Maximum delay of a smaller batch.
    pub max_wait: Duration,
    pub throttle: Option<Throttle>,
}

/// Rate limit of batches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throttle {
    pub per_second: f64,
    /// Batches without a pause.
    pub burst: u32,
}

/// The buffer of a backend.
pub(super) struct Batch {
    queue: mpsc::Sender<Bytes>,
    bytes: Arc<AtomicUsize>,
    lost: AtomicU64,
}

impl Batch {
    /// An empty buffer, the receiver of its events, and its size in bytes.
    pub fn new(buffer: usize) -> (Self, mpsc::Receiver<Bytes>, Arc<AtomicUsize>) {
        let (queue, events) = mpsc::channel(buffer.max(1));
        let bytes = Arc::<AtomicUsize>::default();
        (Batch { queue, bytes: bytes.clone(), lost: AtomicU64::new(0) }, events, bytes)
    }

    /// Buffers an event, unless the buffer is full.
    pub fn push(&self, event: Bytes) -> bool {
        let size = event.len();
        if self.bytes.fetch_add(size, Ordering::Relaxed) + size <= MAX_BYTES
            && self.queue.try_send(event).is_ok()
        {
            return true;
        }
        self.bytes.fetch_sub(size, Ordering::Relaxed);
        let before = self.lost.fetch_add(1, Ordering::Relaxed);
        if before.is_multiple_of(LOG_EVERY) {
            tracing::error!(lost = before + 1, "audit events are lost: the buffer is full");
        }
        false
    }
}
