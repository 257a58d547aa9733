//! Leases: keys that are deleted when a client is silent for too long.
//!
//! A lease and its seconds to live are durable; its end is not. After a restart every lease begins anew, as the clients
//! could not renew it while the server was away.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

/// One lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub ttl: i64,
    /// By the monotonic clock of the world.
    pub expires_at: Duration,
    pub keys: BTreeSet<Bytes>,
}

impl Lease {
    /// The whole seconds that are left, rounded down.
    pub fn remaining(&self, now: Duration) -> i64 {
        self.expires_at.saturating_sub(now).as_secs() as i64
    }
}

/// All leases, by id and by end.
#[derive(Default)]
pub struct Leases {
    by_id: BTreeMap<i64, Lease>,
    by_end: BTreeSet<(Duration, i64)>,
}

impl Leases {
    pub fn get(&self, id: i64) -> Option<&Lease> {
        self.by_id.get(&id)
    }

    pub fn ids(&self) -> impl Iterator<Item = i64> + '_ {
        self.by_id.keys().copied()
    }

    /// Adds a lease that begins now.
    pub fn grant(&mut self, id: i64, ttl: i64, now: Duration) {
        let expires_at = end(now, ttl);
        self.by_end.insert((expires_at, id));
        self.by_id.insert(id, Lease { ttl, expires_at, keys: BTreeSet::new() });
    }

    /// Begins a lease anew; returns its seconds to live, or nothing if it has ended.
    pub fn renew(&mut self, id: i64, now: Duration) -> Option<i64> {
        let lease = self.by_id.get_mut(&id).filter(|lease| lease.expires_at > now)?;
        self.by_end.remove(&(lease.expires_at, id));
        lease.expires_at = end(now, lease.ttl);
        self.by_end.insert((lease.expires_at, id));
        Some(lease.ttl)
    }

    pub fn revoke(&mut self, id: i64) -> Option<Lease> {
        let lease = self.by_id.remove(&id)?;
        self.by_end.remove(&(lease.expires_at, id));
        Some(lease)
    }

    /// Moves a key from one lease to another; 0 is none.
    pub fn attach(&mut self, key: &Bytes, from: i64, to: i64) {
        if from == to {
            return;
        }
        if let Some(lease) = self.by_id.get_mut(&from) {
            lease.keys.remove(key);
        }
        if let Some(lease) = self.by_id.get_mut(&to) {
            lease.keys.insert(Bytes::copy_from_slice(key));
        }
    }

    /// When the next lease ends.
    pub fn next_end(&self) -> Option<Duration> {
        self.by_end.first().map(|(end, _)| *end)
    }

    /// The leases that have ended.
    pub fn expired(&self, now: Duration) -> Vec<i64> {
        self.by_end.iter().take_while(|(end, _)| *end <= now).map(|(_, id)| *id).collect()
    }
}

fn end(now: Duration, ttl: i64) -> Duration {
    now.saturating_add(Duration::from_secs(u64::try_from(ttl).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_renewed_lease_lives_on() {
        let mut leases = Leases::default();
        leases.grant(7, 5, SECOND);
        leases.grant(8, 3, SECOND);
        assert_eq!((leases.next_end(), leases.expired(SECOND * 4)), (Some(SECOND * 4), vec![8]));
        assert_eq!((leases.renew(8, SECOND * 4), leases.renew(7, SECOND * 4)), (None, Some(5)));
        assert_eq!(leases.expired(SECOND * 8), [8]);
        assert!(leases.revoke(8).is_some() && leases.revoke(8).is_none());
        assert_eq!(leases.next_end(), Some(SECOND * 9));
        assert_eq!(leases.get(7).map(|it| it.remaining(SECOND * 6)), Some(3));
    }

    #[test]
    fn a_key_has_one_lease() {
        let mut leases = Leases::default();
        leases.grant(1, 5, SECOND);
        leases.grant(2, 5, SECOND);
        let key = Bytes::from("a");
        leases.attach(&key, 0, 1);
        leases.attach(&key, 1, 2);
        let keys = |id| leases.get(id).map(|it| it.keys.len());
        assert_eq!((keys(1), keys(2)), (Some(0), Some(1)));
    }
}
