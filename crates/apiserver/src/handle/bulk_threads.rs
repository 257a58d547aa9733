//! Threads for bulk requests, apart from the I/O threads.

use crate::serve::Bulk;

/// Decoding, validating or compressing an object of this size takes about a millisecond.
pub(super) const BODY_BYTES: usize = 64 << 10;

/// Exempt requests have threads of their own.
pub struct Threads {
    pub(super) exempt: Bulk,
    pub(super) others: Bulk,
}

impl Default for Threads {
    fn default() -> Self {
        Threads { exempt: Bulk::new("bulk-exempt"), others: Bulk::new("bulk") }
    }
}
