//! A node with its pods: allocatable and requested resources, used ports, images, taints.

use std::collections::HashMap;
use std::sync::Arc;

use api::core::v1::Node;

use crate::pod_info::{ANY_IP, HostPort, PodInfo};
use crate::resource::Resource;
use crate::selector::Labels;

/// The place of a node in the snapshot's dense arrays; reused after the node is gone.
pub type Slot = usize;

/// An image on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageState {
    pub size: i64,
    /// How many nodes had the image when the node was last written.
    pub nodes: usize,
}

/// A node with its pods.
#[derive(Debug, Clone)]
pub struct NodeInfo {
    pub node: Arc<Node>,
    pub slot: Slot,
    pub pods: Vec<Arc<PodInfo>>,
    pub pods_with_affinity: Vec<Arc<PodInfo>>,
    pub pods_with_required_anti_affinity: Vec<Arc<PodInfo>>,
    pub allocatable: Resource,
    pub requested: Resource,
    pub non_zero_milli_cpu: i64,
    pub non_zero_memory: i64,
    used_ports: HashMap<HostPort, u32>,
    pub images: Arc<HashMap<String, ImageState>>,
    /// Changes with every change of the node or its pods in the snapshot; 0 for a copy that was changed.
    pub generation: u64,
}

impl NodeInfo {
    pub fn new(node: Arc<Node>, slot: Slot) -> Self {
        NodeInfo {
            allocatable: Resource::from_list(&node.status.allocatable),
            node,
            slot,
            pods: Vec::new(),
            pods_with_affinity: Vec::new(),
            pods_with_required_anti_affinity: Vec::new(),
            requested: Resource::default(),
            non_zero_milli_cpu: 0,
            non_zero_memory: 0,
            used_ports: HashMap::new(),
            images: Arc::default(),
            generation: 0,
        }
    }

    pub fn name(&self) -> &str {
        &self.node.metadata.name
    }

    pub fn labels(&self) -> &Labels {
        &self.node.metadata.labels
    }

    pub fn set_node(&mut self, node: Arc<Node>) {
        self.allocatable = Resource::from_list(&node.status.allocatable);
        self.node = node;
    }

    pub fn add_pod(&mut self, pod: Arc<PodInfo>) {
        self.generation = 0;
        self.requested.add(&pod.requests);
        self.non_zero_milli_cpu = self.non_zero_milli_cpu.saturating_add(pod.non_zero_milli_cpu);
        self.non_zero_memory = self.non_zero_memory.saturating_add(pod.non_zero_memory);
        for port in &pod.host_ports {
            *self.used_ports.entry(port.clone()).or_default() += 1;
        }
        if pod.has_affinity() {
            self.pods_with_affinity.push(Arc::clone(&pod));
        }
        if !pod.required_anti_affinity().is_empty() {
            self.pods_with_required_anti_affinity.push(Arc::clone(&pod));
        }
        self.pods.push(pod);
    }

    /// Removes a pod by uid and returns it.
    pub fn remove_pod(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let pod = take(&mut self.pods, uid)?;
        self.generation = 0;
        self.requested.subtract(&pod.requests);
        self.non_zero_milli_cpu = self.non_zero_milli_cpu.saturating_sub(pod.non_zero_milli_cpu);
        self.non_zero_memory = self.non_zero_memory.saturating_sub(pod.non_zero_memory);
        for port in &pod.host_ports {
            release(&mut self.used_ports, port);
        }
        take(&mut self.pods_with_affinity, uid);
        take(&mut self.pods_with_required_anti_affinity, uid);
        Some(pod)
    }

    /// Whether a pod of the node has a port that collides with `port`.
    pub fn has_port_conflict(&self, port: &HostPort) -> bool {
        if self.used_ports.is_empty() {
            return false;
        }
        if port.ip == ANY_IP {
            return self
                .used_ports
                .keys()
                .any(|used| used.port == port.port && used.protocol == port.protocol);
        }
        let on_any = HostPort { ip: ANY_IP.to_owned(), ..port.clone() };
        self.used_ports.contains_key(port) || self.used_ports.contains_key(&on_any)
    }
}

fn take(pods: &mut Vec<Arc<PodInfo>>, uid: &str) -> Option<Arc<PodInfo>> {
    let at = pods.iter().position(|pod| pod.uid() == uid)?;
    Some(pods.swap_remove(at))
}

pub(crate) fn release<K: std::hash::Hash + Eq + Clone>(counts: &mut HashMap<K, u32>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::from_json;

    fn pod(uid: &str, ip: &str, protocol: &str) -> Arc<PodInfo> {
        let json = format!(
            r#"{{"metadata":{{"uid":"{uid}","namespace":"d"}},"spec":{{"containers":[{{"name":"c","resources":{{"requests":{{"cpu":"1"}}}},
            "ports":[{{"containerPort":80,"hostPort":80,"hostIP":"{ip}","protocol":"{protocol}"}}]}}]}}}}"#
        );
        Arc::new(PodInfo::new(Arc::new(from_json(json.as_bytes()).unwrap())))
    }

    #[test]
    fn pods_come_and_go() {
        let mut node = NodeInfo::new(Arc::default(), 0);
        let empty = node.clone();
        node.add_pod(pod("a", "", ""));
        assert_eq!(node.requested.milli_cpu, 1000);
        assert!(node.remove_pod("b").is_none());
        assert!(node.remove_pod("a").is_some());
        assert_eq!(node.requested, empty.requested);
    }

    #[test]
    fn ports_collide_by_address_and_protocol() {
        let mut node = NodeInfo::new(Arc::default(), 0);
        node.add_pod(pod("a", "10.0.0.1", "TCP"));
        let conflict =
            |ip: &str, protocol: &str| node.has_port_conflict(&pod("b", ip, protocol).host_ports[0]);
        assert!(conflict("10.0.0.1", "TCP") && conflict("", "TCP"));
        assert!(!conflict("10.0.0.2", "TCP") && !conflict("", "UDP"));
    }
}
