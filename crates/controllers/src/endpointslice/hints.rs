//! Topology hints: assigns endpoints to zones, so that traffic stays in its zone.
//!
//! Each zone gets endpoints in proportion to the CPUs of its nodes. An endpoint is assigned to its own zone, unless
//! that has too many; the others are assigned to zones with too few. If the shares cannot be met, no endpoint has
//! hints.

use crate::slices::Plan;
use api::core::v1::{Node, Service};
use api::discovery::v1::{Endpoint, EndpointHints, EndpointSlice, ForZone};
use names::Names;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The accepted overload of a zone.
const OVERLOAD: f64 = 0.2;

/// Whether a service requests hints.
pub fn requested(service: &Service, names: &Names) -> bool {
    let annotation = names.well_known_under("service", "topology-aware-hints");
    matches!(service.metadata.annotations.get(&annotation).map(String::as_str), Some("auto" | "Auto"))
}

/// The share of each zone; empty if it is unknown, or there are fewer than two zones.
pub struct Zones {
    shares: BTreeMap<String, f64>,
}

impl Zones {
    pub fn of(nodes: &[Arc<Node>], names: &Names) -> Self {
        let zone = names.well_known_under("topology", "zone");
        let excluded = ["control-plane", "master"].map(|role| names.well_known_under("node-role", role));
        let mut cpus: BTreeMap<String, i64> = BTreeMap::new();
        let is_excluded = |it: &Node| excluded.iter().any(|role| it.metadata.labels.contains_key(role));
        let counted = nodes.iter().filter(|it| !is_excluded(it));
        for node in counted.filter(|it| is_ready(it)) {
            let cpu = node.status.allocatable.get("cpu").map_or(0, |it| it.milli());
            match node.metadata.labels.get(&zone).filter(|it| !it.is_empty() && cpu > 0) {
                Some(zone) => *cpus.entry(zone.clone()).or_default() += cpu,
                None => return Zones { shares: BTreeMap::new() },
            }
        }
        let total: i64 = cpus.values().sum();
        if cpus.len() < 2 || total <= 0 {
            return Zones { shares: BTreeMap::new() };
        }
        Zones { shares: cpus.into_iter().map(|(zone, it)| (zone, it as f64 / total as f64)).collect() }
    }

    /// The minimum and the desired number of endpoints of each zone; `None` if the shares cannot be met.
    fn allocations(&self, endpoints: usize) -> Option<BTreeMap<&str, (usize, f64)>> {
        if self.shares.len() < 2 || self.shares.len() > endpoints {
            return None;
        }
        let share = |share: f64| {
            let desired = share * endpoints as f64;
            let least = (desired / (1.0 + OVERLOAD)).ceil();
            (least as usize, desired.max(least))
        };
        let all: BTreeMap<&str, (usize, f64)> =
            self.shares.iter().map(|(zone, it)| (zone.as_str(), share(*it))).collect();
        (all.values().map(|(least, _)| least).sum::<usize>() <= endpoints).then_some(all)
    }
}

fn is_ready(node: &Node) -> bool {
    node.status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True")
}

/// Sets or removes the hints of all endpoints. Unchanged slices are updated if their hints change.
pub fn apply(plan: &mut Plan, kept: Vec<Arc<EndpointSlice>>, zones: Option<&Zones>) {
    let mut kept: Vec<EndpointSlice> = kept.iter().map(|it| (**it).clone()).collect();
    let before: Vec<Vec<Option<Box<EndpointHints>>>> =
        kept.iter().map(|it| it.endpoints.iter().map(|it| it.hints.clone()).collect()).collect();
    let slices = plan.create.iter_mut().chain(&mut plan.update).chain(&mut kept);
    let mut endpoints: Vec<&mut Endpoint> = slices.flat_map(|it| &mut it.endpoints).collect();
    let assigned = zones.and_then(|it| assign(&endpoints, it));
    for (at, endpoint) in endpoints.iter_mut().enumerate() {
        let zone = assigned.as_ref().and_then(|it| it[at].clone());
        endpoint.hints = zone.map(|name| {
            let for_zones = vec![ForZone { name, ..ForZone::default() }];
            Box::new(EndpointHints { for_zones, ..EndpointHints::default() })
        });
    }
    for (slice, before) in kept.into_iter().zip(before) {
        let same = slice.endpoints.iter().map(|it| &it.hints).eq(&before);
        if !same {
            plan.update.push(slice);
        }
    }
}

fn hinted_zone(endpoint: &Endpoint) -> Option<&str> {
    endpoint.hints.as_ref()?.for_zones.first().map(|it| it.name.as_str())
}

/// The number of endpoints to move from one zone to another, so that each zone has its minimum, and a zone without
/// nodes has none.
fn moves<'z>(
    mut has: BTreeMap<&'z str, usize>,
    allocated: &BTreeMap<&'z str, (usize, f64)>,
) -> BTreeMap<(&'z str, &'z str), usize> {
    let mut moves: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    loop {
        let count = |zone: &str| has.get(zone).copied().unwrap_or(0);
        let beyond =
            |zone: &str| count(zone) as f64 - allocated.get(zone).map_or(0.0, |(_, desired)| *desired);
        let stranded = has.iter().find(|(zone, count)| **count > 0 && !allocated.contains_key(*zone));
        let lacking = allocated.iter().filter(|(zone, (least, _))| count(zone) < *least);
        let lacking = lacking.map(|(zone, _)| *zone).min_by(|a, b| beyond(a).total_cmp(&beyond(b)));
        let (from, to) = match (stranded, lacking) {
            (Some((from, _)), Some(to)) => (Some(*from), Some(to)),
            (Some((from, _)), None) => {
                let neediest = allocated.keys().copied().min_by(|a, b| beyond(a).total_cmp(&beyond(b)));
                (Some(*from), neediest)
            }
            (None, Some(to)) => {
                let spare = allocated.iter().filter(|(zone, (least, _))| count(zone) > *least);
                (spare.map(|(zone, _)| *zone).max_by(|a, b| beyond(a).total_cmp(&beyond(b))), Some(to))
            }
            (None, None) => return moves,
        };
        let (Some(from), Some(to)) = (from, to) else { return moves };
        *has.entry(from).or_default() -= 1;
        *has.entry(to).or_default() += 1;
        *moves.entry((from, to)).or_default() += 1;
    }
}

/// The zone of each endpoint; `None` for endpoints that are not ready. Endpoints keep their zone if possible.
fn assign(endpoints: &[&mut Endpoint], zones: &Zones) -> Option<Vec<Option<String>>> {
    let ready = |it: &Endpoint| it.conditions.ready.unwrap_or(true);
    let allocated = zones.allocations(endpoints.iter().filter(|it| ready(it)).count())?;
    let mut has: BTreeMap<&str, usize> = BTreeMap::new();
    let mut given: Vec<Option<&str>> = vec![None; endpoints.len()];
    for (at, endpoint) in endpoints.iter().enumerate().filter(|(_, it)| ready(it)) {
        let own = endpoint.zone.as_deref().filter(|it| !it.is_empty())?;
        given[at] = Some(own);
        *has.entry(own).or_default() += 1;
    }
    for ((from, to), mut count) in moves(has, &allocated) {
        for only_again in [true, false] {
            for (given, endpoint) in given.iter_mut().zip(endpoints) {
                let fits = *given == Some(from) && (!only_again || hinted_zone(endpoint) == Some(to));
                if count > 0 && fits && endpoint.zone.as_deref() == Some(from) {
                    *given = Some(to);
                    count -= 1;
                }
            }
        }
    }
    Some(given.into_iter().map(|it| it.map(str::to_owned)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::json;

    fn node(zone: &str, cpu: &str) -> Arc<Node> {
        Arc::new(object(json!({
            "metadata": {"name": zone, "labels": {"topology.kubernetes.io/zone": zone}},
            "status": {"allocatable": {"cpu": cpu}, "conditions": [{"type": "Ready", "status": "True"}]},
        })))
    }

    fn endpoints(zones: &[&str]) -> Vec<Endpoint> {
        let one = |(at, zone): (usize, &&str)| {
            object(
                json!({"addresses": [format!("10.0.0.{at}")], "conditions": {"ready": true}, "zone": zone}),
            )
        };
        zones.iter().enumerate().map(one).collect()
    }

    fn assigned(nodes: &[Arc<Node>], zones: &[&str]) -> Option<Vec<String>> {
        let mut endpoints = endpoints(zones);
        let endpoints: Vec<_> = endpoints.iter_mut().collect();
        let assigned = assign(&endpoints, &Zones::of(nodes, &Names::kubernetes()))?;
        Some(assigned.into_iter().map(Option::unwrap_or_default).collect())
    }

    #[test]
    fn zones_have_their_share() {
        let even = [node("a", "4"), node("b", "4")];
        let zones = |nodes: &[Arc<Node>], zones: &[&str]| assigned(nodes, zones).map(|it| it.concat());
        assert_eq!(zones(&even, &["a", "b", "a", "b"]).as_deref(), Some("abab"));
        assert_eq!(zones(&even, &["a", "a", "a", "b"]).as_deref(), Some("baab"));
        assert_eq!(zones(&even, &["a", "a", "a", "a"]).as_deref(), Some("bbaa"));
        // a zone without nodes gets no endpoints
        assert_eq!(zones(&even, &["c", "a", "b", "a"]).as_deref(), Some("baba"));
        // the shares cannot be met, there is only one zone, or a zone is unknown
        assert_eq!(zones(&even, &["a", "b", "b"]), None);
        assert_eq!(zones(&even, &["a"]), None);
        assert_eq!(zones(&even[..1], &["a", "a"]), None);
        assert_eq!(zones(&[node("a", "4"), node("", "4")], &["a", "a"]), None);
        assert_eq!(zones(&even, &["a", ""]), None);
    }

    #[test]
    fn hints_that_do_not_change_are_not_written() {
        let zones = Zones::of(&[node("a", "4"), node("b", "4")], &Names::kubernetes());
        let slice = EndpointSlice { endpoints: endpoints(&["a", "a", "b", "a"]), ..EndpointSlice::default() };
        let mut plan = Plan::default();
        apply(&mut plan, vec![Arc::new(slice)], Some(&zones));
        let written = Arc::new(plan.update.pop().unwrap());
        assert!(written.endpoints.iter().all(|it| hinted_zone(it).is_some()));
        apply(&mut plan, vec![written.clone()], Some(&zones));
        assert!(plan.is_empty());
        apply(&mut plan, vec![written], None);
        assert!(plan.update[0].endpoints.iter().all(|it| it.hints.is_none()));
    }
}
