//! One scheduling cycle: a snapshot and a pod give a placement, or a failure with its diagnosis.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use env::World;

use crate::class::{ClassCache, ClassKey};
use crate::cycle_state::{CycleState, PluginRejection};
use crate::evaluation::{CompiledProfile, Evaluation, Nominator};
use crate::extender::{self, Extender};
use crate::found_nodes::{FoundNodes, NodeWindow};
use crate::framework::{Code, Diagnosis, Plugin};
use crate::metrics::{Metrics, PluginStatus};
use crate::node_info::{NodeInfo, Slot};
use crate::node_set::NodeSet;
pub use crate::outcome::{Cause, Failure, Nomination, Outcome, Placement};
use crate::plugin_timer::PluginTimer;
use crate::plugins::dynamic_resources::{self, Deallocation, Reservation};
use crate::pod_info::PodInfo;
use crate::preemption::{self, Preemption};
use crate::scoring;
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
    metrics: Metrics,
}

impl Cycle {
    pub fn new(world: World, percentage: i32) -> Self {
        Cycle {
            next_start: 0,
            percentage,
            world,
            classes: ClassCache::default(),
            extenders: Vec::new(),
            metrics: Metrics::default(),
        }
    }

    /// Counts in these metrics.
    pub fn with_metrics(self, metrics: Metrics) -> Self {
        Cycle { metrics, ..self }
    }

    /// Counts a run of an extension point that began at `began`.
    fn observe(
        &self,
        evaluation: &Evaluation<'_>,
        point: &'static str,
        status: PluginStatus,
        began: Duration,
    ) {
        let took = self.world.elapsed().saturating_sub(began);
        self.metrics.observe_point(point, status, &evaluation.profile.profile.scheduler_name, took);
    }

    /// Extenders in the order of their calls.
    pub fn with_extenders(self, extenders: Vec<Box<dyn Extender>>) -> Self {
        Cycle { extenders, ..self }
    }

    /// Forgets the results that pods of a class share.
    pub fn forget_classes(&mut self) {
        self.classes = ClassCache::default();
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
        let nominated = nominated_slots(nominator, snapshot);
        let timer = PluginTimer::new(&self.metrics, &self.world);
        let evaluation =
            Evaluation { profile, snapshot, nominator, pod, nominated: &nominated, timer: &timer };
        if evaluation.snapshot.node_count() == 0 {
            return Outcome::Failed(Box::new(Failure::new(Cause::NoNodes)));
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
        let began = self.world.elapsed();
        let best = best(evaluation, state, &feasible, &self.extenders);
        if feasible.len() > 1 {
            self.observe(evaluation, "Score", PluginStatus::of(&best), began);
        }
        let best = best?;
        let drawn = (env::random_u64(&self.world) % best.len().max(1) as u64) as usize;
        let node = best.nth(drawn).and_then(|slot| evaluation.snapshot.slot(slot));
        let node = node.ok_or("the node of a search is gone")?;
        let began = self.world.elapsed();
        let resources = reserve_resources(evaluation, state, node, &feasible);
        let volumes = evaluation.volumes(state, node);
        self.observe(evaluation, "Reserve", PluginStatus::of(&resources), began);
        let resources = resources?;
        Ok(Outcome::Placed(Box::new(Placement {
            node: node.name().to_owned(),
            evaluated: feasible.len() + diagnosis.rejections(),
            feasible: feasible.len(),
            volumes,
            resources,
            scheduling_cycle: 0,
            best,
        })))
    }

    /// The nodes that pass all filters.
    fn find(
        &mut self,
        evaluation: &Evaluation<'_>,
        state: &mut CycleState,
        diagnosis: &mut Diagnosis,
    ) -> Result<FoundNodes, String> {
        let snapshot = evaluation.snapshot;
        let began = self.world.elapsed();
        let prepared = evaluation.pre_filter(state);
        let status = prepared
            .as_ref()
            .map_or_else(|it| PluginStatus::Failure(it.rejection.code), |_| PluginStatus::Success);
        self.observe(evaluation, "PreFilter", status, began);
        let names = match prepared {
            Ok(names) => names,
            Err(PluginRejection { plugin, rejection }) if rejection.code != Code::Error => {
                diagnosis.pre_filter_message = rejection.message();
                diagnosis.unschedulable_plugins.extend(plugin);
                return Ok(FoundNodes::List(Vec::new()));
            }
            Err(error) => return Err(error.rejection.message()),
        };
        if let Some(node) = snapshot.node(&evaluation.pod.pod.status.nominated_node_name) {
            // the node that was cleared for the pod; an error there does not end the cycle
            if let Ok(true) = check(evaluation, state, diagnosis, node.slot) {
                let nominated = FoundNodes::List(vec![node.slot]);
                let accepted = self.filter_by_extenders(evaluation, nominated, diagnosis);
                if let Some(accepted) = accepted.ok().filter(|nodes| !nodes.is_empty()) {
                    return Ok(accepted);
                }
            }
        }
        let feasible = self.find_among(evaluation, state, diagnosis, names)?;
        self.filter_by_extenders(evaluation, feasible, diagnosis)
    }

    fn filter_by_extenders(
        &self,
        evaluation: &Evaluation<'_>,
        feasible: FoundNodes,
        diagnosis: &mut Diagnosis,
    ) -> Result<FoundNodes, String> {
        if self.extenders.is_empty() {
            return Ok(feasible);
        }
        let nodes = nodes(evaluation, &feasible);
        let accepted = extender::filter(&self.extenders, evaluation.pod, nodes, diagnosis)?;
        Ok(FoundNodes::List(accepted.iter().map(|node| node.slot).collect()))
    }

    /// The nodes of these names, or of all, that pass the filters of the profile.
    fn find_among(
        &mut self,
        evaluation: &Evaluation<'_>,
        state: &mut CycleState,
        diagnosis: &mut Diagnosis,
        names: Option<BTreeSet<String>>,
    ) -> Result<FoundNodes, String> {
        let snapshot = evaluation.snapshot;
        let Some(names) = names else {
            // extenders and failures need the rejection of every node
            let is_countable = self.extenders.is_empty() && diagnosis.rejections() == 0;
            let candidates = if is_countable { evaluation.candidates(state) } else { None };
            if let Some(candidates) = candidates
                && let Some(window) = self.search_candidates(evaluation, state, diagnosis, &candidates)
            {
                return Ok(FoundNodes::Window(window));
            }
            return self.search(evaluation, state, diagnosis, snapshot.order());
        };
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

    /// Like [`Self::search`] over all nodes, without those that are known to reject the pod; the diagnosis gets their
    /// number only. Without a feasible node, nothing has changed.
    fn search_candidates(
        &mut self,
        evaluation: &Evaluation<'_>,
        state: &mut CycleState,
        diagnosis: &mut Diagnosis,
        candidates: &NodeSet,
    ) -> Option<NodeWindow> {
        let order = evaluation.snapshot.order();
        let enough =
            self.nodes_to_find(&evaluation.profile.profile.percentage_of_nodes_to_score, order.len());
        let (start, began) = (self.next_start % order.len().max(1), self.world.elapsed());
        let accepted = evaluation.accepted(state);
        let found = NodeWindow::find(order, start, enough, candidates, &accepted, |slot| {
            match evaluation.filter_slot(state, slot) {
                Ok(()) => Some(true),
                // the full search ends with the error
                Err(error) if error.rejection.code == Code::Error => None,
                Err(_) => Some(false),
            }
        });
        let window = found.filter(|window| !window.is_empty())?;
        self.next_start = (start + window.visited()) % order.len();
        diagnosis.skipped = window.visited() - window.len();
        self.observe(evaluation, "Filter", PluginStatus::Success, began);
        Some(window)
    }

    /// Filters nodes from where the last search ended until enough are found.
    fn search(
        &mut self,
        evaluation: &Evaluation<'_>,
        state: &mut CycleState,
        diagnosis: &mut Diagnosis,
        slots: &[Slot],
    ) -> Result<FoundNodes, String> {
        let count = slots.len();
        let enough = self.nodes_to_find(&evaluation.profile.profile.percentage_of_nodes_to_score, count);
        let began = self.world.elapsed();
        let mut feasible = Vec::new();
        let mut result = Ok(());
        for step in 0..count {
            if feasible.len() >= enough {
                break;
            }
            let slot = slots[(self.next_start + step) % count];
            match check(evaluation, state, diagnosis, slot) {
                Ok(true) => feasible.push(slot),
                Ok(false) => {}
                Err(message) => {
                    result = Err(message);
                    break;
                }
            }
        }
        self.next_start = (self.next_start + feasible.len() + diagnosis.rejections()) % count.max(1);
        self.observe(evaluation, "Filter", PluginStatus::of(&result), began);
        result.map(|()| FoundNodes::List(feasible))
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

    fn observe_preemption(
        &self,
        evaluation: &Evaluation<'_>,
        preempted: &Result<Preemption, preemption::Refusal>,
        began: Duration,
    ) {
        let status = match preempted {
            Ok(_) => PluginStatus::Success,
            Err(preemption::Refusal::Error(_)) => PluginStatus::Failure(Code::Error),
            Err(_) => PluginStatus::Failure(Code::Unschedulable),
        };
        self.observe(evaluation, "PostFilter", status, began);
        let took = self.world.elapsed().saturating_sub(began);
        self.metrics.observe_plugin(Plugin::DefaultPreemption.name(), "PostFilter", status, took);
        self.metrics.observe_preemption_attempt();
        if let Ok(preemption) = preempted {
            self.metrics.observe_victims(preemption.victims.len());
        }
    }

    /// The failure of a pod that fits no node, and what preemption could do for it.
    fn fail(
        &mut self,
        evaluation: &Evaluation<'_>,
        state: &mut CycleState,
        mut diagnosis: Diagnosis,
    ) -> Failure {
        let (mut nomination, mut chosen, mut has_error) = (Nomination::Keep, None, false);
        let plugins = &evaluation.profile.profile.plugins;
        if plugins.post_filter.contains(&Plugin::DefaultPreemption) {
            let (random, began) = (env::random_u64(&self.world), self.world.elapsed());
            let preempted = preemption::preempt(evaluation, state, &diagnosis, random, &self.extenders);
            self.observe_preemption(evaluation, &preempted, began);
            match preempted {
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
                Err(preemption::Refusal::Error(_)) => has_error = true,
            }
        }
        let node_count = evaluation.snapshot.node_count();
        let mut failure = Failure {
            cause: Cause::Unschedulable { node_count, diagnosis },
            nomination,
            preemption: chosen,
            deallocation: None,
        };
        if !has_error && plugins.post_filter.contains(&Plugin::DynamicResources) {
            deallocate(evaluation, state, &mut failure);
        }
        failure
    }
}

/// The claims of a pod to reserve for a node.
fn reserve_resources(
    evaluation: &Evaluation<'_>,
    state: &CycleState,
    node: &NodeInfo,
    feasible: &FoundNodes,
) -> Result<Reservation, String> {
    if state.resources.is_empty()
        || !evaluation.profile.profile.plugins.reserve.contains(&Plugin::DynamicResources)
    {
        return Ok(Reservation::default());
    }
    let names: Vec<&str> = nodes(evaluation, feasible).iter().map(|node| node.name()).collect();
    dynamic_resources::reserve(&state.resources, evaluation.pod, node.name(), &names)
        .map_err(|why| format!("running Reserve plugin {:?}: {why}", Plugin::DynamicResources.name()))
}

/// Finds a claim whose deallocation helps, unless preemption does.
fn deallocate(evaluation: &Evaluation<'_>, state: &CycleState, failure: &mut Failure) {
    let (None, Cause::Unschedulable { diagnosis, .. }) = (&failure.preemption, &mut failure.cause) else {
        return;
    };
    let nodes = evaluation.snapshot.nodes();
    let failed = nodes.filter_map(|node| Some((node, &**diagnosis.rejection(node.slot)?)));
    let why = match dynamic_resources::deallocate(&state.resources, evaluation.pod, failed) {
        _ if !evaluation.has_dynamic_resources() => "plugin disabled",
        Deallocation::Refused(why) => why,
        Deallocation::Claim(claim) => {
            diagnosis.post_filter_message.clear();
            failure.nomination = Nomination::Keep;
            failure.deallocation = Some(claim);
            return;
        }
    };
    let message = &mut diagnosis.post_filter_message;
    *message = if message.is_empty() { why.to_owned() } else { format!("{message}, {why}") };
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

/// The nodes that pods are nominated for, in ascending order.
fn nominated_slots(nominator: &dyn Nominator, snapshot: &Snapshot) -> Vec<Slot> {
    let nodes = nominator.nominated_nodes();
    let mut slots: Vec<Slot> =
        nodes.iter().filter_map(|name| snapshot.node(name)).map(|it| it.slot).collect();
    slots.sort_unstable();
    slots
}

fn nodes<'a>(evaluation: &Evaluation<'a>, found: &FoundNodes) -> Vec<&'a NodeInfo> {
    found.to_vec().into_iter().filter_map(|slot| evaluation.snapshot.slot(slot)).collect()
}

/// The nodes with the highest score.
fn best(
    evaluation: &Evaluation<'_>,
    state: &mut CycleState,
    feasible: &FoundNodes,
    extenders: &[Box<dyn Extender>],
) -> Result<FoundNodes, String> {
    if feasible.len() == 1 {
        return Ok(feasible.clone());
    }
    if extenders.is_empty() {
        return evaluation.best(state, feasible).map_err(|rejection| rejection.message());
    }
    let slots = feasible.to_vec();
    let mut scores = evaluation.scores(state, &slots).map_err(|rejection| rejection.message())?;
    extender::add_scores(extenders, evaluation.pod, &nodes(evaluation, feasible), &mut scores);
    Ok(FoundNodes::List(scoring::highest(&slots, &scores)))
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
