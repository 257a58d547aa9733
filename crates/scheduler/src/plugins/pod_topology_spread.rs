//! PodTopologySpread: limits and evens out the numbers of matching pods between topology domains.
//!
//! Pods are counted per domain: with the zones `a` and `b` that have 3 and 1 matching pods and a maximal skew of 2, a
//! pod may go to `a` only if 3 + 1 - 1 <= 2, so it must go to `b`.

use api::core::v1::TopologySpreadConstraint;
use api::node_selector::RequiredNodes;
use names::labels::{HOSTNAME, TOPOLOGY_ZONE};

use crate::domain_filter::DomainFilter;
use crate::framework::profile::{PodTopologySpreadArgs, PodTopologySpreadConstraintsDefaulting};
use crate::framework::{Features, FilterResult, MAX_NODE_SCORE, Rejection};
use crate::node_info::{NodeInfo, Slot};
use crate::node_set::NodeSet;
use crate::plugins::default_selector::default_selector;
use crate::plugins::domain_counts::DomainCounts;
use crate::plugins::taint_toleration::untolerated;
use crate::pod_info::PodInfo;
use crate::selector::LabelMatcher;
use crate::snapshot::Snapshot;
use crate::topology::{Domain, KeyId, Topology};

pub const DO_NOT_SCHEDULE: &str = "DoNotSchedule";
pub const SCHEDULE_ANYWAY: &str = "ScheduleAnyway";
const HONOR: &str = "Honor";

/// Arguments and feature gates of the plugin.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The constraints of pods without their own.
    pub defaults: Vec<TopologySpreadConstraint>,
    is_system_defaulted: bool,
    features: Features,
}

impl Settings {
    pub fn new(args: &PodTopologySpreadArgs, features: Features) -> Self {
        let constraint = |key: &str, max_skew: i32| TopologySpreadConstraint {
            topology_key: key.to_owned(),
            when_unsatisfiable: SCHEDULE_ANYWAY.to_owned(),
            max_skew,
            ..TopologySpreadConstraint::default()
        };
        let is_system_defaulted = args.defaulting_type == PodTopologySpreadConstraintsDefaulting::System;
        let defaults = match is_system_defaulted {
            true => vec![constraint(HOSTNAME, 3), constraint(TOPOLOGY_ZONE, 5)],
            false => args.default_constraints.clone(),
        };
        Settings { defaults, is_system_defaulted, features }
    }
}

#[derive(Debug, Clone)]
struct Constraint {
    max_skew: i64,
    key: KeyId,
    is_hostname: bool,
    selector: LabelMatcher,
    min_domains: usize,
    honors_affinity: bool,
    honors_taints: bool,
}

impl Constraint {
    fn new(
        from: &TopologySpreadConstraint,
        pod: &PodInfo,
        topology: &Topology,
        features: Features,
    ) -> Result<Self, Rejection> {
        let selector = LabelMatcher::new(from.label_selector.as_deref());
        let mut selector = selector.map_err(|error| Rejection::error(error.to_string()))?;
        let labels = from.match_label_keys.iter().filter_map(|key| pod.labels().get_key_value(key));
        let labels: Vec<_> = labels.collect();
        if features.match_label_keys_in_pod_topology_spread && !labels.is_empty() {
            selector = LabelMatcher::from_labels(labels).and(&selector);
        }
        let min_domains = from.min_domains.filter(|_| features.min_domains_in_pod_topology_spread);
        let policy = |policy: &Option<String>| {
            policy.clone().filter(|_| features.node_inclusion_policy_in_pod_topology_spread)
        };
        Ok(Constraint {
            max_skew: from.max_skew.into(),
            // every key is indexed before the cycle; an unknown one has no domains
            key: topology.key(&from.topology_key).unwrap_or(KeyId::MAX),
            is_hostname: from.topology_key == HOSTNAME,
            selector,
            min_domains: min_domains.map_or(1, |it| usize::try_from(it).unwrap_or(0)),
            honors_affinity: policy(&from.node_affinity_policy).is_none_or(|it| it == HONOR),
            honors_taints: policy(&from.node_taints_policy).is_some_and(|it| it == HONOR),
        })
    }

    fn includes(&self, pod: &PodInfo, required: &RequiredNodes, node: &NodeInfo) -> bool {
        (!self.honors_affinity || required.matches(node.name(), node.labels()))
            && (!self.honors_taints
                || untolerated(&node.node.spec.taints, &pod.pod.spec.tolerations).is_none())
    }

    fn count(&self, namespace: &str, node: &NodeInfo) -> i64 {
        if self.selector.is_nothing() {
            return 0;
        }
        let counts = |other: &PodInfo| {
            !other.is_terminating() && other.namespace() == namespace && self.selector.matches(other.labels())
        };
        node.pods.iter().filter(|pod| counts(pod)).count() as i64
    }
}

/// The constraints of one kind that apply to a pod.
fn constraints(
    pod: &PodInfo,
    settings: &Settings,
    snapshot: &Snapshot,
    action: &str,
) -> Result<Vec<Constraint>, Rejection> {
    let own = &pod.pod.spec.topology_spread_constraints;
    let listed = if own.is_empty() { &settings.defaults } else { own };
    let listed = listed.iter().filter(|constraint| constraint.when_unsatisfiable == action);
    let constraints: Result<Vec<_>, _> = listed
        .map(|constraint| Constraint::new(constraint, pod, snapshot.topology(), settings.features))
        .collect();
    let mut constraints = constraints?;
    if own.is_empty() && !constraints.is_empty() {
        let selector = default_selector(pod, &snapshot.workloads);
        if selector.is_everything() {
            return Ok(Vec::new());
        }
        for constraint in &mut constraints {
            constraint.selector = selector.clone();
        }
    }
    Ok(constraints)
}

/// A constraint that must hold, with the counts of pods.
#[derive(Debug, Clone)]
struct Hard {
    constraint: Constraint,
    matches_self: bool,
    counts: DomainCounts,
    /// Of a class: the nodes that the constraint rejects, and the base that it was made with.
    filter: Option<(DomainFilter, Option<i64>)>,
}

impl Hard {
    fn new(constraint: Constraint, pod: &PodInfo, topology: &Topology) -> Self {
        Hard {
            matches_self: constraint.selector.matches(pod.labels()),
            counts: DomainCounts::new(constraint.key, topology),
            filter: None,
            constraint,
        }
    }

    /// The number of pods that the skew is counted from: the fewest of all domains. `None` without domains.
    fn base(&self) -> Option<i64> {
        let fewest = self.counts.fewest()?;
        Some(if self.counts.domains() < self.constraint.min_domains { 0 } else { fewest })
    }

    fn rejects(&self, domain: Domain, base: Option<i64>) -> bool {
        let count = self.counts.get(domain) + i64::from(self.matches_self);
        base.is_some_and(|base| count - base > self.constraint.max_skew)
    }

    /// Brings the rejected nodes up to date.
    fn refresh(&mut self, snapshot: &Snapshot) {
        let (base, changes) = (self.base(), self.counts.take_changes());
        let (mut filter, domains) = match (self.filter.take(), changes) {
            (Some((filter, before)), Some(changes)) if before == base => (filter, Some(changes)),
            (Some((filter, _)), _) => (filter, None),
            (None, _) => (DomainFilter::new(self.constraint.key, true, snapshot), None),
        };
        match domains {
            Some(some) => some.into_iter().for_each(|it| filter.set(it, self.rejects(it, base))),
            None => filter.domains().for_each(|it| filter.set(it, self.rejects(it, base))),
        }
        self.filter = Some((filter, base));
    }
}

/// The constraints that must hold.
#[derive(Debug, Clone, Default)]
pub struct State {
    hard: Vec<Hard>,
}

pub fn pre_filter(
    pod: &PodInfo,
    required: &RequiredNodes,
    settings: &Settings,
    snapshot: &Snapshot,
) -> Result<State, Rejection> {
    let topology = snapshot.topology();
    let constraints = constraints(pod, settings, snapshot, DO_NOT_SCHEDULE)?;
    let hard = constraints.into_iter().map(|constraint| Hard::new(constraint, pod, topology));
    let mut state = State { hard: hard.collect() };
    state.recount(pod, required, snapshot.nodes(), topology);
    Ok(state)
}

fn has_all_keys(state: &State, topology: &Topology, node: &NodeInfo) -> bool {
    state.hard.iter().all(|hard| topology.domain(hard.constraint.key, node.slot).is_some())
}

impl State {
    /// Counts the pods of nodes anew.
    pub fn recount<'n>(
        &mut self,
        pod: &PodInfo,
        required: &RequiredNodes,
        nodes: impl Iterator<Item = &'n NodeInfo>,
        topology: &Topology,
    ) {
        if self.hard.is_empty() {
            return;
        }
        for node in nodes {
            if !has_all_keys(self, topology, node) {
                continue;
            }
            for hard in &mut self.hard {
                let Some(domain) = topology.domain(hard.constraint.key, node.slot) else { continue };
                if hard.constraint.includes(pod, required, node) {
                    let count = hard.constraint.count(pod.namespace(), node);
                    hard.counts.set(node.slot, domain, count);
                }
            }
        }
    }

    /// Brings the sets of rejected nodes up to date.
    pub fn refresh(&mut self, snapshot: &Snapshot) {
        self.hard.iter_mut().for_each(|hard| hard.refresh(snapshot));
    }

    /// The nodes that each constraint rejects, as of the last [`Self::refresh`].
    pub fn rejected(&self) -> impl Iterator<Item = &NodeSet> {
        self.hard.iter().filter_map(|hard| hard.filter.as_ref()).map(|(filter, _)| filter.rejected())
    }

    /// Counts another pod on a node, or no longer.
    pub fn update(
        &mut self,
        pod: &PodInfo,
        required: &RequiredNodes,
        other: &PodInfo,
        node: &NodeInfo,
        topology: &Topology,
        delta: i64,
    ) {
        if self.hard.is_empty() || other.namespace() != pod.namespace() || !has_all_keys(self, topology, node)
        {
            return;
        }
        for hard in &mut self.hard {
            let constraint = &hard.constraint;
            if !constraint.selector.matches(other.labels()) || !constraint.includes(pod, required, node) {
                continue;
            }
            let Some(domain) = topology.domain(constraint.key, node.slot) else { continue };
            hard.counts.add(domain, delta);
        }
    }
}

pub fn filter(state: &State, topology: &Topology, slot: Slot) -> FilterResult {
    for hard in &state.hard {
        let Some(domain) = topology.domain(hard.constraint.key, slot) else {
            return Err(Rejection::unresolvable(
                "node(s) didn't match pod topology spread constraints (missing required label)",
            ));
        };
        if hard.rejects(domain, hard.base()) {
            return Err(Rejection::unschedulable("node(s) didn't match pod topology spread constraints"));
        }
    }
    Ok(())
}

/// A constraint that should hold.
#[derive(Debug, Clone)]
struct Soft {
    constraint: Constraint,
    /// For host names, each node counts its own pods, whatever the policies for nodes say.
    counts: DomainCounts,
    weight: f64,
}

#[derive(Debug, Clone, Default)]
pub struct ScoreState {
    soft: Vec<Soft>,
    requires_all_keys: bool,
    /// Whether the counts of single nodes are kept too.
    keeps_hosts: bool,
}

/// Counts matching pods in the domains of all nodes. A state that is used again keeps the counts of single nodes.
pub fn pre_score(
    pod: &PodInfo,
    required: &RequiredNodes,
    settings: &Settings,
    snapshot: &Snapshot,
    keeps_hosts: bool,
) -> Result<ScoreState, Rejection> {
    let topology = snapshot.topology();
    let soft = constraints(pod, settings, snapshot, SCHEDULE_ANYWAY)?.into_iter().map(|constraint| Soft {
        counts: DomainCounts::new(constraint.key, topology),
        weight: 0.0,
        constraint,
    });
    let requires_all_keys =
        !pod.pod.spec.topology_spread_constraints.is_empty() || !settings.is_system_defaulted;
    let mut state = ScoreState { soft: soft.collect(), requires_all_keys, keeps_hosts };
    state.recount(pod, required, snapshot.nodes(), topology);
    Ok(state)
}

impl ScoreState {
    /// Whether there is no constraint.
    pub fn is_empty(&self) -> bool {
        self.soft.is_empty()
    }

    /// Counts the pods of nodes anew.
    pub fn recount<'n>(
        &mut self,
        pod: &PodInfo,
        required: &RequiredNodes,
        nodes: impl Iterator<Item = &'n NodeInfo>,
        topology: &Topology,
    ) {
        let keeps_hosts = self.keeps_hosts;
        let is_counted = |soft: &Soft| keeps_hosts || !soft.constraint.is_hostname;
        if !self.soft.iter().any(is_counted) {
            return;
        }
        for node in nodes {
            if self.ignores(topology, node.slot) {
                continue;
            }
            for soft in self.soft.iter_mut().filter(|soft| is_counted(soft)) {
                let Some(domain) = topology.domain(soft.constraint.key, node.slot) else { continue };
                if soft.constraint.is_hostname || soft.constraint.includes(pod, required, node) {
                    let count = soft.constraint.count(pod.namespace(), node);
                    soft.counts.set(node.slot, domain, count);
                }
            }
        }
    }

    /// The number of constraints.
    pub fn len(&self) -> usize {
        self.soft.len()
    }

    /// Appends what [`score`] reads of a node: its number of pods for host names, its domain for other keys.
    pub fn append_key(&self, topology: &Topology, slot: Slot, key: &mut Vec<i64>) {
        key.extend(self.soft.iter().map(|soft| match topology.domain(soft.constraint.key, slot) {
            None => i64::MIN,
            Some(_) if soft.constraint.is_hostname => soft.counts.get_slot(slot),
            Some(domain) => domain.into(),
        }));
    }

    /// Weighs the constraints by the number of domains of the nodes that are scored. Each node stands for a number of
    /// nodes with the same domains, but for host names.
    pub fn weigh(&mut self, topology: &Topology, nodes: &[Slot], sizes: &[usize]) {
        if self.soft.is_empty() {
            return;
        }
        let scored = nodes.iter().zip(sizes).filter(|(slot, _)| !self.ignores(topology, **slot));
        let scored: Vec<(&Slot, &usize)> = scored.collect();
        for soft in &mut self.soft {
            let size = match soft.constraint.is_hostname {
                true => scored.iter().map(|(_, size)| **size).sum(),
                false => {
                    let limit = topology.domain_limit(soft.constraint.key);
                    // nodes without the label are one more domain, the last one
                    let mut seen = vec![false; limit + 1];
                    for (slot, _) in &scored {
                        let domain = topology.domain(soft.constraint.key, **slot);
                        seen[domain.map_or(limit, |domain| domain as usize).min(limit)] = true;
                    }
                    seen.into_iter().filter(|seen| *seen).count()
                }
            };
            soft.weight = ((size + 2) as f64).ln();
        }
    }

    /// Whether a node lacks a label that all nodes must have to be scored.
    fn ignores(&self, topology: &Topology, slot: Slot) -> bool {
        let lacks = |soft: &Soft| topology.domain(soft.constraint.key, slot).is_none();
        self.requires_all_keys && self.soft.iter().any(lacks)
    }
}

/// Matching pods in the domains of the node; `None` for a node that is not scored.
pub fn score(state: &ScoreState, pod: &PodInfo, snapshot: &Snapshot, slot: Slot) -> Option<i64> {
    let topology = snapshot.topology();
    if state.ignores(topology, slot) {
        return None;
    }
    let mut score = 0.0;
    for soft in &state.soft {
        let Some(domain) = topology.domain(soft.constraint.key, slot) else { continue };
        let count = match soft.constraint.is_hostname {
            true if state.keeps_hosts => soft.counts.get_slot(slot),
            true => snapshot.slot(slot).map_or(0, |node| soft.constraint.count(pod.namespace(), node)),
            false => soft.counts.get(domain),
        };
        score += count as f64 * soft.weight + (soft.constraint.max_skew - 1) as f64;
    }
    Some(score.round() as i64)
}

/// Fewer pods are better; nodes that are not scored get 0.
pub fn normalize(scores: &[Option<i64>]) -> Vec<i64> {
    let scored = || scores.iter().flatten().copied();
    let (least, most) = (scored().min().unwrap_or(0), scored().max().unwrap_or(0).max(0));
    let scale = |score: i64| match most {
        0 => MAX_NODE_SCORE,
        most => {
            (i128::from(MAX_NODE_SCORE) * (i128::from(most) + i128::from(least) - i128::from(score))
                / i128::from(most)) as i64
        }
    };
    scores.iter().map(|score| score.map_or(0, scale)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::from_json;
    use std::sync::Arc;

    fn settings() -> Settings {
        Settings::new(&PodTopologySpreadArgs::default(), Features::ALL)
    }

    fn snapshot() -> Snapshot {
        let mut snapshot = Snapshot::new();
        for (name, zone) in [("n1", "a"), ("n2", "b")] {
            let json = format!(r#"{{"metadata":{{"name":"{name}","labels":{{"zone":"{zone}"}}}}}}"#);
            snapshot.set_node(Arc::new(from_json(json.as_bytes()).unwrap()));
        }
        let json = r#"{"metadata":{"uid":"e","labels":{"app":"x"}},"spec":{"nodeName":"n1"}}"#;
        snapshot.set_pod(Arc::new(from_json(json.as_bytes()).unwrap()));
        snapshot.add_topology_key("zone");
        snapshot
    }

    fn pod(constraint: &str) -> PodInfo {
        let json = format!(
            r#"{{"metadata":{{"labels":{{"app":"x"}}}},"spec":{{"topologySpreadConstraints":[{{"topologyKey":"zone",
            "labelSelector":{{"matchLabels":{{"app":"x"}}}},{constraint}}}]}}}}"#
        );
        PodInfo::new(Arc::new(from_json(json.as_bytes()).unwrap()))
    }

    #[test]
    fn counts_weigh_by_the_logarithm_of_the_number_of_domains() {
        let (snapshot, required) = (snapshot(), RequiredNodes::default());
        let pod = pod(r#""maxSkew":5,"whenUnsatisfiable":"ScheduleAnyway""#);
        let mut state = pre_score(&pod, &required, &settings(), &snapshot, false).unwrap();
        state.weigh(snapshot.topology(), snapshot.order(), &[1, 1]);
        let scores =
            ["n1", "n2"].map(|name| score(&state, &pod, &snapshot, snapshot.node(name).unwrap().slot));
        // 1 * ln(2 + 2) + 4 and 0 + 4
        assert_eq!(scores, [Some(5), Some(4)]);
        assert_eq!(normalize(&scores), [80, 100]);
    }

    /// Host names weigh by the number of nodes, of which some may be scored by another that is equal.
    #[test]
    fn host_names_weigh_by_the_nodes_that_a_scored_node_stands_for() {
        let (mut snapshot, required) = (snapshot(), RequiredNodes::default());
        for (name, zone) in [("n1", "a"), ("n2", "b")] {
            let labels = format!(r#"{{"zone":"{zone}","kubernetes.io/hostname":"{name}"}}"#);
            let json = format!(r#"{{"metadata":{{"name":"{name}","labels":{labels}}}}}"#);
            snapshot.set_node(Arc::new(from_json(json.as_bytes()).unwrap()));
        }
        snapshot.add_topology_key(HOSTNAME);
        let json = r#"{"metadata":{"labels":{"app":"x"}},"spec":{"topologySpreadConstraints":[{"maxSkew":5,
            "topologyKey":"kubernetes.io/hostname","whenUnsatisfiable":"ScheduleAnyway",
            "labelSelector":{"matchLabels":{"app":"x"}}}]}}"#;
        let pod = PodInfo::new(Arc::new(from_json(json.as_bytes()).unwrap()));
        for keeps_hosts in [false, true] {
            let mut state = pre_score(&pod, &required, &settings(), &snapshot, keeps_hosts).unwrap();
            let mut weigh = |sizes: [usize; 2]| {
                state.weigh(snapshot.topology(), snapshot.order(), &sizes);
                ["n1", "n2"].map(|name| score(&state, &pod, &snapshot, snapshot.node(name).unwrap().slot))
            };
            // 1 * ln(2 + 2) + 4, then 1 * ln(10 + 2) + 4
            assert_eq!(weigh([1, 1]), [Some(5), Some(4)]);
            assert_eq!(weigh([3, 7]), [Some(6), Some(4)]);
        }
    }

    #[test]
    fn the_skew_counts_from_the_emptiest_domain() {
        let (snapshot, required) = (snapshot(), RequiredNodes::default());
        let filters = |constraint: &str| {
            let pod = pod(constraint);
            let state = pre_filter(&pod, &required, &settings(), &snapshot).unwrap();
            ["n1", "n2"]
                .map(|name| filter(&state, snapshot.topology(), snapshot.node(name).unwrap().slot).is_ok())
        };
        assert_eq!(filters(r#""maxSkew":1,"whenUnsatisfiable":"DoNotSchedule""#), [false, true]);
        assert_eq!(filters(r#""maxSkew":2,"whenUnsatisfiable":"DoNotSchedule""#), [true, true]);
        let with_domains = r#""maxSkew":1,"minDomains":3,"whenUnsatisfiable":"DoNotSchedule""#;
        assert_eq!(filters(with_domains), [false, true]);
    }

    #[test]
    fn fewer_pods_score_higher() {
        assert_eq!(normalize(&[Some(0), Some(4), None, Some(2)]), [100, 0, 0, 50]);
        assert_eq!(normalize(&[Some(0), Some(0)]), [100, 100]);
        assert_eq!(normalize(&[Some(2), Some(4)]), [100, 50]);
    }
}
