//! Hints: the NUMA nodes from which devices could come.

use super::device::{Device, DeviceIds};
use crate::resource_managers::topology::{NumaMask, TopologyHint};
use std::collections::BTreeMap;

/// Sets of nodes that have enough devices, and all that are to be used again.
pub fn hints(
    devices: &BTreeMap<String, Device>,
    available: &DeviceIds,
    reusable: &DeviceIds,
    count: usize,
    nodes: &[u32],
) -> Vec<TopologyHint> {
    let is_within = |id: &String, mask| devices.get(id).is_some_and(|device| device.is_within(mask));
    let mut fewest = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    let mut masks = Vec::new();
    for mask in NumaMask::all_of(nodes) {
        if devices.values().filter(|device| device.is_within(mask)).count() >= count {
            fewest = fewest.min(mask.count());
        }
        // devices without nodes may come from anywhere, and help no set of nodes
        let placed = reusable.iter().filter(|id| devices.get(*id).is_some_and(|it| !it.nodes.is_empty()));
        let (within, outside): (Vec<&String>, Vec<&String>) = placed.partition(|id| is_within(id, mask));
        let matching = within.len() + available.iter().filter(|id| is_within(id, mask)).count();
        if outside.is_empty() && matching >= count {
            masks.push(mask);
        }
    }
    masks.into_iter().map(|mask| TopologyHint::new(mask, mask.count() == fewest)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> DeviceIds {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn sets_of_nodes_need_enough_devices() {
        let device = |nodes: &[i64]| Device { nodes: nodes.to_vec(), is_healthy: true };
        let devices: BTreeMap<String, Device> = [
            ("a", device(&[0])),
            ("b", device(&[1])),
            ("c", device(&[1])),
            ("d", device(&[])),
            ("e", device(&[0, 1])),
        ]
        .into_iter()
        .map(|(id, device)| (id.to_owned(), device))
        .collect();
        let check = |available: &str, reusable: &str, count: usize, expected: &[(u64, bool)]| {
            let found = hints(&devices, &ids(available), &ids(reusable), count, &[0, 1]);
            let shown: Vec<(u64, bool)> =
                found.iter().map(|it| (it.affinity.unwrap().bits(), it.is_preferred)).collect();
            assert_eq!(shown, expected, "{available} {reusable} {count}");
        };
        check("a b c d e", "", 1, &[(1, true), (2, true), (3, false)]);
        check("a b c d e", "", 3, &[(2, true), (3, false)]);
        // a single node could have two, but not now
        check("a b", "", 2, &[(3, false)]);
        check("a b c d e", "", 4, &[(3, true)]);
        check("a b c d e", "", 5, &[]);
        // devices of init containers bind the others to their nodes
        check("a c e", "b", 2, &[(2, true), (3, false)]);
        check("a c e", "d", 1, &[(1, true), (2, true), (3, false)]);
    }
}
