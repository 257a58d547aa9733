//! The static policy: memory of Guaranteed pods comes from as few NUMA nodes as have it.
//!
//! A node is used either alone or always with the same other nodes, so that containers that share nodes also share
//! their memory.

use super::state::{MemoryBlock, MemoryState, MemoryTable, NodeState};
use crate::pod_facts::{MEMORY, QosClass, hugepage_resource, hugepage_size, qos_class};
use crate::resource_managers::topology::{MachineTopology, NumaMask, ProviderHints, TopologyHint};
use api::Quantity;
use api::core::v1::{Container, Pod};
use std::collections::BTreeMap;

/// Amounts by resource.
pub type Sizes = BTreeMap<String, u64>;

/// Nodes above which sets of nodes are too many to compare.
const MAX_NODES: usize = 16;

/// See the module.
#[derive(Debug)]
pub struct StaticPolicy {
    machine: MachineTopology,
    /// Memory that is held back, by node.
    reserved: BTreeMap<u32, Sizes>,
    /// The pod that is admitted now, and memory of its init containers that its other containers may have, by nodes.
    reusable: (String, BTreeMap<NumaMask, Sizes>),
}

fn is_memory(resource: &str) -> bool {
    resource == MEMORY || hugepage_size(resource).is_some()
}

/// The memory that a container requests.
fn requested(container: &Container) -> Sizes {
    let requests = container.resources.requests.iter().filter(|(name, _)| is_memory(name));
    requests
        .map(|(name, amount)| (name.clone(), u64::try_from(Quantity::whole(amount)).unwrap_or(0)))
        .collect()
}

/// The same for a whole pod: the sum of its containers, or the largest init container.
fn requested_by_pod(pod: &Pod) -> Sizes {
    let mut sum = Sizes::new();
    for (name, size) in pod.spec.containers.iter().flat_map(requested) {
        *sum.entry(name).or_default() += size;
    }
    for (name, size) in pod.spec.init_containers.iter().flat_map(requested) {
        if let Some(sum) = sum.get_mut(&name) {
            *sum = size.max(*sum);
        }
    }
    sum
}

fn is_guaranteed(pod: &Pod) -> bool {
    qos_class(pod) == QosClass::Guaranteed
}

impl NodeState {
    fn table(&self, resource: &str) -> MemoryTable {
        self.tables.get(resource).copied().unwrap_or_default()
    }

    /// Assigns memory of this node, as far as it has it. Returns what is left to assign.
    fn reserve(&mut self, resource: &str, size: u64) -> u64 {
        let Some(table) = self.tables.get_mut(resource) else { return size };
        let taken = table.free.min(size);
        table.reserved += taken;
        table.free -= taken;
        size - taken
    }

    /// Gives memory back. Returns what other nodes have to give back.
    fn release(&mut self, resource: &str, size: u64) -> u64 {
        let Some(table) = self.tables.get_mut(resource) else { return size };
        let given = table.reserved.min(size);
        table.reserved -= given;
        table.free += given;
        size - given
    }
}

impl MemoryState {
    /// Counts a block on its nodes, and assigns memory of them.
    fn assign(&mut self, nodes: &[u32], resource: &str, size: u64) {
        let mut left = size;
        for id in nodes {
            let Some(node) = self.nodes.get_mut(id) else { continue };
            node.assignments += 1;
            node.group = nodes.to_vec();
            left = node.reserve(resource, left);
        }
    }
}

impl StaticPolicy {
    pub fn new(machine: MachineTopology, reserved: BTreeMap<u32, Sizes>) -> Result<Self, String> {
        if machine.nodes.len() > MAX_NODES {
            return Err(format!(
                "[memorymanager] unsupported on machines with more than {MAX_NODES} NUMA Nodes"
            ));
        }
        match reserved.values().filter_map(|sizes| sizes.get(MEMORY)).any(|size| *size > 0) {
            true => Ok(StaticPolicy { machine, reserved, reusable: Default::default() }),
            false => Err("[memorymanager] you should specify the system reserved memory".to_owned()),
        }
    }

    /// The nodes of a machine without pods.
    fn empty_nodes(&self) -> BTreeMap<u32, NodeState> {
        let held = |id: u32, name: &str| {
            self.reserved.get(&id).and_then(|sizes| sizes.get(name)).copied().unwrap_or(0)
        };
        let table = |total: u64, system_reserved: u64, others: u64| {
            let allocatable = total.saturating_sub(system_reserved).saturating_sub(others);
            MemoryTable { total, system_reserved, allocatable, reserved: 0, free: allocatable }
        };
        let node = |node: &crate::resource_managers::topology::NumaNode| {
            let mut tables = BTreeMap::new();
            let mut pages = 0u64;
            for (size, count) in &node.hugepages {
                let name = hugepage_resource(i64::try_from(*size).unwrap_or(i64::MAX));
                let total = size.saturating_mul(*count);
                tables.insert(name.clone(), table(total, held(node.id, &name), 0));
                pages = pages.saturating_add(total);
            }
            // huge pages are taken from memory
            tables.insert(MEMORY.to_owned(), table(node.memory, held(node.id, MEMORY), pages));
            (node.id, NodeState { assignments: 0, tables, group: vec![node.id] })
        };
        self.machine.nodes.iter().map(node).collect()
    }

    /// Fills an empty state, or checks one that was read.
    pub fn start(&self, state: &mut MemoryState) -> Result<(), String> {
        if state.nodes.is_empty() {
            if !state.assignments.is_empty() {
                return Err("[memorymanager] machine state can not be empty when it has memory assignments"
                    .to_owned());
            }
            state.nodes = self.empty_nodes();
            return Ok(());
        }
        let mut expected = MemoryState { nodes: self.empty_nodes(), ..MemoryState::default() };
        for (uid, containers) in &state.assignments {
            for (name, blocks) in containers {
                for block in blocks {
                    let node = |id: &u32| expected.nodes.get(id);
                    let at = format!("[memorymanager] (pod: {uid}, container: {name})");
                    if block.nodes.iter().any(|id| node(id).is_none()) {
                        return Err(format!("{at} the memory assignment uses the NUMA that does not exist"));
                    }
                    let has_table = |id| node(id).is_some_and(|it| it.tables.contains_key(&block.resource));
                    if !block.nodes.iter().all(has_table) {
                        return Err(format!(
                            "{at} the memory assignment uses memory resource that does not exist"
                        ));
                    }
                    expected.assign(&block.nodes, &block.resource, block.size);
                }
            }
        }
        let sorted = |nodes: &BTreeMap<u32, NodeState>| {
            let mut nodes = nodes.clone();
            nodes.values_mut().for_each(|node| node.group.sort_unstable());
            nodes
        };
        match sorted(&state.nodes) == sorted(&expected.nodes) {
            true => Ok(()),
            false => {
                Err("[memorymanager] the expected machine state is different from the real one".to_owned())
            }
        }
    }

    pub fn is_needed(&self, pod: &Pod) -> bool {
        is_guaranteed(pod)
    }

    /// Assigns memory to a container: from the nodes of a hint, from more if they have not enough, from the best ones
    /// without a hint.
    pub fn allocate(
        &mut self,
        state: &mut MemoryState,
        pod: &Pod,
        container: &Container,
        hint: TopologyHint,
    ) -> Result<(), String> {
        if !is_guaranteed(pod) {
            return Ok(());
        }
        let uid = &pod.metadata.uid;
        if let Some(blocks) = state.blocks(uid, &container.name).cloned() {
            self.update_reusable(pod, container, &blocks);
            return Ok(());
        }
        let sizes = requested(container);
        let nodes = self.choose(state, uid, &sizes, hint)?;
        let list: Vec<u32> = nodes.nodes().collect();
        let mut blocks = Vec::new();
        for (resource, &size) in &sizes {
            blocks.push(MemoryBlock { nodes: list.clone(), resource: resource.clone(), size });
            let left = size.saturating_sub(self.reusable(uid, nodes, resource));
            state.assign(&list, resource, left);
        }
        self.update_reusable(pod, container, &blocks);
        state.set_blocks(uid, &container.name, blocks.clone());
        shrink_init_blocks(state, pod, container, &blocks);
        Ok(())
    }

    fn choose(
        &self,
        state: &MemoryState,
        uid: &str,
        sizes: &Sizes,
        hint: TopologyHint,
    ) -> Result<NumaMask, String> {
        let best = |hints: Vec<TopologyHint>| {
            let masks = hints.into_iter().filter_map(|it| Some((it.affinity?, it.is_preferred)));
            masks.min_by_key(|(mask, is_preferred)| (!is_preferred, mask.count(), mask.bits()))
        };
        let (mask, is_preferred) = match hint.affinity {
            Some(mask) => (mask, hint.is_preferred),
            None => {
                let found = best(self.hints(state, uid, sizes)).ok_or(
                    "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available",
                )?;
                if hint.is_preferred && !found.1 {
                    return Err("[memorymanager] failed to find the default preferred hint".to_owned());
                }
                found
            }
        };
        let free = |resource: &str| -> u64 {
            let nodes = mask.nodes().filter_map(|id| state.nodes.get(&id));
            nodes.map(|node| node.table(resource).free).sum()
        };
        if sizes.iter().any(|(resource, size)| free(resource) < *size) {
            let mut hints = self.hints(state, uid, sizes);
            hints.retain(|it| it.affinity.is_some_and(|wider| wider.includes(mask)));
            let found = best(hints)
                .ok_or("[memorymanager] failed to find NUMA nodes to extend the current topology hint")?;
            if is_preferred && !found.1 {
                return Err("[memorymanager] failed to find the extended preferred hint".to_owned());
            }
            return Ok(found.0);
        }
        Ok(mask)
    }

    fn reusable(&self, uid: &str, nodes: NumaMask, resource: &str) -> u64 {
        let (pod, by_nodes) = &self.reusable;
        let sizes = by_nodes.get(&nodes).filter(|_| pod == uid);
        sizes.and_then(|sizes| sizes.get(resource)).copied().unwrap_or(0)
    }

    /// Adds the memory of an init container to what others may have, or takes off what another container has of it.
    fn update_reusable(&mut self, pod: &Pod, container: &Container, blocks: &[MemoryBlock]) {
        let uid = &pod.metadata.uid;
        if self.reusable.0 != *uid {
            self.reusable = (uid.clone(), BTreeMap::new());
        }
        let is_init = pod.spec.init_containers.iter().any(|it| it.name == container.name);
        for block in blocks {
            let sizes = self.reusable.1.entry(block.nodes.iter().copied().collect()).or_default();
            let size = sizes.entry(block.resource.clone()).or_default();
            *size = if is_init { block.size.max(*size) } else { size.saturating_sub(block.size) };
        }
    }

    /// Gives the memory of a container back.
    pub fn remove(&self, state: &mut MemoryState, uid: &str, container: &str) {
        for block in state.remove_blocks(uid, container).unwrap_or_default() {
            let mut left = block.size;
            for id in &block.nodes {
                let Some(node) = state.nodes.get_mut(id) else { continue };
                node.assignments -= 1;
                if node.assignments == 0 {
                    node.group = vec![*id];
                }
                left = node.release(&block.resource, left);
            }
        }
    }

    pub fn container_hints(&self, state: &MemoryState, pod: &Pod, container: &Container) -> ProviderHints {
        if !is_guaranteed(pod) {
            return ProviderHints::new();
        }
        let sizes = requested(container);
        match state.blocks(&pod.metadata.uid, &container.name) {
            Some(blocks) => assigned_hints(blocks, &sizes),
            None => self.resource_hints(state, pod, &sizes),
        }
    }

    pub fn pod_hints(&self, state: &MemoryState, pod: &Pod) -> ProviderHints {
        if !is_guaranteed(pod) {
            return ProviderHints::new();
        }
        let sizes = requested_by_pod(pod);
        let mut containers = pod.spec.init_containers.iter().chain(&pod.spec.containers);
        match containers.find_map(|it| state.blocks(&pod.metadata.uid, &it.name)) {
            Some(blocks) => assigned_hints(blocks, &sizes),
            None => self.resource_hints(state, pod, &sizes),
        }
    }

    /// The same hints for each resource.
    fn resource_hints(&self, state: &MemoryState, pod: &Pod, sizes: &Sizes) -> ProviderHints {
        let hints = self.hints(state, &pod.metadata.uid, sizes);
        match hints.is_empty() {
            true => ProviderHints::new(),
            false => sizes.keys().map(|name| (name.clone(), Some(hints.clone()))).collect(),
        }
    }

    /// Sets of nodes that have enough memory of all kinds.
    fn hints(&self, state: &MemoryState, uid: &str, sizes: &Sizes) -> Vec<TopologyHint> {
        let ids: Vec<u32> = state.nodes.keys().copied().collect();
        let mut fewest = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        let mut masks = Vec::new();
        for mask in NumaMask::all_of(&ids) {
            let nodes = || mask.nodes().filter_map(|id| state.nodes.get(&id));
            let sum = |resource: &str, amount: fn(MemoryTable) -> u64| -> u64 {
                nodes().map(|node| amount(node.table(resource))).sum()
            };
            if sizes.iter().any(|(resource, size)| sum(resource, |it| it.allocatable) < *size) {
                continue;
            }
            fewest = fewest.min(mask.count());
            let is_usable = match mask.count() {
                1 => nodes().all(|node| node.group.len() == 1),
                // the nodes are unused, or used together
                _ => nodes().all(|node| {
                    let group: NumaMask = node.group.iter().copied().collect();
                    node.assignments == 0 || node.group.len() > 1 && group == mask
                }),
            };
            let has_free = |(resource, size): (&String, &u64)| {
                sum(resource, |it| it.free) + self.reusable(uid, mask, resource) >= *size
            };
            if is_usable && sizes.iter().all(has_free) {
                masks.push(mask);
            }
        }
        masks.into_iter().map(|mask| TopologyHint::new(mask, mask.count() == fewest)).collect()
    }
}

/// The hints of memory that is assigned already. Memory of another size has none.
fn assigned_hints(blocks: &[MemoryBlock], sizes: &Sizes) -> ProviderHints {
    let is_same = |block: &MemoryBlock| sizes.get(&block.resource) == Some(&block.size);
    if blocks.len() != sizes.len() || !blocks.iter().all(is_same) {
        return ProviderHints::new();
    }
    let hint = |block: &MemoryBlock| {
        let hint = TopologyHint::new(block.nodes.iter().copied().collect(), true);
        (block.resource.clone(), Some(vec![hint]))
    };
    blocks.iter().map(hint).collect()
}

/// Takes memory that a container has from init containers before it off their blocks, so that all blocks of a pod
/// together are what it has.
fn shrink_init_blocks(state: &mut MemoryState, pod: &Pod, container: &Container, blocks: &[MemoryBlock]) {
    let uid = &pod.metadata.uid;
    let mask = |nodes: &[u32]| nodes.iter().copied().collect::<NumaMask>();
    for block in blocks {
        let mut left = block.size;
        for init in pod.spec.init_containers.iter().take_while(|it| it.name != container.name) {
            let own = state.assignments.get_mut(uid).and_then(|all| all.get_mut(&init.name));
            for own in own.into_iter().flatten() {
                if own.resource == block.resource && mask(&own.nodes) == mask(&block.nodes) {
                    let taken = own.size.min(left);
                    own.size -= taken;
                    left -= taken;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
