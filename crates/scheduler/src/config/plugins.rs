//! The plugins that a profile enables and disables, and how they change the default ones.

use super::extension_point::ExtensionPoint;
use super::gates::Gates;
use super::version::Version;
use crate::framework::profile::Plugin;
use std::collections::{BTreeSet, HashMap, HashSet};

/// A plugin by name. The weight counts for scores only; 0 is the default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EnabledPlugin {
    pub name: String,
    pub weight: i32,
}

/// The plugins of one extension point: upstream's `PluginSet`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PluginSelection {
    pub enabled: Vec<EnabledPlugin>,
    /// `*` is all default plugins.
    pub disabled: Vec<EnabledPlugin>,
}

/// The plugins of all extension points: upstream's `Plugins`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PluginSelections([PluginSelection; ExtensionPoint::ALL.len()]);

impl PluginSelections {
    pub fn get(&self, point: ExtensionPoint) -> &PluginSelection {
        &self.0[point as usize]
    }

    pub fn get_mut(&mut self, point: ExtensionPoint) -> &mut PluginSelection {
        &mut self.0[point as usize]
    }

    /// The names of enabled plugins at some points, sorted.
    pub(super) fn names(&self, points: impl IntoIterator<Item = ExtensionPoint>) -> BTreeSet<&str> {
        let selections = points.into_iter().map(|point| self.get(point));
        selections.flat_map(|selection| &selection.enabled).map(|plugin| &*plugin.name).collect()
    }

    /// The default plugins with a profile's changes.
    pub(super) fn merge(mut self, custom: &PluginSelections, version: Version) -> PluginSelections {
        for point in ExtensionPoint::ALL {
            // older versions have these fields and do not read them
            let is_read = match point {
                ExtensionPoint::MultiPoint => version != Version::V1beta2,
                ExtensionPoint::PreEnqueue => version == Version::V1,
                _ => true,
            };
            if is_read {
                let mut merged = merge_selection(self.get(point), custom.get(point));
                if version == Version::V1beta2 {
                    // without multiPoint there is nothing left to disable
                    merged.disabled.clear();
                }
                *self.get_mut(point) = merged;
            }
        }
        self
    }
}

fn merge_selection(default: &PluginSelection, custom: &PluginSelection) -> PluginSelection {
    let disabled: Vec<EnabledPlugin> = custom
        .disabled
        .iter()
        .chain(&default.disabled)
        .map(|plugin| EnabledPlugin { name: plugin.name.clone(), weight: 0 })
        .collect();
    let off: HashSet<&str> = disabled.iter().map(|plugin| &*plugin.name).collect();
    // the last of equal names replaces a default plugin; the others stay, for the profile to reject
    let by_name: HashMap<&str, usize> =
        custom.enabled.iter().enumerate().map(|(at, plugin)| (&*plugin.name, at)).collect();
    let mut replaced = HashSet::new();
    let mut enabled = Vec::new();
    if !off.contains("*") {
        for plugin in default.enabled.iter().filter(|plugin| !off.contains(&*plugin.name)) {
            match by_name.get(&*plugin.name) {
                Some(at) => {
                    replaced.insert(*at);
                    enabled.push(custom.enabled[*at].clone());
                }
                None => enabled.push(plugin.clone()),
            }
        }
    }
    let rest = custom.enabled.iter().enumerate().filter(|(at, _)| !replaced.contains(at));
    enabled.extend(rest.map(|(_, plugin)| plugin.clone()));
    PluginSelection { enabled, disabled }
}

/// The default plugins of a version.
pub(super) fn default_plugins(version: Version, gates: Gates) -> PluginSelections {
    match version {
        Version::V1beta2 => default_by_point(gates),
        Version::V1beta3 | Version::V1 => default_at_multi_point(version, gates),
    }
}

fn enabled(plugin: Plugin, weight: i32) -> EnabledPlugin {
    EnabledPlugin { name: plugin.name().to_owned(), weight }
}

fn default_at_multi_point(version: Version, gates: Gates) -> PluginSelections {
    use Plugin::*;
    let mut plugins = vec![
        enabled(PrioritySort, 0),
        enabled(NodeUnschedulable, 0),
        enabled(NodeName, 0),
        enabled(TaintToleration, 3),
        enabled(NodeAffinity, 2),
        enabled(NodePorts, 0),
        enabled(NodeResourcesFit, 1),
        enabled(VolumeRestrictions, 0),
        enabled(EBSLimits, 0),
        enabled(GCEPDLimits, 0),
        enabled(NodeVolumeLimits, 0),
        enabled(AzureDiskLimits, 0),
        enabled(VolumeBinding, 0),
        enabled(VolumeZone, 0),
        enabled(PodTopologySpread, 2),
        enabled(InterPodAffinity, 2),
    ];
    if gates.dynamic_resource_allocation && version == Version::V1 {
        // to free an idle claim is better than to evict a pod
        plugins.push(enabled(DynamicResources, 0));
    }
    plugins.extend([
        enabled(DefaultPreemption, 0),
        enabled(NodeResourcesBalancedAllocation, 1),
        enabled(ImageLocality, 1),
        enabled(DefaultBinder, 0),
    ]);
    if gates.pod_scheduling_readiness {
        plugins.push(enabled(SchedulingGates, 0));
    }
    let mut selections = PluginSelections::default();
    selections.get_mut(ExtensionPoint::MultiPoint).enabled = plugins;
    selections
}

fn default_by_point(gates: Gates) -> PluginSelections {
    use Plugin::*;
    let mut selections = PluginSelections::default();
    let mut set = |point: ExtensionPoint, plugins: &[(Plugin, i32)]| {
        selections.get_mut(point).enabled =
            plugins.iter().map(|(plugin, weight)| enabled(*plugin, *weight)).collect();
    };
    set(ExtensionPoint::QueueSort, &[(PrioritySort, 0)]);
    let pre_filter = [
        NodeResourcesFit,
        NodePorts,
        VolumeRestrictions,
        PodTopologySpread,
        InterPodAffinity,
        VolumeBinding,
        NodeAffinity,
    ];
    set(ExtensionPoint::PreFilter, &pre_filter.map(|plugin| (plugin, 0)));
    let filter = [
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
    ];
    set(ExtensionPoint::Filter, &filter.map(|plugin| (plugin, 0)));
    set(ExtensionPoint::PostFilter, &[(DefaultPreemption, 0)]);
    let pre_score = [InterPodAffinity, PodTopologySpread, TaintToleration, NodeAffinity];
    set(ExtensionPoint::PreScore, &pre_score.map(|plugin| (plugin, 0)));
    let mut score = vec![
        (NodeResourcesBalancedAllocation, 1),
        (ImageLocality, 1),
        (InterPodAffinity, 1),
        (NodeResourcesFit, 1),
        (NodeAffinity, 1),
        (PodTopologySpread, 2),
        (TaintToleration, 1),
    ];
    if gates.volume_capacity_priority {
        score.push((VolumeBinding, 1));
    }
    set(ExtensionPoint::Score, &score);
    set(ExtensionPoint::Reserve, &[(VolumeBinding, 0)]);
    set(ExtensionPoint::PreBind, &[(VolumeBinding, 0)]);
    set(ExtensionPoint::Bind, &[(DefaultBinder, 0)]);
    if gates.pod_scheduling_readiness {
        set(ExtensionPoint::PreEnqueue, &[(SchedulingGates, 0)]);
    }
    selections
}
