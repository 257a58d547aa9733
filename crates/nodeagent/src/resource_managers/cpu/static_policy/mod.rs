//! The static policy: containers of Guaranteed pods that request whole CPUs get them exclusively.
//!
//! All other containers share the rest, the default set. Reserved CPUs are always in it.

use super::assignment::{take_distributed, take_packed};
use super::state::CpuState;
use super::topology::{CpuTopology, Level};
use crate::configuration::cpuset::{self, CpuSet};
use crate::configuration::policy_options::CpuPolicyOptions;
use crate::pod_facts::{CPU, QosClass, qos_class};
use crate::resource_managers::AllocationError;
use crate::resource_managers::topology::{NumaMask, ProviderHints, TopologyHint, TopologyPolicy};
use api::Quantity;
use api::core::v1::{Container, Pod};

/// See the module.
#[derive(Debug)]
pub struct StaticPolicy {
    topology: CpuTopology,
    reserved: CpuSet,
    options: CpuPolicyOptions,
    /// The pod that is admitted now, and CPUs of its init containers that its other containers may have.
    reusable: (String, CpuSet),
}

/// The CPUs that a container gets exclusively.
fn exclusive_cpus(pod: &Pod, container: &Container) -> usize {
    let requested = container.resources.requests.get(CPU);
    let (whole, milli) = requested.map_or((0, 0), |it| (Quantity::whole(it), Quantity::milli(it)));
    match qos_class(pod) == QosClass::Guaranteed && whole.checked_mul(1000) == Some(milli) {
        true => usize::try_from(whole).unwrap_or(0),
        false => 0,
    }
}

/// The same for a whole pod: the sum of its containers, or its largest init container.
fn exclusive_cpus_of_pod(pod: &Pod) -> usize {
    let of = |container| exclusive_cpus(pod, container);
    let largest = pod.spec.init_containers.iter().map(of).max().unwrap_or(0);
    pod.spec.containers.iter().map(of).sum::<usize>().max(largest)
}

impl StaticPolicy {
    /// `count` is the number of reserved CPUs; `listed` are their numbers, if they are configured.
    pub fn new(
        topology: CpuTopology,
        count: usize,
        listed: &CpuSet,
        options: CpuPolicyOptions,
        topology_policy: TopologyPolicy,
    ) -> Result<Self, String> {
        if options.is_aligned_by_socket {
            if topology_policy == TopologyPolicy::SingleNumaNode {
                return Err("Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option".to_owned());
            }
            if topology.all_groups(Level::Socket).len() > topology.all_groups(Level::Node).len() {
                return Err("Align by socket is not compatible with hardware where number of sockets are more than number of NUMA".to_owned());
            }
        }
        let mut policy =
            StaticPolicy { topology, reserved: listed.clone(), options, reusable: Default::default() };
        if listed.is_empty() {
            policy.reserved = policy.take(&policy.topology.cpus(), count).unwrap_or_default();
        }
        match policy.reserved.len() == count {
            true => Ok(policy),
            false => Err(format!(
                "[cpumanager] unable to reserve the required amount of CPUs (size of {} did not equal {count})",
                cpuset::format(&policy.reserved)
            )),
        }
    }

    fn take(&self, free: &CpuSet, count: usize) -> Result<CpuSet, String> {
        let group_size = if self.options.has_full_cores_only { self.topology.cpus_per_core() } else { 1 };
        match self.options.is_distributed {
            true => take_distributed(&self.topology, free, count, group_size),
            false => take_packed(&self.topology, free, count),
        }
    }

    /// Fills an empty state, or checks one that was read.
    pub fn start(&self, state: &mut CpuState) -> Result<(), String> {
        let all = self.topology.cpus();
        if state.shared.is_empty() {
            if !state.assignments.is_empty() {
                return Err("default cpuset cannot be empty".to_owned());
            }
            state.shared = all;
            return Ok(());
        }
        let shared = cpuset::format(&state.shared);
        if !self.reserved.is_subset(&state.shared) {
            let reserved = cpuset::format(&self.reserved);
            return Err(format!(
                "not all reserved cpus: \"{reserved}\" are present in defaultCpuSet: \"{shared}\""
            ));
        }
        let mut known = state.shared.clone();
        for (pod, container, cpus) in state.all() {
            if !cpus.is_disjoint(&state.shared) {
                let cpus = cpuset::format(cpus);
                return Err(format!(
                    "pod: {pod}, container: {container} cpuset: \"{cpus}\" overlaps with default cpuset \"{shared}\""
                ));
            }
            known.extend(cpus);
        }
        match known == all {
            true => Ok(()),
            false => Err(format!(
                "current set of available CPUs \"{}\" doesn't match with CPUs in state \"{}\"",
                cpuset::format(&all),
                cpuset::format(&known)
            )),
        }
    }

    /// CPUs that may be assigned exclusively.
    pub fn allocatable(&self) -> CpuSet {
        self.topology.cpus().difference(&self.reserved).copied().collect()
    }

    fn available(&self, state: &CpuState) -> CpuSet {
        state.shared.difference(&self.reserved).copied().collect()
    }

    fn reusable(&self, uid: &str) -> CpuSet {
        if self.reusable.0 == uid { self.reusable.1.clone() } else { CpuSet::new() }
    }

    /// Whether a container gets CPUs of its own.
    pub fn is_exclusive(&self, pod: &Pod, container: &Container) -> bool {
        exclusive_cpus(pod, container) > 0
    }

    /// Assigns CPUs to a container, from the nodes of a hint as far as they have them.
    pub fn allocate(
        &mut self,
        state: &mut CpuState,
        pod: &Pod,
        container: &Container,
        affinity: Option<NumaMask>,
    ) -> Result<(), AllocationError> {
        let count = exclusive_cpus(pod, container);
        if count == 0 {
            return Ok(());
        }
        let per_core = self.topology.cpus_per_core();
        if self.options.has_full_cores_only && per_core > 0 && !count.is_multiple_of(per_core) {
            return Err(AllocationError::SmtAlignment { requested: count, per_core });
        }
        let uid = &pod.metadata.uid;
        let cpus = match state.get(uid, &container.name) {
            Some(cpus) => cpus.clone(),
            None => {
                let cpus = self.choose(state, uid, count, affinity).map_err(AllocationError::Unexpected)?;
                state.shared.retain(|cpu| !cpus.contains(cpu));
                state.set(uid, &container.name, cpus.clone());
                cpus
            }
        };
        let mut reusable = self.reusable(uid);
        match pod.spec.init_containers.iter().any(|it| it.name == container.name) {
            true => reusable.extend(&cpus),
            false => reusable.retain(|cpu| !cpus.contains(cpu)),
        }
        self.reusable = (uid.clone(), reusable);
        Ok(())
    }

    fn choose(
        &self,
        state: &CpuState,
        uid: &str,
        count: usize,
        affinity: Option<NumaMask>,
    ) -> Result<CpuSet, String> {
        let mut free = self.available(state);
        free.extend(self.reusable(uid));
        let aligned = affinity.map_or_else(CpuSet::new, |mask| self.aligned(mask, &free));
        let mut cpus = self.take(&aligned, count.min(aligned.len()))?;
        free.retain(|cpu| !cpus.contains(cpu));
        cpus.extend(self.take(&free, count - cpus.len())?);
        Ok(cpus)
    }

    /// Free CPUs of nodes, or of their sockets.
    fn aligned(&self, nodes: NumaMask, free: &CpuSet) -> CpuSet {
        if !self.options.is_aligned_by_socket {
            return self.topology.within_nodes(nodes, free);
        }
        let sockets = self.topology.sockets_of(nodes);
        let is_within =
            |cpu: &u32| self.topology.group(Level::Socket, *cpu).is_some_and(|it| sockets.contains(&it));
        free.iter().copied().filter(is_within).collect()
    }

    /// Gives the CPUs of a container back, but for those that other containers of its pod have, too.
    pub fn remove(&self, state: &mut CpuState, uid: &str, container: &str) {
        let Some(mut cpus) = state.remove(uid, container) else { return };
        for siblings in state.assignments.get(uid).into_iter().flat_map(|it| it.values()) {
            cpus.retain(|cpu| !siblings.contains(cpu));
        }
        state.shared.extend(cpus);
    }

    pub fn container_hints(&self, state: &CpuState, pod: &Pod, container: &Container) -> ProviderHints {
        let requested = exclusive_cpus(pod, container);
        if requested == 0 {
            return ProviderHints::new();
        }
        let uid = &pod.metadata.uid;
        let hints = match state.get(uid, &container.name) {
            Some(cpus) if cpus.len() != requested => Vec::new(),
            Some(cpus) => self.hints(cpus, &CpuSet::new(), requested),
            None => self.hints(&self.available(state), &self.reusable(uid), requested),
        };
        ProviderHints::from([(CPU.to_owned(), Some(hints))])
    }

    pub fn pod_hints(&self, state: &CpuState, pod: &Pod) -> ProviderHints {
        let requested = exclusive_cpus_of_pod(pod);
        if requested == 0 {
            return ProviderHints::new();
        }
        let uid = &pod.metadata.uid;
        let of_cpus = |hints| ProviderHints::from([(CPU.to_owned(), Some(hints))]);
        let mut assigned = CpuSet::new();
        for container in pod.spec.init_containers.iter().chain(&pod.spec.containers) {
            let Some(cpus) = state.get(uid, &container.name) else { continue };
            if cpus.len() != exclusive_cpus(pod, container) {
                return of_cpus(Vec::new());
            }
            assigned.extend(cpus);
        }
        if assigned.len() == requested {
            return of_cpus(self.hints(&assigned, &CpuSet::new(), requested));
        }
        let mut reusable = self.reusable(uid);
        reusable.extend(assigned);
        of_cpus(self.hints(&self.available(state), &reusable, requested))
    }

    /// Sets of nodes that have enough CPUs, and all that are to be used again.
    pub fn hints(&self, available: &CpuSet, reusable: &CpuSet, requested: usize) -> Vec<TopologyHint> {
        let (all, nodes) = (self.topology.cpus(), self.topology.all_groups(Level::Node));
        let nodes: Vec<u32> = nodes.into_iter().collect();
        let mut fewest = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        let mut masks = Vec::new();
        for mask in NumaMask::all_of(&nodes) {
            let within = |cpus: &CpuSet| self.topology.within_nodes(mask, cpus).len();
            if within(&all) >= requested {
                fewest = fewest.min(mask.count());
            }
            if within(reusable) == reusable.len() && reusable.len() + within(available) >= requested {
                masks.push(mask);
            }
        }
        let is_preferred = |mask: NumaMask| {
            mask.count() == fewest
                || self.options.is_aligned_by_socket && self.is_socket_aligned(mask, fewest)
        };
        masks.into_iter().map(|mask| TopologyHint::new(mask, is_preferred(mask))).collect()
    }

    /// Whether nodes are in no more sockets than the fewest nodes need.
    fn is_socket_aligned(&self, mask: NumaMask, fewest: u32) -> bool {
        let count = |level| self.topology.all_groups(level).len();
        let per_socket = count(Level::Node).checked_div(count(Level::Socket)).unwrap_or(0);
        let fewest = usize::try_from(fewest).unwrap_or(usize::MAX);
        per_socket > 0 && self.topology.sockets_of(mask).len() == fewest.div_ceil(per_socket)
    }
}

#[cfg(test)]
mod tests;
