//! The service of a driver on the node.
//!
//! [`NodeService`] is what the agent calls; [`NodeClient`] implements it over the driver's socket. A test hands in a driver of
//! its own. Requests contain secrets: they are never logged.

use env::io::RealInstant;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use grpc::csi::node_client::NodeClient as GrpcClient;
use grpc::csi::node_service_capability::{Type, rpc};
use grpc::csi::{
    NodeExpandVolumeRequest, NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse, NodeGetInfoRequest,
    NodeGetInfoResponse, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest,
    NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest,
};
use grpc::tonic::{Code, Response, Status};
use outbound::{Channel, Dialer, Endpoint, RpcError, code_name};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The timeout of a call.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The limit of a driver's answer.
const RESPONSE_LIMIT: usize = 4 << 20;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CsiError {
    pub message: String,
    pub code: Code,
}

impl CsiError {
    pub fn new(code: Code, message: &str) -> Self {
        CsiError { message: format!("rpc error: code = {} desc = {message}", code_name(code)), code }
    }

    /// Whether the driver certainly does nothing for the call any more. After other errors it may still be at work, and
    /// may have succeeded.
    pub fn is_final(&self) -> bool {
        !matches!(
            self.code,
            Code::Cancelled
                | Code::DeadlineExceeded
                | Code::Unavailable
                | Code::ResourceExhausted
                | Code::Aborted
        )
    }
}

impl From<RpcError> for CsiError {
    fn from(error: RpcError) -> Self {
        match error {
            RpcError::Refused { code, message } => CsiError::new(code, &message),
            RpcError::Timeout(_) => CsiError::new(Code::DeadlineExceeded, "context deadline exceeded"),
            RpcError::TooLarge => CsiError::new(Code::ResourceExhausted, &error.to_string()),
            RpcError::Unsent(why) | RpcError::Lost(why) => CsiError::new(Code::Unavailable, &why),
        }
    }
}

/// What a driver can do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities {
    pub stages: bool,
    pub has_stats: bool,
    pub expands: bool,
    /// Whether it distinguishes volumes for one writing pod from volumes for several (`SINGLE_NODE_MULTI_WRITER`).
    pub has_single_writer: bool,
    /// Whether it gives volumes to a group by itself.
    pub sets_group: bool,
}

impl From<NodeGetCapabilitiesResponse> for Capabilities {
    fn from(response: NodeGetCapabilitiesResponse) -> Self {
        let mut capabilities = Capabilities::default();
        for capability in response.capabilities {
            let Some(Type::Rpc(it)) = capability.r#type else { continue };
            match it.r#type() {
                rpc::Type::StageUnstageVolume => capabilities.stages = true,
                rpc::Type::GetVolumeStats => capabilities.has_stats = true,
                rpc::Type::ExpandVolume => capabilities.expands = true,
                rpc::Type::SingleNodeMultiWriter => capabilities.has_single_writer = true,
                rpc::Type::VolumeMountGroup => capabilities.sets_group = true,
                rpc::Type::Unknown | rpc::Type::VolumeCondition => {}
            }
        }
        capabilities
    }
}

/// The future of a call.
pub type Call<'a, T> = BoxFuture<'a, Result<T, CsiError>>;

/// See the module.
pub trait NodeService: Send + Sync + 'static {
    fn info(&self) -> Call<'_, NodeGetInfoResponse>;
    fn capabilities(&self) -> Call<'_, Capabilities>;
    fn stage(&self, request: NodeStageVolumeRequest) -> Call<'_, ()>;
    fn unstage(&self, request: NodeUnstageVolumeRequest) -> Call<'_, ()>;
    fn publish(&self, request: NodePublishVolumeRequest) -> Call<'_, ()>;
    fn unpublish(&self, request: NodeUnpublishVolumeRequest) -> Call<'_, ()>;
    fn expand(&self, request: NodeExpandVolumeRequest) -> Call<'_, ()>;
    fn stats(&self, request: NodeGetVolumeStatsRequest) -> Call<'_, NodeGetVolumeStatsResponse>;
}

/// Called after each call to a driver with its name, the method, the code and the duration.
pub type CallObserver = Arc<dyn Fn(&str, &'static str, Code, Duration) + Send + Sync>;

/// A driver behind a socket.
pub struct NodeClient {
    channel: Channel,
    timeout: Duration,
    /// The name of the driver, and the observer of calls to it.
    observer: Option<(String, CallObserver)>,
}

impl NodeClient {
    /// Connects on the first call.
    pub fn new(endpoint: &Path) -> Result<Self, String> {
        Self::with_timeout(endpoint, TIMEOUT)
    }

    pub fn with_timeout(endpoint: &Path, timeout: Duration) -> Result<Self, String> {
        let channel = Channel::plain(&Endpoint::Unix(endpoint.to_owned()), Dialer::default());
        Ok(NodeClient { channel: channel.map_err(|why| why.to_string())?, timeout, observer: None })
    }

    /// The client, with an observer of its calls.
    pub fn observed(self, driver: &str, observer: CallObserver) -> Self {
        NodeClient { observer: Some((driver.to_owned(), observer)), ..self }
    }

    fn call<'a, T: Send + 'a, C>(
        &'a self,
        method: &'static str,
        call: impl FnOnce(GrpcClient<Channel>) -> C + Send + 'a,
    ) -> Call<'a, T>
    where
        C: Future<Output = Result<Response<T>, Status>> + Send + 'a,
    {
        let client = GrpcClient::new(self.channel.clone()).max_decoding_message_size(RESPONSE_LIMIT);
        let answer = call(client);
        async move {
            let begun = RealInstant::now();
            let answer = self.channel.within(self.timeout, answer).await.map_err(CsiError::from);
            if let Some((driver, observer)) = &self.observer {
                let code = answer.as_ref().err().map_or(Code::Ok, |why| why.code);
                observer(driver, method, code, begun.elapsed());
            }
            answer
        }
        .boxed()
    }
}

impl NodeService for NodeClient {
    fn info(&self) -> Call<'_, NodeGetInfoResponse> {
        self.call("/csi.v1.Node/NodeGetInfo", move |mut client| async move {
            client.node_get_info(NodeGetInfoRequest {}).await
        })
    }

    fn capabilities(&self) -> Call<'_, Capabilities> {
        let request = NodeGetCapabilitiesRequest {};
        let response = self.call("/csi.v1.Node/NodeGetCapabilities", move |mut client| async move {
            client.node_get_capabilities(request).await
        });
        response.map(|it| it.map(Capabilities::from)).boxed()
    }

    fn stage(&self, request: NodeStageVolumeRequest) -> Call<'_, ()> {
        let response = self.call("/csi.v1.Node/NodeStageVolume", move |mut client| async move {
            client.node_stage_volume(request).await
        });
        response.map(|it| it.map(drop)).boxed()
    }

    fn unstage(&self, request: NodeUnstageVolumeRequest) -> Call<'_, ()> {
        let response = self.call("/csi.v1.Node/NodeUnstageVolume", move |mut client| async move {
            client.node_unstage_volume(request).await
        });
        response.map(|it| it.map(drop)).boxed()
    }

    fn publish(&self, request: NodePublishVolumeRequest) -> Call<'_, ()> {
        let response = self.call("/csi.v1.Node/NodePublishVolume", move |mut client| async move {
            client.node_publish_volume(request).await
        });
        response.map(|it| it.map(drop)).boxed()
    }

    fn unpublish(&self, request: NodeUnpublishVolumeRequest) -> Call<'_, ()> {
        let response = self.call("/csi.v1.Node/NodeUnpublishVolume", move |mut client| async move {
            client.node_unpublish_volume(request).await
        });
        response.map(|it| it.map(drop)).boxed()
    }

    fn expand(&self, request: NodeExpandVolumeRequest) -> Call<'_, ()> {
        let response = self.call("/csi.v1.Node/NodeExpandVolume", move |mut client| async move {
            client.node_expand_volume(request).await
        });
        response.map(|it| it.map(drop)).boxed()
    }

    fn stats(&self, request: NodeGetVolumeStatsRequest) -> Call<'_, NodeGetVolumeStatsResponse> {
        self.call("/csi.v1.Node/NodeGetVolumeStats", move |mut client| async move {
            client.node_get_volume_stats(request).await
        })
    }
}
