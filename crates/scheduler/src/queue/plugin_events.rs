//! The events that each plugin registers for: a pod that the plugin rejected wakes by them only.

use super::event::{Actions, ClusterEvent, EventResource};
use super::plugin_set::PluginSet;
use crate::framework::profile::Plugin;

const ADD_OR_UPDATE: Actions = Actions::ADD.and(Actions::UPDATE);
const ADD_OR_LABEL: Actions = Actions::ADD.and(Actions::UPDATE_NODE_LABEL);
const ADD_OR_TAINT: Actions = Actions::ADD.and(Actions::UPDATE_NODE_TAINT);
const ADD_DELETE_OR_LABEL: Actions = ADD_OR_LABEL.and(Actions::DELETE);

/// The events of a plugin that registers for none by itself: it never rejects a node, and upstream wakes its pods by
/// every change that scheduling reads.
const DEFAULT: &[(EventResource, Actions)] = &[
    (EventResource::Pod, Actions::ALL),
    (EventResource::Node, Actions::ALL),
    (EventResource::CsiNode, Actions::ALL),
    (EventResource::PersistentVolume, Actions::ALL),
    (EventResource::PersistentVolumeClaim, Actions::ALL),
    (EventResource::StorageClass, Actions::ALL),
];

/// The events of one plugin.
fn events_of(plugin: Plugin) -> &'static [(EventResource, Actions)] {
    use EventResource as R;
    match plugin {
        Plugin::NodeResourcesFit | Plugin::NodePorts => {
            &[(R::Pod, Actions::DELETE), (R::Node, ADD_OR_UPDATE)]
        }
        Plugin::NodeName | Plugin::NodeAffinity | Plugin::TaintToleration => &[(R::Node, ADD_OR_UPDATE)],
        Plugin::NodeUnschedulable => &[(R::Node, ADD_OR_TAINT)],
        Plugin::EBSLimits | Plugin::GCEPDLimits | Plugin::AzureDiskLimits | Plugin::CinderLimits => {
            &[(R::Node, Actions::ADD), (R::Pod, Actions::DELETE)]
        }
        Plugin::NodeVolumeLimits => &[(R::CsiNode, Actions::ADD), (R::Pod, Actions::DELETE)],
        Plugin::VolumeRestrictions => {
            &[(R::Pod, Actions::DELETE), (R::Node, Actions::ADD), (R::PersistentVolumeClaim, ADD_OR_UPDATE)]
        }
        Plugin::VolumeBinding => &[
            (R::StorageClass, ADD_OR_UPDATE),
            (R::PersistentVolumeClaim, ADD_OR_UPDATE),
            (R::PersistentVolume, ADD_OR_UPDATE),
            (R::Node, ADD_OR_LABEL),
            (R::CsiNode, ADD_OR_UPDATE),
            (R::CsiDriver, ADD_OR_UPDATE),
            (R::CsiStorageCapacity, ADD_OR_UPDATE),
        ],
        Plugin::VolumeZone => &[
            (R::StorageClass, Actions::ADD),
            (R::Node, ADD_OR_LABEL),
            (R::PersistentVolumeClaim, Actions::ADD),
            (R::PersistentVolume, ADD_OR_UPDATE),
        ],
        Plugin::PodTopologySpread => &[(R::Pod, Actions::ALL), (R::Node, ADD_DELETE_OR_LABEL)],
        Plugin::InterPodAffinity => &[(R::Pod, Actions::ALL), (R::Node, ADD_OR_LABEL)],
        Plugin::SchedulingGates => &[(R::Pod, Actions::UPDATE)],
        Plugin::DynamicResources => {
            &[(R::ResourceClaim, ADD_OR_UPDATE), (R::PodScheduling, ADD_OR_UPDATE), (R::Node, ADD_OR_LABEL)]
        }
        Plugin::PrioritySort
        | Plugin::DefaultPreemption
        | Plugin::NodeResourcesBalancedAllocation
        | Plugin::ImageLocality
        | Plugin::DefaultBinder
        | Plugin::SelectorSpread => DEFAULT,
    }
}

/// The events that the plugins of all profiles register for.
#[derive(Debug, Clone, Default)]
pub struct PluginEvents {
    entries: Vec<(EventResource, Actions, PluginSet)>,
}

impl PluginEvents {
    pub fn new(plugins: PluginSet) -> Self {
        let mut entries: Vec<(EventResource, Actions, PluginSet)> = Vec::new();
        for plugin in plugins.iter() {
            for (resource, actions) in events_of(plugin) {
                match entries.iter_mut().find(|entry| (entry.0, entry.1) == (*resource, *actions)) {
                    Some(entry) => entry.2.insert(plugin),
                    None => entries.push((*resource, *actions, PluginSet::from_iter([plugin]))),
                }
            }
        }
        PluginEvents { entries }
    }

    /// The plugins whose rejected pods the event may help. A wildcard event helps all pods and is not answered here.
    pub fn interested(&self, event: &ClusterEvent) -> PluginSet {
        let matching = self.entries.iter().filter(|(resource, actions, _)| {
            *resource == event.resource && actions.intersects(event.actions)
        });
        matching.fold(PluginSet::EMPTY, |all, (_, _, plugins)| all.union(*plugins))
    }

    /// The actions on a kind that are worth a [`ClusterEvent`].
    pub fn actions(&self, resource: EventResource) -> Actions {
        let entries = self.entries.iter().filter(|entry| entry.0 == resource);
        entries.fold(Actions::NONE, |all, entry| all.and(entry.1))
    }
}
