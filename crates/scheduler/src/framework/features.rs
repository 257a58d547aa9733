//! Feature gates that plugins depend on.

/// Which gates are on; the default is that of 1.26.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    pub min_domains_in_pod_topology_spread: bool,
    pub match_label_keys_in_pod_topology_spread: bool,
    pub node_inclusion_policy_in_pod_topology_spread: bool,
    pub read_write_once_pod: bool,
    pub dynamic_resource_allocation: bool,
    pub csi_migration_portworx: bool,
    pub csi_migration_rbd: bool,
}

impl Features {
    /// All gates are on.
    pub const ALL: Features = Features {
        min_domains_in_pod_topology_spread: true,
        match_label_keys_in_pod_topology_spread: true,
        node_inclusion_policy_in_pod_topology_spread: true,
        read_write_once_pod: true,
        dynamic_resource_allocation: true,
        csi_migration_portworx: true,
        csi_migration_rbd: true,
    };
}

impl Default for Features {
    fn default() -> Self {
        Features {
            min_domains_in_pod_topology_spread: false,
            match_label_keys_in_pod_topology_spread: false,
            node_inclusion_policy_in_pod_topology_spread: true,
            read_write_once_pod: false,
            dynamic_resource_allocation: false,
            csi_migration_portworx: false,
            csi_migration_rbd: false,
        }
    }
}
