//! The devices of plugins, and those that containers have. Pure.

use super::device::{AllocatedDevices, Device, DeviceIds, DeviceRecord};
use super::hints::hints;
use crate::pod_facts::ResourceList;
use crate::resource_managers::topology::ProviderHints;
use api::Quantity;
use api::core::v1::{Container, Pod};
use std::collections::BTreeMap;

/// Allocations by pod, container and resource.
pub type PodDevices = BTreeMap<String, BTreeMap<String, BTreeMap<String, AllocatedDevices>>>;

/// See the module.
#[derive(Debug, Default)]
pub struct DeviceState {
    /// Devices by registered resource; none yet where the plugin was registered before the agent's start.
    pub resources: BTreeMap<String, BTreeMap<String, Device>>,
    pub pods: PodDevices,
    /// The pod that is admitted now, and devices of its init containers that its other containers may have.
    reusable: (String, BTreeMap<String, DeviceIds>),
}

/// The number of devices that a container needs, by resource. Requests are limits, as devices are not overcommitted.
fn limits(container: &Container) -> impl Iterator<Item = (&String, usize)> {
    let limits = container.resources.limits.iter();
    limits.map(|(name, amount)| (name, usize::try_from(Quantity::whole(amount)).unwrap_or(0)))
}

impl DeviceState {
    /// Whether a resource is that of a plugin, or was when a pod got devices of it.
    pub fn is_plugin_resource(&self, resource: &str) -> bool {
        let has = |container: &BTreeMap<String, AllocatedDevices>| container.contains_key(resource);
        self.resources.contains_key(resource)
            || self.pods.values().any(|containers| containers.values().any(has))
    }

    /// The resources of plugins that a container needs, and how many devices of each.
    pub fn needs(&self, container: &Container) -> BTreeMap<String, usize> {
        let needs = limits(container).filter(|(name, _)| self.is_plugin_resource(name));
        needs.map(|(name, count)| (name.clone(), count)).collect()
    }

    /// The same for a whole pod: the sum of its containers, or its largest init container.
    fn pod_needs(&self, pod: &Pod) -> BTreeMap<String, usize> {
        let mut sum = BTreeMap::new();
        for (name, count) in pod.spec.containers.iter().flat_map(|it| self.needs(it)) {
            *sum.entry(name).or_insert(0) += count;
        }
        for (name, count) in pod.spec.init_containers.iter().flat_map(|it| self.needs(it)) {
            let sum = sum.entry(name).or_insert(0);
            *sum = count.max(*sum);
        }
        sum
    }

    /// Replaces the devices of a resource.
    pub fn set_devices(&mut self, resource: &str, devices: BTreeMap<String, Device>) {
        self.resources.insert(resource.to_owned(), devices);
    }

    pub fn mark_unhealthy(&mut self, resource: &str) {
        let devices = self.resources.get_mut(resource).into_iter().flat_map(|it| it.values_mut());
        devices.for_each(|device| device.is_healthy = false);
    }

    pub fn healthy(&self, resource: &str) -> DeviceIds {
        let devices = self.resources.get(resource).into_iter().flatten();
        devices.filter(|(_, device)| device.is_healthy).map(|(id, _)| id.clone()).collect()
    }

    /// Devices of a resource that containers have.
    pub fn allocated(&self, resource: &str) -> DeviceIds {
        let containers = self.pods.values().flat_map(|containers| containers.values());
        containers.filter_map(|resources| resources.get(resource)).flat_map(AllocatedDevices::ids).collect()
    }

    pub fn available(&self, resource: &str) -> DeviceIds {
        let allocated = self.allocated(resource);
        self.healthy(resource).into_iter().filter(|id| !allocated.contains(id)).collect()
    }

    /// Devices that a container has.
    pub fn of_container(&self, uid: &str, container: &str, resource: &str) -> Option<DeviceIds> {
        self.pods.get(uid)?.get(container)?.get(resource).map(AllocatedDevices::ids)
    }

    /// Devices of init containers that other containers of the pod may have.
    pub fn reusable(&self, uid: &str, resource: &str) -> DeviceIds {
        let (pod, devices) = &self.reusable;
        devices.get(resource).filter(|_| pod == uid).cloned().unwrap_or_default()
    }

    /// A container of a pod has all its devices: those of an init container may be used again.
    pub fn update_reusable(&mut self, pod: &Pod, container: &str) {
        let uid = &pod.metadata.uid;
        if self.reusable.0 != *uid {
            self.reusable = (uid.clone(), BTreeMap::new());
        }
        let is_init = pod.spec.init_containers.iter().any(|it| it.name == container);
        let own = self.pods.get(uid).and_then(|containers| containers.get(container));
        for (resource, devices) in own.into_iter().flatten() {
            let reusable = self.reusable.1.entry(resource.clone()).or_default();
            match is_init {
                true => reusable.extend(devices.ids()),
                false => reusable.retain(|id| !devices.ids().contains(id)),
            }
        }
    }

    /// Stores what a container has, by NUMA node.
    pub fn insert(&mut self, record: DeviceRecord) {
        let containers = self.pods.entry(record.uid).or_default();
        containers.entry(record.container).or_default().insert(record.resource, record.devices);
    }

    /// The allocation of devices, with the nodes that they are close to.
    pub fn by_node(&self, resource: &str, ids: &DeviceIds) -> BTreeMap<i64, Vec<String>> {
        const NO_NODE: i64 = -1;
        let mut by_node: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        for id in ids {
            let device = self.resources.get(resource).and_then(|devices| devices.get(id));
            let nodes = device.map(|it| it.nodes.clone()).filter(|it| !it.is_empty());
            for node in nodes.unwrap_or_else(|| vec![NO_NODE]) {
                by_node.entry(node).or_default().push(id.clone());
            }
        }
        by_node
    }

    /// Capacity and allocatable of the node: all devices, and the healthy ones.
    pub fn amounts(&self) -> (ResourceList, ResourceList) {
        let amount = |count: usize| Quantity::new(i64::try_from(count).unwrap_or(i64::MAX));
        let all = self.resources.iter().map(|(name, devices)| (name.clone(), amount(devices.len())));
        let healthy = self.resources.keys().map(|name| (name.clone(), amount(self.healthy(name).len())));
        (all.collect(), healthy.collect())
    }

    /// The hints for a container, or for all of them.
    pub fn hints(&self, pod: &Pod, container: Option<&Container>, nodes: &[u32]) -> ProviderHints {
        let uid = &pod.metadata.uid;
        let needs = container.map_or_else(|| self.pod_needs(pod), |it| self.needs(it));
        let of = |(resource, count): (String, usize)| {
            let empty = BTreeMap::new();
            let devices = self.resources.get(&resource).unwrap_or(&empty);
            if !devices.values().any(|it| !it.nodes.is_empty()) {
                return (resource, None);
            }
            let own: DeviceIds = match container {
                Some(container) => self.of_container(uid, &container.name, &resource).unwrap_or_default(),
                None => {
                    let containers = self.pods.get(uid).into_iter().flat_map(|it| it.keys());
                    containers.filter_map(|it| self.of_container(uid, it, &resource)).flatten().collect()
                }
            };
            let reusable = match container {
                Some(_) => self.reusable(uid, &resource),
                None => DeviceIds::new(),
            };
            let available = self.available(&resource);
            let found = if !own.is_empty() {
                match own.len() == count {
                    true => hints(devices, &own, &DeviceIds::new(), count, nodes),
                    false => Vec::new(),
                }
            } else if available.union(&reusable).count() < count {
                Vec::new()
            } else {
                hints(devices, &available, &reusable, count, nodes)
            };
            (resource, Some(found))
        };
        needs.into_iter().map(of).collect()
    }
}
