//! Taints and labels of a node that follow from its conditions: `NoSchedule` and `NoExecute` taints, and deprecated
//! names of labels.

use crate::nodes::{self, READY};
use crate::pods::tolerate::{NO_EXECUTE, NO_SCHEDULE};
use api::Time;
use api::core::v1::{Node, Taint};
use names::Names;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The names of taints and labels.
pub(super) struct TaintNames {
    not_ready: String,
    unreachable: String,
    unschedulable: String,
    /// Conditions, when they are true, and their taints.
    pressures: [(&'static str, String); 4],
    /// Labels, and their deprecated names.
    renamed: [(String, String); 2],
    zone: [String; 2],
    region: [String; 2],
    /// Nodes with this label do not count towards the health of their zone.
    excluded: String,
}

impl TaintNames {
    pub fn new(names: &Names) -> Self {
        let node = |name: &str| names.well_known_under("node", name);
        let topology = |name: &str| {
            [names.well_known_under("failure-domain.beta", name), names.well_known_under("topology", name)]
        };
        TaintNames {
            not_ready: node("not-ready"),
            unreachable: node("unreachable"),
            unschedulable: node("unschedulable"),
            pressures: [
                ("MemoryPressure", node("memory-pressure")),
                ("DiskPressure", node("disk-pressure")),
                ("NetworkUnavailable", node("network-unavailable")),
                ("PIDPressure", node("pid-pressure")),
            ],
            renamed: ["os", "arch"].map(|it| (names.well_known(it), names.well_known_under("beta", it))),
            zone: topology("zone"),
            region: topology("region"),
            excluded: node("exclude-disruption"),
        }
    }

    /// The taint of a node that is not ready.
    fn unready(&self, ready: Option<&str>) -> Option<&str> {
        match ready {
            Some("False") => Some(&self.not_ready),
            Some("Unknown") => Some(&self.unreachable),
            _ => None,
        }
    }

    /// Region and zone of a node, in one key.
    pub fn zone_of(&self, node: &Node) -> String {
        let labels = &node.metadata.labels;
        let first =
            |names: &[String; 2]| names.iter().find_map(|it| labels.get(it)).map_or("", String::as_str);
        match (first(&self.region), first(&self.zone)) {
            ("", "") => String::new(),
            // neither can contain a NUL, so keys are unique
            (region, zone) => format!("{region}:\0:{zone}"),
        }
    }

    pub fn counts(&self, node: &Node) -> bool {
        !node.metadata.labels.contains_key(&self.excluded)
    }

    /// The patch that gives a node the `NoSchedule` taints of its conditions, and its labels under both names.
    pub fn node_patch(&self, node: &Node, now: Time) -> Option<Value> {
        let mut change = json!({});
        if let Some(taints) = self.no_schedule(node, now) {
            change["spec"]["taints"] = list(&taints);
        }
        let labels = self.deprecated_labels(node);
        if !labels.is_empty() {
            change["metadata"]["labels"] = json!(labels);
        }
        change.as_object().is_some_and(|it| !it.is_empty()).then_some(change)
    }

    fn no_schedule(&self, node: &Node, now: Time) -> Option<Vec<Taint>> {
        let ours: Vec<&str> = [&self.not_ready, &self.unreachable, &self.unschedulable]
            .into_iter()
            .chain(self.pressures.iter().map(|(_, taint)| taint))
            .map(String::as_str)
            .collect();
        let mut wanted: Vec<&str> = node
            .status
            .conditions
            .iter()
            .filter_map(|it| match it.type_.as_str() {
                READY => self.unready(Some(&it.status)),
                other if it.status == "True" => {
                    self.pressures.iter().find(|(name, _)| *name == other).map(|(_, taint)| taint.as_str())
                }
                _ => None,
            })
            .collect();
        if node.spec.unschedulable {
            wanted.push(&self.unschedulable);
        }
        settle(&node.spec.taints, NO_SCHEDULE, &ours, &wanted, now)
    }

    fn deprecated_labels<'a>(&'a self, node: &'a Node) -> BTreeMap<&'a str, &'a str> {
        let labels = &node.metadata.labels;
        let changed = self.renamed.iter().filter_map(|(name, old)| {
            let value = labels.get(name)?;
            (labels.get(old) != Some(value)).then_some((old.as_str(), value.as_str()))
        });
        changed.collect()
    }

    /// Whether a node has the `NoExecute` taint of its ready condition; none if `allowed` is false.
    pub fn eviction_taint(&self, node: &Node, allowed: bool) -> EvictionTaint {
        let Some(ready) = nodes::ready(node) else { return EvictionTaint::Right };
        let ours =
            |it: &&Taint| it.effect == NO_EXECUTE && (it.key == self.not_ready || it.key == self.unreachable);
        let held: Vec<&str> = node.spec.taints.iter().filter(ours).map(|it| &*it.key).collect();
        match self.unready(Some(ready)).filter(|_| allowed) {
            Some(_) if held.is_empty() => EvictionTaint::Missing,
            wanted if held == wanted.as_slice() => EvictionTaint::Right,
            _ => EvictionTaint::Wrong,
        }
    }

    /// The patch that sets the `NoExecute` taint of the ready condition, or removes it if `wanted` is false.
    pub fn no_execute(&self, node: &Node, wanted: bool, now: Time) -> Option<Value> {
        let ours = [self.not_ready.as_str(), self.unreachable.as_str()];
        let wanted: Vec<&str> = self.unready(nodes::ready(node)).filter(|_| wanted).into_iter().collect();
        let taints = settle(&node.spec.taints, NO_EXECUTE, &ours, &wanted, now)?;
        Some(json!({"spec": {"taints": list(&taints)}}))
    }
}

/// The state of the taint that evicts the pods of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EvictionTaint {
    Right,
    /// It is missing, and the rate limit of the zone decides when it is added.
    Missing,
    /// It is another than the condition requires; corrected at once.
    Wrong,
}

/// A list of taints in a patch: an empty one is `[]`.
fn list(taints: &[Taint]) -> Value {
    taints.iter().map(client::json_value).collect()
}

/// The taints after a change; `None` if nothing changes. Of `ours` with this effect the `wanted` ones stay or are
/// added. Other taints stay, in their order.
fn settle(has: &[Taint], effect: &str, ours: &[&str], wanted: &[&str], now: Time) -> Option<Vec<Taint>> {
    let stays = |it: &&Taint| {
        it.effect != effect || !ours.contains(&it.key.as_str()) || wanted.contains(&it.key.as_str())
    };
    let mut next: Vec<Taint> = has.iter().filter(stays).cloned().collect();
    for key in wanted {
        if !next.iter().any(|it| it.effect == effect && it.key == *key) {
            next.push(Taint {
                key: (*key).to_owned(),
                effect: effect.to_owned(),
                time_added: Some(now),
                ..Taint::default()
            });
        }
    }
    (next != has).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;

    const NOW: Time = Time(1000);

    fn taint_names() -> TaintNames {
        TaintNames::new(&Names::kubernetes())
    }

    /// A node with conditions, taints as `key:effect`, and labels.
    fn node(conditions: &[(&str, &str)], taints: &[&str], labels: Value) -> Node {
        let conditions: Vec<_> =
            conditions.iter().map(|(name, status)| json!({"type": name, "status": status})).collect();
        let taint = |text: &&str| {
            let (key, effect) = text.split_once(':').unwrap();
            let domain = if key == "example" { "" } else { "node.kubernetes.io/" };
            json!({"key": format!("{domain}{key}"), "effect": effect})
        };
        let taints: Vec<_> = taints.iter().map(taint).collect();
        object(json!({
            "metadata": {"name": "n", "labels": labels},
            "spec": {"taints": taints},
            "status": {"conditions": conditions}
        }))
    }

    fn keys(change: Option<Value>) -> Option<Vec<String>> {
        let taints = change?["spec"]["taints"].clone();
        let text = |it: &Value| {
            let key = it["key"].as_str().unwrap().replace("node.kubernetes.io/", "");
            let new = if it["timeAdded"].is_null() { "" } else { " new" };
            format!("{key}:{}{new}", it["effect"].as_str().unwrap())
        };
        Some(taints.as_array().unwrap().iter().map(text).collect())
    }

    #[test]
    fn conditions_become_no_schedule_taints() {
        let of = |conditions: &[(&str, &str)], taints: &[&str]| {
            keys(taint_names().node_patch(&node(conditions, taints, json!({})), NOW))
        };
        let list = |texts: &[&str]| Some(texts.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&[("Ready", "True")], &[]), None);
        assert_eq!(of(&[("Ready", "True")], &["not-ready:NoSchedule"]), list(&[]));
        assert_eq!(of(&[("Ready", "False")], &["not-ready:NoSchedule"]), None);
        assert_eq!(
            of(
                &[("Ready", "Unknown")],
                &["example:NoSchedule", "not-ready:NoSchedule", "not-ready:NoExecute"]
            ),
            list(&["example:NoSchedule", "not-ready:NoExecute", "unreachable:NoSchedule new"])
        );
        assert_eq!(
            of(&[("MemoryPressure", "True"), ("DiskPressure", "True"), ("PIDPressure", "False")], &[]),
            list(&["memory-pressure:NoSchedule new", "disk-pressure:NoSchedule new"])
        );
        assert_eq!(
            of(&[("NetworkUnavailable", "True"), ("PIDPressure", "True"), ("Odd", "True")], &[]),
            list(&["network-unavailable:NoSchedule new", "pid-pressure:NoSchedule new"])
        );
        // `Unknown` adds a taint for the ready condition only
        assert_eq!(of(&[("MemoryPressure", "Unknown")], &["memory-pressure:NoSchedule"]), list(&[]));
        assert_eq!(of(&[], &["memory-pressure:PreferNoSchedule"]), None);
        let mut closed = node(&[], &[], json!({}));
        closed.spec.unschedulable = true;
        assert_eq!(keys(taint_names().node_patch(&closed, NOW)), list(&["unschedulable:NoSchedule new"]));
    }

    #[test]
    fn labels_have_deprecated_names() {
        let of = |labels: Value| taint_names().node_patch(&node(&[], &[], labels), NOW);
        assert_eq!(of(json!({"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux"})), None);
        assert_eq!(of(json!({"beta.kubernetes.io/arch": "arm64"})), None);
        assert_eq!(
            of(
                json!({"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64", "beta.kubernetes.io/arch": "old"})
            ),
            Some(json!({"metadata": {"labels":
                {"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "arm64"}}}))
        );
    }

    #[test]
    fn nodes_that_are_not_ready_get_a_no_execute_taint() {
        let of = |ready: &str, taints: &[&str]| {
            let conditions: &[(&str, &str)] = if ready.is_empty() { &[] } else { &[("Ready", ready)] };
            taint_names().eviction_taint(&node(conditions, taints, json!({})), true)
        };
        assert_eq!(of("True", &["not-ready:NoSchedule", "example:NoExecute"]), EvictionTaint::Right);
        assert_eq!(of("True", &["not-ready:NoExecute"]), EvictionTaint::Wrong);
        assert_eq!(of("False", &["not-ready:NoSchedule"]), EvictionTaint::Missing);
        assert_eq!(of("False", &["not-ready:NoExecute"]), EvictionTaint::Right);
        assert_eq!(of("False", &["unreachable:NoExecute"]), EvictionTaint::Wrong);
        assert_eq!(of("Unknown", &["unreachable:NoExecute"]), EvictionTaint::Right);
        assert_eq!(of("Unknown", &["unreachable:NoExecute", "not-ready:NoExecute"]), EvictionTaint::Wrong);
        // a node that never reported is left alone
        assert_eq!(of("", &["unreachable:NoExecute"]), EvictionTaint::Right);
        let lost =
            node(&[("Ready", "Unknown")], &["not-ready:NoExecute", "unreachable:NoSchedule"], json!({}));
        let settled = |wanted| keys(taint_names().no_execute(&lost, wanted, NOW)).unwrap();
        assert_eq!(taint_names().eviction_taint(&lost, false), EvictionTaint::Wrong);
        assert_eq!(settled(true), ["unreachable:NoSchedule", "unreachable:NoExecute new"]);
        assert_eq!(settled(false), ["unreachable:NoSchedule"]);
    }

    #[test]
    fn a_zone_is_a_region_and_a_zone() {
        let of = |labels: Value| taint_names().zone_of(&node(&[], &[], labels));
        assert_eq!(of(json!({})), "");
        assert_eq!(of(json!({"topology.kubernetes.io/zone": "a"})), ":\0:a");
        assert_eq!(
            of(json!({"topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "r"})),
            "r:\0:a"
        );
        assert_eq!(
            of(json!({"topology.kubernetes.io/zone": "a", "failure-domain.beta.kubernetes.io/zone": "b"})),
            ":\0:b"
        );
        assert!(!taint_names().counts(&node(&[], &[], json!({"node.kubernetes.io/exclude-disruption": ""}))));
    }
}
