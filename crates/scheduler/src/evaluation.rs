//! Runs the plugins of a profile on a pod: pre-filter, filters on a node, scores.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cycle_state::{
    ClassResults, CycleState, LOCAL_SCORES, NodeResult, PluginRejection, Prepared, Scoring,
};
use crate::framework::profile::{Plugin, Profile};
use crate::framework::{Code, Features, FilterResult, Rejection};
use crate::node_info::{NodeInfo, Slot};
use crate::node_set::NodeSet;
use crate::plugin_timer::PluginTimer;
use crate::plugins::default_selector::default_selector;
use crate::plugins::{
    dynamic_resources, image_locality, inter_pod_affinity, node_affinity, node_name, node_ports,
    node_resources, node_unschedulable, node_volume_limits, pod_topology_spread, taint_toleration,
    volume_binding, volume_restrictions, volume_zone,
};
use crate::pod_info::PodInfo;
use crate::snapshot::Snapshot;

/// A profile with its arguments parsed.
#[derive(Debug, Clone)]
pub struct CompiledProfile {
    pub profile: Profile,
    added_affinity: node_affinity::Added,
    pub(crate) spread: pod_topology_spread::Settings,
    features: Features,
    /// Filters that read one node alone come before those that read all pods.
    is_local_first: bool,
    /// Nodes that are equal in what [`NodeGroups`](crate::node_groups::NodeGroups) compare have equal scores.
    has_equal_scores: bool,
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
            is_local_first: {
                // DynamicResources does not concern pods of a class
                let filters = profile.plugins.filter.iter().copied();
                filters.filter(|plugin| *plugin != Plugin::DynamicResources).is_sorted_by_key(reads_all_nodes)
            },
            has_equal_scores: profile.plugins.score.iter().all(|(plugin, _)| match plugin {
                Plugin::PodTopologySpread | Plugin::InterPodAffinity => true,
                // pods of a class have no volumes that it scores, but for the shape
                Plugin::VolumeBinding => args.volume_binding.shape.is_empty(),
                plugin => LOCAL_SCORES.contains(plugin),
            }),
            profile,
        }
    }

    /// Whether nodes of a group have equal scores.
    pub(crate) fn has_equal_scores(&self) -> bool {
        self.has_equal_scores
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
    /// The nodes that pods are nominated for.
    fn nominated_nodes(&self) -> Vec<&str>;
}

/// No pod is nominated.
impl Nominator for () {
    fn nominated_on(&self, _: &str) -> Vec<Arc<PodInfo>> {
        Vec::new()
    }

    fn nominated(&self) -> Vec<Arc<PodInfo>> {
        Vec::new()
    }

    fn nominated_nodes(&self) -> Vec<&str> {
        Vec::new()
    }
}

/// A pod and the cluster that it is evaluated in.
#[derive(Clone, Copy)]
pub struct Evaluation<'a> {
    pub profile: &'a CompiledProfile,
    pub snapshot: &'a Snapshot,
    pub nominator: &'a dyn Nominator,
    pub pod: &'a Arc<PodInfo>,
    /// The nodes that pods are nominated for, in ascending order.
    pub nominated: &'a [Slot],
    pub timer: &'a PluginTimer,
}

impl Evaluation<'_> {
    pub(crate) fn plugins(&self) -> &crate::framework::profile::Plugins {
        &self.profile.profile.plugins
    }

    /// Prepares the plugins. Returns the names of the only nodes to look at; `None` for all.
    pub fn pre_filter(&self, state: &mut CycleState) -> Result<Option<BTreeSet<String>>, PluginRejection> {
        if self.catch_up(state) {
            return node_affinity::pre_filter(self.pod)
                .map_err(|rejection| pre_filter_rejection(Plugin::NodeAffinity, rejection));
        }
        *state = CycleState { results: state.results.take(), ..CycleState::default() };
        state.results.iter_mut().for_each(|results| results.reset(self.snapshot.node_count()));
        let mut names: Option<BTreeSet<String>> = None;
        state.affinity = node_affinity::State::new(self.pod);
        for plugin in &self.plugins().pre_filter {
            let prepared = self.timer.run(*plugin, "PreFilter", || self.prepare(*plugin, state));
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
        for position in changed.iter().filter_map(|node| self.snapshot.position(node.slot)) {
            state.groups.forget(position);
            state.results.iter_mut().for_each(|results| results.forget(position));
        }
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
            Plugin::VolumeBinding => {
                let features = self.profile.features;
                state.volumes = volume_binding::pre_filter(pod, &snapshot.storage, features)?;
            }
            Plugin::PodTopologySpread => {
                let settings = &self.profile.spread;
                state.spread =
                    pod_topology_spread::pre_filter(pod, &state.affinity.required, settings, snapshot)?;
            }
            Plugin::InterPodAffinity => state.inter_pod = inter_pod_affinity::pre_filter(pod, snapshot)?,
            Plugin::DynamicResources if self.profile.features.dynamic_resource_allocation => {
                state.resources = dynamic_resources::pre_filter(pod, &snapshot.storage.resources)?;
            }
            _ => {}
        }
        Ok(None)
    }

    /// Whether the gate of DynamicResources is on.
    pub fn has_dynamic_resources(&self) -> bool {
        self.profile.features.dynamic_resource_allocation
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
            let verdict = self.timer.run(*plugin, "Filter", || self.filter_by(*plugin, state, node));
            verdict.map_err(|mut rejection| {
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
        let known = results.by_slot.get(node.slot).filter(|it| it.generation == node.generation);
        let local = match known {
            Some(known) => known.rejection.clone(),
            None => {
                let rejection = self.filter_some(state, node, |plugin| !reads_all_nodes(plugin)).err();
                let rejection = rejection.map(|error| state.share_known(error));
                let mut scores = [0; LOCAL_SCORES.len()];
                if rejection.is_none() {
                    scores = LOCAL_SCORES.map(|plugin| self.score_local(plugin, state, node));
                }
                let result = NodeResult { generation: node.generation, rejection: rejection.clone(), scores };
                results.set(self.snapshot.position(node.slot), node.slot, result);
                rejection
            }
        };
        let verdict = match local {
            Some(rejection) => Err(rejection),
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
                let args = &self.profile.profile.args.volume_limits;
                node_volume_limits::filter_disks(plugin, args, self.profile.features, pod, storage, node)
            }
            Plugin::NodeVolumeLimits => {
                node_volume_limits::filter_csi(self.profile.features, pod, storage, node)
            }
            Plugin::VolumeBinding => volume_binding::filter(&state.volumes, node, storage),
            Plugin::VolumeZone => volume_zone::filter(pod, storage, node),
            Plugin::DynamicResources => dynamic_resources::filter(&state.resources, pod, node),
            Plugin::PodTopologySpread => pod_topology_spread::filter(&state.spread, topology, node.slot),
            Plugin::InterPodAffinity => inter_pod_affinity::filter(&state.inter_pod, topology, node.slot),
            _ => Ok(()),
        }
    }

    /// Runs the filters on the node of a slot. A class that knows the node does not even read it.
    pub fn filter_slot(&self, state: &mut CycleState, slot: Slot) -> Result<(), PluginRejection> {
        let known = state.results.as_ref().and_then(|results| results.by_slot.get(slot));
        let generation = self.snapshot.generation_of(slot);
        let is_nominated = self.is_nominated(slot);
        if let (false, Some(result)) = (is_nominated, known.filter(|it| it.generation == generation)) {
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

    /// The nodes that may accept the pod, by position; the others reject it. `None` if the state is of no class, or if
    /// a filter could not decide on a node.
    pub fn candidates(&self, state: &mut CycleState) -> Option<NodeSet> {
        let mut candidates = state.results.as_ref()?.candidates(self.snapshot.node_count())?;
        let filters = &self.plugins().filter;
        if filters.contains(&Plugin::PodTopologySpread) {
            state.spread.refresh(self.snapshot);
            state.spread.rejected().for_each(|rejected| candidates.remove_all(rejected));
        }
        if filters.contains(&Plugin::InterPodAffinity) {
            state.inter_pod.refresh(self.snapshot);
            state.inter_pod.rejected().for_each(|rejected| candidates.remove_all(rejected));
        }
        Some(candidates)
    }

    /// The nodes of [`Self::candidates`] that need no further look.
    pub fn accepted(&self, state: &CycleState) -> NodeSet {
        let mut accepted = state.results.as_ref().map(ClassResults::accepted).unwrap_or_default();
        for position in self.nominated.iter().filter_map(|slot| self.snapshot.position(*slot)) {
            accepted.set(position, false);
        }
        accepted
    }

    fn is_nominated(&self, slot: Slot) -> bool {
        self.nominated.binary_search(&slot).is_ok()
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
        let added = match self.is_nominated(node.slot) {
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
            true => {
                let storage = &self.snapshot.storage;
                volume_binding::find_volumes(&state.volumes, node, storage).unwrap_or_default()
            }
            false => volume_binding::PodVolumes::default(),
        }
    }

    /// The score of a node before normalization.
    pub(crate) fn score_local(&self, plugin: Plugin, state: &CycleState, node: &NodeInfo) -> i64 {
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
