//! The tables of events, and events of node updates.

use super::*;
use api::core::v1::Node;

fn interested(event: ClusterEvent) -> Vec<&'static str> {
    let events = PluginEvents::new(Plugin::ALL.into_iter().filter(|plugin| rejects(*plugin)).collect());
    events.interested(&event).iter().map(Plugin::name).collect()
}

/// Whether a plugin can reject a pod.
fn rejects(plugin: Plugin) -> bool {
    use Plugin::*;
    !matches!(
        plugin,
        PrioritySort
            | DefaultPreemption
            | NodeResourcesBalancedAllocation
            | ImageLocality
            | DefaultBinder
            | SelectorSpread
    )
}

#[test]
fn plugins_register_for_upstreams_events() {
    let nodes = ["NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit"];
    let taints = [&["NodeUnschedulable"], &nodes[..]].concat();
    assert_eq!(interested(ClusterEvent::NODE_TAINT_CHANGE), taints);
    assert_eq!(interested(ClusterEvent::NODE_SPEC_UNSCHEDULABLE_CHANGE), taints);
    assert_eq!(interested(ClusterEvent::NODE_ALLOCATABLE_CHANGE), nodes);
    assert_eq!(interested(ClusterEvent::NODE_CONDITION_CHANGE), nodes);
    let labels = ["VolumeBinding", "VolumeZone", "PodTopologySpread", "InterPodAffinity", "DynamicResources"];
    assert_eq!(interested(ClusterEvent::NODE_LABEL_CHANGE), [&nodes[..], &labels[..]].concat());
    let not_by_node = ["NodeVolumeLimits", "SchedulingGates"];
    let by_node: Vec<_> =
        Plugin::ALL.into_iter().filter(|plugin| rejects(*plugin)).map(Plugin::name).collect();
    let by_node: Vec<_> = by_node.into_iter().filter(|name| !not_by_node.contains(name)).collect();
    assert_eq!(interested(ClusterEvent::NODE_ADD), by_node);
    assert_eq!(interested(ClusterEvent::ASSIGNED_POD_ADD), ["PodTopologySpread", "InterPodAffinity"]);
    assert_eq!(
        interested(ClusterEvent::ASSIGNED_POD_UPDATE),
        ["PodTopologySpread", "InterPodAffinity", "SchedulingGates"]
    );
    assert_eq!(
        interested(ClusterEvent::ASSIGNED_POD_DELETE),
        [
            "NodePorts",
            "NodeResourcesFit",
            "VolumeRestrictions",
            "EBSLimits",
            "GCEPDLimits",
            "NodeVolumeLimits",
            "AzureDiskLimits",
            "PodTopologySpread",
            "InterPodAffinity",
            "CinderLimits"
        ]
    );
    assert_eq!(interested(ClusterEvent::PVC_ADD), ["VolumeRestrictions", "VolumeBinding", "VolumeZone"]);
    assert_eq!(interested(ClusterEvent::PVC_UPDATE), ["VolumeRestrictions", "VolumeBinding"]);
    assert_eq!(interested(ClusterEvent::PV_UPDATE), ["VolumeBinding", "VolumeZone"]);
    assert_eq!(interested(ClusterEvent::STORAGE_CLASS_UPDATE), ["VolumeBinding"]);
    assert_eq!(interested(ClusterEvent::CSI_NODE_ADD), ["NodeVolumeLimits", "VolumeBinding"]);
    assert_eq!(interested(ClusterEvent::CSI_STORAGE_CAPACITY_ADD), ["VolumeBinding"]);
    assert_eq!(interested(ClusterEvent::PV_DELETE), [""; 0]);
}

#[test]
fn plugins_without_events_of_their_own_register_for_the_usual_ones() {
    let events = PluginEvents::new(set(&[Plugin::ImageLocality]));
    assert_eq!(events.actions(EventResource::PersistentVolume), Actions::ALL);
    assert_eq!(events.actions(EventResource::CsiDriver), Actions::NONE);
    assert!(events.interested(&ClusterEvent::PV_DELETE).contains(Plugin::ImageLocality));
}

#[test]
fn a_node_update_is_one_event() {
    let read = |text: &str| api::from_json::<Node>(text.as_bytes()).unwrap();
    let old = read(
        r#"{"metadata":{"labels":{"a":"b"}},"spec":{"unschedulable":true,"taints":[{"key":"k","effect":"NoSchedule"}]},
        "status":{"allocatable":{"cpu":"1"},"conditions":[{"type":"Ready","status":"True","message":"old"}]}}"#,
    );
    let event = |change: &dyn Fn(&mut Node)| {
        let mut new = old.clone();
        change(&mut new);
        node_scheduling_properties_changed(&new, &old).map(|event| event.label)
    };
    assert_eq!(event(&|_| {}), None);
    assert_eq!(event(&|node| node.status.conditions[0].message = "new".to_owned()), None);
    assert_eq!(
        event(&|node| node.status.conditions[0].status = "False".to_owned()),
        Some("NodeConditionChange")
    );
    assert_eq!(event(&|node| node.spec.taints.clear()), Some("NodeTaintChange"));
    assert_eq!(event(&|node| node.metadata.labels.clear()), Some("NodeLabelChange"));
    assert_eq!(event(&|node| node.status.allocatable.clear()), Some("NodeAllocatableChange"));
    let all = event(&|node| {
        node.spec.unschedulable = false;
        node.spec.taints.clear();
        node.metadata.labels.clear();
    });
    assert_eq!(all, Some("NodeSpecUnschedulableChange"));
    let mut open = old.clone();
    open.spec.unschedulable = false;
    assert_eq!(node_scheduling_properties_changed(&old, &open), None);
}
