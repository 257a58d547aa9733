//! `/store/snapshot`: the file of a snapshot of the store, for `pintle snapshot save`.
//!
//! It holds everything, so that only who may GET this path (the administrators, by default) can read it. Values that are
//! encrypted at rest stay so. A store in memory has no values: they come from the caches, and with them the keys and
//! certificates of the cluster, which are nowhere else. Pages are read only as fast as the client reads them; one snapshot is taken at a time.

use super::plain_text::too_many_requests;
use super::request_context::RequestContext;
use super::service::Service;
use crate::serve::Body;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::header::{self, HeaderValue};
use http::{Method, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use rest::{ApiError, Collection};
use std::io;
use store::snapshot::{Encoder, Pages};
use store::{Revision, Snapshot, SnapshotRecord, StoreError};
use tokio::sync::OwnedSemaphorePermit;

/// The path of the snapshot.
pub(super) const PATH: &str = "/store/snapshot";

/// The records of a page that comes from the caches.
const PAGE_RECORDS: usize = 256;

/// The encoding of a snapshot that is being sent.
struct Sending {
    pages: Pages,
    encoder: Encoder,
    _permit: OwnedSemaphorePermit,
}

impl Service {
    pub(super) async fn store_snapshot(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Response<Body>, ApiError> {
        if context.info.method != Method::GET {
            return Err(ApiError::method_not_allowed());
        }
        let Ok(permit) = self.snapshots.clone().try_acquire_owned() else {
            return Ok(too_many_requests(5, "Another snapshot is being taken, please try again later.\n"));
        };
        let snapshot = self.take_snapshot().await;
        let snapshot = snapshot.map_err(|why| ApiError::unavailable(why.to_string()))?;
        tracing::info!(revision = snapshot.revision.0, user = context.user.name, "a snapshot is taken");
        let (encoder, first) = Encoder::new(snapshot.revision, env::unix_seconds(&self.api.world));
        let sending = Sending { pages: snapshot.pages, encoder, _permit: permit };
        let rest = stream::unfold(Some(sending), next_piece);
        let pieces = stream::once(async { Ok(Frame::data(first)) }).chain(rest);
        let body = Body::Proxied { body: Box::pin(StreamBody::new(pieces)), is_stream: false };
        let mut response = Response::new(body);
        let media = HeaderValue::from_static("application/octet-stream");
        response.headers_mut().insert(header::CONTENT_TYPE, media);
        Ok(response)
    }
}

impl Service {
    /// All values at one revision; of a cluster in memory its keys and certificates, too.
    pub(super) async fn take_snapshot(&self) -> Result<Snapshot, StoreError> {
        match self.api.storage.store.snapshot().await {
            Err(StoreError::NoValues) => self.cached_snapshot(),
            other => other,
        }
    }

    fn cached_snapshot(&self) -> Result<Snapshot, StoreError> {
        let now = env::unix_seconds(&self.api.world);
        let resources = self.api.resources();
        // objects that expire live for their whole time again
        let expires_at = |collection: &Collection| {
            let resource = resources.get(&collection.api_version(), &collection.kind.plural)?;
            Some(now + resource.hooks.storage.lifetime_seconds?)
        };
        let (revision, mut records) = self.api.storage.cached_values(expires_at)?;
        records.sort_by_key(|it| it.revision);
        records.extend(self.cluster_files.iter().map(|(key, value)| SnapshotRecord {
            revision: Revision(0),
            key: key.as_str().into(),
            value: value.clone(),
            at: now,
            expires_at: None,
        }));
        let mut records = records.into_iter().peekable();
        let pages = std::iter::from_fn(move || {
            records.peek()?;
            Some(Ok(records.by_ref().take(PAGE_RECORDS).collect()))
        });
        Ok(Snapshot { revision, pages: Box::pin(stream::iter(pages)) })
    }
}

type Piece = Result<Frame<Bytes>, io::Error>;

/// The bytes of the next page. After an error the client sees a broken transfer.
async fn next_piece(sending: Option<Sending>) -> Option<(Piece, Option<Sending>)> {
    let mut sending = sending?;
    Some(match sending.pages.next().await {
        Some(Ok(page)) => {
            let piece = sending.encoder.page(&page);
            (Ok(Frame::data(piece)), Some(sending))
        }
        Some(Err(error)) => {
            tracing::warn!(%error, "a snapshot could not be read to its end");
            (Err(io::Error::other(error)), None)
        }
        None => (Ok(Frame::data(sending.encoder.finish())), None),
    })
}
