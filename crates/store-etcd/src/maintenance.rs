//! Periodic maintenance: compacts etcd's history, polls its database size, and looks whether its quota is reached.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use crate::client::ClientError;
use crate::header::revision;
use crate::shared::Shared;
use crate::txn::{Compare, Txn, TxnOp};

/// The key by which all API servers of an etcd cluster, Pintle or upstream, agree on which of them compacts. Its
/// version counts the compactions; its value is the revision.
const COMPACTED: &[u8] = b"compact_rev_key";

/// The alarm of a quota that is reached, in the status of a member.
const NO_SPACE: &str = "alarm:NOSPACE";
/// How often the alarm is looked at while it is raised.
const SPACE_INTERVAL: Duration = Duration::from_secs(1);

/// Compacts at every interval up to the revision that was the newest one interval before.
pub(crate) async fn compact(shared: Arc<Shared>, interval: Duration) {
    let mut last = Compactor::default();
    loop {
        tokio::select! {
            () = shared.ended() => return,
            () = env::sleep(&shared.world, interval) => (),
        }
        if let Err(why) = last.compact(&shared).await {
            tracing::warn!(%why, "etcd compaction failed; it is retried at the next interval");
        }
    }
}

/// The state of the last compaction, by any API server.
#[derive(Debug, Default)]
pub(crate) struct Compactor {
    /// The version of [`COMPACTED`]: how many compactions there were.
    version: u64,
    /// The newest revision at that time, up to which the next compaction goes.
    revision: u64,
}

impl Compactor {
    /// Compacts, unless another API server has done so since the last call. Returns the revision.
    pub(crate) async fn compact(&mut self, shared: &Shared) -> Result<Option<u64>, ClientError> {
        let txn = Txn {
            key: Bytes::from_static(COMPACTED),
            compare: vec![Compare::VersionIs(self.version)],
            op: TxnOp::Put { value: self.revision.to_string().into(), lease: 0 },
            keys_only: false,
            taken: Vec::new(),
            freed: Vec::new(),
        };
        let response = shared.client.txn(&txn).await?;
        let upto = std::mem::replace(&mut self.revision, response.header.revision);
        if !response.succeeded {
            self.version = response.current.map_or(0, |pair| revision(pair.version));
            return Ok(None);
        }
        self.version += 1;
        if upto == 0 {
            // the first compaction of all: clients have had no interval to catch up
            return Ok(None);
        }
        match shared.client.compact(upto).await {
            Err(failure) if !failure.compacted() => Err(failure),
            _ => Ok(Some(upto)),
        }
    }
}

/// Polls the database size at every interval.
pub(crate) async fn measure(shared: Arc<Shared>, interval: Duration) {
    loop {
        look(&shared).await;
        tokio::select! {
            () = shared.ended() => return,
            () = env::sleep(&shared.world, interval) => (),
        }
    }
}

/// While the quota is reached: looks whether the alarm is gone, so that a server without writes learns of it.
pub(crate) async fn await_space(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            () = shared.ended() => return,
            () = shared.became_full() => (),
        }
        tokio::select! {
            () = shared.ended() => return,
            () = env::sleep(&shared.world, SPACE_INTERVAL) => (),
        }
        look(&shared).await;
    }
}

/// Asks for the database size and the alarms. Any member knows those of all.
async fn look(shared: &Shared) {
    let Ok(status) = shared.client.status().await else { return };
    shared.counters.file_bytes.store(revision(status.db_size), Ordering::Relaxed);
    // others are not about space: a learner, a member without a leader
    shared.set_full(status.errors.iter().any(|it| it.contains(NO_SPACE)));
}
