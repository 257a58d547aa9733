//! The client of a device plugin.

use super::device::{Device, DeviceIds};
use grpc::device_plugin::device_plugin_client::DevicePluginClient;
use grpc::device_plugin::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, DevicePluginOptions, Empty, ListAndWatchResponse,
    PreStartContainerRequest, PreferredAllocationRequest,
};
use grpc::tonic::{Response, Status, Streaming};
use outbound::{Channel, Dialer, Endpoint, RpcError};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The state of a device that can be used.
const HEALTHY: &str = "Healthy";

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct PluginClient {
    channel: Channel,
    timeout: Duration,
}

impl PluginClient {
    /// Connects on the first call. Idle connections are not pinged: servers of Go programs end connections that are.
    pub fn new(socket: &Path, timeout: Duration) -> Result<Self, String> {
        let channel = Channel::plain(&Endpoint::Unix(socket.to_owned()), Dialer::default());
        Ok(PluginClient { channel: channel.map_err(|why| why.to_string())?, timeout })
    }

    fn client(&self) -> DevicePluginClient<Channel> {
        DevicePluginClient::new(self.channel.clone())
    }

    async fn call<T>(&self, call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, String> {
        self.channel.within(self.timeout, call).await.map_err(|why| match why {
            RpcError::Timeout(_) => {
                "rpc error: code = DeadlineExceeded desc = context deadline exceeded".to_owned()
            }
            RpcError::Unsent(why) | RpcError::Lost(why) => {
                format!("rpc error: code = Unavailable desc = {why}")
            }
            RpcError::TooLarge | RpcError::Refused { .. } => why.to_string(),
        })
    }

    pub async fn options(&self) -> Result<DevicePluginOptions, String> {
        self.call(self.client().get_device_plugin_options(Empty {})).await
    }

    /// Lists of all devices, again after each change, as long as the plugin lives.
    pub async fn list_and_watch(&self) -> Result<Streaming<ListAndWatchResponse>, String> {
        self.call(self.client().list_and_watch(Empty {})).await
    }

    pub async fn preferred(
        &self,
        available: &DeviceIds,
        must_include: &DeviceIds,
        size: usize,
    ) -> Result<DeviceIds, String> {
        let request = ContainerPreferredAllocationRequest {
            available_device_ids: available.iter().cloned().collect(),
            must_include_device_ids: must_include.iter().cloned().collect(),
            allocation_size: i32::try_from(size).unwrap_or(i32::MAX),
        };
        let request = PreferredAllocationRequest { container_requests: vec![request] };
        let response = self.call(self.client().get_preferred_allocation(request)).await;
        let response = response
            .map_err(|why| format!("device plugin GetPreferredAllocation rpc failed with err: {why}"))?;
        let first = response.container_responses.into_iter().next();
        Ok(first.map(|it| it.device_ids.into_iter().collect()).unwrap_or_default())
    }

    pub async fn allocate(&self, ids: &DeviceIds) -> Result<ContainerAllocateResponse, String> {
        let request = ContainerAllocateRequest { device_ids: ids.iter().cloned().collect() };
        let request = AllocateRequest { container_requests: vec![request] };
        let response = self.call(self.client().allocate(request)).await?;
        response.container_responses.into_iter().next().ok_or_else(|| {
            "no containers return in allocation response &AllocateResponse{ContainerResponses:[]*ContainerAllocateResponse{},}".to_owned()
        })
    }

    pub async fn pre_start(&self, ids: &DeviceIds) -> Result<(), String> {
        let request = PreStartContainerRequest { device_ids: ids.iter().cloned().collect() };
        let response = self.call(self.client().pre_start_container(request)).await;
        response
            .map(drop)
            .map_err(|why| format!("device plugin PreStartContainer rpc failed with err: {why}"))
    }
}

/// The devices of a list, by id. The last of two with the same id counts.
pub fn devices(list: ListAndWatchResponse) -> BTreeMap<String, Device> {
    let device = |it: grpc::device_plugin::Device| {
        let nodes = it.topology.into_iter().flat_map(|it| it.nodes).map(|node| node.id).collect();
        (it.id, Device { nodes, is_healthy: it.health == HEALTHY })
    };
    list.devices.into_iter().map(device).collect()
}
