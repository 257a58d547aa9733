//! `/store/snapshot`: the file of a snapshot of the store, for `pintle snapshot save`.
//!
//! It holds everything, so that only who may GET this path (the administrators, by default) can read it. Values that are
//! encrypted at rest stay so. Pages are read only as fast as the client reads them; one snapshot is taken at a time.

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
use rest::ApiError;
use std::io;
use store::snapshot::{Encoder, Pages};
use tokio::sync::OwnedSemaphorePermit;

/// The path of the snapshot.
pub(super) const PATH: &str = "/store/snapshot";

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
        let snapshot = self.api.storage.store.snapshot().await;
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
