//! PodTopologySpread.

use std::collections::{BTreeMap, BTreeSet};

use api::core::v1::{Node, Pod, TopologySpreadConstraint};

use super::filters::{Verdict, resolvable, unresolvable};
use super::selectors::{has_required, selects, untolerated};
use super::view::{Labels, View};

pub const HOSTNAME: &str = "kubernetes.io/hostname";
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// The pods that a constraint counts.
enum PodSelection<'c> {
    Selector(&'c TopologySpreadConstraint),
    /// All of these labels.
    Labels(Labels),
}

struct Constraint<'c> {
    from: &'c TopologySpreadConstraint,
    counted: PodSelection<'c>,
    has_all_features: bool,
}

impl Constraint<'_> {
    fn selects(&self, pod: &Pod, other: &Pod) -> bool {
        if pod.metadata.namespace != other.metadata.namespace {
            return false;
        }
        let labels = &other.metadata.labels;
        match &self.counted {
            PodSelection::Labels(wanted) => wanted.iter().all(|(key, value)| labels.get(key) == Some(value)),
            PodSelection::Selector(from) => {
                let keys = from.match_label_keys.iter().filter(|_| self.has_all_features);
                let mut own = keys.filter_map(|key| Some((key, pod.metadata.labels.get(key)?)));
                selects(from.label_selector.as_deref(), labels)
                    && own.all(|(key, value)| labels.get(key) == Some(value))
            }
        }
    }

    fn includes(&self, pod: &Pod, node: &Node) -> bool {
        let honors =
            |policy: &Option<String>, default: bool| policy.as_ref().map_or(default, |it| it == "Honor");
        (!honors(&self.from.node_affinity_policy, true) || has_required(pod, node))
            && (!honors(&self.from.node_taints_policy, false) || untolerated(pod, node).is_none())
    }

    /// The domain of a node; `None` without the label.
    fn domain<'n>(&self, node: &'n Node) -> Option<&'n String> {
        node.metadata.labels.get(&self.from.topology_key)
    }
}

/// The labels that the services of a pod select by.
fn service_labels(view: &View, pod: &Pod) -> Labels {
    let mut labels = Labels::new();
    for service in view.services.values() {
        let selector = &service.spec.selector;
        let selects = selector.iter().all(|(key, value)| pod.metadata.labels.get(key) == Some(value));
        if service.metadata.namespace == pod.metadata.namespace && !selector.is_empty() && selects {
            labels.extend(selector.clone());
        }
    }
    labels
}

fn own<'c>(view: &View, pod: &'c Pod, action: &str) -> Vec<Constraint<'c>> {
    let listed = pod.spec.topology_spread_constraints.iter();
    let constraint = |from| Constraint {
        from,
        counted: PodSelection::Selector(from),
        has_all_features: view.has_all_features,
    };
    listed.filter(|it| it.when_unsatisfiable == action).map(constraint).collect()
}

fn defaults() -> [TopologySpreadConstraint; 2] {
    [(HOSTNAME, 3), (ZONE, 5)].map(|(key, max_skew)| TopologySpreadConstraint {
        max_skew,
        topology_key: key.to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        ..TopologySpreadConstraint::default()
    })
}

fn has_all_keys(constraints: &[Constraint<'_>], node: &Node) -> bool {
    constraints.iter().all(|constraint| constraint.domain(node).is_some())
}

/// Matching pods by domain, over the nodes that the constraint includes.
fn count<'v>(
    view: &'v View,
    pod: &Pod,
    constraints: &[Constraint<'_>],
    constraint: &Constraint<'_>,
) -> BTreeMap<&'v String, i64> {
    let is_counted = |node: &Node| has_all_keys(constraints, node) && constraint.includes(pod, node);
    let mut counts = BTreeMap::new();
    for node in view.nodes.values().filter(|node| is_counted(node)) {
        counts.insert(constraint.domain(node).unwrap(), 0);
    }
    let mut add = |node: &str, amount: i64| {
        let node = view.nodes.get(node).filter(|node| is_counted(node));
        if let Some(domain) = node.and_then(|node| constraint.domain(node)) {
            *counts.entry(domain).or_default() += amount;
        }
    };
    // the pods as they were when PreFilter counted them, without those that are being deleted
    let is_new = |uid: &String| view.changes.iter().any(|(placed, _)| placed.pod.metadata.uid == *uid);
    for (uid, placed) in &view.pods {
        let is_deleted = placed.pod.metadata.deletion_timestamp.is_some();
        if !is_new(uid) && !is_deleted && constraint.selects(pod, &placed.pod) {
            add(&placed.node, 1);
        }
    }
    let mut seen = BTreeSet::new();
    for (placed, delta) in &view.changes {
        let uid = &placed.pod.metadata.uid;
        let was_there = seen.insert(uid) && *delta < 0;
        if was_there
            && placed.pod.metadata.deletion_timestamp.is_none()
            && constraint.selects(pod, &placed.pod)
        {
            add(&placed.node, 1);
        }
        // later changes count every pod
        if constraint.selects(pod, &placed.pod) {
            add(&placed.node, *delta);
        }
    }
    counts
}

pub fn filter(view: &View, pod: &Pod, node: &Node) -> Verdict {
    let constraints = own(view, pod, "DoNotSchedule");
    for constraint in &constraints {
        let Some(domain) = constraint.domain(node) else {
            return unresolvable(
                "node(s) didn't match pod topology spread constraints (missing required label)",
            );
        };
        let counts = count(view, pod, &constraints, constraint);
        let Some(mut fewest) = counts.values().copied().min() else { continue };
        let min_domains = constraint.from.min_domains.filter(|_| view.has_all_features).unwrap_or(1);
        if (counts.len() as i64) < i64::from(min_domains) {
            fewest = 0;
        }
        let own = i64::from(constraint.selects(pod, pod));
        let skew = counts.get(domain).copied().unwrap_or(0) + own - fewest;
        if skew > i64::from(constraint.from.max_skew) {
            return resolvable("node(s) didn't match pod topology spread constraints");
        }
    }
    Verdict::Fits
}

/// The score of each node, normalized.
pub fn score(view: &View, pod: &Pod, nodes: &[&Node]) -> Vec<i64> {
    let defaults = defaults();
    let has_own = !pod.spec.topology_spread_constraints.is_empty();
    let constraints = match has_own {
        true => own(view, pod, "ScheduleAnyway"),
        false => {
            let labels = service_labels(view, pod);
            let selecting = defaults.iter().filter(|_| !labels.is_empty());
            let constraint = |from| Constraint {
                from,
                counted: PodSelection::Labels(labels.clone()),
                has_all_features: view.has_all_features,
            };
            selecting.map(constraint).collect()
        }
    };
    if constraints.is_empty() {
        return vec![0; nodes.len()];
    }
    let is_ignored = |node: &Node| has_own && !has_all_keys(&constraints, node);
    let raw: Vec<Option<i64>> = nodes
        .iter()
        .map(|node| (!is_ignored(node)).then(|| raw_score(view, pod, nodes, &constraints, node, has_own)))
        .collect();
    let (least, most) = (raw.iter().flatten().min(), raw.iter().flatten().max());
    let (least, most) = (least.copied().unwrap_or(0), most.copied().unwrap_or(0));
    let normalized = raw.iter().map(|score| match score {
        None => 0,
        Some(_) if most == 0 => 100,
        Some(score) => 100 * (most + least - score) / most,
    });
    normalized.collect()
}

fn raw_score(
    view: &View,
    pod: &Pod,
    nodes: &[&Node],
    constraints: &[Constraint<'_>],
    node: &Node,
    has_own: bool,
) -> i64 {
    let mut sum = 0.0;
    for constraint in constraints {
        let Some(domain) = constraint.domain(node) else { continue };
        let scored = nodes.iter().filter(|node| !has_own || has_all_keys(constraints, node));
        let is_hostname = constraint.from.topology_key == HOSTNAME;
        let size = match is_hostname {
            true => scored.count(),
            false => scored.map(|node| constraint.domain(node)).collect::<BTreeSet<_>>().len(),
        };
        let is_counted =
            |other: &Pod| other.metadata.deletion_timestamp.is_none() && constraint.selects(pod, other);
        let is_near = |on: &Node| match is_hostname {
            true => on.metadata.name == node.metadata.name,
            false => {
                constraint.domain(on) == Some(domain)
                    && (!has_own || has_all_keys(constraints, on))
                    && constraint.includes(pod, on)
            }
        };
        let count = view.placed().filter(|(other, on)| is_near(on) && is_counted(other)).count();
        let weight = ((size + 2) as f64).ln();
        sum += count as f64 * weight + f64::from(constraint.from.max_skew - 1);
    }
    sum.round() as i64
}
