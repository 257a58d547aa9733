//! The resource managers of the configuration, and the API that shows what pods have.

use super::parts::Parts;
use super::start_error::failed;
use crate::configuration::cpuset::{self, CpuSet};
use crate::configuration::policy_options::{cpu_options, topology_options};
use crate::configuration::{Configuration, StartError};
use crate::pod_facts::ResourceList;
use crate::resource_managers::cpu::topology::CpuTopology;
use crate::resource_managers::memory::MemoryReservation;
use crate::resource_managers::pod_resources::{self, PodResourcesOptions};
use crate::resource_managers::topology::{MachineTopology, TopologyPolicy};
use crate::resource_managers::{ManagerOptions, ResourceManagers};
use crate::stats::AgentMetrics;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schema::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The timeout of a call to a device plugin.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

pub fn managers(
    parts: &Parts,
    root_dir: &Path,
    reservation: &ResourceList,
    metrics: &AgentMetrics,
) -> Result<Arc<ResourceManagers>, StartError> {
    let Parts { configuration, gates, .. } = parts;
    let machine = MachineTopology::read(Path::new("/"));
    let reserved_cpus = reserved_cpus(configuration, &machine)?;
    let is_aligned = gates.is_open("TopologyManager");
    let cpu_policy = configuration.text(&["cpuManagerPolicy"]).to_owned();
    let topology_options = match is_aligned {
        true => topology_options(configuration, gates).map_err(failed)?,
        false => Default::default(),
    };
    let has_memory_manager = gates.is_open("MemoryManager");
    let managers = ResourceManagers::new(ManagerOptions {
        root_dir: root_dir.to_owned(),
        machine,
        reservation: reservation.clone(),
        cpu_options: match &*cpu_policy {
            "static" => cpu_options(configuration, gates).map_err(failed)?,
            _ => Default::default(),
        },
        cpu_policy,
        reserved_cpus,
        memory_policy: has_memory_manager.then(|| configuration.text(&["memoryManagerPolicy"]).to_owned()),
        reserved_memory: reserved_memory(configuration),
        topology_policy: match configuration.text(&["topologyManagerPolicy"]) {
            "best-effort" if is_aligned => TopologyPolicy::BestEffort,
            "restricted" if is_aligned => TopologyPolicy::Restricted,
            "single-numa-node" if is_aligned => TopologyPolicy::SingleNumaNode,
            _ => TopologyPolicy::None,
        },
        topology_options,
        is_pod_scope: configuration.text(&["topologyManagerScope"]) == "pod",
        call_timeout: CALL_TIMEOUT,
        world: parts.world.clone(),
        metrics: metrics.clone(),
    });
    managers.map_err(failed)
}

/// The numbers of reserved CPUs, which are online.
fn reserved_cpus(configuration: &Configuration, machine: &MachineTopology) -> Result<CpuSet, StartError> {
    let text = configuration.text(&["reservedSystemCPUs"]);
    let listed =
        cpuset::parse(text).map_err(|why| failed(format!("unable to parse reserved-cpus list: {why}")))?;
    let online = CpuTopology::new(machine).cpus();
    match listed.is_subset(&online) {
        true => Ok(listed),
        false => Err(failed(format!(
            "reserved-cpus: {text} is not a subset of online-cpus: {}",
            cpuset::format(&online)
        ))),
    }
}

fn reserved_memory(configuration: &Configuration) -> Vec<MemoryReservation> {
    let items = configuration.at(&["reservedMemory"]).and_then(Value::as_list).unwrap_or(&[]);
    let limits = |item: &Value| -> ResourceList {
        let limits = item.at(&["limits"]).and_then(Value::as_map);
        let pairs = limits.into_iter().flat_map(|map| map.iter());
        pairs.filter_map(|(name, text)| Some((name.to_string(), text.as_str()?.parse().ok()?))).collect()
    };
    let node = |item: &Value| {
        let id = item.at(&["numaNode"]).and_then(Value::as_int).unwrap_or(0);
        // a number that no node has
        u32::try_from(id).unwrap_or(u32::MAX)
    };
    items.iter().map(|item| MemoryReservation { node: node(item), limits: limits(item) }).collect()
}

/// Serves the pod resources API, unless its gate is closed.
pub fn serve_pod_resources(
    parts: &Parts,
    managers: &Arc<ResourceManagers>,
    root_dir: &Path,
    metrics: &AgentMetrics,
) -> Result<BoxFuture<'static, ()>, StartError> {
    if !parts.gates.is_open("KubeletPodResources") {
        return Ok(std::future::pending().boxed());
    }
    let listener = pod_resources::bind(root_dir).map_err(failed)?;
    let options = PodResourcesOptions {
        managers: managers.clone(),
        world: parts.world.clone(),
        metrics: metrics.clone(),
        has_allocatable: parts.gates.is_open("KubeletPodResourcesGetAllocatable"),
    };
    Ok(pod_resources::serve(listener, options).boxed())
}
