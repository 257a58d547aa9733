//! The choice of CPUs: close to each other, or evenly from several NUMA nodes. Pure.

use super::topology::{CpuTopology, Level};
use crate::configuration::cpuset::CpuSet;
use std::collections::BTreeMap;

const NOT_ENOUGH: &str = "not enough cpus available to satisfy request";

/// CPUs that are still free, and those that are taken.
struct Accumulator<'a> {
    topology: &'a CpuTopology,
    free: CpuSet,
    taken: CpuSet,
    needed: usize,
}

impl<'a> Accumulator<'a> {
    fn new(topology: &'a CpuTopology, free: &CpuSet, needed: usize) -> Self {
        let free = free.intersection(&topology.cpus()).copied().collect();
        Accumulator { topology, free, taken: CpuSet::new(), needed }
    }

    /// Whether a node has one socket or more: then nodes are the larger groups.
    fn has_large_nodes(&self) -> bool {
        self.topology.all_groups(Level::Socket).len() >= self.topology.all_groups(Level::Node).len()
    }

    fn free_within(&self, level: Level, group: u32) -> CpuSet {
        self.topology.within(level, group, &self.free)
    }

    /// Groups of some CPUs that have free ones: those with few first, so that they are used up.
    fn fullest(&self, level: Level, cpus: &CpuSet) -> Vec<u32> {
        let mut groups: Vec<(usize, u32)> = self
            .topology
            .groups(level, cpus)
            .into_iter()
            .map(|group| (self.free_within(level, group).len(), group))
            .collect();
        groups.sort_unstable();
        groups.into_iter().map(|(_, group)| group).collect()
    }

    /// Groups with free CPUs. Those of a small level are ordered by the larger group that they are in.
    fn ordered(&self, level: Level) -> Vec<u32> {
        let above = match (level, self.has_large_nodes()) {
            (Level::Node, true) | (Level::Socket, false) => return self.fullest(level, &self.free),
            (Level::Socket, true) | (Level::Core, false) => Level::Node,
            (Level::Node, false) | (Level::Core, true) => Level::Socket,
        };
        let mut groups = Vec::new();
        for group in self.ordered(above) {
            let inside = self.fullest(level, &self.free_within(above, group));
            groups.extend(inside.into_iter().filter(|it| !groups.contains(it)).collect::<Vec<_>>());
        }
        groups
    }

    fn take(&mut self, cpus: &CpuSet) {
        self.free.retain(|cpu| !cpus.contains(cpu));
        self.taken.extend(cpus);
        self.needed = self.needed.saturating_sub(cpus.len());
    }

    /// Takes groups that are wholly free, as long as they fit.
    fn take_whole(&mut self, level: Level) {
        let all = self.topology.cpus();
        for group in self.ordered(level) {
            let whole = self.topology.within(level, group, &all);
            if whole.len() <= self.needed && whole.is_subset(&self.free) {
                self.take(&whole);
            }
        }
    }

    fn take_single(&mut self) {
        for core in self.ordered(Level::Core) {
            for cpu in self.free_within(Level::Core, core) {
                if self.needed == 0 {
                    return;
                }
                self.take(&CpuSet::from([cpu]));
            }
        }
    }
}

/// Takes CPUs close to each other: whole nodes, sockets and cores first, then single ones of cores in use.
pub fn take_packed(topology: &CpuTopology, free: &CpuSet, count: usize) -> Result<CpuSet, String> {
    let mut all = Accumulator::new(topology, free, count);
    if count > all.free.len() {
        return Err(NOT_ENOUGH.to_owned());
    }
    let levels = match all.has_large_nodes() {
        true => [Level::Node, Level::Socket, Level::Core],
        false => [Level::Socket, Level::Node, Level::Core],
    };
    for level in levels {
        all.take_whole(level);
    }
    all.take_single();
    Ok(all.taken)
}

/// How a request is spread over nodes.
struct Spread {
    nodes: Vec<u32>,
    /// CPUs from each of the nodes.
    each: usize,
    /// Nodes that give the rest, a group each in turns.
    rest: Vec<u32>,
}

/// Takes CPUs evenly from the smallest number of NUMA nodes that have enough, in groups of a size. Requests that are
/// no multiple of it, or that cannot be spread, are packed.
pub fn take_distributed(
    topology: &CpuTopology,
    free: &CpuSet,
    count: usize,
    group_size: usize,
) -> Result<CpuSet, String> {
    if group_size == 0 || !count.is_multiple_of(group_size) {
        return take_packed(topology, free, count);
    }
    let mut all = Accumulator::new(topology, free, count);
    if count == 0 {
        return Ok(all.taken);
    }
    if count > all.free.len() {
        return Err(NOT_ENOUGH.to_owned());
    }
    let nodes = all.ordered(Level::Node);
    let sizes: BTreeMap<u32, usize> =
        nodes.iter().map(|node| (*node, all.free_within(Level::Node, *node).len())).collect();
    let (least, most) = node_counts(topology, nodes.len(), count, group_size);
    let Some(spread) = (least..=most).find_map(|size| best_spread(&nodes, &sizes, size, count, group_size))
    else {
        return take_packed(topology, free, count);
    };
    for node in &spread.nodes {
        let cpus = take_packed(topology, &all.free_within(Level::Node, *node), spread.each)?;
        all.take(&cpus);
    }
    while all.needed > 0 {
        let before = all.needed;
        for node in &spread.rest {
            let inside = all.free_within(Level::Node, *node);
            if all.needed > 0 && inside.len() >= group_size {
                let cpus = take_packed(topology, &inside, group_size)?;
                all.take(&cpus);
            }
        }
        if all.needed == before {
            return Err(format!("accounting error, not enough CPUs allocated, remaining: {before}"));
        }
    }
    Ok(all.taken)
}

/// The smallest and the largest number of nodes that a request may be spread over.
fn node_counts(topology: &CpuTopology, available: usize, count: usize, group_size: usize) -> (usize, usize) {
    let groups = topology.cpus().len().div_ceil(group_size);
    let per_node = groups.div_ceil(topology.all_groups(Level::Node).len().max(1)).max(1);
    let needed = count.div_ceil(group_size);
    (needed.div_ceil(per_node), needed.min(available))
}

/// The spread over so many nodes that leaves the free CPUs of all nodes most alike.
fn best_spread(
    nodes: &[u32],
    sizes: &BTreeMap<u32, usize>,
    size: usize,
    count: usize,
    group_size: usize,
) -> Option<Spread> {
    let mut best: Option<(f64, Spread)> = None;
    for chosen in combinations(nodes, size) {
        if best.as_ref().is_some_and(|(balance, _)| *balance == 0.0) {
            break;
        }
        let groups: usize = chosen.iter().map(|node| sizes[node] / group_size).sum();
        let each = count / chosen.len() / group_size * group_size;
        if groups * group_size < count || chosen.iter().any(|node| sizes[node] < each) {
            continue;
        }
        let mut left = sizes.clone();
        for node in &chosen {
            left.entry(*node).and_modify(|size| *size -= each);
        }
        let Some((balance, rest)) = best_rest(&chosen, &left, count - each * chosen.len(), group_size) else {
            continue;
        };
        if best.as_ref().is_none_or(|(best, _)| balance < *best) {
            best = Some((balance, Spread { nodes: chosen, each, rest }));
        }
    }
    best.map(|(_, spread)| spread)
}

/// The nodes that give the rest of a request: as many as leave the free CPUs most alike.
fn best_rest(
    chosen: &[u32],
    left: &BTreeMap<u32, usize>,
    rest: usize,
    group_size: usize,
) -> Option<(f64, Vec<u32>)> {
    if rest == 0 {
        return Some((deviation(left.values()), Vec::new()));
    }
    let able: Vec<u32> = chosen.iter().copied().filter(|node| left[node] >= group_size).collect();
    let mut best: Option<(f64, Vec<u32>)> = None;
    for size in (1..=able.len()).rev() {
        for subset in combinations(&able, size) {
            let Some(after) = without_rest(left, &subset, rest, group_size) else { continue };
            let balance = deviation(after.values());
            if best.as_ref().is_none_or(|(best, _)| balance < *best) {
                best = Some((balance, subset));
            }
        }
    }
    best
}

/// The free CPUs of nodes after the rest is taken in turns, if the nodes have as much.
fn without_rest(
    left: &BTreeMap<u32, usize>,
    subset: &[u32],
    rest: usize,
    group_size: usize,
) -> Option<BTreeMap<u32, usize>> {
    let (mut left, mut rest) = (left.clone(), rest);
    while rest > 0 {
        let before = rest;
        for node in subset {
            let size = left.get_mut(node)?;
            if rest > 0 && *size >= group_size {
                *size -= group_size;
                rest -= group_size;
            }
        }
        if rest == before {
            return None;
        }
    }
    Some(left)
}

/// All choices of so many items, in the order of the items.
fn combinations(items: &[u32], size: usize) -> Vec<Vec<u32>> {
    match size {
        0 => vec![Vec::new()],
        _ => (0..items.len())
            .flat_map(|at| {
                let tails = combinations(&items[at + 1..], size - 1);
                tails.into_iter().map(move |tail| [vec![items[at]], tail].concat())
            })
            .collect(),
    }
}

/// The standard deviation, with three decimals so that sums in another order compare equal.
fn deviation<'a>(values: impl Iterator<Item = &'a usize> + Clone) -> f64 {
    let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
    // numbers of CPUs are small
    let count = values.clone().count() as f64;
    let mean = rounded(values.clone().sum::<usize>() as f64 / count);
    let squares: f64 = values.map(|value| (*value as f64 - mean).powi(2)).sum();
    rounded((squares / count).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::cpuset;
    use crate::resource_managers::cpu::topology::testing::topology;

    /// A row of results of upstream: machine, free CPUs, count, group size (0 for packed), CPUs.
    fn check(row: &str) -> Result<(), String> {
        let columns: Vec<&str> = row.split('|').collect();
        let [machine, free, count, group_size, expected] = columns[..] else { panic!("{row}") };
        let (topology, free) = (topology(machine), cpuset::parse(free).unwrap());
        let count: usize = count.parse().unwrap();
        let found = match group_size.parse().unwrap() {
            0 => take_packed(&topology, &free, count),
            size => take_distributed(&topology, &free, count, size),
        };
        let found = found.map_or_else(|why| format!("error: {why}"), |cpus| cpuset::format(&cpus));
        if found == expected { Ok(()) } else { Err(format!("{row}: {found}")) }
    }

    #[test]
    fn cpus_are_chosen_as_upstream_does() {
        let wrong: Vec<String> =
            include_str!("assignments.txt").lines().filter_map(|row| check(row).err()).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn rests_that_no_node_can_give_are_packed() {
        // each node has three free CPUs: two groups of two, but not three
        let topology = topology("1 2 8 1 0");
        let free = cpuset::parse("0-2,4-6").unwrap();
        let taken = take_distributed(&topology, &free, 6, 2).unwrap();
        assert_eq!(cpuset::format(&taken), "0-2,4-6");
    }

    #[test]
    fn cpus_of_uneven_machines_are_taken_at_most_once() {
        let mut places: Vec<_> = Vec::new();
        for (cpu, node) in [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 1)] {
            let place = super::super::topology::CpuPlace { node, socket: node, core: cpu };
            places.push((cpu, place));
        }
        let topology: CpuTopology = places.into_iter().collect();
        let free = cpuset::parse("1-3,5").unwrap();
        assert_eq!(cpuset::format(&take_packed(&topology, &free, 3).unwrap()), "1-2,5");
    }
}
