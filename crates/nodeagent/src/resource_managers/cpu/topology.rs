//! The CPUs of the machine: which core, socket and NUMA node each belongs to.

use crate::configuration::cpuset::CpuSet;
use crate::resource_managers::topology::{MachineTopology, NumaMask};
use std::collections::{BTreeMap, BTreeSet};

/// The place of a CPU. The number of a core is that of its lowest CPU, so that it is unique on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuPlace {
    pub node: u32,
    pub socket: u32,
    pub core: u32,
}

/// A kind of group of CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Node,
    Socket,
    Core,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuTopology {
    places: BTreeMap<u32, CpuPlace>,
}

impl FromIterator<(u32, CpuPlace)> for CpuTopology {
    fn from_iter<I: IntoIterator<Item = (u32, CpuPlace)>>(places: I) -> Self {
        CpuTopology { places: places.into_iter().collect() }
    }
}

impl CpuTopology {
    pub fn new(machine: &MachineTopology) -> Self {
        let cores = machine.nodes.iter().flat_map(|node| node.cores.iter().map(|core| (node.id, core)));
        cores
            .filter_map(|(node, core)| {
                let place = CpuPlace { node, socket: core.socket, core: *core.threads.first()? };
                Some(core.threads.iter().map(move |cpu| (*cpu, place)))
            })
            .flatten()
            .collect()
    }

    pub fn cpus(&self) -> CpuSet {
        self.places.keys().copied().collect()
    }

    /// The group of a CPU.
    pub fn group(&self, level: Level, cpu: u32) -> Option<u32> {
        self.places.get(&cpu).map(|place| match level {
            Level::Node => place.node,
            Level::Socket => place.socket,
            Level::Core => place.core,
        })
    }

    /// The groups that some CPUs are in.
    pub fn groups(&self, level: Level, cpus: &CpuSet) -> BTreeSet<u32> {
        cpus.iter().filter_map(|cpu| self.group(level, *cpu)).collect()
    }

    /// All groups of a level.
    pub fn all_groups(&self, level: Level) -> BTreeSet<u32> {
        self.groups(level, &self.cpus())
    }

    /// Those of some CPUs that are in a group.
    pub fn within(&self, level: Level, group: u32, cpus: &CpuSet) -> CpuSet {
        cpus.iter().copied().filter(|cpu| self.group(level, *cpu) == Some(group)).collect()
    }

    /// Those of some CPUs that are in one of the nodes.
    pub fn within_nodes(&self, nodes: NumaMask, cpus: &CpuSet) -> CpuSet {
        let is_within = |cpu: &u32| self.group(Level::Node, *cpu).is_some_and(|node| nodes.contains(node));
        cpus.iter().copied().filter(is_within).collect()
    }

    /// The sockets of nodes.
    pub fn sockets_of(&self, nodes: NumaMask) -> BTreeSet<u32> {
        self.groups(Level::Socket, &self.within_nodes(nodes, &self.cpus()))
    }

    /// The CPUs of a core, on a machine whose cores are alike.
    pub fn cpus_per_core(&self) -> usize {
        self.places.len().checked_div(self.all_groups(Level::Core).len()).unwrap_or(0)
    }
}

#[cfg(test)]
pub mod testing {
    use super::*;

    /// A machine of so many sockets, nodes and cores, with so many threads each: `2 4 8 2 0`. The last number says
    /// whether the threads of a core have adjacent numbers.
    pub fn topology(text: &str) -> CpuTopology {
        let numbers: Vec<u32> = text.split(' ').map(|it| it.parse().unwrap()).collect();
        let [sockets, nodes, cores, threads, is_adjacent] = numbers[..] else { panic!("{text}") };
        let places = (0..cores).flat_map(|at| {
            (0..threads).map(move |thread| {
                let (cpu, core) = match is_adjacent {
                    0 => (thread * cores + at, at),
                    _ => (at * threads + thread, at * threads),
                };
                (cpu, CpuPlace { node: at / (cores / nodes), socket: at / (cores / sockets), core })
            })
        });
        places.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource_managers::topology::{Core, NumaNode};

    #[test]
    fn cores_are_numbered_by_their_lowest_cpu() {
        let core = |threads: &[u32]| Core { socket: 7, threads: threads.iter().copied().collect() };
        let node =
            NumaNode { id: 1, cores: vec![core(&[5, 1]), core(&[]), core(&[2])], ..NumaNode::default() };
        let topology = CpuTopology::new(&MachineTopology { nodes: vec![node] });
        let place = |core| Some(CpuPlace { node: 1, socket: 7, core });
        assert_eq!([1, 2, 5].map(|cpu| topology.places.get(&cpu).copied()), [place(1), place(2), place(1)]);
        assert_eq!(topology.cpus_per_core(), 1);
        assert_eq!(CpuTopology::default().cpus_per_core(), 0);
    }
}
