//! Runs the plugins of a profile on a pod: pre-filter, filters on a node, scores.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::framework::profile::{Plugin, Profile};
use crate::framework::{Code, Features, FilterResult, MAX_NODE_SCORE, Rejection};
use crate::node_info::{NodeInfo, Slot};
use crate::plugins::default_selector::default_selector;
use crate::plugins::{
    image_locality, inter_pod_affinity, node_affinity, node_name, node_ports, node_resources,
    node_unschedulable, node_volume_limits, pod_topology_spread, taint_toleration, volume_binding,
    volume_restrictions, volume_zone,
};
use crate::pod_info::PodInfo;
use crate::selector::LabelMatcher;
use crate::snapshot::Snapshot;

/// A profile with its arguments parsed.
#[derive(Debug, Clone)]
pub struct CompiledProfile {
    pub profile: Profile,
    added_affinity: node_affinity::Added,
    spread: pod_topology_spread::Settings,
    features: Features,
    /// Filters that read one node alone come before those that read all pods.
    is_local_first: bool,
}

/// Whether a filter reads other nodes than the one that it decides on.
const fn reads_all_nodes(plugin: Plugin) -> bool {
    matches!(plugin, Plugin::PodTopologySpread | Plugin::InterPodAffinity)
}

impl CompiledProfile {
    pub fn new(profile: Profile, features: Features) -> Self {
        let args = &profile.args;
        CompiledProfile {
            added_affinity: node_affinity::Added::new(args.node_affinity.added_affinity.as_ref()),
            spread: pod_topology_spread::Settings::new(&args.pod_topology_spread, features),
            features,
            is_local_first: profile.plugins.filter.is_sorted_by_key(|plugin| reads_all_nodes(*plugin)),
            profile,
        }
    }

    /// Whether results of single nodes can be kept.
    pub fn has_local_results(&self) -> bool {
        self.is_local_first
    }

    /// The topology keys that cycles of a pod read: its own, and those of the default constraints.
    pub fn topology_keys<'a>(&'a self, pod: &'a PodInfo) -> impl Iterator<Item = &'a str> {
        let own = &pod.pod.spec.topology_spread_constraints;
        let spread = if own.is_empty() { &self.spread.defaults } else { own };
        spread.iter().map(|constraint| &*constraint.topology_key).chain(pod.topology_keys())
    }
}

impl Default for CompiledProfile {
    fn default() -> Self {
        CompiledProfile::new(Profile::default(), Features::default())
    }
}

/// Pods that wait for a node on which others make room for them.
pub trait Nominator {
    /// The pods nominated for a node.
    fn nominated_on(&self, node: &str) -> Vec<Arc<PodInfo>>;
    /// All nominated pods.
    fn nominated(&self) -> Vec<Arc<PodInfo>>;
}

/// No pod is nominated.
impl Nominator for () {
    fn nominated_on(&self, _: &str) -> Vec<Arc<PodInfo>> {
        Vec::new()
    }

    fn nominated(&self) -> Vec<Arc<PodInfo>> {
        Vec::new()
    }
}

/// What the plugins prepared for a pod. Pods of one class share it: then it also keeps results by node, and its counts
/// follow the changes of nodes.
#[derive(Debug, Clone, Default)]
pub struct CycleState {
    affinity: node_affinity::State,
    spread: pod_topology_spread::State,
    inter_pod: inter_pod_affinity::State,
    volumes: volume_binding::State,
    scoring: Scoring,
    soft_spread: Option<pod_topology_spread::ScoreState>,
    preferred_pods: Option<inter_pod_affinity::ScoreState>,
    /// Whether all plugins prepared their part.
    is_complete: bool,
    /// Of a class: results by slot.
    results: Option<Vec<NodeResult>>,
    /// Rejections that many nodes have.
    rejections: Vec<Arc<Rejection>>,
    /// Of a class: the state of the snapshot that it was prepared for.
    prepared_for: Option<Prepared>,
}

/// What resource and image scores read of the pod.
#[derive(Debug, Clone, Default)]
struct Scoring {
    fit: node_resources::ScoreState,
    balanced: node_resources::ScoreState,
    images: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
struct Prepared {
    layout: u64,
    node_count: usize,
    selector: Option<LabelMatcher>,
    generation: u64,
}

/// The scores that read one node alone.
const LOCAL_SCORES: [Plugin; 5] = [
    Plugin::TaintToleration,
    Plugin::NodeAffinity,
    Plugin::NodeResourcesFit,
    Plugin::NodeResourcesBalancedAllocation,
    Plugin::ImageLocality,
];

/// What the filters and scores that read one node alone found at a generation of the node.
#[derive(Debug, Clone, Default)]
struct NodeResult {
    generation: u64,
    rejection: Option<PluginRejection>,
    scores: [i64; LOCAL_SCORES.len()],
}

impl CycleState {
    /// The state of a class of pods.
    pub fn for_class() -> Self {
        CycleState { results: Some(Vec::new()), ..CycleState::default() }
    }

    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub fn is_of_class(&self) -> bool {
        self.results.is_some()
    }

    /// Like [`Self::share`].
    fn share_known(&mut self, error: PluginRejection) -> PluginRejection {
        match error.plugin {
            Some(plugin) => self.share((plugin, Rejection::clone(&error.rejection))),
            None => error,
        }
    }

    /// Shares the memory of equal rejections: many nodes have the same.
    fn share(&mut self, (plugin, rejection): (Plugin, Rejection)) -> PluginRejection {
        let plugin = Some(plugin);
        if let Some(known) = self.rejections.iter().find(|known| ***known == rejection) {
            return PluginRejection { plugin, rejection: Arc::clone(known) };
        }
        let rejection = Arc::new(rejection);
        if self.rejections.len() < 8 {
            self.rejections.push(Arc::clone(&rejection));
        }
        PluginRejection { plugin, rejection }
    }
}

/// A plugin's rejection; no plugin for one that several cause together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginRejection {
    pub plugin: Option<Plugin>,
    pub rejection: Arc<Rejection>,
}

/// A pod and the cluster that it is evaluated in.
#[derive(Clone, Copy)]
pub struct Evaluation<'a> {
    pub profile: &'a CompiledProfile,
    pub snapshot: &'a Snapshot,
    pub nominator: &'a dyn Nominator,
    pub pod: &'a Arc<PodInfo>,
    /// Whether any pod is nominated.
    pub has_nominated: bool,
}

impl Evaluation<'_> {
    fn plugins(&self) -> &crate::framework::profile::Plugins {
        &self.profile.profile.plugins
    }

    /// Prepares the plugins. Returns the names of the only nodes to look at; `None` for all.
    pub fn pre_filter(&self, state: &mut CycleState) -> Result<Option<BTreeSet<String>>, PluginRejection> {
        if self.catch_up(state) {
            return node_affinity::pre_filter(self.pod)
                .map_err(|rejection| pre_filter_rejection(Plugin::NodeAffinity, rejection));
        }
        *state = CycleState { results: state.results.take(), ..CycleState::default() };
        state.results.iter_mut().for_each(Vec::clear);
        let mut names: Option<BTreeSet<String>> = None;
        state.affinity = node_affinity::State::new(self.pod);
        for plugin in &self.plugins().pre_filter {
            let prepared = self.prepare(*plugin, state);
            let some = prepared.map_err(|rejection| pre_filter_rejection(*plugin, rejection))?;
            names = match (names, some) {
                (Some(before), Some(some)) => Some(before.intersection(&some).cloned().collect()),
                (before, some) => before.or(some),
            };
            if names.as_ref().is_some_and(BTreeSet::is_empty) {
                let rejection = Rejection::unschedulable("node(s) didn't satisfy plugin NodeAffinity");
                return Err(PluginRejection { plugin: None, rejection: Arc::new(rejection) });
            }
        }
        let args = &self.profile.profile.args;
        let strategy = &args.node_resources_fit.scoring_strategy;
        let balanced = &args.node_resources_balanced_allocation.resources;
        state.scoring = Scoring {
            fit: node_resources::ScoreState::new(self.pod, &strategy.resources, true),
            balanced: node_resources::ScoreState::new(self.pod, balanced, false),
            images: image_locality::images(self.pod),
        };
        state.is_complete = true;
        state.prepared_for = state.results.is_some().then(|| self.now());
        Ok(names)
    }

    fn now(&self) -> Prepared {
        let has_own = !self.pod.pod.spec.topology_spread_constraints.is_empty();
        let is_read = !has_own && !self.profile.spread.defaults.is_empty();
        Prepared {
            layout: self.snapshot.layout(),
            node_count: self.snapshot.node_count(),
            selector: is_read.then(|| default_selector(self.pod, &self.snapshot.workloads)),
            generation: self.snapshot.generation(),
        }
    }

    /// Brings the state of a class up to date by the nodes that changed. Returns whether that was possible.
    fn catch_up(&self, state: &mut CycleState) -> bool {
        let Some(before) = state.prepared_for.as_mut().filter(|_| state.is_complete) else { return false };
        let now = self.now();
        let generation = std::mem::replace(&mut before.generation, now.generation);
        if *before != now {
            return false;
        }
        let Some(changed) = self.snapshot.changed_since(generation) else { return false };
        let changed: Vec<&NodeInfo> = changed.collect();
        let (pod, topology, required) = (&**self.pod, self.snapshot.topology(), &state.affinity.required);
        let nodes = || changed.iter().copied();
        state.spread.recount(pod, required, nodes(), topology);
        state.inter_pod.recount(pod, nodes(), topology);
        if let Some(soft) = &mut state.soft_spread {
            soft.recount(pod, required, nodes(), topology);
        }
        if let Some(preferred) = &mut state.preferred_pods {
            preferred.recount(pod, nodes(), topology);
        }
        true
    }

    fn prepare(&self, plugin: Plugin, state: &mut CycleState) -> Result<Option<BTreeSet<String>>, Rejection> {
        let (pod, snapshot) = (self.pod, self.snapshot);
        match plugin {
            Plugin::NodeAffinity => return node_affinity::pre_filter(pod),
            Plugin::VolumeRestrictions if self.profile.features.read_write_once_pod => {
                volume_restrictions::pre_filter(pod, snapshot)?;
            }
            Plugin::VolumeBinding => state.volumes = volume_binding::pre_filter(pod, &snapshot.storage)?,
            Plugin::PodTopologySpread => {
                let settings = &self.profile.spread;
                state.spread =
                    pod_topology_spread::pre_filter(pod, &state.affinity.required, settings, snapshot)?;
            }
            Plugin::InterPodAffinity => state.inter_pod = inter_pod_affinity::pre_filter(pod, snapshot)?,
            _ => {}
        }
        Ok(None)
    }

    /// Counts another pod on a node, or no longer.
    pub fn update(&self, state: &mut CycleState, other: &PodInfo, node: &NodeInfo, delta: i64) {
        let topology = self.snapshot.topology();
        let required = &state.affinity.required;
        state.spread.update(self.pod, required, other, node, topology, delta);
        state.inter_pod.update(self.pod, other, node, topology, delta);
    }

    /// Runs the filters on a node until one rejects the pod.
    pub fn filter(&self, state: &CycleState, node: &NodeInfo) -> Result<(), PluginRejection> {
        self.filter_some(state, node, |_| true)
    }

    fn filter_some(
        &self,
        state: &CycleState,
        node: &NodeInfo,
        runs: impl Fn(Plugin) -> bool,
    ) -> Result<(), PluginRejection> {
        for plugin in self.plugins().filter.iter().filter(|plugin| runs(**plugin)) {
            self.filter_by(*plugin, state, node).map_err(|mut rejection| {
                if rejection.code == Code::Error {
                    let message = rejection.message();
                    rejection =
                        Rejection::error(format!("running {:?} filter plugin: {message}", plugin.name()));
                }
                PluginRejection { plugin: Some(*plugin), rejection: Arc::new(rejection) }
            })?;
        }
        Ok(())
    }

    /// Like [`Self::filter`], with the results of the class for nodes that did not change.
    fn filter_by_class(&self, state: &mut CycleState, node: &NodeInfo) -> Result<(), PluginRejection> {
        let Some(mut results) = state.results.take_if(|_| node.generation != 0) else {
            return self.filter(state, node);
        };
        if results.len() <= node.slot {
            results.resize(node.slot + 1, NodeResult::default());
        }
        let result = &mut results[node.slot];
        if result.generation != node.generation {
            let rejection = self.filter_some(state, node, |plugin| !reads_all_nodes(plugin)).err();
            let rejection = rejection.map(|error| state.share_known(error));
            let mut scores = [0; LOCAL_SCORES.len()];
            if rejection.is_none() {
                scores = LOCAL_SCORES.map(|plugin| self.score_local(plugin, state, node));
            }
            *result = NodeResult { generation: node.generation, rejection, scores };
        }
        let verdict = match &result.rejection {
            Some(rejection) => Err(rejection.clone()),
            None => self.filter_shared(state, node.slot).map_err(|error| state.share(error)),
        };
        state.results = Some(results);
        verdict
    }

    fn filter_by(&self, plugin: Plugin, state: &CycleState, node: &NodeInfo) -> FilterResult {
        let (pod, storage, topology) = (&**self.pod, &self.snapshot.storage, self.snapshot.topology());
        match plugin {
            Plugin::NodeUnschedulable => node_unschedulable::filter(pod, node),
            Plugin::NodeName => node_name::filter(pod, node),
            Plugin::TaintToleration => taint_toleration::filter(pod, node),
            Plugin::NodeAffinity => {
                node_affinity::filter(&self.profile.added_affinity, &state.affinity, node)
            }
            Plugin::NodePorts => node_ports::filter(pod, node),
            Plugin::NodeResourcesFit => {
                node_resources::filter(&self.profile.profile.args.node_resources_fit, &pod.requests, node)
            }
            Plugin::VolumeRestrictions => volume_restrictions::filter(pod, node),
            Plugin::EBSLimits | Plugin::GCEPDLimits | Plugin::AzureDiskLimits | Plugin::CinderLimits => {
                node_volume_limits::filter_disks(plugin, pod, storage, node)
            }
            Plugin::NodeVolumeLimits => node_volume_limits::filter_csi(pod, storage, node),
            Plugin::VolumeBinding => volume_binding::filter(&state.volumes, node),
            Plugin::VolumeZone => volume_zone::filter(pod, storage, node),
            Plugin::PodTopologySpread => pod_topology_spread::filter(&state.spread, topology, node.slot),
            Plugin::InterPodAffinity => inter_pod_affinity::filter(&state.inter_pod, topology, node.slot),
            _ => Ok(()),
        }
    }

    /// Runs the filters on the node of a slot. A class that knows the node does not even read it.
    pub fn filter_slot(&self, state: &mut CycleState, slot: Slot) -> Result<(), PluginRejection> {
        let known = state.results.as_ref().and_then(|results| results.get(slot));
        let generation = self.snapshot.generation_of(slot);
        if let (false, Some(result)) = (self.has_nominated, known.filter(|it| it.generation == generation)) {
            return match &result.rejection {
                Some(rejection) => Err(rejection.clone()),
                None => self.filter_shared(state, slot).map_err(|error| state.share(error)),
            };
        }
        match self.snapshot.slot(slot) {
            Some(node) => self.filter_with_nominated(state, node),
            None => Ok(()),
        }
    }

    /// The filters that read all nodes.
    fn filter_shared(&self, state: &CycleState, slot: Slot) -> Result<(), (Plugin, Rejection)> {
        let topology = self.snapshot.topology();
        for plugin in self.plugins().filter.iter().filter(|plugin| reads_all_nodes(**plugin)) {
            let verdict = match plugin {
                Plugin::PodTopologySpread => pod_topology_spread::filter(&state.spread, topology, slot),
                _ => inter_pod_affinity::filter(&state.inter_pod, topology, slot),
            };
            verdict.map_err(|rejection| (*plugin, rejection))?;
        }
        Ok(())
    }

    /// Runs the filters with the nominated pods of the node that this pod must yield to, and without them: it must pass
    /// both, for they may still go elsewhere.
    pub fn filter_with_nominated(
        &self,
        state: &mut CycleState,
        node: &NodeInfo,
    ) -> Result<(), PluginRejection> {
        let added = match self.has_nominated {
            true => self.nominated_before(node),
            false => Vec::new(),
        };
        if !added.is_empty() {
            let mut with = node.clone();
            for other in &added {
                with.add_pod(Arc::clone(other));
                self.update(state, other, node, 1);
            }
            let result = self.filter(state, &with);
            for other in &added {
                self.update(state, other, node, -1);
            }
            result?;
        }
        self.filter_by_class(state, node)
    }

    /// The nominated pods of a node with the same or a higher priority.
    fn nominated_before(&self, node: &NodeInfo) -> Vec<Arc<PodInfo>> {
        let mut pods = self.nominator.nominated_on(node.name());
        pods.retain(|other| other.priority() >= self.pod.priority() && other.uid() != self.pod.uid());
        pods
    }

    /// The volumes for the pod on a node.
    pub fn volumes(&self, state: &CycleState, node: &NodeInfo) -> volume_binding::PodVolumes {
        match self.plugins().reserve.contains(&Plugin::VolumeBinding) {
            true => volume_binding::find_volumes(&state.volumes, node).unwrap_or_default(),
            false => volume_binding::PodVolumes::default(),
        }
    }

    /// The weighted sums of the scores of nodes.
    pub fn score(&self, state: &mut CycleState, nodes: &[&NodeInfo]) -> Result<Vec<i64>, Rejection> {
        if self.plugins().score.is_empty() {
            return Ok(vec![1; nodes.len()]);
        }
        let mut totals = vec![0i64; nodes.len()];
        for (plugin, weight) in &self.plugins().score {
            let Some(scores) = self.score_by(*plugin, state, nodes)? else { continue };
            for (total, score) in totals.iter_mut().zip(scores) {
                *total = total.saturating_add(score.clamp(0, MAX_NODE_SCORE).saturating_mul(*weight));
            }
        }
        Ok(totals)
    }

    /// The normalized scores of one plugin; `None` if all nodes have the same.
    pub fn score_by(
        &self,
        plugin: Plugin,
        state: &mut CycleState,
        nodes: &[&NodeInfo],
    ) -> Result<Option<Vec<i64>>, Rejection> {
        Ok(match plugin {
            Plugin::TaintToleration => {
                let mut scores = self.scores_local(plugin, state, nodes);
                taint_toleration::normalize(&mut scores);
                Some(scores)
            }
            Plugin::NodeAffinity => {
                state.affinity.check()?;
                let mut scores = self.scores_local(plugin, state, nodes);
                node_affinity::normalize(&mut scores);
                Some(scores)
            }
            Plugin::NodeResourcesFit | Plugin::NodeResourcesBalancedAllocation | Plugin::ImageLocality => {
                Some(self.scores_local(plugin, state, nodes))
            }
            Plugin::PodTopologySpread => self.score_spread(state, nodes)?,
            Plugin::InterPodAffinity => self.score_preferred_pods(state, nodes)?,
            _ => None,
        })
    }

    fn scores_local(&self, plugin: Plugin, state: &CycleState, nodes: &[&NodeInfo]) -> Vec<i64> {
        let at = LOCAL_SCORES.iter().position(|one| *one == plugin);
        let known = |node: &NodeInfo| {
            let result = state.results.as_ref()?.get(node.slot)?;
            let is_current = result.generation == node.generation && result.rejection.is_none();
            is_current.then(|| at.map(|at| result.scores[at])).flatten()
        };
        let score = |node: &&NodeInfo| known(node).unwrap_or_else(|| self.score_local(plugin, state, node));
        nodes.iter().map(score).collect()
    }

    /// The score of a node before normalization.
    fn score_local(&self, plugin: Plugin, state: &CycleState, node: &NodeInfo) -> i64 {
        let args = &self.profile.profile.args;
        match plugin {
            Plugin::TaintToleration => taint_toleration::score(self.pod, node),
            Plugin::NodeAffinity => node_affinity::score(&self.profile.added_affinity, &state.affinity, node),
            Plugin::NodeResourcesFit => {
                let strategy = &args.node_resources_fit.scoring_strategy;
                node_resources::score_fit(strategy, &state.scoring.fit, node)
            }
            Plugin::NodeResourcesBalancedAllocation => {
                node_resources::score_balanced(&state.scoring.balanced, node)
            }
            Plugin::ImageLocality => {
                image_locality::score(&state.scoring.images, node, self.snapshot.node_count())
            }
            _ => 0,
        }
    }

    fn score_spread(
        &self,
        state: &mut CycleState,
        nodes: &[&NodeInfo],
    ) -> Result<Option<Vec<i64>>, Rejection> {
        let (pod, topology) = (&**self.pod, self.snapshot.topology());
        let is_of_class = state.is_of_class();
        let spread = match &mut state.soft_spread {
            Some(spread) => spread,
            None => state.soft_spread.insert(pod_topology_spread::pre_score(
                pod,
                &state.affinity.required,
                &self.profile.spread,
                self.snapshot,
                is_of_class,
            )?),
        };
        if spread.is_empty() {
            return Ok(None);
        }
        spread.weigh(topology, nodes);
        let score = |node: &&NodeInfo| pod_topology_spread::score(spread, pod, topology, node);
        Ok(Some(pod_topology_spread::normalize(&nodes.iter().map(score).collect::<Vec<_>>())))
    }

    fn score_preferred_pods(
        &self,
        state: &mut CycleState,
        nodes: &[&NodeInfo],
    ) -> Result<Option<Vec<i64>>, Rejection> {
        let weight = self.profile.profile.args.inter_pod_affinity.hard_pod_affinity_weight;
        let preferred = match &mut state.preferred_pods {
            Some(preferred) => preferred,
            None => {
                state.preferred_pods.insert(inter_pod_affinity::pre_score(self.pod, weight, self.snapshot)?)
            }
        };
        if preferred.is_empty() {
            return Ok(None);
        }
        let topology = self.snapshot.topology();
        let score = |node: &&NodeInfo| inter_pod_affinity::score(preferred, topology, node);
        let mut scores: Vec<i64> = nodes.iter().map(score).collect();
        inter_pod_affinity::normalize(preferred, &mut scores);
        Ok(Some(scores))
    }
}

fn pre_filter_rejection(plugin: Plugin, rejection: Rejection) -> PluginRejection {
    let rejection = match rejection.code {
        Code::Error => {
            let message = rejection.message();
            Rejection::error(format!("running PreFilter plugin {:?}: {message}", plugin.name()))
        }
        _ => rejection,
    };
    PluginRejection { plugin: Some(plugin), rejection: Arc::new(rejection) }
}
