//! Managers of a machine with two NUMA nodes, for tests.

use super::devices::registration;
use super::devices::testing::{FakePlugin, RESOURCE};
use super::memory::MemoryReservation;
use super::topology::{Core, MachineTopology, NumaNode, TopologyPolicy};
use super::{ManagerOptions, PodSource, ResourceManagers};
use crate::configuration::cpuset::{self, CpuSet};
use crate::configuration::policy_options::{CpuPolicyOptions, TopologyPolicyOptions};
use crate::objects::testing::object;
use crate::pod_facts::ResourceList;
use crate::stats::AgentMetrics;
use api::core::v1::{Pod, PodStatus};
use env::Simulated;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Two nodes of four CPUs and 8 GiB.
pub fn machine() -> MachineTopology {
    let core = |socket: u32, cpu: u32| Core { socket, threads: CpuSet::from([cpu]) };
    let node = |id: u32| NumaNode {
        id,
        cores: (4 * id..4 * id + 4).map(|cpu| core(id, cpu)).collect(),
        memory: 8 << 30,
        ..NumaNode::default()
    };
    MachineTopology { nodes: vec![node(0), node(1)] }
}

pub struct ManagersFixture {
    pub managers: Arc<ResourceManagers>,
    changes: watch::Receiver<usize>,
    server: tokio::task::AbortHandle,
}

impl Drop for ManagersFixture {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// The managers as an agent makes them that starts.
pub fn managers(
    root_dir: &Path,
    topology_policy: TopologyPolicy,
    is_pod_scope: bool,
) -> Arc<ResourceManagers> {
    let list = |amount: &str| ResourceList::from([("memory".to_owned(), amount.parse().unwrap())]);
    let mut reservation = list("2Gi");
    reservation.insert("cpu".to_owned(), "1".parse().unwrap());
    let reserved = |node| MemoryReservation { node, limits: list("1Gi") };
    let managers = ResourceManagers::new(ManagerOptions {
        root_dir: root_dir.to_owned(),
        machine: machine(),
        reservation,
        cpu_policy: "static".to_owned(),
        cpu_options: CpuPolicyOptions::default(),
        reserved_cpus: CpuSet::new(),
        memory_policy: Some("Static".to_owned()),
        reserved_memory: vec![reserved(0), reserved(1)],
        topology_policy,
        topology_options: TopologyPolicyOptions::default(),
        is_pod_scope,
        call_timeout: Duration::from_secs(60),
        world: Simulated::new(1_000_000_000, 1),
        metrics: AgentMetrics::default(),
    });
    managers.unwrap()
}

pub fn start(root_dir: &Path, topology_policy: TopologyPolicy, is_pod_scope: bool) -> ManagersFixture {
    let managers = managers(root_dir, topology_policy, is_pod_scope);
    let (sender, changes) = watch::channel(0);
    managers.devices.on_change(move || sender.send_modify(|count| *count += 1));
    let listener = registration::bind(managers.devices.directory()).unwrap();
    let server = tokio::spawn(registration::serve(listener, managers.devices.clone())).abort_handle();
    ManagersFixture { managers, changes, server }
}

impl ManagersFixture {
    pub async fn plugin(&mut self, devices: &str) -> FakePlugin {
        let plugin = FakePlugin::start(self.managers.devices.directory(), "gpu.sock", devices);
        plugin.register().await.unwrap();
        let count = devices.split_whitespace().count();
        while self.managers.devices.healthy().get(RESOURCE).map_or(0, |it| it.len()) != count {
            self.changes.changed().await.unwrap();
        }
        plugin
    }

    /// What the container of a pod has.
    pub fn shown(&self, uid: &str, container: &str) -> String {
        let devices = self.managers.devices.of_container(uid, container);
        let devices: Vec<String> = devices.into_values().flat_map(|it| it.into_keys()).collect();
        let cpus = cpuset::format(&self.managers.cpu.exclusive(uid, container));
        let memory = self.managers.memory.as_ref().unwrap().nodes(uid, container);
        format!("{cpus} {memory:?} {}", devices.join(","))
    }
}

/// Containers with CPUs, GiB of memory and devices.
pub fn pod(uid: &str, containers: &[(u32, u32, u32)]) -> Arc<Pod> {
    let container = |(at, (cpus, memory, devices)): (usize, &(u32, u32, u32))| {
        let devices = if *devices > 0 { format!(r#","{RESOURCE}":"{devices}""#) } else { String::new() };
        let amounts = format!(r#"{{"cpu":"{cpus}","memory":"{memory}Gi"{devices}}}"#);
        format!(r#"{{"name":"c{at}","resources":{{"requests":{amounts},"limits":{amounts}}}}}"#)
    };
    let containers: Vec<String> = containers.iter().enumerate().map(container).collect();
    Arc::new(object(&format!(
        r#"{{"metadata":{{"uid":"{uid}","name":"{uid}"}},"spec":{{"containers":[{}]}}}}"#,
        containers.join(",")
    )))
}

/// Pods that are all active.
#[derive(Default)]
pub struct Pods(pub Mutex<Vec<Arc<Pod>>>);

impl PodSource for Pods {
    fn active_pods(&self) -> Vec<Arc<Pod>> {
        self.0.lock().clone()
    }

    fn pods(&self) -> Vec<Arc<Pod>> {
        self.0.lock().clone()
    }

    fn status(&self, _: &str) -> Option<PodStatus> {
        None
    }
}
