//! Hints: for which zone an endpoint is, so that traffic stays near where each zone has its share of the endpoints.
//!
//! Zones get endpoints by the processors of their nodes. An endpoint is for its own zone where that one does not have
//! too many; the others go to zones that have too few. If the shares cannot be met there are no hints at all: then
//! everybody uses everything.

use crate::slices::Plan;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointHints, EndpointSlice, ForZone};
use kube::ResourceExt;
use names::Names;
use schema::quantity::Quantity;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How much more than its share a zone may bear.
const OVERLOAD: f64 = 0.2;

/// Whether a service asks for hints.
pub fn wanted(service: &Service, names: &Names) -> bool {
    let asked = service.annotations().get(&names.well_known_under("service", "topology-aware-hints"));
    matches!(asked.map(String::as_str), Some("auto" | "Auto"))
}

/// The share of each zone; none where it cannot be told, or there are not two.
pub struct Zones {
    shares: BTreeMap<String, f64>,
}

impl Zones {
    pub fn of(nodes: &[Arc<Node>], names: &Names) -> Self {
        let zone = names.well_known_under("topology", "zone");
        let apart = ["control-plane", "master"].map(|role| names.well_known_under("node-role", role));
        let mut processors: BTreeMap<String, i64> = BTreeMap::new();
        let counted = nodes.iter().filter(|it| !apart.iter().any(|role| it.labels().contains_key(role)));
        for node in counted.filter(|it| is_ready(it)) {
            let allocatable = node.status.as_ref().and_then(|it| it.allocatable.as_ref());
            let cpu = allocatable.and_then(|it| it.get("cpu")).and_then(|it| it.0.parse::<Quantity>().ok());
            let cpu = cpu.map_or(0, |it| it.milli());
            match node.labels().get(&zone).filter(|it| !it.is_empty() && cpu > 0) {
                Some(zone) => *processors.entry(zone.clone()).or_default() += cpu,
                None => return Zones { shares: BTreeMap::new() },
            }
        }
        let total: i64 = processors.values().sum();
        if processors.len() < 2 || total <= 0 {
            return Zones { shares: BTreeMap::new() };
        }
        Zones { shares: processors.into_iter().map(|(zone, it)| (zone, it as f64 / total as f64)).collect() }
    }

    /// How many of so many endpoints each zone should have, at the least and by its share; nothing where that cannot
    /// be.
    fn allocated(&self, endpoints: usize) -> Option<BTreeMap<&str, (usize, f64)>> {
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
    let mut conditions = node.status.iter().flat_map(|it| it.conditions.iter().flatten());
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

/// Gives all endpoints their hints, or takes them away. Slices that were left alone are written if theirs change.
pub fn give(plan: &mut Plan, kept: Vec<Arc<EndpointSlice>>, zones: Option<&Zones>) {
    let mut kept: Vec<EndpointSlice> = kept.iter().map(|it| (**it).clone()).collect();
    let before: Vec<Vec<Option<EndpointHints>>> =
        kept.iter().map(|it| it.endpoints.iter().map(|it| it.hints.clone()).collect()).collect();
    let slices = plan.create.iter_mut().chain(&mut plan.update).chain(&mut kept);
    let mut endpoints: Vec<&mut Endpoint> = slices.flat_map(|it| &mut it.endpoints).collect();
    let assigned = zones.and_then(|it| assign(&endpoints, it));
    for (at, endpoint) in endpoints.iter_mut().enumerate() {
        let zone = assigned.as_ref().and_then(|it| it[at].clone());
        endpoint.hints = zone.map(|name| EndpointHints { for_zones: Some(vec![ForZone { name }]) });
    }
    for (slice, before) in kept.into_iter().zip(before) {
        let same = slice.endpoints.iter().map(|it| &it.hints).eq(&before);
        if !same {
            plan.update.push(slice);
        }
    }
}

fn hinted(endpoint: &Endpoint) -> Option<&str> {
    let zones = endpoint.hints.as_ref()?.for_zones.as_deref()?;
    zones.first().map(|it| it.name.as_str())
}

/// How many endpoints of one zone are for another, so that each zone has what it needs at the least, and none are for
/// zones without nodes.
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

/// For each endpoint its zone; none for those that are not ready. What an endpoint was for before, it stays for where
/// that is right.
fn assign(endpoints: &[&mut Endpoint], zones: &Zones) -> Option<Vec<Option<String>>> {
    let ready = |it: &Endpoint| it.conditions.as_ref().and_then(|it| it.ready).unwrap_or(true);
    let allocated = zones.allocated(endpoints.iter().filter(|it| ready(it)).count())?;
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
                let fits = *given == Some(from) && (!only_again || hinted(endpoint) == Some(to));
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
    use serde_json::json;

    fn node(zone: &str, cpu: &str) -> Arc<Node> {
        let node = json!({
            "metadata": {"name": zone, "labels": {"topology.kubernetes.io/zone": zone}},
            "status": {"allocatable": {"cpu": cpu}, "conditions": [{"type": "Ready", "status": "True"}]},
        });
        Arc::new(serde_json::from_value(node).unwrap())
    }

    fn endpoints(zones: &[&str]) -> Vec<Endpoint> {
        let one = |(at, zone): (usize, &&str)| {
            let endpoint =
                json!({"addresses": [format!("10.0.0.{at}")], "conditions": {"ready": true}, "zone": zone});
            serde_json::from_value(endpoint).unwrap()
        };
        zones.iter().enumerate().map(one).collect()
    }

    fn given(nodes: &[Arc<Node>], zones: &[&str]) -> Option<Vec<String>> {
        let mut endpoints = endpoints(zones);
        let endpoints: Vec<_> = endpoints.iter_mut().collect();
        let assigned = assign(&endpoints, &Zones::of(nodes, &Names::kubernetes()))?;
        Some(assigned.into_iter().map(Option::unwrap_or_default).collect())
    }

    #[test]
    fn zones_have_their_share() {
        let even = [node("a", "4"), node("b", "4")];
        let told = |nodes: &[Arc<Node>], zones: &[&str]| given(nodes, zones).map(|it| it.concat());
        assert_eq!(told(&even, &["a", "b", "a", "b"]).as_deref(), Some("abab"));
        assert_eq!(told(&even, &["a", "a", "a", "b"]).as_deref(), Some("baab"));
        assert_eq!(told(&even, &["a", "a", "a", "a"]).as_deref(), Some("bbaa"));
        // a zone without nodes is for nobody
        assert_eq!(told(&even, &["c", "a", "b", "a"]).as_deref(), Some("baba"));
        // the shares cannot be met, there is only one zone, or nobody knows
        assert_eq!(told(&even, &["a", "b", "b"]), None);
        assert_eq!(told(&even, &["a"]), None);
        assert_eq!(told(&even[..1], &["a", "a"]), None);
        assert_eq!(told(&[node("a", "4"), node("", "4")], &["a", "a"]), None);
        assert_eq!(told(&even, &["a", ""]), None);
    }

    #[test]
    fn hints_that_do_not_change_are_not_written() {
        let zones = Zones::of(&[node("a", "4"), node("b", "4")], &Names::kubernetes());
        let slice = EndpointSlice { endpoints: endpoints(&["a", "a", "b", "a"]), ..EndpointSlice::default() };
        let mut plan = Plan::default();
        give(&mut plan, vec![Arc::new(slice)], Some(&zones));
        let written = Arc::new(plan.update.pop().unwrap());
        assert!(written.endpoints.iter().all(|it| hinted(it).is_some()));
        give(&mut plan, vec![written.clone()], Some(&zones));
        assert!(plan.is_empty());
        give(&mut plan, vec![written], None);
        assert!(plan.update[0].endpoints.iter().all(|it| it.hints.is_none()));
    }
}
