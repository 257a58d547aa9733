//! A device plugin for tests, at a real socket. It may lie, hang and die.

use super::device_manager::{DeviceManager, DeviceManagerOptions};
use super::registration;
use crate::objects::testing::object;
use crate::resource_managers::unix_server;
use crate::stats::AgentMetrics;
use api::core::v1::Pod;
use env::Simulated;
use futures_util::{Stream, StreamExt, stream};
use grpc::device_plugin::device_plugin_server::{DevicePlugin, DevicePluginServer};
use grpc::device_plugin::registration_client::RegistrationClient;
use grpc::device_plugin::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse, ContainerPreferredAllocationResponse,
    Device, DevicePluginOptions, DeviceSpec, Empty, ListAndWatchResponse, Mount, NumaNode,
    PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
    PreferredAllocationResponse, RegisterRequest, TopologyInfo,
};
use grpc::tonic::codegen::Service as _;
use grpc::tonic::{Request, Response, Status};
use outbound::{Channel, Dialer, Endpoint};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;

pub const RESOURCE: &str = "example.com/gpu";

/// How a plugin answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PluginBehaviour {
    #[default]
    Honest,
    /// Answers without content.
    Empty,
    /// Never answers.
    Hanging,
    /// Answers with an error.
    Failing,
}

/// What a plugin was called with.
#[derive(Debug, Default)]
pub struct Calls {
    pub allocated: Vec<Vec<String>>,
    pub prepared: Vec<Vec<String>>,
    /// Available devices, those that must be included, and the size.
    pub preferred: Vec<(Vec<String>, Vec<String>, i32)>,
}

pub struct PluginState {
    pub devices: watch::Sender<Vec<Device>>,
    pub options: Mutex<DevicePluginOptions>,
    pub behaviour: Mutex<PluginBehaviour>,
    pub preference: Mutex<Vec<String>>,
    pub calls: Mutex<Calls>,
}

impl PluginState {
    /// Answers as the behaviour says.
    async fn answer<T: Default>(&self, content: T) -> Result<Response<T>, Status> {
        let behaviour = *self.behaviour.lock();
        match behaviour {
            PluginBehaviour::Honest => Ok(Response::new(content)),
            PluginBehaviour::Empty => Ok(Response::new(T::default())),
            PluginBehaviour::Hanging => std::future::pending().await,
            PluginBehaviour::Failing => Err(Status::unavailable("on fire")),
        }
    }
}

#[grpc::tonic::async_trait]
impl DevicePlugin for PluginState {
    type ListAndWatchStream = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        let options = *self.options.lock();
        self.answer(options).await
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let mut receiver = self.devices.subscribe();
        receiver.mark_changed();
        let lists = stream::unfold(receiver, |mut receiver| async {
            receiver.changed().await.ok()?;
            let devices = receiver.borrow_and_update().clone();
            Some((Ok(ListAndWatchResponse { devices }), receiver))
        });
        Ok(Response::new(lists.boxed()))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let request = request.into_inner().container_requests.remove(0);
        let call = (request.available_device_ids, request.must_include_device_ids, request.allocation_size);
        self.calls.lock().preferred.push(call);
        let response = ContainerPreferredAllocationResponse { device_ids: self.preference.lock().clone() };
        self.answer(PreferredAllocationResponse { container_responses: vec![response] }).await
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let ids = request.into_inner().container_requests.remove(0).device_ids;
        self.calls.lock().allocated.push(ids.clone());
        let device = |id: &String| DeviceSpec {
            container_path: format!("/dev/{id}"),
            host_path: format!("/dev/host-{id}"),
            permissions: "rw".to_owned(),
        };
        let mount =
            Mount { container_path: "/lib/gpu".into(), host_path: "/opt/gpu".into(), read_only: true };
        let response = ContainerAllocateResponse {
            envs: [("GPUS".to_owned(), ids.join(","))].into(),
            mounts: vec![mount],
            devices: ids.iter().map(device).collect(),
            annotations: [("gpus".to_owned(), ids.len().to_string())].into(),
        };
        self.answer(AllocateResponse { container_responses: vec![response] }).await
    }

    async fn pre_start_container(
        &self,
        request: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        self.calls.lock().prepared.push(request.into_inner().device_ids);
        self.answer(PreStartContainerResponse {}).await
    }
}

/// See the module. The plugin dies with it.
pub struct FakePlugin {
    pub state: Arc<PluginState>,
    socket: PathBuf,
    task: AbortHandle,
}

impl Drop for FakePlugin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Devices as `id`, `id@node` or `id!` for one that is not healthy.
pub fn devices(text: &str) -> Vec<Device> {
    let device = |word: &str| {
        let (word, node) = word.split_once('@').map_or((word, None), |(id, node)| (id, Some(node)));
        let topology = node.map(|node| TopologyInfo { nodes: vec![NumaNode { id: node.parse().unwrap() }] });
        let health = if word.ends_with('!') { "Unhealthy" } else { "Healthy" };
        Device { id: word.trim_end_matches('!').to_owned(), health: health.to_owned(), topology }
    };
    text.split_whitespace().map(device).collect()
}

impl FakePlugin {
    /// Serves at a socket in the directory.
    pub fn start(directory: &Path, socket: &str, text: &str) -> Self {
        let state = Arc::new(PluginState {
            devices: watch::Sender::new(devices(text)),
            options: Mutex::default(),
            behaviour: Mutex::default(),
            preference: Mutex::default(),
            calls: Mutex::default(),
        });
        let socket = directory.join(socket);
        let listener = unix_server::bind(&socket).unwrap();
        let service = state.clone();
        let task = tokio::spawn(unix_server::serve(listener, move |request| {
            let service = service.clone();
            async move { DevicePluginServer::from_arc(service).call(request).await }
        }));
        FakePlugin { state, socket, task: task.abort_handle() }
    }

    /// Registers at the socket of the agent.
    pub async fn register(&self) -> Result<(), Status> {
        let endpoint = self.socket.file_name().unwrap().to_str().unwrap();
        register(self.socket.parent().unwrap(), "v1beta1", endpoint, RESOURCE).await
    }
}

pub async fn register(directory: &Path, version: &str, endpoint: &str, resource: &str) -> Result<(), Status> {
    let socket = Endpoint::Unix(directory.join("kubelet.sock"));
    let mut client = RegistrationClient::new(Channel::plain(&socket, Dialer::default()).unwrap());
    let request = RegisterRequest {
        version: version.to_owned(),
        endpoint: endpoint.to_owned(),
        resource_name: resource.to_owned(),
        options: None,
    };
    client.register(request).await.map(drop)
}

/// A manager with its registration socket.
pub struct ManagerFixture {
    pub manager: Arc<DeviceManager>,
    pub clock: Arc<Simulated>,
    /// Changes of the node's amounts.
    changes: watch::Receiver<usize>,
    server: AbortHandle,
}

impl Drop for ManagerFixture {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl ManagerFixture {
    pub fn start(root_dir: &Path, nodes: &[u32], call_timeout: Duration) -> Self {
        let clock = Simulated::new(1_000_000_000, 1);
        let manager = DeviceManager::new(DeviceManagerOptions {
            root_dir: root_dir.to_owned(),
            nodes: nodes.to_vec(),
            call_timeout,
            world: clock.clone(),
            metrics: AgentMetrics::default(),
        });
        let (sender, changes) = watch::channel(0);
        manager.on_change(move || sender.send_modify(|count| *count += 1));
        let listener = registration::bind(manager.directory()).unwrap();
        let server = tokio::spawn(registration::serve(listener, manager.clone())).abort_handle();
        ManagerFixture { manager, clock, changes, server }
    }

    /// All devices and the healthy ones.
    pub fn counts(&self) -> (i64, i64) {
        let amounts = self.manager.amounts();
        let count = |list: &crate::pod_facts::ResourceList| list.get(RESOURCE).map_or(-1, |it| it.whole());
        (count(&amounts.capacity), count(&amounts.allocatable))
    }

    /// Waits until the node has so many devices, and so many healthy ones.
    pub async fn until(&mut self, counts: (i64, i64)) {
        while self.counts() != counts {
            self.changes.changed().await.unwrap();
        }
    }
}

/// A pod whose containers need so many devices.
pub fn pod(uid: &str, init: &[u32], app: &[u32]) -> Pod {
    let list = |prefix: &str, counts: &[u32]| {
        let container = |(at, count): (usize, &u32)| {
            format!(r#"{{"name":"{prefix}{at}","resources":{{"limits":{{"{RESOURCE}":"{count}"}}}}}}"#)
        };
        counts.iter().enumerate().map(container).collect::<Vec<_>>().join(",")
    };
    object(&format!(
        r#"{{"metadata":{{"uid":"{uid}","name":"{uid}"}},"spec":{{"initContainers":[{}],"containers":[{}]}}}}"#,
        list("i", init),
        list("c", app)
    ))
}
