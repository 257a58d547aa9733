//! Facts about the node that the configurations of pods depend on.

use super::dns::DnsOptions;
use crate::pod_facts::ResourceList;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How much containers may swap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SwapBehavior {
    /// The runtime decides.
    #[default]
    Default,
    /// Memory and swap together are limited to the limit of memory.
    Limited,
    Unlimited,
}

/// See the module. Made once from configuration and machine; the allocatable resources may change.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeFacts {
    /// The directory of the agent.
    pub root_dir: PathBuf,
    /// The directory of pods' log files.
    pub log_dir: PathBuf,
    /// The hosts file of the node.
    pub hosts_file: PathBuf,
    /// The address of the node that pods see.
    pub host_ip: String,
    pub dns: DnsOptions,
    /// The namespace of the API server's service, whose variables every pod gets.
    pub master_namespace: String,
    pub allocatable: ResourceList,
    /// Bytes of memory of the machine.
    pub memory_capacity: i64,
    /// Page sizes of the machine, in bytes.
    pub hugepage_sizes: Vec<u64>,
    pub has_cpu_quota: bool,
    pub cpu_quota_period: Duration,
    /// The share of its memory limit from which a container is slowed down, on machines that can.
    pub memory_throttling: Option<f64>,
    pub swap: SwapBehavior,
    /// Whether containers without a seccomp profile get the runtime's default.
    pub has_seccomp_default: bool,
    pub has_selinux: bool,
}

impl Default for NodeFacts {
    fn default() -> Self {
        NodeFacts {
            root_dir: PathBuf::from("/var/lib/kubelet"),
            log_dir: PathBuf::from("/var/log/pods"),
            hosts_file: PathBuf::from("/etc/hosts"),
            host_ip: String::new(),
            dns: DnsOptions::default(),
            master_namespace: names::DEFAULT_NAMESPACE.to_owned(),
            allocatable: ResourceList::new(),
            memory_capacity: 0,
            hugepage_sizes: Vec::new(),
            has_cpu_quota: true,
            cpu_quota_period: Duration::from_millis(100),
            memory_throttling: None,
            swap: SwapBehavior::default(),
            has_seccomp_default: false,
            has_selinux: false,
        }
    }
}

impl NodeFacts {
    /// The directory of a pod.
    pub fn pod_dir(&self, uid: &str) -> PathBuf {
        pod_dir(&self.root_dir, uid)
    }

    /// The directory of a container of a pod, for its termination message.
    pub fn container_dir(&self, uid: &str, container: &str) -> PathBuf {
        self.pod_dir(uid).join("containers").join(container)
    }

    /// The directory of a pod's log files.
    pub fn pod_log_dir(&self, namespace: &str, name: &str, uid: &str) -> PathBuf {
        self.log_dir.join(format!("{namespace}_{name}_{uid}"))
    }
}

/// The directory of a pod below the agent's.
pub fn pod_dir(root: &Path, uid: &str) -> PathBuf {
    root.join("pods").join(uid)
}
