//! The plugins, by upstream's names: pure functions over a pod, a node and the snapshot.

pub mod default_selector;
pub mod domain_counts;
pub mod dynamic_resources;
pub mod image_locality;
pub mod inter_pod_affinity;
pub mod node_affinity;
pub mod node_name;
pub mod node_ports;
pub mod node_resources;
pub mod node_unschedulable;
pub mod node_volume_limits;
pub mod normalize;
pub mod pod_topology_spread;
pub mod selector_spread;
pub mod taint_toleration;
pub mod volume_affinity;
pub mod volume_binding;
pub mod volume_capacity;
pub mod volume_restrictions;
pub mod volume_zone;
pub mod volumes;
