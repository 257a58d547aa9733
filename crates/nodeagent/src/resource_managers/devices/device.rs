//! Devices of plugins, and devices of containers.

use crate::resource_managers::topology::NumaMask;
use grpc::device_plugin::ContainerAllocateResponse;
use std::collections::{BTreeMap, BTreeSet};

/// Ids of devices.
pub type DeviceIds = BTreeSet<String>;

/// A device as its plugin describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    /// NUMA nodes that it is close to.
    pub nodes: Vec<i64>,
    pub is_healthy: bool,
}

impl Device {
    pub fn is_within(&self, mask: NumaMask) -> bool {
        self.nodes.iter().any(|node| u32::try_from(*node).is_ok_and(|node| mask.contains(node)))
    }

    /// Whether it is close to some node.
    pub fn has_topology(&self) -> bool {
        self.nodes.iter().any(|node| *node >= 0)
    }
}

/// Devices of a container by NUMA node, -1 for those of none, with the plugin's response.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AllocatedDevices {
    pub by_node: BTreeMap<i64, Vec<String>>,
    pub response: ContainerAllocateResponse,
}

impl AllocatedDevices {
    pub fn ids(&self) -> DeviceIds {
        self.by_node.values().flatten().cloned().collect()
    }
}

/// The devices of a resource that a container has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceRecord {
    pub uid: String,
    pub container: String,
    pub resource: String,
    pub devices: AllocatedDevices,
}
