//! The runtime service.

use super::container_calls::seconds;
use super::events::{self, EventStream};
use super::status::{missing, rpc_status};
use super::{CriService, stats};
use crate::runtime::cri::convert::resources_from;
use crate::runtime::{DetailsSubject, RuntimeCondition};
use grpc::cri::runtime_service_server::RuntimeService;
use grpc::cri::{self, *};
use grpc::tonic::{Request, Response, Status, async_trait};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// The version of the kubelet's API, which clients expect.
const KUBELET_API_VERSION: &str = "0.1.0";

impl CriService {
    /// Nanoseconds since the epoch.
    pub fn now(&self) -> i64 {
        let since = self.world.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    }

    /// Another handle of the same service, for streams.
    fn share(&self) -> Arc<Self> {
        Arc::new(CriService {
            runtime: self.runtime.clone(),
            world: self.world.clone(),
            streams: self.streams.clone(),
        })
    }
}

fn respond<T>(message: T) -> Result<Response<T>, Status> {
    Ok(Response::new(message))
}

#[async_trait]
impl RuntimeService for CriService {
    type GetContainerEventsStream = EventStream;

    async fn version(&self, _: Request<VersionRequest>) -> Result<Response<VersionResponse>, Status> {
        let version = self.runtime.version().await.map_err(rpc_status)?;
        respond(VersionResponse {
            version: KUBELET_API_VERSION.to_owned(),
            runtime_name: version.name,
            runtime_version: version.version,
            runtime_api_version: version.api_version,
        })
    }

    async fn status(&self, request: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        let status = self.runtime.status().await.map_err(rpc_status)?;
        let condition = |it: RuntimeCondition| cri::RuntimeCondition {
            r#type: it.kind,
            status: it.is_true,
            reason: it.reason,
            message: it.message,
        };
        let info = match request.into_inner().verbose {
            true => self.runtime.details(DetailsSubject::Runtime).await.map_err(rpc_status)?,
            false => BTreeMap::new(),
        };
        let conditions = status.conditions.into_iter().map(condition).collect();
        respond(StatusResponse { status: Some(RuntimeStatus { conditions }), info })
    }

    async fn update_runtime_config(
        &self,
        request: Request<UpdateRuntimeConfigRequest>,
    ) -> Result<Response<UpdateRuntimeConfigResponse>, Status> {
        let config = request.into_inner().runtime_config.unwrap_or_default();
        if let Some(cidr) = config.network_config.map(|it| it.pod_cidr).filter(|it| !it.is_empty()) {
            self.runtime.update_pod_cidr(&cidr).await.map_err(rpc_status)?;
        }
        respond(UpdateRuntimeConfigResponse {})
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<RunPodSandboxRequest>,
    ) -> Result<Response<RunPodSandboxResponse>, Status> {
        respond(RunPodSandboxResponse { pod_sandbox_id: self.run_sandbox(request.into_inner()).await? })
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<StopPodSandboxRequest>,
    ) -> Result<Response<StopPodSandboxResponse>, Status> {
        let id = self.sandbox_id(&request.into_inner().pod_sandbox_id).await?;
        self.runtime.stop_sandbox(&id).await.map_err(rpc_status)?;
        respond(StopPodSandboxResponse {})
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<RemovePodSandboxRequest>,
    ) -> Result<Response<RemovePodSandboxResponse>, Status> {
        let id = self.sandbox_id(&request.into_inner().pod_sandbox_id).await?;
        self.runtime.remove_sandbox(&id).await.map_err(rpc_status)?;
        respond(RemovePodSandboxResponse {})
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<PodSandboxStatusRequest>,
    ) -> Result<Response<PodSandboxStatusResponse>, Status> {
        respond(self.sandbox_response(request.into_inner()).await?)
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<ListPodSandboxRequest>,
    ) -> Result<Response<ListPodSandboxResponse>, Status> {
        respond(ListPodSandboxResponse { items: self.list_sandboxes(request.into_inner().filter).await? })
    }

    async fn create_container(
        &self,
        request: Request<CreateContainerRequest>,
    ) -> Result<Response<CreateContainerResponse>, Status> {
        respond(CreateContainerResponse { container_id: self.create(request.into_inner()).await? })
    }

    async fn start_container(
        &self,
        request: Request<StartContainerRequest>,
    ) -> Result<Response<StartContainerResponse>, Status> {
        let id = self.container_id(&request.into_inner().container_id).await?;
        self.runtime.start_container(&id).await.map_err(rpc_status)?;
        respond(StartContainerResponse {})
    }

    async fn stop_container(
        &self,
        request: Request<StopContainerRequest>,
    ) -> Result<Response<StopContainerResponse>, Status> {
        let request = request.into_inner();
        let id = self.container_id(&request.container_id).await?;
        self.runtime.stop_container(&id, seconds(request.timeout)).await.map_err(rpc_status)?;
        respond(StopContainerResponse {})
    }

    async fn remove_container(
        &self,
        request: Request<RemoveContainerRequest>,
    ) -> Result<Response<RemoveContainerResponse>, Status> {
        let id = self.container_id(&request.into_inner().container_id).await?;
        self.runtime.remove_container(&id).await.map_err(rpc_status)?;
        respond(RemoveContainerResponse {})
    }

    async fn list_containers(
        &self,
        request: Request<ListContainersRequest>,
    ) -> Result<Response<ListContainersResponse>, Status> {
        respond(ListContainersResponse { containers: self.list(request.into_inner().filter).await? })
    }

    async fn container_status(
        &self,
        request: Request<ContainerStatusRequest>,
    ) -> Result<Response<ContainerStatusResponse>, Status> {
        respond(self.container_response(request.into_inner()).await?)
    }

    async fn update_container_resources(
        &self,
        request: Request<UpdateContainerResourcesRequest>,
    ) -> Result<Response<UpdateContainerResourcesResponse>, Status> {
        let request = request.into_inner();
        let id = self.container_id(&request.container_id).await?;
        let resources = request.linux.map(resources_from).ok_or_else(|| missing("the resources"))?;
        self.runtime.update_resources(&id, &resources).await.map_err(rpc_status)?;
        respond(UpdateContainerResourcesResponse {})
    }

    async fn reopen_container_log(
        &self,
        request: Request<ReopenContainerLogRequest>,
    ) -> Result<Response<ReopenContainerLogResponse>, Status> {
        let id = self.container_id(&request.into_inner().container_id).await?;
        self.runtime.reopen_log(&id).await.map_err(rpc_status)?;
        respond(ReopenContainerLogResponse {})
    }

    async fn exec_sync(
        &self,
        request: Request<ExecSyncRequest>,
    ) -> Result<Response<ExecSyncResponse>, Status> {
        let request = request.into_inner();
        let id = self.container_id(&request.container_id).await?;
        let output = self.runtime.exec_sync(&id, &request.cmd, seconds(request.timeout)).await;
        let output = output.map_err(rpc_status)?;
        respond(ExecSyncResponse {
            stdout: output.stdout.into(),
            stderr: output.stderr.into(),
            exit_code: output.exit_code,
        })
    }

    async fn exec(&self, request: Request<ExecRequest>) -> Result<Response<ExecResponse>, Status> {
        respond(ExecResponse { url: self.exec_url(request.into_inner()).await? })
    }

    async fn attach(&self, request: Request<AttachRequest>) -> Result<Response<AttachResponse>, Status> {
        respond(AttachResponse { url: self.attach_url(request.into_inner()).await? })
    }

    async fn port_forward(
        &self,
        request: Request<PortForwardRequest>,
    ) -> Result<Response<PortForwardResponse>, Status> {
        respond(PortForwardResponse { url: self.port_forward_url(request.into_inner()).await? })
    }

    async fn container_stats(
        &self,
        request: Request<ContainerStatsRequest>,
    ) -> Result<Response<ContainerStatsResponse>, Status> {
        let stats = self.one_container_stats(&request.into_inner().container_id).await?;
        respond(ContainerStatsResponse { stats: Some(stats) })
    }

    async fn list_container_stats(
        &self,
        request: Request<ListContainerStatsRequest>,
    ) -> Result<Response<ListContainerStatsResponse>, Status> {
        let stats = CriService::list_container_stats(self, request.into_inner().filter).await?;
        respond(ListContainerStatsResponse { stats })
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<PodSandboxStatsRequest>,
    ) -> Result<Response<PodSandboxStatsResponse>, Status> {
        let stats = self.one_sandbox_stats(&request.into_inner().pod_sandbox_id).await?;
        respond(PodSandboxStatsResponse { stats: Some(stats) })
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<ListPodSandboxStatsRequest>,
    ) -> Result<Response<ListPodSandboxStatsResponse>, Status> {
        respond(ListPodSandboxStatsResponse {
            stats: self.list_sandbox_stats(request.into_inner().filter).await?,
        })
    }

    async fn checkpoint_container(
        &self,
        request: Request<CheckpointContainerRequest>,
    ) -> Result<Response<CheckpointContainerResponse>, Status> {
        let request = request.into_inner();
        let id = self.container_id(&request.container_id).await?;
        let checkpoint = self.runtime.checkpoint(&id, &request.location, seconds(request.timeout));
        checkpoint.await.map_err(rpc_status)?;
        respond(CheckpointContainerResponse {})
    }

    async fn get_container_events(
        &self,
        _: Request<GetEventsRequest>,
    ) -> Result<Response<EventStream>, Status> {
        respond(events::stream(self.share()).await?)
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<ListMetricDescriptorsRequest>,
    ) -> Result<Response<ListMetricDescriptorsResponse>, Status> {
        respond(ListMetricDescriptorsResponse { descriptors: stats::metric_descriptors() })
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<ListPodSandboxMetricsRequest>,
    ) -> Result<Response<ListPodSandboxMetricsResponse>, Status> {
        respond(ListPodSandboxMetricsResponse { pod_metrics: self.sandbox_metrics().await? })
    }
}
