//! Keys: reads at a revision, writes, transactions, compaction.

use grpc::etcd::kv_server::Kv;
use grpc::etcd::{
    AlarmType, CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest,
    PutResponse, RangeRequest, RangeResponse, TxnRequest, TxnResponse,
};
use grpc::tonic::{Request, Response};

use super::{CallResult, Services, blocking};
use crate::check;
use crate::error::Error;

impl Services {
    /// While this alarm is raised the keys are not trusted.
    fn check_corruption(&self) -> Result<(), Error> {
        let is_corrupt = self.shared().state.read().alarms & (1 << AlarmType::Corrupt as u32) != 0;
        if is_corrupt { Err(Error::Corrupt) } else { Ok(()) }
    }
}

#[grpc::tonic::async_trait]
impl Kv for Services {
    async fn range(&self, request: Request<RangeRequest>) -> CallResult<RangeResponse> {
        let request = request.into_inner();
        check::range(&request)?;
        self.check_corruption()?;
        self.shared().metrics.ranges.inc();
        // one key takes less time than a change of threads
        let response = if request.range_end.is_empty() {
            self.shared().range(&request)?
        } else {
            let shared = self.shared().clone();
            blocking(move || shared.range(&request)).await?
        };
        Ok(Response::new(response))
    }

    async fn put(&self, request: Request<PutRequest>) -> CallResult<PutResponse> {
        let request = request.into_inner();
        check::put(&request)?;
        self.check_corruption()?;
        self.check_size(&request)?;
        Ok(Response::new(self.engine.write(move |writer| writer.put(&request)).await?))
    }

    async fn delete_range(&self, request: Request<DeleteRangeRequest>) -> CallResult<DeleteRangeResponse> {
        let request = request.into_inner();
        check::delete_range(&request)?;
        self.check_corruption()?;
        self.check_size(&request)?;
        Ok(Response::new(self.engine.write(move |writer| writer.delete_range(&request)).await?))
    }

    async fn txn(&self, request: Request<TxnRequest>) -> CallResult<TxnResponse> {
        let request = request.into_inner();
        check::txn(&request, self.shared().limits.max_txn_ops)?;
        self.check_corruption()?;
        self.check_size(&request)?;
        self.shared().metrics.txns.inc();
        Ok(Response::new(self.engine.write(move |writer| writer.txn(&request)).await?))
    }

    async fn compact(&self, request: Request<CompactionRequest>) -> CallResult<CompactionResponse> {
        let CompactionRequest { revision, physical } = request.into_inner();
        let header = self.engine.write(move |writer| writer.compact(revision)).await?;
        if physical {
            self.engine.await_pruning().await?;
        }
        Ok(Response::new(CompactionResponse { header: Some(header) }))
    }
}
