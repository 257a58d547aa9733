//! What is done now and then: history goes, and the etcd is asked how large it is.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use crate::client::{Ask, Failure};
use crate::messages::{Act, COMPACT, Compare, Decided, STATUS, Status, TXN, Txn, compaction};
use crate::shared::Shared;

/// The key by which all API servers of an etcd, whosever they are, agree on who compacts. It counts how often that was
/// done, and holds the revision.
const COMPACTED: &[u8] = b"compact_rev_key";

/// Forgets every so often what was replaced before the last time.
pub(crate) async fn compact(shared: Arc<Shared>, interval: Duration) {
    let mut last = Compacted::default();
    loop {
        tokio::select! {
            () = shared.ended() => return,
            () = sleep(interval) => (),
        }
        if let Err(why) = last.again(&shared).await {
            tracing::warn!(%why, "the etcd could not be compacted");
        }
    }
}

/// What is known of the last compaction, whoever did it.
#[derive(Debug, Default)]
pub(crate) struct Compacted {
    /// How many there were.
    times: u64,
    /// What was the newest revision then, which is where the next one goes.
    revision: u64,
}

impl Compacted {
    /// Compacts, unless somebody else did so since the last time. Says up to which revision.
    pub(crate) async fn again(&mut self, shared: &Shared) -> Result<Option<u64>, Failure> {
        let txn = Txn {
            key: Bytes::from_static(COMPACTED),
            compare: vec![Compare::VersionIs(self.times)],
            act: Act::Put { value: self.revision.to_string().into(), lease: 0 },
            keys_only: false,
            taken: Vec::new(),
            freed: Vec::new(),
        };
        let decided = Decided::read(&shared.client.call(TXN, &txn.encode(), Ask::Writes).await?)?;
        let upto = std::mem::replace(&mut self.revision, decided.header.revision);
        if !decided.succeeded {
            self.times = decided.current.map_or(0, |pair| pair.version);
            return Ok(None);
        }
        self.times += 1;
        if upto == 0 {
            // nobody has had the time to see what there is
            return Ok(None);
        }
        match shared.client.call(COMPACT, &compaction(upto), Ask::Reads).await {
            Err(failure) if !failure.compacted() => Err(failure),
            _ => Ok(Some(upto)),
        }
    }
}

/// Asks every so often how large the etcd is.
pub(crate) async fn measure(shared: Arc<Shared>, interval: Duration) {
    loop {
        if let Ok(answer) = shared.client.call(STATUS, &[], Ask::Reads).await
            && let Ok(status) = Status::read(&answer)
        {
            shared.counted.file_bytes.store(status.bytes, Ordering::Relaxed);
        }
        tokio::select! {
            () = shared.ended() => return,
            () = sleep(interval) => (),
        }
    }
}
