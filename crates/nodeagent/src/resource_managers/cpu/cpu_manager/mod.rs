//! The CPU manager: assigns CPUs when pods are admitted, and keeps the CPUs of running containers up to date.

use super::state::CpuState;
use super::static_policy::StaticPolicy;
use super::topology::CpuTopology;
use crate::configuration::cpuset::{self, CpuSet};
use crate::configuration::policy_options::CpuPolicyOptions;
use crate::pod_facts::{CPU, ResourceList};
use crate::resource_managers::policy_state::PolicyState;
use crate::resource_managers::topology::{MachineTopology, ProviderHints, TopologyHint, TopologyPolicy};
use crate::resource_managers::{ActiveContainers, AllocationError, PodSource};
use crate::runtime::{LinuxResources, SharedRuntime};
use crate::stats::AgentMetrics;
use api::Quantity;
use api::core::v1::{Container, ContainerStatus, Pod};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;

/// What the manager is made from.
pub struct CpuManagerOptions<'a> {
    /// `none` or `static`.
    pub policy: &'a str,
    pub options: CpuPolicyOptions,
    pub machine: &'a MachineTopology,
    /// Numbers of reserved CPUs, if they are configured.
    pub reserved_cpus: CpuSet,
    /// What is held back from pods.
    pub reservation: &'a ResourceList,
    pub topology_policy: TopologyPolicy,
    /// The directory of the state file.
    pub directory: &'a Path,
    pub metrics: AgentMetrics,
}

/// See the module.
pub struct CpuManager {
    inner: Mutex<PolicyState<StaticPolicy, CpuState>>,
    /// The CPUs that running containers had at the last look, by pod and container.
    applied: Mutex<BTreeMap<(String, String), CpuSet>>,
    metrics: AgentMetrics,
}

impl CpuManager {
    /// Checks the policy against the machine, and reads the state file.
    pub fn new(options: CpuManagerOptions<'_>) -> Result<Self, String> {
        let policy = match options.policy {
            "static" => Some(static_policy(&options)?),
            _ => None,
        };
        let policy_name = if policy.is_some() { "static" } else { "none" };
        let inner = PolicyState::start(policy, policy_name, options.directory, StaticPolicy::start)?;
        Ok(CpuManager { inner: Mutex::new(inner), applied: Mutex::default(), metrics: options.metrics })
    }

    /// Whether a pod gets CPUs of its own.
    pub fn is_needed(&self, pod: &Pod) -> bool {
        let inner = self.inner.lock();
        let Some(policy) = &inner.policy else { return false };
        pod.spec.init_containers.iter().chain(&pod.spec.containers).any(|it| policy.is_exclusive(pod, it))
    }

    /// Whether containers of a pod have CPUs of their own.
    pub fn has_pod(&self, uid: &str) -> bool {
        self.inner.lock().state.assignments.contains_key(uid)
    }

    /// The hints for a container, or for all of them.
    pub fn hints(&self, pod: &Pod, container: Option<&Container>) -> ProviderHints {
        let inner = self.inner.lock();
        match (&inner.policy, container) {
            (None, _) => ProviderHints::new(),
            (Some(policy), Some(container)) => policy.container_hints(&inner.state, pod, container),
            (Some(policy), None) => policy.pod_hints(&inner.state, pod),
        }
    }

    pub fn allocate(
        &self,
        pod: &Pod,
        container: &Container,
        hint: TopologyHint,
    ) -> Result<(), AllocationError> {
        let mut inner = self.inner.lock();
        let allocated = inner.change(|policy, state| {
            if !policy.is_exclusive(pod, container) {
                return Ok(());
            }
            let done = policy.allocate(state, pod, container, hint.affinity);
            self.metrics.cpus_pinned(done.is_ok());
            done
        });
        allocated.unwrap_or(Ok(()))
    }

    /// Gives back the CPUs of containers that are gone.
    pub fn retain(&self, active: &ActiveContainers) {
        self.applied.lock().retain(|(uid, container), _| active.contains(uid, container));
        self.inner.lock().change(|policy, state| {
            let stale: Vec<(String, String)> = state
                .all()
                .filter(|(uid, container, _)| !active.contains(uid, container))
                .map(|(uid, container, _)| (uid.clone(), container.clone()))
                .collect();
            for (uid, container) in stale {
                policy.remove(state, &uid, &container);
            }
        });
    }

    /// The CPUs that a container may run on: its own, or the shared ones. Empty with the policy `none`.
    pub fn affinity(&self, uid: &str, container: &str) -> CpuSet {
        let inner = self.inner.lock();
        inner.state.get(uid, container).unwrap_or(&inner.state.shared).clone()
    }

    /// The CPUs that a container has for itself.
    pub fn exclusive(&self, uid: &str, container: &str) -> CpuSet {
        self.inner.lock().state.get(uid, container).cloned().unwrap_or_default()
    }

    /// The CPUs that may be assigned exclusively.
    pub fn allocatable(&self) -> CpuSet {
        self.inner.lock().policy.as_ref().map(StaticPolicy::allocatable).unwrap_or_default()
    }

    /// A container with CPUs of its own was started on them.
    pub fn container_started(&self, uid: &str, container: &str) {
        if let Some(cpus) = self.inner.lock().state.get(uid, container).cloned() {
            self.applied.lock().insert((uid.to_owned(), container.to_owned()), cpus);
        }
    }

    /// Whether running containers are brought up to date.
    pub fn is_reconciling(&self) -> bool {
        self.inner.lock().policy.is_some()
    }

    /// Brings the CPUs of running containers up to date.
    pub async fn reconcile(&self, pods: &dyn PodSource, runtime: &SharedRuntime) {
        for pod in pods.active_pods() {
            let uid = &pod.metadata.uid;
            let Some(status) = pods.status(uid) else { continue };
            let statuses = status.init_container_statuses.iter().chain(&status.container_statuses);
            for (name, id) in statuses.filter_map(running) {
                let key = (uid.clone(), name.to_owned());
                let cpus = self.affinity(uid, name);
                let is_applied = self.applied.lock().get(&key) == Some(&cpus);
                if cpus.is_empty() || is_applied {
                    continue;
                }
                let resources =
                    LinuxResources { cpuset_cpus: cpuset::format(&cpus), ..LinuxResources::default() };
                match runtime.update_resources(id, &resources).await {
                    Ok(()) => drop(self.applied.lock().insert(key, cpus)),
                    Err(why) => {
                        tracing::warn!(container = name, %why, "the CPUs of a container were not set")
                    }
                }
            }
        }
    }
}

/// The name and the runtime's id of a container that runs.
fn running(status: &ContainerStatus) -> Option<(&str, &str)> {
    let is_running = status.state.running.is_some();
    let (_, id) = status.container_id.split_once("://").filter(|_| is_running)?;
    Some((&status.name, id))
}

fn static_policy(options: &CpuManagerOptions<'_>) -> Result<StaticPolicy, String> {
    let topology = CpuTopology::new(options.machine);
    if topology.cpus().is_empty() {
        return Err("could not detect number of cpus".to_owned());
    }
    let Some(reserved) = options.reservation.get(CPU) else {
        return Err("[cpumanager] unable to determine reserved CPU resources for static policy".to_owned());
    };
    if reserved.is_zero() {
        return Err("[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero".to_owned());
    }
    // whole CPUs, as parts cannot be held back from exclusive use
    let count = usize::try_from(Quantity::whole(reserved)).unwrap_or(usize::MAX);
    StaticPolicy::new(topology, count, &options.reserved_cpus, options.options, options.topology_policy)
        .map_err(|why| format!("new static policy error: {why}"))
}

#[cfg(test)]
mod tests;
