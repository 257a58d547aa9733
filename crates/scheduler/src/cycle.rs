//! One scheduling cycle: a snapshot and a pod give a placement, or a failure with its diagnosis.

use std::collections::BTreeSet;
use std::sync::Arc;

use env::World;

use crate::class::{ClassCache, ClassKey};
use crate::evaluation::{CompiledProfile, CycleState, Evaluation, Nominator, PluginRejection};
use crate::extender::{self, Extender};
use crate::framework::{Code, Diagnosis, Plugin};
use crate::node_info::{NodeInfo, Slot};
use crate::plugins::volume_binding::PodVolumes;
use crate::pod_info::PodInfo;
use crate::preemption::{self, Preemption};
use crate::snapshot::Snapshot;

/// Fewer feasible nodes are never enough to stop the search.
const MIN_FEASIBLE_NODES: usize = 100;
/// The least percentage of nodes that the adaptive search finds.
const MIN_FEASIBLE_PERCENTAGE: usize = 5;

/// What remains between cycles: where the next search starts, and the source of randomness.
pub struct Cycle {
    next_start: usize,
    /// Percentage of nodes to find for profiles that set none; 0 adapts to the cluster's size.
    percentage: i32,
    world: World,
    classes: ClassCache,
    extenders: Vec<Box<dyn Extender>>,
}

/// The outcome of a cycle.
#[derive(Debug)]
pub enum Outcome {
    Placed(Placement),
    Failed(Box<Failure>),
}

/// A node for the pod.
#[derive(Debug)]
pub struct Placement {
    pub node: String,
    /// The slots of all nodes with the highest score, of which one was drawn.
    pub best: Vec<Slot>,
    /// Numbers of nodes, for logs and metrics.
    pub evaluated: usize,
    pub feasible: usize,
    pub volumes: PodVolumes,
}

/// Why no node was found, and what follows.
#[derive(Debug)]
pub struct Failure {
    pub cause: Cause,
    pub nomination: Nomination,
    /// The pods to delete so that the pod fits.
    pub preemption: Option<Preemption>,
}

#[derive(Debug)]
pub enum Cause {
    NoNodes,
    Unschedulable { node_count: usize, diagnosis: Diagnosis },
    Error(String),
}

/// What becomes of the pod's `status.nominatedNodeName`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nomination {
    Keep,
    Clear,
    Node(String),
}

impl Failure {
    /// The message of the condition and the event.
    pub fn message(&self) -> String {
        match &self.cause {
            Cause::NoNodes => "no nodes available to schedule pods".to_owned(),
            Cause::Unschedulable { node_count, diagnosis } => diagnosis.message(*node_count),
            Cause::Error(message) => message.clone(),
        }
    }

    /// The reason of the condition.
    pub fn reason(&self) -> &'static str {
        match self.cause {
            Cause::Error(_) => "SchedulerError",
            _ => "Unschedulable",
        }
    }

    /// The plugins that rejected the pod; `None` if the attempt ended before they could.
    pub fn unschedulable_plugins(&self) -> Option<BTreeSet<Plugin>> {
        match &self.cause {
            Cause::Unschedulable { diagnosis, .. } => Some(diagnosis.unschedulable_plugins.clone()),
            _ => None,
        }
    }

    /// An attempt that could not be carried out.
    pub fn error(message: String) -> Self {
        Failure { cause: Cause::Error(message), nomination: Nomination::Clear, preemption: None }
    }
}

impl Cycle {
    pub fn new(world: World, percentage: i32) -> Self {
        Cycle { next_start: 0, percentage, world, classes: ClassCache::default(), extenders: Vec::new() }
    }

    /// Extenders in the order of their calls.
    pub fn with_extenders(self, extenders: Vec<Box<dyn Extender>>) -> Self {
        Cycle { extenders, ..self }
    }

    /// Schedules a pod. The snapshot changes only in what it has indexed.
    pub fn schedule(
        &mut self,
        profile: &CompiledProfile,
        snapshot: &mut Snapshot,
        nominator: &dyn Nominator,
        pod: &Arc<PodInfo>,
    ) -> Outcome {
        let nominated = nominator.nominated();
        let others = nominated.iter().flat_map(|other| other.topology_keys());
        snapshot.prepare_topology(profile.topology_keys(pod).chain(others));
        let has_nominated = !nominated.is_empty();
        let evaluation = Evaluation { profile, snapshot, nominator, pod, has_nominated };
        if evaluation.snapshot.node_count() == 0 {
            let failure = Failure { cause: Cause::NoNodes, nomination: Nomination::Clear, preemption: None };
            return Outcome::Failed(Box::new(failure));
        }
        let class = ClassKey::new(profile, pod);
        let mut state = match &class {
            Some(key) => self.classes.take(key),
            None => CycleState::default(),
        };
        let outcome = self.run(&evaluation, &mut state);
        if let Some(key) = class {
            self.classes.put(key, state);
        }
        outcome.unwrap_or_else(|message| Outcome::Failed(Box::new(Failure::error(message))))
    }

    fn run(&mut self, evaluation: &Evaluation<'_>, state: &mut CycleState) -> Result<Outcome, String> {
        let mut diagnosis = Diagnosis::default();
        let feasible = self.find(evaluation, state, &mut diagnosis)?;
        if feasible.is_empty() {
            return Ok(Outcome::Failed(Box::new(self.fail(evaluation, state, diagnosis))));
        }
        let best = best(evaluation, state, &feasible, &self.extenders)?;
        let drawn = best[(env::random_u64(&self.world) % best.len() as u64) as usize];
        Ok(Outcome::Placed(Placement {
            node: drawn.name().to_owned(),
            evaluated: feasible.len() + diagnosis.rejections(),
            feasible: feasible.len(),
            volumes: evaluation.volumes(state, drawn),
            best: best.iter().map(|node| node.slot).collect(),
        }))
    }

    /// The nodes that pass all filters.
    fn find<'a>(
        &mut self,
        evaluation: &Evaluation<'a>,
        state: &mut CycleState,
        diagnosis: &mut Diagnosis,
    ) -> Result<Vec<&'a NodeInfo>, String> {
        let snapshot = evaluation.snapshot;
        let names = match evaluation.pre_filter(state) {
            Ok(names) => names,
            Err(PluginRejection { plugin, rejection }) if rejection.code != Code::Error => {
                diagnosis.pre_filter_message = rejection.message();
                diagnosis.unschedulable_plugins.extend(plugin);
                return Ok(Vec::new());
            }
            Err(error) => return Err(error.rejection.message()),
        };
        if let Some(node) = snapshot.node(&evaluation.pod.pod.status.nominated_node_name) {
            // the node that was cleared for the pod; an error there does not end the cycle
            if let Ok(true) = check(evaluation, state, diagnosis, node.slot) {
                let accepted = extender::filter(&self.extenders, evaluation.pod, vec![node], diagnosis);
                if let Some(accepted) = accepted.ok().filter(|nodes| !nodes.is_empty()) {
                    return Ok(accepted);
                }
            }
        }
        let feasible = self.find_among(evaluation, state, diagnosis, names)?;
        extender::filter(&self.extenders, evaluation.pod, feasible, diagnosis)
    }

    /// The nodes of these names, or of all, that pass the filters of the profile.
    fn find_among<'a>(
        &mut self,
        evaluation: &Evaluation<'a>,
        state: &mut CycleState,
        diagnosis: &mut Diagnosis,
        names: Option<BTreeSet<String>>,
    ) -> Result<Vec<&'a NodeInfo>, String> {
        let snapshot = evaluation.snapshot;
        let Some(names) = names else { return self.search(evaluation, state, diagnosis, snapshot.order()) };
        let slots: Result<Vec<_>, String> = names
            .iter()
            .map(|name| {
                let node = snapshot
                    .node(name)
                    .ok_or_else(|| format!("nodeinfo not found for node name {name:?}"))?;
                Ok(node.slot)
            })
            .collect();
        self.search(evaluation, state, diagnosis, &slots?)
    }

    /// Filters nodes from where the last search ended until enough are found.
    fn search<'a>(
        &mut self,
        evaluation: &Evaluation<'a>,
        state: &mut CycleState,
        diagnosis: &mut Diagnosis,
        slots: &[Slot],
    ) -> Result<Vec<&'a NodeInfo>, String> {
        let count = slots.len();
        let enough = self.nodes_to_find(&evaluation.profile.profile.percentage_of_nodes_to_score, count);
        let mut feasible = Vec::new();
        let mut result = Ok(());
        for step in 0..count {
            if feasible.len() >= enough {
                break;
            }
            let slot = slots[(self.next_start + step) % count];
            match check(evaluation, state, diagnosis, slot) {
                Ok(true) => feasible.extend(evaluation.snapshot.slot(slot)),
                Ok(false) => {}
                Err(message) => {
                    result = Err(message);
                    break;
                }
            }
        }
        self.next_start = (self.next_start + feasible.len() + diagnosis.rejections()) % count.max(1);
        result.map(|()| feasible)
    }

    fn nodes_to_find(&self, of_profile: &Option<i32>, count: usize) -> usize {
        if count < MIN_FEASIBLE_NODES {
            return count;
        }
        let percentage = match usize::try_from(of_profile.unwrap_or(self.percentage)).unwrap_or(0) {
            0 => 50usize.saturating_sub(count / 125).max(MIN_FEASIBLE_PERCENTAGE),
            set => set,
        };
        (count * percentage / 100).max(MIN_FEASIBLE_NODES)
    }

    /// The failure of a pod that fits no node, and what preemption could do for it.
    fn fail(
        &mut self,
        evaluation: &Evaluation<'_>,
        state: &mut CycleState,
        mut diagnosis: Diagnosis,
    ) -> Failure {
        let (mut nomination, mut chosen) = (Nomination::Keep, None);
        let plugins = &evaluation.profile.profile.plugins;
        if plugins.post_filter.contains(&Plugin::DefaultPreemption) {
            let random = env::random_u64(&self.world);
            match preemption::preempt(evaluation, state, &diagnosis, random, &self.extenders) {
                Ok(preemption) => {
                    nomination = Nomination::Node(preemption.node.clone());
                    chosen = Some(preemption);
                }
                Err(preemption::Refusal::NotEligible(message)) => {
                    diagnosis.post_filter_message = format!("preemption: {message}");
                }
                Err(preemption::Refusal::NoCandidates(message)) => {
                    nomination = Nomination::Clear;
                    diagnosis.post_filter_message = format!("preemption: {message}");
                }
                Err(preemption::Refusal::Error(_)) => {}
            }
        }
        let node_count = evaluation.snapshot.node_count();
        Failure { cause: Cause::Unschedulable { node_count, diagnosis }, nomination, preemption: chosen }
    }
}

/// Runs the filters on a node and notes its rejection.
fn check(
    evaluation: &Evaluation<'_>,
    state: &mut CycleState,
    diagnosis: &mut Diagnosis,
    slot: Slot,
) -> Result<bool, String> {
    match evaluation.filter_slot(state, slot) {
        Ok(()) => Ok(true),
        Err(error) if error.rejection.code == Code::Error => Err(error.rejection.message()),
        Err(PluginRejection { plugin, rejection }) => {
            diagnosis.note_plugin(plugin);
            diagnosis.reject(slot, rejection);
            Ok(false)
        }
    }
}

/// The nodes with the highest score.
fn best<'a>(
    evaluation: &Evaluation<'a>,
    state: &mut CycleState,
    feasible: &[&'a NodeInfo],
    extenders: &[Box<dyn Extender>],
) -> Result<Vec<&'a NodeInfo>, String> {
    if let [only] = feasible {
        return Ok(vec![only]);
    }
    let mut scores = evaluation.score(state, feasible).map_err(|rejection| rejection.message())?;
    if !extenders.is_empty() {
        extender::add_scores(extenders, evaluation.pod, feasible, &mut scores);
    }
    let most = scores.iter().copied().max().unwrap_or(0);
    Ok(feasible.iter().zip(scores).filter(|(_, score)| *score == most).map(|(node, _)| *node).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::from_json;

    fn cycle(percentage: i32) -> Cycle {
        Cycle::new(env::Simulated::new(1, 1), percentage)
    }

    fn pod(spec: &str) -> Arc<PodInfo> {
        let json = format!(r#"{{"metadata":{{"name":"p","namespace":"d","uid":"p"}},"spec":{{{spec}}}}}"#);
        Arc::new(PodInfo::new(Arc::new(from_json(json.as_bytes()).unwrap())))
    }

    fn snapshot(nodes: usize, allocatable: &str) -> Snapshot {
        let mut snapshot = Snapshot::new();
        for at in 0..nodes {
            let json = format!(
                r#"{{"metadata":{{"name":"n{at}"}},"status":{{"allocatable":{{"pods":"10",{allocatable}}}}}}}"#
            );
            snapshot.set_node(Arc::new(from_json(json.as_bytes()).unwrap()));
        }
        snapshot
    }

    #[test]
    fn large_clusters_are_searched_in_part() {
        for (percentage, nodes, expected) in
            [(0, 99, 99), (0, 1000, 420), (0, 6000, 300), (30, 1000, 300), (5, 1000, 100), (100, 150, 150)]
        {
            assert_eq!(cycle(percentage).nodes_to_find(&None, nodes), expected, "{percentage}% of {nodes}");
        }
        assert_eq!(cycle(50).nodes_to_find(&Some(20), 1000), 200);
    }

    #[test]
    fn the_next_search_starts_where_the_last_one_ended() {
        let (profile, mut snapshot, mut cycle) =
            (CompiledProfile::default(), snapshot(250, r#""cpu":"1""#), cycle(40));
        let mut starts = Vec::new();
        for _ in 0..4 {
            starts.push(cycle.next_start);
            let outcome =
                cycle.schedule(&profile, &mut snapshot, &(), &pod(r#""containers":[{"name":"c"}]"#));
            assert!(matches!(outcome, Outcome::Placed(placement) if placement.feasible == 100));
        }
        assert_eq!(starts, [0, 100, 200, 50]);
    }

    #[test]
    fn without_nodes_the_message_says_so() {
        let outcome = cycle(0).schedule(
            &CompiledProfile::default(),
            &mut Snapshot::new(),
            &(),
            &pod(r#""containers":[]"#),
        );
        let Outcome::Failed(failure) = outcome else { panic!() };
        assert_eq!(
            (failure.reason(), &*failure.message()),
            ("Unschedulable", "no nodes available to schedule pods")
        );
        assert_eq!(failure.nomination, Nomination::Clear);
    }

    #[test]
    fn absurd_quantities_do_not_overflow() {
        let profile = CompiledProfile::default();
        for allocatable in [r#""cpu":"9E","memory":"9E","a.b/c":"9E""#, r#""cpu":"-9E","memory":"-9E""#] {
            let mut snapshot = snapshot(3, allocatable);
            let mut cycle = cycle(0);
            for at in 0..4 {
                let request = r#"{"cpu":"8E","memory":"8E","a.b/c":"8E"}"#;
                let container = format!(r#"{{"name":"c","resources":{{"requests":{request}}}}}"#);
                let spec = format!(
                    r#""priority":{},"overhead":{request},"containers":[{container},{container}],"initContainers":[{container}]"#,
                    if at % 2 == 0 { i32::MAX } else { i32::MIN }
                );
                let pod = pod(&spec);
                let _ = cycle.schedule(&profile, &mut snapshot, &(), &pod);
                snapshot.assume(&pod, "n0");
            }
        }
    }
}
