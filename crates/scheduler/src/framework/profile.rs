//! A scheduler profile: the plugins that run, their weights and their arguments.
//!
//! The configuration file is read elsewhere ([`crate::config`]); this is its outcome. The default is upstream's
//! default profile of 1.26.

use api::core::v1::{NodeAffinity, TopologySpreadConstraint};

/// The in-tree plugins, by upstream's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Plugin {
    PrioritySort,
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    EBSLimits,
    GCEPDLimits,
    NodeVolumeLimits,
    AzureDiskLimits,
    CinderLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DefaultPreemption,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    DefaultBinder,
    SchedulingGates,
    SelectorSpread,
    DynamicResources,
}

impl Plugin {
    /// All plugins, in upstream's default order with the optional ones last.
    pub const ALL: [Plugin; 24] = [
        Plugin::PrioritySort,
        Plugin::NodeUnschedulable,
        Plugin::NodeName,
        Plugin::TaintToleration,
        Plugin::NodeAffinity,
        Plugin::NodePorts,
        Plugin::NodeResourcesFit,
        Plugin::VolumeRestrictions,
        Plugin::EBSLimits,
        Plugin::GCEPDLimits,
        Plugin::NodeVolumeLimits,
        Plugin::AzureDiskLimits,
        Plugin::VolumeBinding,
        Plugin::VolumeZone,
        Plugin::PodTopologySpread,
        Plugin::InterPodAffinity,
        Plugin::DefaultPreemption,
        Plugin::NodeResourcesBalancedAllocation,
        Plugin::ImageLocality,
        Plugin::DefaultBinder,
        Plugin::SchedulingGates,
        Plugin::CinderLimits,
        Plugin::SelectorSpread,
        Plugin::DynamicResources,
    ];

    /// Upstream's name.
    pub const fn name(self) -> &'static str {
        match self {
            Plugin::PrioritySort => "PrioritySort",
            Plugin::NodeUnschedulable => "NodeUnschedulable",
            Plugin::NodeName => "NodeName",
            Plugin::TaintToleration => "TaintToleration",
            Plugin::NodeAffinity => "NodeAffinity",
            Plugin::NodePorts => "NodePorts",
            Plugin::NodeResourcesFit => "NodeResourcesFit",
            Plugin::VolumeRestrictions => "VolumeRestrictions",
            Plugin::EBSLimits => "EBSLimits",
            Plugin::GCEPDLimits => "GCEPDLimits",
            Plugin::NodeVolumeLimits => "NodeVolumeLimits",
            Plugin::AzureDiskLimits => "AzureDiskLimits",
            Plugin::CinderLimits => "CinderLimits",
            Plugin::VolumeBinding => "VolumeBinding",
            Plugin::VolumeZone => "VolumeZone",
            Plugin::PodTopologySpread => "PodTopologySpread",
            Plugin::InterPodAffinity => "InterPodAffinity",
            Plugin::DefaultPreemption => "DefaultPreemption",
            Plugin::NodeResourcesBalancedAllocation => "NodeResourcesBalancedAllocation",
            Plugin::ImageLocality => "ImageLocality",
            Plugin::DefaultBinder => "DefaultBinder",
            Plugin::SchedulingGates => "SchedulingGates",
            Plugin::SelectorSpread => "SelectorSpread",
            Plugin::DynamicResources => "DynamicResources",
        }
    }

    /// The plugin of a name.
    pub fn from_name(name: &str) -> Option<Plugin> {
        Plugin::ALL.into_iter().find(|plugin| plugin.name() == name)
    }
}

/// One profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Pods with this `spec.schedulerName` use the profile.
    pub scheduler_name: String,
    /// Percentage of nodes to find feasible before scoring; `None`: the scheduler's own value, 0: adaptive.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// The plugins of each extension point, in the order in which they run.
    pub plugins: Plugins,
    /// Arguments of the plugins.
    pub args: PluginArgs,
}

impl Default for Profile {
    fn default() -> Self {
        Profile {
            scheduler_name: "default-scheduler".to_owned(),
            percentage_of_nodes_to_score: None,
            plugins: Plugins::default(),
            args: PluginArgs::default(),
        }
    }
}

/// The plugins per extension point, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugins {
    pub pre_enqueue: Vec<Plugin>,
    pub queue_sort: Vec<Plugin>,
    pub pre_filter: Vec<Plugin>,
    pub filter: Vec<Plugin>,
    pub post_filter: Vec<Plugin>,
    pub pre_score: Vec<Plugin>,
    /// With their weights.
    pub score: Vec<(Plugin, i64)>,
    pub reserve: Vec<Plugin>,
    pub permit: Vec<Plugin>,
    pub pre_bind: Vec<Plugin>,
    pub bind: Vec<Plugin>,
    pub post_bind: Vec<Plugin>,
}

impl Default for Plugins {
    fn default() -> Self {
        use Plugin::*;
        Plugins {
            // upstream adds it by the gate PodSchedulingReadiness
            pre_enqueue: vec![SchedulingGates],
            queue_sort: vec![PrioritySort],
            pre_filter: vec![
                NodeAffinity,
                NodePorts,
                NodeResourcesFit,
                VolumeRestrictions,
                VolumeBinding,
                PodTopologySpread,
                InterPodAffinity,
            ],
            filter: vec![
                NodeUnschedulable,
                NodeName,
                TaintToleration,
                NodeAffinity,
                NodePorts,
                NodeResourcesFit,
                VolumeRestrictions,
                EBSLimits,
                GCEPDLimits,
                NodeVolumeLimits,
                AzureDiskLimits,
                VolumeBinding,
                VolumeZone,
                PodTopologySpread,
                InterPodAffinity,
            ],
            post_filter: vec![DefaultPreemption],
            pre_score: vec![TaintToleration, NodeAffinity, PodTopologySpread, InterPodAffinity],
            score: vec![
                (TaintToleration, 3),
                (NodeAffinity, 2),
                (NodeResourcesFit, 1),
                (VolumeBinding, 1),
                (PodTopologySpread, 2),
                (InterPodAffinity, 2),
                (NodeResourcesBalancedAllocation, 1),
                (ImageLocality, 1),
            ],
            reserve: vec![VolumeBinding],
            permit: vec![],
            pre_bind: vec![VolumeBinding],
            bind: vec![DefaultBinder],
            post_bind: vec![],
        }
    }
}

/// The arguments of all plugins that take some.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PluginArgs {
    pub default_preemption: DefaultPreemptionArgs,
    pub inter_pod_affinity: InterPodAffinityArgs,
    pub node_affinity: NodeAffinityArgs,
    pub node_resources_fit: NodeResourcesFitArgs,
    pub node_resources_balanced_allocation: NodeResourcesBalancedAllocationArgs,
    pub pod_topology_spread: PodTopologySpreadArgs,
    pub volume_binding: VolumeBindingArgs,
    pub volume_limits: VolumeLimitsArgs,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultPreemptionArgs {
    pub min_candidate_nodes_percentage: i32,
    pub min_candidate_nodes_absolute: i32,
}

impl Default for DefaultPreemptionArgs {
    fn default() -> Self {
        DefaultPreemptionArgs { min_candidate_nodes_percentage: 10, min_candidate_nodes_absolute: 100 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterPodAffinityArgs {
    pub hard_pod_affinity_weight: i32,
    /// Field of v1beta2 to v1 that 1.26 does not have yet in all versions; `false` is the behaviour of 1.26.
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for InterPodAffinityArgs {
    fn default() -> Self {
        InterPodAffinityArgs { hard_pod_affinity_weight: 1, ignore_preferred_terms_of_existing_pods: false }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeAffinityArgs {
    /// Affinity of every pod of the profile, besides its own.
    pub added_affinity: Option<NodeAffinity>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeResourcesFitArgs {
    pub ignored_resources: Vec<String>,
    pub ignored_resource_groups: Vec<String>,
    pub scoring_strategy: ScoringStrategy,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScoringStrategy {
    pub kind: ScoringStrategyType,
    pub resources: Vec<ResourceSpec>,
    /// The shape of `RequestedToCapacityRatio`, by increasing utilization.
    pub shape: Vec<UtilizationShapePoint>,
}

impl Default for ScoringStrategy {
    fn default() -> Self {
        ScoringStrategy {
            kind: ScoringStrategyType::LeastAllocated,
            resources: default_resources(),
            shape: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScoringStrategyType {
    LeastAllocated,
    MostAllocated,
    RequestedToCapacityRatio,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceSpec {
    pub name: String,
    pub weight: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UtilizationShapePoint {
    /// 0 to 100.
    pub utilization: i32,
    /// 0 to 10.
    pub score: i32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeResourcesBalancedAllocationArgs {
    pub resources: Vec<ResourceSpec>,
}

impl Default for NodeResourcesBalancedAllocationArgs {
    fn default() -> Self {
        NodeResourcesBalancedAllocationArgs { resources: default_resources() }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct PodTopologySpreadArgs {
    pub default_constraints: Vec<TopologySpreadConstraint>,
    pub defaulting_type: PodTopologySpreadConstraintsDefaulting,
}

impl Default for PodTopologySpreadArgs {
    fn default() -> Self {
        PodTopologySpreadArgs {
            default_constraints: Vec::new(),
            defaulting_type: PodTopologySpreadConstraintsDefaulting::System,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodTopologySpreadConstraintsDefaulting {
    System,
    List,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeBindingArgs {
    pub bind_timeout_seconds: i64,
    /// Only with the gate VolumeCapacityPriority.
    pub shape: Vec<UtilizationShapePoint>,
}

impl Default for VolumeBindingArgs {
    fn default() -> Self {
        VolumeBindingArgs { bind_timeout_seconds: 600, shape: Vec::new() }
    }
}

/// The settings of EBSLimits, GCEPDLimits, AzureDiskLimits and CinderLimits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VolumeLimitsArgs {
    /// Disks that a node can attach if it does not list a limit itself: the environment variable `KUBE_MAX_PD_VOLS`.
    pub max_disks: Option<i64>,
}

fn default_resources() -> Vec<ResourceSpec> {
    ["cpu", "memory"].map(|name| ResourceSpec { name: name.to_owned(), weight: 1 }).into()
}
