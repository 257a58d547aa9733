//! Snapshots: all keys below the prefix at one revision, in pages.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use grpc::etcd::KeyValue;
use store::{Revision, Snapshot, SnapshotRecord, StoreError};

use crate::client::ClientError;
use crate::header;
use crate::load::Pages;
use crate::shared::Shared;

/// Keys per page: a page is in memory as a whole.
const PAGE: i64 = 100;

/// Begins to read a snapshot.
pub(crate) async fn take(shared: Arc<Shared>) -> Result<Snapshot, StoreError> {
    let mut reader =
        SnapshotReader { pages: Pages::new(&shared.prefix, PAGE), shared, leases: HashMap::new() };
    let first = reader.next().await?.unwrap_or_default();
    let revision = Revision(reader.pages.header.map_or(0, |it| it.revision));
    let rest = stream::try_unfold(reader, |mut reader| async move {
        Ok(reader.next().await?.map(|page| (page, reader)))
    });
    let pages = stream::once(async { Ok(first) });
    Ok(Snapshot { revision, pages: Box::pin(futures_util::StreamExt::chain(pages, rest)) })
}

struct SnapshotReader {
    shared: Arc<Shared>,
    pages: Pages,
    /// When the leases end, in Unix seconds.
    leases: HashMap<i64, i64>,
}

impl SnapshotReader {
    async fn next(&mut self) -> Result<Option<Vec<SnapshotRecord>>, StoreError> {
        let page = self.pages.next(&self.shared.client).await.map_err(explain)?;
        let Some((_, pairs)) = page else { return Ok(None) };
        let mut records = Vec::with_capacity(pairs.len());
        for pair in pairs {
            records.extend(self.record(pair).await?);
        }
        Ok(Some(records))
    }

    async fn record(&mut self, pair: KeyValue) -> Result<Option<SnapshotRecord>, StoreError> {
        let Some(key) = self.shared.prefix.store_key(&pair.key) else { return Ok(None) };
        let at = env::unix_seconds(&self.shared.world);
        let expires_at = match pair.lease {
            0 => None,
            lease => match self.end_of(lease, at).await? {
                None => return Ok(None),
                end => end,
            },
        };
        Ok(Some(SnapshotRecord {
            revision: Revision(header::revision(pair.mod_revision)),
            key,
            // a copy, so that the value does not keep its whole page alive
            value: Bytes::copy_from_slice(&pair.value),
            at,
            expires_at,
        }))
    }

    /// When a lease ends; `None` if it has ended, and its keys with it.
    async fn end_of(&mut self, lease: i64, now: i64) -> Result<Option<i64>, StoreError> {
        if let Some(end) = self.leases.get(&lease) {
            return Ok(Some(*end));
        }
        let left = self.shared.client.time_to_live(lease).await.map_err(explain)?;
        let end = left.map(|left| now.saturating_add(left));
        self.leases.extend(end.map(|end| (lease, end)));
        Ok(end)
    }
}

fn explain(failure: ClientError) -> StoreError {
    let what = match failure.compacted() {
        true => "its revision was compacted before all of it was read: take another snapshot".to_owned(),
        false => failure.to_string(),
    };
    StoreError::Unavailable(what)
}
