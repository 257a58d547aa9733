//! Leases, by which keys end.
//!
//! A lease is shared by writes that end at about the same time: it is granted for a little longer than was asked, and
//! serves those whose end lies within that little. It ends no earlier than what any of them asked for.

use parking_lot::Mutex;
use std::time::Duration;

use crate::client::{Ask, Client, Failure};
use crate::messages::{GRANT, grant, granted};

/// A lease with many keys is slow to end.
const KEYS: u64 = 1000;
/// The little longer is at most this part of the time that was asked for.
const PART: i64 = 20;

#[derive(Copy, Clone, Debug, Default)]
struct Lease {
    id: i64,
    /// It lasts at least until then, in Unix seconds.
    until: i64,
    keys: u64,
}

/// See the module.
pub(crate) struct Leases {
    current: Mutex<Lease>,
    /// One asks, the others wait for what it gets.
    asking: tokio::sync::Mutex<()>,
    /// For how much longer than asked a lease is granted at most, in seconds.
    longer: i64,
}

impl Leases {
    pub(crate) fn new(longer: Duration) -> Self {
        let longer = i64::try_from(longer.as_secs()).unwrap_or(i64::MAX);
        Leases { current: Mutex::default(), asking: tokio::sync::Mutex::default(), longer }
    }

    /// A lease for a key that is to end at `end`, where it is `now`.
    pub(crate) async fn lease(&self, client: &Client, end: i64, now: i64) -> Result<i64, Failure> {
        let asked = end.saturating_sub(now).max(1);
        let longer = (asked / PART).min(self.longer).max(0);
        if let Some(id) = self.shared(end, longer) {
            return Ok(id);
        }
        let _asking = self.asking.lock().await;
        if let Some(id) = self.shared(end, longer) {
            return Ok(id);
        }
        // time counts from when the etcd hears of it, which is later than now
        let seconds = asked.saturating_add(longer);
        let id = granted(&client.call(GRANT, &grant(seconds), Ask::Reads).await?)?;
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

    /// The etcd does not know this lease any more.
    pub(crate) fn forget(&self, id: i64) {
        let mut current = self.current.lock();
        if current.id == id {
            *current = Lease::default();
        }
    }
}
