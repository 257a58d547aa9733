//! All managers together.

use super::allocation_error::AllocationError;
use super::cpu::{CpuManager, CpuManagerOptions};
use super::devices::{DeviceManager, DeviceManagerOptions, DeviceRunOptions};
use super::memory::{MemoryManager, MemoryManagerOptions, MemoryReservation};
use super::pod_sources::{ActiveContainers, PodSource};
use super::topology::{MachineTopology, NumaInfo, ProviderHints, TopologyHint, TopologyPolicy, merge};
use crate::configuration::cpuset::{self, CpuSet};
use crate::configuration::policy_options::{CpuPolicyOptions, TopologyPolicyOptions};
use crate::pod_facts::ResourceList;
use crate::runtime::{LinuxResources, SharedRuntime};
use crate::stats::AgentMetrics;
use api::core::v1::{Container, Pod};
use env::World;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Nodes above which the sets of them are too many for a topology policy.
const MAX_NODES: usize = 8;

/// What the managers are made from.
pub struct ManagerOptions {
    pub root_dir: PathBuf,
    pub machine: MachineTopology,
    /// What is held back from pods.
    pub reservation: ResourceList,
    pub cpu_policy: String,
    pub cpu_options: CpuPolicyOptions,
    pub reserved_cpus: CpuSet,
    /// Absent if there is no memory manager.
    pub memory_policy: Option<String>,
    pub reserved_memory: Vec<MemoryReservation>,
    pub topology_policy: TopologyPolicy,
    pub topology_options: TopologyPolicyOptions,
    /// Whether all containers of a pod have the same nodes.
    pub is_pod_scope: bool,
    /// The timeout of a call to a device plugin.
    pub call_timeout: Duration,
    pub world: World,
    pub metrics: AgentMetrics,
}

/// See the module.
pub struct ResourceManagers {
    pub devices: Arc<DeviceManager>,
    pub cpu: CpuManager,
    pub memory: Option<MemoryManager>,
    policy: TopologyPolicy,
    nodes: NumaInfo,
    is_pod_scope: bool,
    source: OnceLock<Arc<dyn PodSource>>,
    /// Whether the source has all pods, so that a pod which it lacks is gone.
    is_synced: AtomicBool,
    /// Pods that are admitted now, and no pods of the source yet.
    held: Mutex<HashMap<String, Arc<Pod>>>,
    /// The nodes of containers, by pod.
    affinities: Mutex<HashMap<String, HashMap<String, TopologyHint>>>,
}

/// The managed part of a container's configuration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContainerResources {
    pub devices: DeviceRunOptions,
    pub cpus: String,
    pub memory_nodes: String,
}

impl ContainerResources {
    /// Restricts a container to its CPUs and memory.
    pub fn apply(&self, resources: &mut LinuxResources) {
        resources.cpuset_cpus.clone_from(&self.cpus);
        resources.cpuset_mems.clone_from(&self.memory_nodes);
    }
}

impl ResourceManagers {
    /// Checks the policies against the machine, and reads the state files. The errors are upstream's.
    pub fn new(options: ManagerOptions) -> Result<Arc<Self>, String> {
        let (machine, root_dir) = (&options.machine, &options.root_dir);
        let mut nodes = NumaInfo { nodes: machine.node_ids(), ..NumaInfo::default() };
        if options.topology_options.prefers_closest {
            let distances = machine.nodes.iter().map(|node| Some((node.id, node.distances.clone()?)));
            nodes.distances = distances
                .collect::<Option<_>>()
                .ok_or("cannot discover NUMA topology: error getting NUMA distances from cadvisor")?;
        }
        if options.topology_policy != TopologyPolicy::None && nodes.nodes.len() > MAX_NODES {
            return Err(format!("unsupported on machines with more than {MAX_NODES} NUMA Nodes"));
        }
        let devices = DeviceManager::new(DeviceManagerOptions {
            root_dir: root_dir.clone(),
            nodes: nodes.nodes.clone(),
            call_timeout: options.call_timeout,
            world: options.world,
            metrics: options.metrics.clone(),
        });
        let cpu = CpuManager::new(CpuManagerOptions {
            policy: &options.cpu_policy,
            options: options.cpu_options,
            machine,
            reserved_cpus: options.reserved_cpus,
            reservation: &options.reservation,
            topology_policy: options.topology_policy,
            directory: root_dir,
            metrics: options.metrics,
        })?;
        let memory = options.memory_policy.map(|policy| {
            MemoryManager::new(MemoryManagerOptions {
                policy: &policy,
                machine,
                reservation: &options.reservation,
                reserved: &options.reserved_memory,
                directory: root_dir,
            })
        });
        Ok(Arc::new(ResourceManagers {
            devices,
            cpu,
            memory: memory.transpose()?,
            policy: options.topology_policy,
            nodes,
            is_pod_scope: options.is_pod_scope,
            source: OnceLock::new(),
            is_synced: AtomicBool::new(false),
            held: Mutex::default(),
            affinities: Mutex::default(),
        }))
    }

    /// Sets where pods come from.
    pub fn set_source(&self, source: Arc<dyn PodSource>) {
        let _ = self.source.set(source);
    }

    /// All sources of pods were read: resources of others are taken back from now on.
    pub fn set_synced(&self) {
        self.is_synced.store(true, Ordering::Release);
    }

    /// All pods of the node.
    pub fn pods(&self) -> Vec<Arc<Pod>> {
        self.source.get().map(|source| source.pods()).unwrap_or_default()
    }

    /// Keeps the resources of a pod that is admitted.
    pub fn hold(&self, pod: &Arc<Pod>) {
        self.held.lock().insert(pod.metadata.uid.clone(), pod.clone());
    }

    /// The admission of a pod has ended: it is a pod of the source, or gone.
    pub fn settle(&self, uid: &str) {
        self.held.lock().remove(uid);
    }

    pub fn is_held(&self, uid: &str) -> bool {
        self.held.lock().contains_key(uid)
    }

    /// Whether a pod needs CPUs, memory or devices of its own.
    pub fn is_needed(&self, pod: &Pod) -> bool {
        self.cpu.is_needed(pod)
            || self.memory.as_ref().is_some_and(|it| it.is_needed(pod))
            || self.devices.is_needed(pod)
    }

    /// Allocates the resources of a pod. What it has already stays.
    pub async fn allocate(&self, pod: &Pod) -> Result<(), AllocationError> {
        self.release_stale();
        let containers = || pod.spec.init_containers.iter().chain(&pod.spec.containers);
        if self.is_pod_scope {
            let hint = self.affinity(pod, None)?;
            for container in containers() {
                self.allocate_container(pod, container, hint).await?;
            }
        } else {
            for container in containers() {
                let hint = self.affinity(pod, Some(container))?;
                self.allocate_container(pod, container, hint).await?;
            }
        }
        Ok(())
    }

    /// The best nodes for a container or a pod.
    fn affinity(&self, pod: &Pod, container: Option<&Container>) -> Result<TopologyHint, AllocationError> {
        if self.policy == TopologyPolicy::None {
            return Ok(TopologyHint::default());
        }
        let mut providers: Vec<ProviderHints> =
            vec![self.devices.hints(pod, container), self.cpu.hints(pod, container)];
        providers.extend(self.memory.as_ref().map(|it| it.hints(pod, container)));
        match merge(self.policy, &self.nodes, &providers) {
            (hint, true) => Ok(hint),
            (_, false) => Err(AllocationError::TopologyAffinity),
        }
    }

    async fn allocate_container(
        &self,
        pod: &Pod,
        container: &Container,
        hint: TopologyHint,
    ) -> Result<(), AllocationError> {
        let uid = pod.metadata.uid.clone();
        self.affinities.lock().entry(uid).or_default().insert(container.name.clone(), hint);
        let allocated = self.devices.allocate(pod, container, hint).await;
        allocated.map_err(AllocationError::Unexpected)?;
        self.cpu.allocate(pod, container, hint)?;
        let memory = self.memory.as_ref().map(|it| it.allocate(pod, container, hint));
        memory.transpose().map(drop).map_err(AllocationError::Unexpected)
    }

    /// Gives a pod that runs since before the agent's start CPUs and memory, if the state files do not know it.
    pub fn restore(&self, pod: &Pod) {
        let (uid, hint) = (&pod.metadata.uid, TopologyHint::default());
        let cpu = Some(&self.cpu).filter(|it| !it.has_pod(uid));
        let memory = self.memory.as_ref().filter(|it| !it.has_pod(uid));
        for container in pod.spec.init_containers.iter().chain(&pod.spec.containers) {
            let cpus = cpu.map_or(Ok(()), |it| it.allocate(pod, container, hint));
            let memory = memory.map_or(Ok(()), |it| it.allocate(pod, container, hint));
            if let Err(why) = cpus.and(memory.map_err(AllocationError::Unexpected)) {
                let pod = crate::pod_facts::description(pod);
                tracing::warn!(%why, pod, container = container.name, "a running container has no resources of its own");
            }
        }
    }

    /// Takes back the resources of pods that are gone.
    pub fn release_stale(&self) {
        let Some(source) = self.source.get().filter(|_| self.is_synced.load(Ordering::Acquire)) else {
            return;
        };
        // a pod becomes one of the source before it is let go
        let mut pods: Vec<Arc<Pod>> = self.held.lock().values().cloned().collect();
        pods.extend(source.active_pods());
        let active: ActiveContainers = pods.iter().collect();
        self.devices.retain(&active);
        self.cpu.retain(&active);
        if let Some(memory) = &self.memory {
            memory.retain(&active);
        }
        self.affinities.lock().retain(|uid, _| active.contains_pod(uid));
    }

    /// The managed part of the configuration of a container that starts.
    pub async fn container_resources(
        &self,
        pod: &Pod,
        container: &Container,
    ) -> Result<ContainerResources, String> {
        let (uid, name) = (&pod.metadata.uid, &container.name);
        let hint = self.affinities.lock().get(uid).and_then(|it| it.get(name)).copied().unwrap_or_default();
        let devices = self.devices.run_options(pod, container, hint).await?;
        let nodes = self.memory.as_ref().map(|it| it.nodes(uid, name)).unwrap_or_default();
        let nodes: Vec<String> = nodes.iter().map(u32::to_string).collect();
        Ok(ContainerResources {
            devices,
            cpus: cpuset::format(&self.cpu.affinity(uid, name)),
            memory_nodes: nodes.join(","),
        })
    }

    pub fn container_started(&self, pod: &Pod, container: &str) {
        self.cpu.container_started(&pod.metadata.uid, container);
        if let Some(memory) = &self.memory {
            memory.container_started(pod, container);
        }
    }

    /// Brings running containers up to date in intervals. Without exclusive CPUs there is nothing to do.
    pub async fn run(&self, world: &World, period: Duration, runtime: &SharedRuntime) {
        if !self.cpu.is_reconciling() {
            return std::future::pending().await;
        }
        loop {
            self.release_stale();
            if let Some(source) = self.source.get() {
                self.cpu.reconcile(&**source, runtime).await;
            }
            env::sleep(world, period.max(Duration::from_millis(1))).await;
        }
    }
}

#[cfg(test)]
mod tests;
