//! The NUMA nodes of the machine, from the files below `/sys`.
//!
//! A kernel without NUMA nodes has one for each socket, with no memory of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

const NODES: &str = "sys/devices/system/node";
const CPUS: &str = "sys/devices/system/cpu";

/// A physical core: its socket, and its CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Core {
    pub socket: u32,
    pub threads: BTreeSet<u32>,
}

/// A NUMA node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NumaNode {
    pub id: u32,
    pub cores: Vec<Core>,
    /// Bytes.
    pub memory: u64,
    /// Page sizes in bytes, and the number of pages of each.
    pub hugepages: Vec<(u64, u64)>,
    /// Distances to all nodes, if the kernel shows them.
    pub distances: Option<Vec<u64>>,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineTopology {
    pub nodes: Vec<NumaNode>,
}

impl MachineTopology {
    /// Reads the files below a root, which is `/` but for tests.
    pub fn read(root: &Path) -> Self {
        let mut nodes: Vec<NumaNode> = numbered(&root.join(NODES), "node")
            .into_iter()
            .map(|(id, path)| NumaNode {
                id,
                cores: cores(&numbered(&path, "cpu"), None),
                memory: memory(&read_to_string(path.join("meminfo")).unwrap_or_default()),
                hugepages: hugepages(&path.join("hugepages")),
                distances: distances(&path.join("distance")),
            })
            .collect();
        if nodes.is_empty() {
            let cpus = numbered(&root.join(CPUS), "cpu");
            let sockets: BTreeSet<u32> = cpus.iter().filter_map(|(_, path)| socket(path)).collect();
            nodes = sockets
                .into_iter()
                .map(|id| NumaNode { id, cores: cores(&cpus, Some(id)), ..NumaNode::default() })
                .collect();
        }
        MachineTopology { nodes }
    }

    pub fn node_ids(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| node.id).collect()
    }
}

/// The entries of a directory whose names are a prefix and a number, in the order of the numbers.
fn numbered(directory: &Path, prefix: &str) -> Vec<(u32, PathBuf)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            Some((name.strip_prefix(prefix)?.parse().ok()?, entry.path()))
        })
        .collect();
    found.sort_unstable();
    found
}

fn number(path: PathBuf) -> Option<u32> {
    read_to_string(path).ok()?.trim().parse().ok()
}

fn socket(cpu: &Path) -> Option<u32> {
    number(cpu.join("topology/physical_package_id"))
}

/// The cores of CPUs that are online, of one socket or all.
fn cores(cpus: &[(u32, PathBuf)], only: Option<u32>) -> Vec<Core> {
    let mut cores: BTreeMap<(u32, u32), BTreeSet<u32>> = BTreeMap::new();
    for (cpu, path) in cpus {
        // the first CPU of many machines has no such file, as it cannot be turned off
        let is_online = read_to_string(path.join("online")).map_or(true, |text| text.trim() == "1");
        let place = socket(path).zip(number(path.join("topology/core_id")));
        let Some((socket, core)) = place.filter(|_| is_online) else { continue };
        if only.is_none_or(|only| only == socket) {
            cores.entry((socket, core)).or_default().insert(*cpu);
        }
    }
    cores.into_iter().map(|((socket, _), threads)| Core { socket, threads }).collect()
}

/// `Node 0 MemTotal:  16326788 kB`, in bytes.
fn memory(meminfo: &str) -> u64 {
    let amount = meminfo.lines().find_map(|line| line.split_once("MemTotal:").map(|(_, rest)| rest.trim()));
    let kilobytes = amount.and_then(|text| text.strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0).saturating_mul(1024)
}

fn hugepages(directory: &Path) -> Vec<(u64, u64)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut sizes: Vec<(u64, u64)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let size: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let pages = read_to_string(entry.path().join("nr_hugepages")).unwrap_or_default();
            Some((size.saturating_mul(1024), pages.trim().parse().unwrap_or(0)))
        })
        .collect();
    sizes.sort_unstable();
    sizes
}

fn distances(file: &Path) -> Option<Vec<u64>> {
    let text = read_to_string(file).ok()?;
    text.split_whitespace().map(|it| it.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> MachineTopology {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join("sys/devices/system").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        MachineTopology::read(dir.path())
    }

    #[test]
    fn nodes_have_cores_memory_pages_and_distances() {
        let found = machine(&[
            ("node/node0/cpu0/topology/core_id", "0\n"),
            ("node/node0/cpu0/topology/physical_package_id", "0\n"),
            ("node/node0/cpu2/topology/core_id", "0\n"),
            ("node/node0/cpu2/topology/physical_package_id", "0\n"),
            ("node/node0/cpu4/topology/core_id", "1\n"),
            ("node/node0/cpu4/topology/physical_package_id", "0\n"),
            ("node/node0/cpu4/online", "0\n"),
            ("node/node0/meminfo", "Node 0 MemTotal:       1024 kB\nNode 0 MemFree: 1 kB\n"),
            ("node/node0/hugepages/hugepages-2048kB/nr_hugepages", "3\n"),
            ("node/node0/distance", "10 21\n"),
            ("node/node1/cpu1/topology/core_id", "0\n"),
            ("node/node1/cpu1/topology/physical_package_id", "1\n"),
            ("node/node1/cpu1/online", "1\n"),
            ("node/node10/meminfo", ""),
            ("node/possible", "0-1\n"),
        ]);
        let core = |socket, threads: &[u32]| Core { socket, threads: threads.iter().copied().collect() };
        let first = NumaNode {
            id: 0,
            cores: vec![core(0, &[0, 2])],
            memory: 1 << 20,
            hugepages: vec![(2 << 20, 3)],
            distances: Some(vec![10, 21]),
        };
        let second = NumaNode { id: 1, cores: vec![core(1, &[1])], ..NumaNode::default() };
        let third = NumaNode { id: 10, ..NumaNode::default() };
        assert_eq!(found.nodes, [first, second, third]);
    }

    #[test]
    fn machines_without_nodes_have_one_per_socket() {
        let found = machine(&[
            ("cpu/cpu0/topology/core_id", "0"),
            ("cpu/cpu0/topology/physical_package_id", "0"),
            ("cpu/cpu1/topology/core_id", "0"),
            ("cpu/cpu1/topology/physical_package_id", "3"),
            ("cpu/cpufreq/x", ""),
        ]);
        assert_eq!(found.node_ids(), [0, 3]);
        assert_eq!(found.nodes[1].cores, [Core { socket: 3, threads: BTreeSet::from([1]) }]);
    }
}
