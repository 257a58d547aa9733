//! Watches; `crate::watch` has their logic.

use grpc::etcd::watch_server::Watch;
use grpc::etcd::{WatchRequest, WatchResponse};
use grpc::tonic::codegen::BoxStream;
use grpc::tonic::{Request, Response, Streaming};

use super::{CallResult, Services};
use crate::watch;

#[grpc::tonic::async_trait]
impl Watch for Services {
    async fn watch(&self, request: Request<Streaming<WatchRequest>>) -> CallResult<BoxStream<WatchResponse>> {
        let responses = watch::run(self.shared().clone(), request.into_inner(), self.progress_interval);
        Ok(Response::new(Box::pin(responses)))
    }
}
