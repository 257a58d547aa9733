//! The server of the pod resources API, v1 and v1alpha1.

use crate::resource_managers::memory::state::MemoryBlock;
use crate::resource_managers::{ResourceManagers, unix_server};
use crate::stats::AgentMetrics;
use client::{Rate, TokenBucket};
use env::World;
use grpc::pod_resources_v1::pod_resources_lister_server as v1_server;
use grpc::pod_resources_v1alpha1::pod_resources_lister_server as v1alpha1_server;
use grpc::tonic::codegen::Service as _;
use grpc::tonic::{Request, Response, Status};
use grpc::{pod_resources_v1 as v1, pod_resources_v1alpha1 as v1alpha1};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use tokio::net::UnixListener;

/// The socket below the agent's directory.
const DIRECTORY: &str = "pod-resources";
const SOCKET: &str = "kubelet.sock";
/// The rate of calls.
const CALLS: Rate = Rate { per_second: 100.0, burst: 10 };

/// What the server is made from.
pub struct PodResourcesOptions {
    pub managers: Arc<ResourceManagers>,
    pub world: World,
    pub metrics: AgentMetrics,
    /// Whether allocatable resources are served.
    pub has_allocatable: bool,
}

pub fn bind(root_dir: &Path) -> io::Result<UnixListener> {
    let directory = root_dir.join(DIRECTORY);
    std::fs::DirBuilder::new().recursive(true).mode(0o750).create(&directory)?;
    unix_server::bind(&directory.join(SOCKET))
}

/// Serves both versions.
pub async fn serve(listener: UnixListener, options: PodResourcesOptions) {
    let limit = Mutex::new(TokenBucket::new(CALLS));
    let lister = Arc::new(Lister { options, limit });
    unix_server::serve(listener, move |request| {
        let lister = lister.clone();
        async move {
            match request.uri().path().split('/').nth(1) {
                Some("v1.PodResourcesLister") => {
                    v1_server::PodResourcesListerServer::from_arc(lister).call(request).await
                }
                Some("v1alpha1.PodResourcesLister") => {
                    v1alpha1_server::PodResourcesListerServer::from_arc(lister).call(request).await
                }
                _ => Ok(Status::unimplemented("unknown service").into_http()),
            }
        }
    })
    .await;
}

struct Lister {
    options: PodResourcesOptions,
    limit: Mutex<TokenBucket>,
}

impl Lister {
    fn admit(&self) -> Result<(), Status> {
        match self.limit.lock().take(self.options.world.elapsed()) {
            true => Ok(()),
            false => Err(Status::resource_exhausted("rejected by rate limit")),
        }
    }

    fn pods(&self) -> Vec<v1::PodResources> {
        let managers = &self.options.managers;
        managers.release_stale();
        let pods = managers.pods();
        let pod = |pod: &Arc<api::core::v1::Pod>| {
            let uid = &pod.metadata.uid;
            let containers = pod.spec.containers.iter().map(|container| v1::ContainerResources {
                name: container.name.clone(),
                devices: devices(managers.devices.of_container(uid, &container.name)),
                cpu_ids: managers.cpu.exclusive(uid, &container.name).into_iter().map(i64::from).collect(),
                memory: memory(managers.memory.as_ref().map(|it| it.blocks(uid, &container.name))),
            });
            v1::PodResources {
                name: pod.metadata.name.clone(),
                namespace: pod.metadata.namespace.clone(),
                containers: containers.collect(),
            }
        };
        pods.iter().map(pod).collect()
    }
}

/// An entry for each device and node, and one for a device without nodes.
fn devices(all: BTreeMap<String, BTreeMap<String, Vec<i64>>>) -> Vec<v1::ContainerDevices> {
    let mut entries = Vec::new();
    for (resource, devices) in all {
        for (id, nodes) in devices {
            let entry = |topology| v1::ContainerDevices {
                resource_name: resource.clone(),
                device_ids: vec![id.clone()],
                topology,
            };
            let node = |id: &i64| v1::TopologyInfo { nodes: vec![v1::NumaNode { id: *id }] };
            match nodes.is_empty() {
                true => entries.push(entry(None)),
                false => entries.extend(nodes.iter().map(|id| entry(Some(node(id))))),
            }
        }
    }
    entries
}

fn memory(blocks: Option<Vec<MemoryBlock>>) -> Vec<v1::ContainerMemory> {
    let node = |id: &u32| v1::NumaNode { id: i64::from(*id) };
    let block = |block: MemoryBlock| v1::ContainerMemory {
        topology: Some(v1::TopologyInfo { nodes: block.nodes.iter().map(node).collect() }),
        memory_type: block.resource,
        size: block.size,
    };
    blocks.into_iter().flatten().map(block).collect()
}

#[grpc::tonic::async_trait]
impl v1_server::PodResourcesLister for Lister {
    async fn list(
        &self,
        _: Request<v1::ListPodResourcesRequest>,
    ) -> Result<Response<v1::ListPodResourcesResponse>, Status> {
        self.admit()?;
        self.options.metrics.pod_resources_listed("v1");
        Ok(Response::new(v1::ListPodResourcesResponse { pod_resources: self.pods() }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<v1::AllocatableResourcesRequest>,
    ) -> Result<Response<v1::AllocatableResourcesResponse>, Status> {
        self.admit()?;
        let has_allocatable = self.options.has_allocatable;
        self.options.metrics.allocatable_listed("v1", has_allocatable);
        if !has_allocatable {
            return Err(Status::unknown("Pod Resources API GetAllocatableResources disabled"));
        }
        let managers = &self.options.managers;
        Ok(Response::new(v1::AllocatableResourcesResponse {
            devices: devices(managers.devices.healthy()),
            cpu_ids: managers.cpu.allocatable().into_iter().map(i64::from).collect(),
            memory: memory(managers.memory.as_ref().map(|it| it.allocatable())),
        }))
    }
}

#[grpc::tonic::async_trait]
impl v1alpha1_server::PodResourcesLister for Lister {
    async fn list(
        &self,
        _: Request<v1alpha1::ListPodResourcesRequest>,
    ) -> Result<Response<v1alpha1::ListPodResourcesResponse>, Status> {
        self.admit()?;
        self.options.metrics.pod_resources_requested("v1alpha1");
        let devices = |it: v1::ContainerDevices| v1alpha1::ContainerDevices {
            resource_name: it.resource_name,
            device_ids: it.device_ids,
        };
        let container = |it: v1::ContainerResources| v1alpha1::ContainerResources {
            name: it.name,
            devices: it.devices.into_iter().map(devices).collect(),
        };
        let pod = |it: v1::PodResources| v1alpha1::PodResources {
            name: it.name,
            namespace: it.namespace,
            containers: it.containers.into_iter().map(container).collect(),
        };
        let pod_resources = self.pods().into_iter().map(pod).collect();
        Ok(Response::new(v1alpha1::ListPodResourcesResponse { pod_resources }))
    }
}
