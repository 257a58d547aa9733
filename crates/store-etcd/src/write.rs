//! One write: from its transaction until the subscriber has received its change.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use store::{Expect, MAX_KEY_BYTES, Op, Revision, StoreError, Write};

use crate::client::ClientError;
use crate::header::revision;
use crate::lease::Leases;
use crate::shared::{Shared, full};
use crate::txn::{Compare, Txn, TxnOp, TxnOutcome};

/// etcd's default request limit (`--max-request-bytes`).
const DEFAULT_REQUEST_LIMIT: usize = 3 << 19;

/// Sends the transaction, and waits until the subscriber has received the change, or the one that it conflicts
/// with.
pub(crate) async fn write(
    shared: Arc<Shared>,
    leases: Arc<Leases>,
    write: Write,
) -> Result<Revision, StoreError> {
    let key = &write.key;
    if key.len() > MAX_KEY_BYTES {
        return Err(StoreError::TooLarge { key: key.clone(), bytes: key.len(), limit: MAX_KEY_BYTES });
    }
    let entry = shared.pending.enter(&write);
    let (known, began) = (shared.published(), shared.world.elapsed());
    let sent = send(&shared, &leases, &write).await;
    let counters = &shared.counters;
    let response = match sent {
        Ok(response) => response,
        Err(why) => {
            counters.failures.fetch_add(1, Ordering::Relaxed);
            return Err(why);
        }
    };
    shared.check_header(response.header, known)?;
    let newest = response.header.revision;
    if response.succeeded {
        // deletions are taken without space, too
        if matches!(write.op, Op::Put { .. }) {
            shared.set_full(false);
        }
        if let Some(entry) = &entry {
            entry.commit(newest);
        }
        let took = shared.world.elapsed().saturating_sub(began);
        counters.writes.fetch_add(1, Ordering::Relaxed);
        counters.write_nanos.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        shared.wait(newest).await?;
        return Ok(Revision(newest));
    }
    drop(entry);
    counters.conflicts.fetch_add(1, Ordering::Relaxed);
    let current = response.current.map(|pair| revision(pair.mod_revision));
    if let Some(held) = response.held.first().filter(|_| compare(&write).iter().all(|it| it.holds(current))) {
        // the key's own expectation holds: another object owns a key that was to be taken
        let taken = revision(held.mod_revision);
        shared.wait(taken).await?;
        let key = shared.prefix.store_key(&held.key).unwrap_or(write.key);
        return Err(StoreError::Conflict { key, current: Some(Revision(taken)) });
    }
    // an absent key has no mod revision: its deletion is at most at the response's revision
    shared.wait(current.unwrap_or(newest)).await?;
    Err(StoreError::Conflict { key: write.key, current: current.map(Revision) })
}

async fn send(shared: &Shared, leases: &Leases, write: &Write) -> Result<TxnOutcome, StoreError> {
    let Some(key) = shared.prefix.etcd_key(&write.key) else {
        return Err(StoreError::Unavailable(format!("{} is not a key of this store", write.key)));
    };
    let compare = compare(write);
    let etcd_key = |keys: &[Arc<str>]| keys.iter().filter_map(|key| shared.prefix.etcd_key(key)).collect();
    let (taken, freed): (Vec<_>, Vec<_>) =
        write.claim_keys.as_ref().map(|it| (etcd_key(&it.taken), etcd_key(&it.freed))).unwrap_or_default();
    let bytes = match &write.op {
        Op::Put { value, .. } => value.len(),
        Op::Delete => 0,
    };
    let failed = |failure: ClientError| match failure.is_request_too_large() {
        true => {
            StoreError::TooLarge { key: write.key.clone(), bytes, limit: DEFAULT_REQUEST_LIMIT.min(bytes) }
        }
        false if failure.is_without_space() => {
            shared.set_full(true);
            full()
        }
        false if failure.is_not_applied() => StoreError::Unavailable(failure.to_string()),
        false => StoreError::Unavailable(format!("{failure}; the write may have been applied")),
    };
    let mut again = true;
    loop {
        let (op, lease) = match &write.op {
            Op::Delete => (TxnOp::Delete, 0),
            Op::Put { value, expires_at } => {
                let lease = match expires_at {
                    Some(end) => {
                        let now = env::unix_seconds(&shared.world);
                        let lease = leases.lease(&shared.client, *end, now).await;
                        lease.map_err(|why| match why.is_without_space() {
                            true => failed(why),
                            false => StoreError::Unavailable(format!("no lease was granted: {why}")),
                        })?
                    }
                    None => 0,
                };
                (TxnOp::Put { value: value.clone(), lease }, lease)
            }
        };
        let (key, compare) = (key.clone(), compare.clone());
        let txn = Txn { key, compare, op, keys_only: true, taken: taken.clone(), freed: freed.clone() };
        match shared.client.txn(&txn).await {
            Ok(outcome) => return Ok(outcome),
            Err(failure) if failure.is_lease_not_found() && again => {
                leases.forget(lease);
                again = false;
            }
            Err(failure) => return Err(failed(failure)),
        }
    }
}

/// The conditions of a write. A delete also requires that the key exists.
fn compare(write: &Write) -> Vec<Compare> {
    let mut all = match write.expect {
        Expect::Absent => vec![Compare::ModIs(0)],
        // no key has mod revision 0: to etcd this means that the key is absent
        Expect::Revision(Revision(0)) => vec![Compare::ModIs(0), Compare::Exists],
        Expect::Revision(Revision(revision)) => vec![Compare::ModIs(revision)],
        Expect::Present => vec![Compare::Exists],
        Expect::Any => Vec::new(),
    };
    if matches!(write.op, Op::Delete) && !all.contains(&Compare::Exists) {
        all.push(Compare::Exists);
    }
    all
}
