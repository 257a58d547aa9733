//! The gRPC services, a file each.

mod kv;
mod lease;
mod maintenance;
mod membership;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use grpc::Message;
use grpc::tonic::{Response, Status};

use crate::engine::Engine;
use crate::error::Error;
use crate::shared::Shared;

type CallResult<T> = Result<Response<T>, Status>;

/// The identity of the server as a member of an etcd cluster.
#[derive(Clone, Debug)]
pub struct MemberInfo {
    pub name: String,
    pub peer_urls: Vec<String>,
    pub client_urls: Vec<String>,
}

/// The implementation of all services.
pub struct Services {
    pub engine: Engine,
    pub member: MemberInfo,
    /// How often watches without changes hear how far they have come.
    pub progress_interval: Duration,
}

impl Services {
    fn shared(&self) -> &Arc<Shared> {
        self.engine.shared()
    }

    /// Refuses requests that are too large.
    fn check_size(&self, request: &impl Message) -> Result<(), Error> {
        let limit = self.shared().limits.max_request_bytes;
        if request.encoded_len() > limit { Err(Error::RequestTooLarge) } else { Ok(()) }
    }
}

/// Runs a function that may take a while without holding up other requests.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    // the function does not panic, and the runtime ends after the server
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(Error::Stopped))
}
