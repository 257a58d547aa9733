//! Leases.

use futures_util::StreamExt;
use grpc::etcd::lease_server::Lease;
use grpc::etcd::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseLeasesRequest,
    LeaseLeasesResponse, LeaseRevokeRequest, LeaseRevokeResponse, LeaseStatus, LeaseTimeToLiveRequest,
    LeaseTimeToLiveResponse,
};
use grpc::tonic::codegen::BoxStream;
use grpc::tonic::{Request, Response, Streaming};

use super::{CallResult, Services};

#[grpc::tonic::async_trait]
impl Lease for Services {
    async fn lease_grant(&self, request: Request<LeaseGrantRequest>) -> CallResult<LeaseGrantResponse> {
        let LeaseGrantRequest { id, ttl } = request.into_inner();
        let granted = self.engine.write(move |writer| writer.grant_lease(id, ttl)).await?;
        let (id, ttl, header) = granted;
        self.shared().metrics.leases_granted.inc();
        Ok(Response::new(LeaseGrantResponse { header: Some(header), id, ttl, error: String::new() }))
    }

    async fn lease_revoke(&self, request: Request<LeaseRevokeRequest>) -> CallResult<LeaseRevokeResponse> {
        let id = request.into_inner().id;
        let header = self.engine.write(move |writer| writer.revoke_lease(id)).await?;
        self.shared().metrics.leases_revoked.inc();
        Ok(Response::new(LeaseRevokeResponse { header: Some(header) }))
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<LeaseKeepAliveRequest>>,
    ) -> CallResult<BoxStream<LeaseKeepAliveResponse>> {
        let shared = self.shared().clone();
        let responses = request.into_inner().map(move |request| {
            let id = request?.id;
            let ttl = shared.leases.lock().renew(id, shared.world.elapsed()).unwrap_or(0);
            shared.leases_changed.notify_one();
            Ok(LeaseKeepAliveResponse { header: Some(shared.current_header()), id, ttl })
        });
        Ok(Response::new(Box::pin(responses)))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<LeaseTimeToLiveRequest>,
    ) -> CallResult<LeaseTimeToLiveResponse> {
        let LeaseTimeToLiveRequest { id, keys } = request.into_inner();
        let shared = self.shared();
        let header = Some(shared.current_header());
        let leases = shared.leases.lock();
        let response = match leases.get(id) {
            Some(lease) => LeaseTimeToLiveResponse {
                header,
                id,
                ttl: lease.remaining(shared.world.elapsed()),
                granted_ttl: lease.ttl,
                keys: if keys { lease.keys.iter().cloned().collect() } else { Vec::new() },
            },
            None => LeaseTimeToLiveResponse { header, id, ttl: -1, ..Default::default() },
        };
        Ok(Response::new(response))
    }

    async fn lease_leases(&self, _: Request<LeaseLeasesRequest>) -> CallResult<LeaseLeasesResponse> {
        let header = Some(self.shared().current_header());
        let leases = self.shared().leases.lock().ids().map(|id| LeaseStatus { id }).collect();
        Ok(Response::new(LeaseLeasesResponse { header, leases }))
    }
}
