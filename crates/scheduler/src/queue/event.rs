//! Cluster events: changes of objects that may make a pending pod schedulable.

/// The kinds whose changes wake pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventResource {
    Pod,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    CsiNode,
    CsiDriver,
    CsiStorageCapacity,
    PodScheduling,
    ResourceClaim,
    /// Every kind.
    Any,
}

/// A set of action types. An update of a node is divided into the parts of the node that changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Actions(u8);

impl Actions {
    pub const NONE: Actions = Actions(0);
    pub const ADD: Actions = Actions(1);
    pub const DELETE: Actions = Actions(1 << 1);
    pub const UPDATE_NODE_ALLOCATABLE: Actions = Actions(1 << 2);
    pub const UPDATE_NODE_LABEL: Actions = Actions(1 << 3);
    pub const UPDATE_NODE_TAINT: Actions = Actions(1 << 4);
    pub const UPDATE_NODE_CONDITION: Actions = Actions(1 << 5);
    /// Any update; the only update of kinds other than nodes.
    pub const UPDATE: Actions = Actions(0b11_1100);
    pub const ALL: Actions = Actions(0b11_1111);

    pub const fn and(self, other: Actions) -> Actions {
        Actions(self.0 | other.0)
    }

    /// Whether the sets have an action in common.
    pub const fn intersects(self, other: Actions) -> bool {
        self.0 & other.0 != 0
    }
}

/// A change of an object, by its kind and action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClusterEvent {
    pub resource: EventResource,
    pub actions: Actions,
    /// The value of the label `event` in metrics.
    pub label: &'static str,
}

const fn event(resource: EventResource, actions: Actions, label: &'static str) -> ClusterEvent {
    ClusterEvent { resource, actions, label }
}

impl ClusterEvent {
    pub const ASSIGNED_POD_ADD: ClusterEvent = event(EventResource::Pod, Actions::ADD, "AssignedPodAdd");
    pub const ASSIGNED_POD_UPDATE: ClusterEvent =
        event(EventResource::Pod, Actions::UPDATE, "AssignedPodUpdate");
    pub const ASSIGNED_POD_DELETE: ClusterEvent =
        event(EventResource::Pod, Actions::DELETE, "AssignedPodDelete");
    pub const NODE_ADD: ClusterEvent = event(EventResource::Node, Actions::ADD, "NodeAdd");
    pub const NODE_SPEC_UNSCHEDULABLE_CHANGE: ClusterEvent =
        event(EventResource::Node, Actions::UPDATE_NODE_TAINT, "NodeSpecUnschedulableChange");
    pub const NODE_ALLOCATABLE_CHANGE: ClusterEvent =
        event(EventResource::Node, Actions::UPDATE_NODE_ALLOCATABLE, "NodeAllocatableChange");
    pub const NODE_LABEL_CHANGE: ClusterEvent =
        event(EventResource::Node, Actions::UPDATE_NODE_LABEL, "NodeLabelChange");
    pub const NODE_TAINT_CHANGE: ClusterEvent =
        event(EventResource::Node, Actions::UPDATE_NODE_TAINT, "NodeTaintChange");
    pub const NODE_CONDITION_CHANGE: ClusterEvent =
        event(EventResource::Node, Actions::UPDATE_NODE_CONDITION, "NodeConditionChange");
    pub const PV_ADD: ClusterEvent = event(EventResource::PersistentVolume, Actions::ADD, "PvAdd");
    pub const PV_UPDATE: ClusterEvent = event(EventResource::PersistentVolume, Actions::UPDATE, "PvUpdate");
    pub const PV_DELETE: ClusterEvent = event(EventResource::PersistentVolume, Actions::DELETE, "PvDelete");
    pub const PVC_ADD: ClusterEvent = event(EventResource::PersistentVolumeClaim, Actions::ADD, "PvcAdd");
    pub const PVC_UPDATE: ClusterEvent =
        event(EventResource::PersistentVolumeClaim, Actions::UPDATE, "PvcUpdate");
    pub const PVC_DELETE: ClusterEvent =
        event(EventResource::PersistentVolumeClaim, Actions::DELETE, "PvcDelete");
    pub const STORAGE_CLASS_ADD: ClusterEvent =
        event(EventResource::StorageClass, Actions::ADD, "StorageClassAdd");
    pub const STORAGE_CLASS_UPDATE: ClusterEvent =
        event(EventResource::StorageClass, Actions::UPDATE, "StorageClassUpdate");
    pub const CSI_NODE_ADD: ClusterEvent = event(EventResource::CsiNode, Actions::ADD, "CSINodeAdd");
    pub const CSI_NODE_UPDATE: ClusterEvent = event(EventResource::CsiNode, Actions::UPDATE, "CSINodeUpdate");
    pub const CSI_NODE_DELETE: ClusterEvent = event(EventResource::CsiNode, Actions::DELETE, "CSINodeDelete");
    pub const CSI_DRIVER_ADD: ClusterEvent = event(EventResource::CsiDriver, Actions::ADD, "CSIDriverAdd");
    pub const CSI_DRIVER_UPDATE: ClusterEvent =
        event(EventResource::CsiDriver, Actions::UPDATE, "CSIDriverUpdate");
    pub const CSI_DRIVER_DELETE: ClusterEvent =
        event(EventResource::CsiDriver, Actions::DELETE, "CSIDriverDelete");
    pub const CSI_STORAGE_CAPACITY_ADD: ClusterEvent =
        event(EventResource::CsiStorageCapacity, Actions::ADD, "CSIStorageCapacityAdd");
    pub const CSI_STORAGE_CAPACITY_UPDATE: ClusterEvent =
        event(EventResource::CsiStorageCapacity, Actions::UPDATE, "CSIStorageCapacityUpdate");
    pub const CSI_STORAGE_CAPACITY_DELETE: ClusterEvent =
        event(EventResource::CsiStorageCapacity, Actions::DELETE, "CSIStorageCapacityDelete");
    pub const RESOURCE_CLAIM_ADD: ClusterEvent =
        event(EventResource::ResourceClaim, Actions::ADD, "ResourceClaimAdd");
    pub const RESOURCE_CLAIM_UPDATE: ClusterEvent =
        event(EventResource::ResourceClaim, Actions::UPDATE, "ResourceClaimUpdate");
    pub const POD_SCHEDULING_ADD: ClusterEvent =
        event(EventResource::PodScheduling, Actions::ADD, "PodSchedulingAdd");
    pub const POD_SCHEDULING_UPDATE: ClusterEvent =
        event(EventResource::PodScheduling, Actions::UPDATE, "PodSchedulingUpdate");
    /// Matches every kind and action.
    pub const WILDCARD: ClusterEvent = event(EventResource::Any, Actions::ALL, "WildCardEvent");
    /// A pod has been unschedulable for the longest time allowed.
    pub const UNSCHEDULABLE_TIMEOUT: ClusterEvent =
        event(EventResource::Any, Actions::ALL, "UnschedulableTimeout");

    pub fn is_wildcard(&self) -> bool {
        self.resource == EventResource::Any && self.actions == Actions::ALL
    }
}
