//! The read index: etcd's newest revision, requested once for all concurrent callers.
//!
//! Invariant: a caller gets a revision that was read after its call. One request is in flight at a time; callers
//! that arrive meanwhile share the next one.

use std::sync::Arc;

use grpc::etcd::RangeRequest;
use store::StoreError;
use tokio::sync::{mpsc, oneshot};

use crate::shared::{Shared, closing};

/// Callers that may be queued for the next request.
const MAX_QUEUED: usize = 1024;

type Waiter = oneshot::Sender<Result<u64, StoreError>>;

/// The callers' side.
#[derive(Clone)]
pub(crate) struct ReadIndex(mpsc::Sender<Waiter>);

/// The side that sends the requests.
pub(crate) struct ReadIndexWorker(mpsc::Receiver<Waiter>);

pub(crate) fn channel() -> (ReadIndex, ReadIndexWorker) {
    let (waiter, answers) = mpsc::channel(MAX_QUEUED);
    (ReadIndex(waiter), ReadIndexWorker(answers))
}

impl ReadIndex {
    /// The newest revision of the cluster.
    pub(crate) async fn newest(&self) -> Result<u64, StoreError> {
        let (waiter, answer) = oneshot::channel();
        self.0.send(waiter).await.map_err(|_| closing())?;
        answer.await.unwrap_or_else(|_| Err(closing()))
    }
}

impl ReadIndexWorker {
    pub(crate) async fn run(mut self, shared: Arc<Shared>) {
        tokio::select! {
            () = shared.ended() => (),
            () = async { while self.serve_batch(&shared).await {} } => (),
        }
    }

    async fn serve_batch(&mut self, shared: &Shared) -> bool {
        let mut all = Vec::new();
        if self.0.recv_many(&mut all, MAX_QUEUED).await == 0 {
            return false;
        }
        all.retain(|waiter| !waiter.is_closed());
        if all.is_empty() {
            return true;
        }
        let published = shared.published();
        let (key, _) = shared.prefix.bounds();
        let newest = match shared.client.range(&RangeRequest { key, ..RangeRequest::default() }).await {
            Ok(response) => {
                let header = response.header.into();
                shared.check_header(header, published).map(|()| header.revision)
            }
            Err(why) => Err(StoreError::Unavailable(why.to_string())),
        };
        for waiter in all {
            // a caller that stopped waiting has dropped its receiver
            let _ = waiter.send(newest.clone());
        }
        true
    }
}
