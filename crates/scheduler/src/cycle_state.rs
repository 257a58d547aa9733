//! The state of a scheduling cycle: what the plugins prepared for a pod, and the results that pods of a class share.

use std::sync::Arc;

use crate::framework::profile::Plugin;
use crate::framework::{Code, Rejection};
use crate::node_groups::NodeGroups;
use crate::node_info::Slot;
use crate::node_set::NodeSet;
use crate::plugins::{
    dynamic_resources, inter_pod_affinity, node_affinity, node_resources, pod_topology_spread, volume_binding,
};
use crate::selector::LabelMatcher;

/// What the plugins prepared for a pod. Pods of one class share it: then it also keeps results by node, and its counts
/// follow the changes of nodes.
#[derive(Debug, Clone, Default)]
pub struct CycleState {
    pub(crate) affinity: node_affinity::State,
    pub(crate) spread: pod_topology_spread::State,
    pub(crate) inter_pod: inter_pod_affinity::State,
    pub(crate) volumes: volume_binding::State,
    pub(crate) resources: dynamic_resources::State,
    pub(crate) scoring: Scoring,
    pub(crate) soft_spread: Option<pod_topology_spread::ScoreState>,
    pub(crate) preferred_pods: Option<inter_pod_affinity::ScoreState>,
    /// Whether all plugins prepared their part.
    pub(crate) is_complete: bool,
    /// Of a class: results of nodes.
    pub(crate) results: Option<ClassResults>,
    /// Of a class: the nodes that score alike.
    pub(crate) groups: NodeGroups,
    /// Rejections that many nodes have.
    pub(crate) rejections: Vec<Arc<Rejection>>,
    /// Of a class: the state of the snapshot that it was prepared for.
    pub(crate) prepared_for: Option<Prepared>,
}

/// What resource and image scores read of the pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scoring {
    pub(crate) fit: node_resources::ScoreState,
    pub(crate) balanced: node_resources::ScoreState,
    pub(crate) images: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Prepared {
    pub(crate) layout: u64,
    pub(crate) node_count: usize,
    pub(crate) selector: Option<LabelMatcher>,
    pub(crate) generation: u64,
}

/// The scores that read one node alone.
pub(crate) const LOCAL_SCORES: [Plugin; 5] = [
    Plugin::TaintToleration,
    Plugin::NodeAffinity,
    Plugin::NodeResourcesFit,
    Plugin::NodeResourcesBalancedAllocation,
    Plugin::ImageLocality,
];

/// What the filters and scores that read one node alone found at a generation of the node.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeResult {
    pub(crate) generation: u64,
    pub(crate) rejection: Option<PluginRejection>,
    pub(crate) scores: [i64; LOCAL_SCORES.len()],
}

/// The results of the nodes for a class.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClassResults {
    pub by_slot: Vec<NodeResult>,
    /// Nodes that did not change since their result, and of these the ones that accept the pod, by position.
    known: NodeSet,
    accepted: NodeSet,
    /// Whether a filter could not decide on a node: a search ends there.
    has_errors: bool,
}

impl ClassResults {
    /// Forgets all results, for so many nodes.
    pub fn reset(&mut self, node_count: usize) {
        self.by_slot.clear();
        self.known = NodeSet::empty(node_count);
        self.accepted = NodeSet::empty(node_count);
        self.has_errors = false;
    }

    pub fn set(&mut self, position: Option<usize>, slot: Slot, result: NodeResult) {
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, NodeResult::default());
        }
        if let Some(position) = position {
            self.known.set(position, true);
            self.accepted.set(position, result.rejection.is_none());
        }
        self.has_errors |= result.rejection.as_ref().is_some_and(|it| it.rejection.code == Code::Error);
        self.by_slot[slot] = result;
    }

    /// Notes that a node changed.
    pub fn forget(&mut self, position: usize) {
        self.known.set(position, false);
    }

    /// The nodes that the filters of single nodes accept.
    pub fn accepted(&self) -> NodeSet {
        let mut accepted = self.accepted.clone();
        accepted.retain_all(&self.known);
        accepted
    }

    /// The nodes that the filters of single nodes may accept; `None` if one could not decide.
    pub fn candidates(&self, node_count: usize) -> Option<NodeSet> {
        let mut candidates = NodeSet::full(node_count);
        candidates.retain_unless_rejected(&self.known, &self.accepted);
        (!self.has_errors).then_some(candidates)
    }
}

impl CycleState {
    /// The state of a class of pods.
    pub fn for_class() -> Self {
        CycleState { results: Some(ClassResults::default()), ..CycleState::default() }
    }

    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub fn is_of_class(&self) -> bool {
        self.results.is_some()
    }

    /// Like [`Self::share`].
    pub(crate) fn share_known(&mut self, error: PluginRejection) -> PluginRejection {
        match error.plugin {
            Some(plugin) => self.share((plugin, Rejection::clone(&error.rejection))),
            None => error,
        }
    }

    /// Shares the memory of equal rejections: many nodes have the same.
    pub(crate) fn share(&mut self, (plugin, rejection): (Plugin, Rejection)) -> PluginRejection {
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
