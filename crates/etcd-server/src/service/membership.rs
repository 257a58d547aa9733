//! The cluster of one member, and users, of which there are none.

use grpc::etcd::auth_server::Auth;
use grpc::etcd::cluster_server::Cluster;
use grpc::etcd::{
    AuthStatusRequest, AuthStatusResponse, AuthenticateRequest, AuthenticateResponse, Member,
    MemberListRequest, MemberListResponse,
};
use grpc::tonic::{Request, Response};

use super::{CallResult, Services};
use crate::error::Error;

#[grpc::tonic::async_trait]
impl Cluster for Services {
    async fn member_list(&self, _: Request<MemberListRequest>) -> CallResult<MemberListResponse> {
        let shared = self.shared();
        let member = Member {
            id: shared.member_id,
            name: self.member.name.clone(),
            peer_ur_ls: self.member.peer_urls.clone(),
            client_ur_ls: self.member.client_urls.clone(),
            is_learner: false,
        };
        let header = Some(shared.current_header());
        Ok(Response::new(MemberListResponse { header, members: vec![member] }))
    }
}

#[grpc::tonic::async_trait]
impl Auth for Services {
    async fn authenticate(&self, _: Request<AuthenticateRequest>) -> CallResult<AuthenticateResponse> {
        Err(Error::AuthNotEnabled.into())
    }

    async fn auth_status(&self, _: Request<AuthStatusRequest>) -> CallResult<AuthStatusResponse> {
        let header = Some(self.shared().current_header());
        Ok(Response::new(AuthStatusResponse { header, enabled: false, auth_revision: 1 }))
    }
}
