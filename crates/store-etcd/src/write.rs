//! One write, from its question to where its writer may know of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use store::{Expect, MAX_KEY_BYTES, Op, Revision, StoreError, Write};

use crate::client::{Ask, Failure};
use crate::lease::Leases;
use crate::messages::{Act, Compare, Decided, TXN, Txn};
use crate::shared::Shared;

/// What an etcd takes at most, unless it is told otherwise.
const USUAL_LIMIT: usize = 3 << 19;

/// Asks for the write, and waits until the subscriber has seen it or what was in its way.
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
    let (known, began) = (shared.handed(), shared.world.elapsed());
    let asked = ask(&shared, &leases, &write).await;
    let counted = &shared.counted;
    let decided = match asked {
        Ok(decided) => decided,
        Err(why) => {
            counted.failures.fetch_add(1, Ordering::Relaxed);
            return Err(why);
        }
    };
    shared.recognize(decided.header, known)?;
    let revision = decided.header.revision;
    if decided.succeeded {
        if let Some(entry) = &entry {
            entry.became(revision);
        }
        let took = shared.world.elapsed().saturating_sub(began);
        counted.writes.fetch_add(1, Ordering::Relaxed);
        counted.write_nanos.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        shared.wait(revision).await?;
        return Ok(Revision(revision));
    }
    drop(entry);
    counted.conflicts.fetch_add(1, Ordering::Relaxed);
    let current = decided.current.map(|pair| pair.mod_revision);
    if let Some(held) = decided.held.first().filter(|_| compare(&write).iter().all(|it| it.holds(current))) {
        // nothing is wrong with the key itself: somebody else has what was to go with it
        shared.wait(held.mod_revision).await?;
        let key = shared.prefix.inward(&held.key).unwrap_or(write.key);
        return Err(StoreError::Conflict { key, current: Some(Revision(held.mod_revision)) });
    }
    // of a key that is not there nobody says when it went: by now at the latest
    shared.wait(current.unwrap_or(revision)).await?;
    Err(StoreError::Conflict { key: write.key, current: current.map(Revision) })
}

async fn ask(shared: &Shared, leases: &Leases, write: &Write) -> Result<Decided, StoreError> {
    let Some(key) = shared.prefix.outward(&write.key) else {
        return Err(StoreError::Unavailable(format!("{} is not a key of this store", write.key)));
    };
    let compare = compare(write);
    let outward = |keys: &[Arc<str>]| keys.iter().filter_map(|key| shared.prefix.outward(key)).collect();
    let (taken, freed): (Vec<_>, Vec<_>) =
        write.holds.as_ref().map(|it| (outward(&it.taken), outward(&it.freed))).unwrap_or_default();
    let bytes = match &write.op {
        Op::Put { value, .. } => value.len(),
        Op::Delete => 0,
    };
    let failed = |failure: Failure| match failure.too_large_a_question() {
        true => StoreError::TooLarge { key: write.key.clone(), bytes, limit: USUAL_LIMIT.min(bytes) },
        false if failure.surely_not() => StoreError::Unavailable(failure.to_string()),
        false => StoreError::Unavailable(format!("{failure}; the write may have happened nevertheless")),
    };
    let mut again = true;
    loop {
        let (act, lease) = match &write.op {
            Op::Delete => (Act::Delete, 0),
            Op::Put { value, expires_at } => {
                let lease = match expires_at {
                    Some(end) => {
                        let now = env::unix_seconds(&shared.world);
                        let lease = leases.lease(&shared.client, *end, now).await;
                        lease.map_err(|why| StoreError::Unavailable(format!("there is no lease: {why}")))?
                    }
                    None => 0,
                };
                (Act::Put { value: value.clone(), lease }, lease)
            }
        };
        let (key, compare) = (key.clone(), compare.clone());
        let txn = Txn { key, compare, act, keys_only: true, taken: taken.clone(), freed: freed.clone() };
        match shared.client.call(TXN, &txn.encode(), Ask::Writes).await {
            Ok(answer) => {
                // what cannot be read may have been done
                return Decided::read(&answer).map_err(|why| failed(why.into()));
            }
            Err(failure) if failure.no_lease() && again => {
                leases.forget(lease);
                again = false;
            }
            Err(failure) => return Err(failed(failure)),
        }
    }
}

/// What must hold for a write to happen; for a deletion there must be something to delete.
fn compare(write: &Write) -> Vec<Compare> {
    let mut all = match write.expect {
        Expect::Absent => vec![Compare::ModIs(0)],
        // there is no write at revision 0, and an etcd would take it for no write at all
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
