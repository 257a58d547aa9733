//! Extension points of the scheduling framework, and the plugins that implement them.

use crate::framework::profile::Plugin;

/// A point of a scheduling attempt at which plugins run; `MultiPoint` stands for all that a plugin implements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExtensionPoint {
    PreEnqueue,
    QueueSort,
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    Reserve,
    Permit,
    PreBind,
    Bind,
    PostBind,
    MultiPoint,
}

use ExtensionPoint::*;

impl ExtensionPoint {
    /// In the order of the configuration's fields.
    pub const ALL: [ExtensionPoint; 13] = [
        PreEnqueue, QueueSort, PreFilter, Filter, PostFilter, PreScore, Score, Reserve, Permit, PreBind,
        Bind, PostBind, MultiPoint,
    ];

    /// All but `MultiPoint`, in the order in which upstream checks them.
    pub(super) const CHECKED: [ExtensionPoint; 12] = [
        PreFilter, Filter, PostFilter, Reserve, PreScore, Score, PreBind, Bind, PostBind, Permit, PreEnqueue,
        QueueSort,
    ];

    /// The field of the configuration.
    pub fn field(self) -> &'static str {
        match self {
            PreEnqueue => "preEnqueue",
            QueueSort => "queueSort",
            PreFilter => "preFilter",
            Filter => "filter",
            PostFilter => "postFilter",
            PreScore => "preScore",
            Score => "score",
            Reserve => "reserve",
            Permit => "permit",
            PreBind => "preBind",
            Bind => "bind",
            PostBind => "postBind",
            MultiPoint => "multiPoint",
        }
    }

    /// The name with a capital, as `/configz` shows it; with `Plugin` behind it, the name in errors.
    pub(super) fn name(self) -> &'static str {
        match self {
            PreEnqueue => "PreEnqueue",
            QueueSort => "QueueSort",
            PreFilter => "PreFilter",
            Filter => "Filter",
            PostFilter => "PostFilter",
            PreScore => "PreScore",
            Score => "Score",
            Reserve => "Reserve",
            Permit => "Permit",
            PreBind => "PreBind",
            Bind => "Bind",
            PostBind => "PostBind",
            MultiPoint => "MultiPoint",
        }
    }

    /// Whether a plugin runs at this point.
    pub fn is_implemented_by(self, plugin: Plugin) -> bool {
        points(plugin).contains(&self)
    }
}

fn points(plugin: Plugin) -> &'static [ExtensionPoint] {
    match plugin {
        Plugin::PrioritySort => &[QueueSort],
        Plugin::SchedulingGates => &[PreEnqueue],
        Plugin::DefaultPreemption => &[PostFilter],
        Plugin::DefaultBinder => &[Bind],
        Plugin::ImageLocality | Plugin::NodeResourcesBalancedAllocation => &[Score],
        Plugin::SelectorSpread => &[PreScore, Score],
        Plugin::NodeUnschedulable
        | Plugin::NodeName
        | Plugin::VolumeZone
        | Plugin::NodeVolumeLimits
        | Plugin::EBSLimits
        | Plugin::GCEPDLimits
        | Plugin::AzureDiskLimits
        | Plugin::CinderLimits => &[Filter],
        Plugin::NodePorts | Plugin::VolumeRestrictions => &[PreFilter, Filter],
        Plugin::NodeResourcesFit => &[PreFilter, Filter, Score],
        Plugin::TaintToleration => &[Filter, PreScore, Score],
        Plugin::NodeAffinity | Plugin::PodTopologySpread | Plugin::InterPodAffinity => {
            &[PreFilter, Filter, PreScore, Score]
        }
        Plugin::VolumeBinding => &[PreFilter, Filter, Score, Reserve, PreBind],
        Plugin::DynamicResources => &[PreFilter, Filter, PostFilter, PreScore, Reserve, PostBind],
    }
}
