//! Leases for keys that expire.
//!
//! Writes that expire at about the same time share a lease. A lease is granted for slightly longer than requested,
//! and serves later keys whose expiry lies within that extension. No key expires earlier than requested.

use parking_lot::Mutex;
use std::time::Duration;

use crate::client::{Client, ClientError};

/// Keys per lease: revoking a lease with many keys is slow.
const KEYS: u64 = 1000;
/// The extension is at most this fraction of the requested TTL.
const PART: i64 = 20;

#[derive(Copy, Clone, Debug, Default)]
struct Lease {
    id: i64,
    /// Unix seconds until which the lease lasts at least.
    until: i64,
    keys: u64,
}

/// See the module.
pub(crate) struct Leases {
    current: Mutex<Lease>,
    /// Held while a lease is requested: other writers wait for the result.
    granting: tokio::sync::Mutex<()>,
    /// The largest extension, in seconds.
    longer: i64,
}

impl Leases {
    pub(crate) fn new(longer: Duration) -> Self {
        let longer = i64::try_from(longer.as_secs()).unwrap_or(i64::MAX);
        Leases { current: Mutex::default(), granting: tokio::sync::Mutex::default(), longer }
    }

    /// The id of a lease for a key that expires at `end`, given the current time.
    pub(crate) async fn lease(&self, client: &Client, end: i64, now: i64) -> Result<i64, ClientError> {
        let requested = end.saturating_sub(now).max(1);
        let longer = (requested / PART).min(self.longer).max(0);
        if let Some(id) = self.shared(end, longer) {
            return Ok(id);
        }
        let _granting = self.granting.lock().await;
        if let Some(id) = self.shared(end, longer) {
            return Ok(id);
        }
        // etcd counts from when it receives the request, which is later than `now`
        let seconds = requested.saturating_add(longer);
        let id = client.grant(seconds).await?;
        *self.current.lock() = Lease { id, until: now.saturating_add(seconds), keys: 1 };
        Ok(id)
    }

    fn shared(&self, end: i64, longer: i64) -> Option<i64> {
        let mut current = self.current.lock();
        let fits = current.id != 0 && current.until >= end && current.until - end <= longer.max(1);
        if !fits || current.keys >= KEYS {
            return None;
        }
        current.keys += 1;
        Some(current.id)
    }

    /// Drops a lease that etcd does not know any more.
    pub(crate) fn forget(&self, id: i64) {
        let mut current = self.current.lock();
        if current.id == id {
            *current = Lease::default();
        }
    }
}
