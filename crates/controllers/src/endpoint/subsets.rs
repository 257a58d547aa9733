//! The canonical form of endpoint subsets: addresses with the same ports are in one subset, and everything is sorted.

use api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset};
use std::collections::{BTreeMap, BTreeSet};

/// The identity of an address: IP and uid of the target.
type AddressKey = (String, String);

fn address_key(address: &EndpointAddress) -> AddressKey {
    let uid = address.target_ref.as_ref().map(|it| it.uid.clone());
    (address.ip.clone(), uid.unwrap_or_default())
}

/// The identity of a port.
type PortKey = (String, i32, String, String);

fn port_key(port: &EndpointPort) -> PortKey {
    let app_protocol = port.app_protocol.clone().unwrap_or_default();
    (port.name.clone(), port.port, port.protocol.clone(), app_protocol)
}

/// The addresses of a port, and whether they are ready for it.
type Readiness = BTreeMap<AddressKey, bool>;

/// Merges subsets. An address that is ready for a port in one subset is ready for it.
pub fn repack(subsets: Vec<EndpointSubset>) -> Vec<EndpointSubset> {
    let mut addresses: BTreeMap<AddressKey, EndpointAddress> = BTreeMap::new();
    // the addresses of each port, and whether they are ready; addresses without ports have the key `None`
    let mut by_port: BTreeMap<Option<PortKey>, (Option<EndpointPort>, Readiness)> = BTreeMap::new();
    for subset in subsets {
        let ports: Vec<Option<EndpointPort>> = match subset.ports.is_empty() {
            true => vec![None],
            false => subset.ports.into_iter().map(Some).collect(),
        };
        let ready = subset.addresses.into_iter().map(|it| (it, true));
        let not_ready = subset.not_ready_addresses.into_iter().map(|it| (it, false));
        for (address, ready) in ready.chain(not_ready) {
            let key = address_key(&address);
            for port in &ports {
                let entry = by_port.entry(port.as_ref().map(port_key));
                let (_, readiness) = entry.or_insert_with(|| (port.clone(), Readiness::new()));
                *readiness.entry(key.clone()).or_insert(false) |= ready;
            }
            addresses.entry(key).or_insert(address);
        }
    }
    let mut by_addresses: BTreeMap<Readiness, Vec<EndpointPort>> = BTreeMap::new();
    for (port, readiness) in by_port.into_values() {
        by_addresses.entry(readiness).or_default().extend(port);
    }
    let mut packed: Vec<EndpointSubset> = Vec::new();
    for (readiness, ports) in by_addresses {
        let with = |wanted: bool| {
            let keys = readiness.iter().filter(|(_, ready)| **ready == wanted);
            keys.filter_map(|(key, _)| addresses.get(key).cloned()).collect()
        };
        packed.push(EndpointSubset {
            addresses: with(true),
            not_ready_addresses: with(false),
            ports,
            ..EndpointSubset::default()
        });
    }
    packed
}

/// The subsets without resource versions and without order, for comparison.
pub fn comparable(subsets: &[EndpointSubset]) -> BTreeSet<Vec<u8>> {
    let mut subsets = subsets.to_vec();
    for subset in &mut subsets {
        for address in subset.addresses.iter_mut().chain(&mut subset.not_ready_addresses) {
            if let Some(target) = &mut address.target_ref {
                target.resource_version.clear();
            }
        }
    }
    repack(subsets).iter().map(api::to_json).collect()
}

fn count(subset: &EndpointSubset) -> (usize, usize) {
    (subset.addresses.len(), subset.not_ready_addresses.len())
}

/// Truncates to a number of addresses, ready ones first, in proportion to the size of each subset. Returns whether any
/// were removed.
pub fn truncate(subsets: &mut Vec<EndpointSubset>, most: usize) -> bool {
    let counts = subsets.iter().map(count);
    let (ready, not_ready) = counts.fold((0, 0), |(a, b), (ready, not_ready)| (a + ready, b + not_ready));
    if ready + not_ready <= most {
        return false;
    }
    let cut_ready = ready > most;
    let (room, total) = if cut_ready { (most, ready) } else { (most - ready, not_ready) };
    let mut left = room;
    for subset in subsets.iter_mut() {
        if cut_ready {
            subset.not_ready_addresses.clear();
        }
        let addresses = if cut_ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        // rounded up: the last subset may get less
        let share = (addresses.len() * room).div_ceil(total.max(1)).min(left);
        addresses.truncate(share);
        left -= addresses.len();
    }
    subsets.retain(|it| count(it) != (0, 0));
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use client::json_value;
    use serde_json::{Value, json};

    fn subsets(json: Value) -> Vec<EndpointSubset> {
        object(json)
    }

    #[test]
    fn addresses_with_the_same_ports_are_in_one_subset() {
        let packed = repack(subsets(json!([
            {"addresses": [{"ip": "10.0.0.2"}], "ports": [{"port": 80}]},
            {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]},
            {"notReadyAddresses": [{"ip": "10.0.0.3"}], "ports": [{"port": 80}]},
            {"addresses": [{"ip": "10.0.0.2"}], "ports": [{"port": 443}]},
            {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 443}]},
            {"notReadyAddresses": [{"ip": "10.0.0.3"}], "ports": [{"port": 443}]},
            {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 9}]},
            {"notReadyAddresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 9}]},
        ])));
        let expected = json!([
            {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 9}]},
            {"addresses": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}], "notReadyAddresses": [{"ip": "10.0.0.3"}],
             "ports": [{"port": 80}, {"port": 443}]},
        ]);
        assert_eq!(json_value(&packed), expected);
        assert_eq!(repack(packed.clone()), packed);
        // addresses without ports are kept
        let bare = subsets(json!([{"addresses": [{"ip": "10.0.0.1"}]}]));
        assert_eq!(repack(bare.clone()), bare);
    }

    #[test]
    fn order_and_resource_versions_make_no_difference() {
        let one = subsets(
            json!([{"addresses": [{"ip": "a", "targetRef": {"uid": "u", "resourceVersion": "1"}}, {"ip": "b"}]}]),
        );
        let other = subsets(json!([{"addresses": [{"ip": "b"}, {"ip": "a", "targetRef": {"uid": "u"}}]}]));
        assert_eq!(comparable(&one), comparable(&other));
        assert_ne!(comparable(&one), comparable(&subsets(json!([{"addresses": [{"ip": "a"}]}]))));
    }

    #[test]
    fn too_many_addresses_are_truncated_in_proportion_and_ready_ones_last() {
        let many = |ready: usize, not_ready: usize| {
            let all = |of: usize, net: usize| {
                (0..of).map(|it| json!({"ip": format!("10.{net}.0.{it}")})).collect::<Vec<_>>()
            };
            json!({"addresses": all(ready, 0), "notReadyAddresses": all(not_ready, 1), "ports": [{"port": 1}]})
        };
        let cut = |json: Value, most: usize| {
            let mut all = subsets(json);
            let truncated = truncate(&mut all, most);
            (truncated, all.iter().map(count).collect::<Vec<_>>())
        };
        assert_eq!(cut(json!([many(5, 5)]), 10), (false, vec![(5, 5)]));
        assert_eq!(cut(json!([many(5, 5)]), 7), (true, vec![(5, 2)]));
        assert_eq!(cut(json!([many(8, 4), many(4, 0)]), 9), (true, vec![(6, 0), (3, 0)]));
        assert_eq!(cut(json!([many(4, 3), many(4, 3)]), 10), (true, vec![(4, 1), (4, 1)]));
    }
}
