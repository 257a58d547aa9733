//! Methods about sandboxes.

use super::CriService;
use super::filter::matches_sandbox;
use super::status::rpc_status;
use super::{from_cri, to_cri};
use crate::runtime::DetailsSubject;
use grpc::cri;
use grpc::tonic::Status;
use std::collections::BTreeMap;

impl CriService {
    pub async fn run_sandbox(&self, request: cri::RunPodSandboxRequest) -> Result<String, Status> {
        let config = from_cri::sandbox_config(request.config)?;
        self.runtime.run_sandbox(&config, &request.runtime_handler).await.map_err(rpc_status)
    }

    pub async fn sandbox_response(
        &self,
        request: cri::PodSandboxStatusRequest,
    ) -> Result<cri::PodSandboxStatusResponse, Status> {
        let id = self.sandbox_id(&request.pod_sandbox_id).await?;
        let status = self.runtime.sandbox_status(&id).await.map_err(rpc_status)?;
        let info = match request.verbose {
            true => self.runtime.details(DetailsSubject::Sandbox(&id)).await.map_err(rpc_status)?,
            false => BTreeMap::new(),
        };
        let timestamp = self.now();
        let mut containers_statuses = Vec::new();
        for container in self.runtime.containers(None).await.map_err(rpc_status)? {
            // one may be removed in between
            if container.sandbox_id == id
                && let Ok(status) = self.runtime.container_status(&container.id).await
            {
                containers_statuses.push(to_cri::container_status(status));
            }
        }
        let status = Some(to_cri::sandbox_status(status));
        Ok(cri::PodSandboxStatusResponse { status, info, containers_statuses, timestamp })
    }

    pub async fn list_sandboxes(
        &self,
        filter: Option<cri::PodSandboxFilter>,
    ) -> Result<Vec<cri::PodSandbox>, Status> {
        let mut filter = filter.unwrap_or_default();
        filter.id = self.sandbox_id(&filter.id).await?;
        let sandboxes = self.runtime.sandboxes(None).await.map_err(rpc_status)?;
        let matching = sandboxes.into_iter().filter(|it| matches_sandbox(it, &filter));
        Ok(matching.map(to_cri::sandbox).collect())
    }
}
