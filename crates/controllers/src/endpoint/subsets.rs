//! Endpoints in their usual form: addresses that offer the same ports stand together, everything in order.

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset};
use std::collections::{BTreeMap, BTreeSet};

/// What is the same address, in an order.
type Place = (String, String);

fn place(address: &EndpointAddress) -> Place {
    let uid = address.target_ref.as_ref().and_then(|it| it.uid.clone());
    (address.ip.clone(), uid.unwrap_or_default())
}

/// What is the same port, in an order.
type Port = (String, i32, String, String);

fn port(port: &EndpointPort) -> Port {
    let text = |it: &Option<String>| it.clone().unwrap_or_default();
    (text(&port.name), port.port, text(&port.protocol), text(&port.app_protocol))
}

/// Puts together what belongs together. An address that is ready for a port anywhere is ready for it.
pub fn repack(subsets: Vec<EndpointSubset>) -> Vec<EndpointSubset> {
    let mut addresses: BTreeMap<Place, EndpointAddress> = BTreeMap::new();
    // who offers a port, and whether it is ready; without ports there is one place for all
    let mut offered: BTreeMap<Option<Port>, (Option<EndpointPort>, BTreeMap<Place, bool>)> = BTreeMap::new();
    for subset in subsets {
        let ports = subset.ports.unwrap_or_default();
        let ports: Vec<Option<EndpointPort>> =
            if ports.is_empty() { vec![None] } else { ports.into_iter().map(Some).collect() };
        let sides = [(subset.addresses, true), (subset.not_ready_addresses, false)];
        for (address, ready) in
            sides.into_iter().flat_map(|(all, ready)| all.into_iter().flatten().map(move |it| (it, ready)))
        {
            let at = place(&address);
            for one in &ports {
                let entry = offered.entry(one.as_ref().map(port));
                let (_, offering) = entry.or_insert_with(|| (one.clone(), BTreeMap::new()));
                *offering.entry(at.clone()).or_insert(false) |= ready;
            }
            addresses.entry(at).or_insert(address);
        }
    }
    let mut together: BTreeMap<BTreeMap<Place, bool>, Vec<EndpointPort>> = BTreeMap::new();
    for (one, offering) in offered.into_values() {
        together.entry(offering).or_default().extend(one);
    }
    let mut packed: Vec<EndpointSubset> = Vec::new();
    for (offering, ports) in together {
        let side = |wanted: bool| {
            let chosen = offering.iter().filter(|(_, ready)| **ready == wanted);
            chosen.filter_map(|(at, _)| addresses.get(at).cloned()).collect::<Vec<_>>()
        };
        packed.push(EndpointSubset {
            addresses: Some(side(true)).filter(|it| !it.is_empty()),
            not_ready_addresses: Some(side(false)).filter(|it| !it.is_empty()),
            ports: Some(ports).filter(|it| !it.is_empty()),
        });
    }
    packed
}

/// The same without what says nothing to those who want to reach them.
pub fn comparable(subsets: &[EndpointSubset]) -> BTreeSet<String> {
    let mut subsets = subsets.to_vec();
    for subset in &mut subsets {
        let sides = [&mut subset.addresses, &mut subset.not_ready_addresses];
        for address in sides.into_iter().flatten().flatten() {
            if let Some(target) = &mut address.target_ref {
                target.resource_version = None;
            }
        }
    }
    // the order of subsets says nothing either
    repack(subsets).iter().filter_map(|it| serde_json::to_string(it).ok()).collect()
}

fn count(subset: &EndpointSubset) -> (usize, usize) {
    let of = |it: &Option<Vec<EndpointAddress>>| it.as_ref().map_or(0, Vec::len);
    (of(&subset.addresses), of(&subset.not_ready_addresses))
}

/// Leaves at the most so many addresses, those that are ready first, of each subset its share; whether any were left
/// out.
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
            subset.not_ready_addresses = None;
        }
        let side = if cut_ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        if let Some(addresses) = side {
            // rounded up: the last one may get less
            let share = (addresses.len() * room).div_ceil(total.max(1)).min(left);
            addresses.truncate(share);
            left -= addresses.len();
            if addresses.is_empty() {
                *side = None;
            }
        }
    }
    subsets.retain(|it| count(it) != (0, 0));
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn subsets(json: Value) -> Vec<EndpointSubset> {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn what_offers_the_same_stands_together() {
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
        assert_eq!(serde_json::to_value(&packed).unwrap(), expected);
        assert_eq!(repack(packed.clone()), packed);
        // addresses without ports are kept, too
        let bare = subsets(json!([{"addresses": [{"ip": "10.0.0.1"}]}]));
        assert_eq!(repack(bare.clone()), bare);
    }

    #[test]
    fn order_and_revisions_make_no_difference() {
        let one = subsets(
            json!([{"addresses": [{"ip": "a", "targetRef": {"uid": "u", "resourceVersion": "1"}}, {"ip": "b"}]}]),
        );
        let other = subsets(json!([{"addresses": [{"ip": "b"}, {"ip": "a", "targetRef": {"uid": "u"}}]}]));
        assert_eq!(comparable(&one), comparable(&other));
        assert_ne!(comparable(&one), comparable(&subsets(json!([{"addresses": [{"ip": "a"}]}]))));
    }

    #[test]
    fn too_many_are_cut_by_share_and_the_ready_ones_last() {
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
