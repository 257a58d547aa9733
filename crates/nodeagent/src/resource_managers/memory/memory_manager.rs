//! The memory manager: assigns memory of NUMA nodes when pods are admitted.

use super::state::{MemoryBlock, MemoryState};
use super::static_policy::{Sizes, StaticPolicy};
use crate::pod_facts::{MEMORY, ResourceList, hugepage_size};
use crate::resource_managers::ActiveContainers;
use crate::resource_managers::policy_state::PolicyState;
use crate::resource_managers::topology::{MachineTopology, ProviderHints, TopologyHint};
use api::Quantity;
use api::core::v1::{Container, Pod};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Memory of a node that is held back.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MemoryReservation {
    pub node: u32,
    pub limits: ResourceList,
}

/// What the manager is made from.
pub struct MemoryManagerOptions<'a> {
    /// `None` or `Static`.
    pub policy: &'a str,
    pub machine: &'a MachineTopology,
    /// What is held back from pods in all.
    pub reservation: &'a ResourceList,
    /// The same by node.
    pub reserved: &'a [MemoryReservation],
    /// The directory of the state file.
    pub directory: &'a Path,
}

/// See the module.
pub struct MemoryManager {
    inner: Mutex<PolicyState<StaticPolicy, MemoryState>>,
}

impl MemoryManager {
    /// Checks the policy against the machine, and reads the state file.
    pub fn new(options: MemoryManagerOptions<'_>) -> Result<Self, String> {
        let policy = match options.policy {
            "Static" => {
                let reserved = reserved_by_node(&options)?;
                Some(StaticPolicy::new(options.machine.clone(), reserved)?)
            }
            _ => None,
        };
        let policy_name = if policy.is_some() { "Static" } else { "None" };
        let inner = PolicyState::start(policy, policy_name, options.directory, StaticPolicy::start)?;
        Ok(MemoryManager { inner: Mutex::new(inner) })
    }

    /// Whether a pod gets memory of certain nodes.
    pub fn is_needed(&self, pod: &Pod) -> bool {
        self.inner.lock().policy.as_ref().is_some_and(|policy| policy.is_needed(pod))
    }

    /// Whether containers of a pod have memory of certain nodes.
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

    pub fn allocate(&self, pod: &Pod, container: &Container, hint: TopologyHint) -> Result<(), String> {
        let mut inner = self.inner.lock();
        inner.change(|policy, state| policy.allocate(state, pod, container, hint)).unwrap_or(Ok(()))
    }

    /// Gives back the memory of containers that are gone.
    pub fn retain(&self, active: &ActiveContainers) {
        self.inner.lock().change(|policy, state| {
            let all = state.assignments.iter().flat_map(|(uid, all)| all.keys().map(move |name| (uid, name)));
            let stale = all.filter(|(uid, name)| !active.contains(uid, name));
            let stale: Vec<(String, String)> = stale.map(|(uid, name)| (uid.clone(), name.clone())).collect();
            for (uid, container) in stale {
                policy.remove(state, &uid, &container);
            }
        });
    }

    /// A container was started: the init containers before it have ended, and give their memory back.
    pub fn container_started(&self, pod: &Pod, container: &str) {
        self.inner.lock().change(|policy, state| {
            for init in pod.spec.init_containers.iter().take_while(|it| it.name != container) {
                policy.remove(state, &pod.metadata.uid, &init.name);
            }
        });
    }

    /// The nodes of a container's memory.
    pub fn nodes(&self, uid: &str, container: &str) -> BTreeSet<u32> {
        self.blocks(uid, container).into_iter().flat_map(|block| block.nodes).collect()
    }

    pub fn blocks(&self, uid: &str, container: &str) -> Vec<MemoryBlock> {
        self.inner.lock().state.blocks(uid, container).cloned().unwrap_or_default()
    }

    /// What pods may have of each node.
    pub fn allocatable(&self) -> Vec<MemoryBlock> {
        let inner = self.inner.lock();
        let tables =
            inner.state.nodes.iter().flat_map(|(id, node)| node.tables.iter().map(move |it| (id, it)));
        tables
            .filter(|(_, (_, table))| table.allocatable > 0)
            .map(|(id, (resource, table))| MemoryBlock {
                nodes: vec![*id],
                resource: resource.clone(),
                size: table.allocatable,
            })
            .collect()
    }
}

/// The reserved memory of all nodes, which together is what is held back from pods.
fn reserved_by_node(options: &MemoryManagerOptions<'_>) -> Result<BTreeMap<u32, Sizes>, String> {
    let is_memory = |name: &str| name == MEMORY || hugepage_size(name).is_some();
    let mut nodes: BTreeMap<u32, Sizes> =
        options.machine.node_ids().into_iter().map(|id| (id, Sizes::new())).collect();
    let mut sums = ResourceList::new();
    for reservation in options.reserved {
        let id = reservation.node;
        let Some(sizes) = nodes.get_mut(&id) else {
            return Err(format!(
                "the reserved memory configuration references a NUMA node {id} that does not exist on this machine"
            ));
        };
        for (name, amount) in &reservation.limits {
            sizes.insert(name.clone(), u64::try_from(Quantity::whole(amount)).unwrap_or(0));
        }
        crate::pod_facts::add_all(&mut sums, &reservation.limits);
    }
    let held = options.reservation.keys().filter(|name| is_memory(name));
    for name in sums.keys().chain(held).collect::<BTreeSet<_>>() {
        let amount = |list: &ResourceList| list.get(name).cloned().unwrap_or_default();
        let (sum, held) = (amount(&sums), amount(options.reservation));
        if sum != held {
            return Err(format!(
                "the total amount \"{sum}\" of type {name:?} is not equal to the value \"{held}\" determined by Node Allocatable feature"
            ));
        }
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::testing::object;
    use crate::resource_managers::topology::NumaNode;

    fn list(entries: &[(&str, &str)]) -> ResourceList {
        entries.iter().map(|(name, amount)| ((*name).to_owned(), amount.parse().unwrap())).collect()
    }

    fn machine() -> MachineTopology {
        let node = |id| NumaNode { id, memory: 4 << 30, ..NumaNode::default() };
        MachineTopology { nodes: vec![node(0), node(1)] }
    }

    fn made(
        policy: &str,
        held: &[(&str, &str)],
        reserved: &[(u32, &str)],
        directory: &Path,
    ) -> Result<MemoryManager, String> {
        let reserved: Vec<MemoryReservation> = reserved
            .iter()
            .map(|(node, amount)| MemoryReservation { node: *node, limits: list(&[("memory", amount)]) })
            .collect();
        MemoryManager::new(MemoryManagerOptions {
            policy,
            machine: &machine(),
            reservation: &list(held),
            reserved: &reserved,
            directory,
        })
    }

    #[test]
    fn reservations_of_nodes_are_those_of_the_machine() {
        let dir = tempfile::tempdir().unwrap();
        let error = |held: &[(&str, &str)], reserved: &[(u32, &str)]| {
            made("Static", held, reserved, dir.path()).err().unwrap_or_default()
        };
        let held = [("memory", "1Gi"), ("cpu", "1")];
        assert_eq!(error(&held, &[(0, "512Mi"), (1, "512Mi")]), "");
        assert_eq!(
            error(&held, &[(0, "512Mi")]),
            "the total amount \"512Mi\" of type \"memory\" is not equal to the value \"1Gi\" determined by Node Allocatable feature"
        );
        assert_eq!(
            error(&held, &[(7, "1Gi")]),
            "the reserved memory configuration references a NUMA node 7 that does not exist on this machine"
        );
        assert_eq!(error(&[], &[]), "[memorymanager] you should specify the system reserved memory");
    }

    #[test]
    fn assignments_survive_restarts_and_end_with_their_containers() {
        let dir = tempfile::tempdir().unwrap();
        let start = |policy: &str| made(policy, &[("memory", "1Gi")], &[(0, "1Gi")], dir.path());
        let pod: Pod = object(
            r#"{"metadata":{"uid":"p"},"spec":{
                "initContainers":[{"name":"i","resources":{"requests":{"cpu":"1","memory":"3Gi"},"limits":{"cpu":"1","memory":"3Gi"}}}],
                "containers":[{"name":"c","resources":{"requests":{"cpu":"1","memory":"2Gi"},"limits":{"cpu":"1","memory":"2Gi"}}}]}}"#,
        );
        let manager = start("Static").unwrap();
        for container in pod.spec.init_containers.iter().chain(&pod.spec.containers) {
            manager.allocate(&pod, container, TopologyHint::default()).unwrap();
        }
        assert_eq!(manager.nodes("p", "c"), BTreeSet::from([0]));
        assert_eq!(manager.blocks("p", "i")[0].size, 1 << 30);
        let manager = start("Static").unwrap();
        assert_eq!(manager.nodes("p", "c"), BTreeSet::from([0]));
        manager.container_started(&pod, "c");
        assert!(manager.nodes("p", "i").is_empty());
        let refused = start("None").err().unwrap();
        assert!(refused.starts_with("start memory manager error: could not restore state"), "{refused}");
        manager.retain(&ActiveContainers::default());
        assert!(manager.nodes("p", "c").is_empty());
        let all: u64 = manager.allocatable().iter().map(|it| it.size).sum();
        assert_eq!(all, 7 << 30);
    }
}
