//! Configurations of sandboxes and containers, and credentials of a registry.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The configuration of a sandbox. Labels and annotations bring pods back after a restart of the agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxConfig {
    pub name: String,
    pub uid: String,
    pub namespace: String,
    /// Counts the sandboxes of one pod.
    pub attempt: u32,
    pub hostname: String,
    /// The directory of the containers' log files.
    pub log_directory: String,
    pub dns: Option<DnsConfig>,
    pub port_mappings: Vec<PortMapping>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub linux: SandboxLinux,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxLinux {
    pub cgroup_parent: String,
    pub sysctls: BTreeMap<String, String>,
    pub security: LinuxSecurity,
    pub overhead: Option<LinuxResources>,
    /// The sum of the containers' resources.
    pub resources: Option<LinuxResources>,
}

/// The configuration of a container.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerConfig {
    pub name: String,
    /// Counts the restarts.
    pub attempt: u32,
    /// The reference of a present image.
    pub image: String,
    pub image_annotations: BTreeMap<String, String>,
    pub command: Vec<String>,
    pub args: Vec<String>,
    pub working_dir: String,
    pub envs: Vec<(String, String)>,
    pub mounts: Vec<Mount>,
    pub devices: Vec<Device>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Relative to the sandbox's log directory.
    pub log_path: String,
    pub stdin: bool,
    pub stdin_once: bool,
    pub tty: bool,
    pub linux: ContainerLinux,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerLinux {
    pub resources: LinuxResources,
    pub security: LinuxSecurity,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DnsConfig {
    pub servers: Vec<String>,
    pub searches: Vec<String>,
    pub options: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PortMapping {
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    pub container_port: u16,
    pub host_port: u16,
    pub host_ip: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    #[default]
    Private,
    HostToContainer,
    Bidirectional,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mount {
    pub container_path: String,
    pub host_path: String,
    pub is_readonly: bool,
    pub selinux_relabel: bool,
    pub propagation: Propagation,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    pub container_path: String,
    pub host_path: String,
    /// A subset of `rwm`.
    pub permissions: String,
}

/// Limits; zero and empty leave a value as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinuxResources {
    pub cpu_period: i64,
    pub cpu_quota: i64,
    pub cpu_shares: i64,
    pub memory_limit: i64,
    pub memory_swap_limit: i64,
    pub oom_score_adj: i64,
    pub cpuset_cpus: String,
    pub cpuset_mems: String,
    /// Page size (`2MB`) and limit in bytes.
    pub hugepages: Vec<(String, u64)>,
    /// Files of cgroup v2.
    pub unified: BTreeMap<String, String>,
}

impl LinuxResources {
    /// Takes the values of a change; zero and empty leave a value as it is.
    pub fn update(&mut self, change: &LinuxResources) {
        let numbers = [
            (&mut self.cpu_period, change.cpu_period),
            (&mut self.cpu_quota, change.cpu_quota),
            (&mut self.cpu_shares, change.cpu_shares),
            (&mut self.memory_limit, change.memory_limit),
            (&mut self.memory_swap_limit, change.memory_swap_limit),
            (&mut self.oom_score_adj, change.oom_score_adj),
        ];
        for (number, new) in numbers.into_iter().filter(|it| it.1 != 0) {
            *number = new;
        }
        let texts =
            [(&mut self.cpuset_cpus, &change.cpuset_cpus), (&mut self.cpuset_mems, &change.cpuset_mems)];
        for (text, new) in texts.into_iter().filter(|it| !it.1.is_empty()) {
            text.clone_from(new);
        }
        if !change.hugepages.is_empty() {
            self.hugepages.clone_from(&change.hugepages);
        }
        self.unified.extend(change.unified.clone());
    }
}

/// The security context of a sandbox or a container; a sandbox has no capabilities.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinuxSecurity {
    pub namespaces: NamespaceOptions,
    pub is_privileged: bool,
    pub capabilities: Capabilities,
    pub selinux: Option<SeLinuxOptions>,
    pub run_as_user: Option<i64>,
    pub run_as_group: Option<i64>,
    pub run_as_username: String,
    pub readonly_rootfs: bool,
    pub supplemental_groups: Vec<i64>,
    pub no_new_privs: bool,
    pub masked_paths: Vec<String>,
    pub readonly_paths: Vec<String>,
    pub seccomp: Option<SecurityProfile>,
    pub apparmor: Option<SecurityProfile>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    pub add: Vec<String>,
    pub drop: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SeLinuxOptions {
    pub user: String,
    pub role: String,
    pub kind: String,
    pub level: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SecurityProfile {
    RuntimeDefault,
    Unconfined,
    /// A path (seccomp) or a profile name (AppArmor).
    Localhost(String),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NamespaceMode {
    #[default]
    Pod,
    Container,
    Node,
    /// That of the container `target_id`.
    Target,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamespaceOptions {
    pub network: NamespaceMode,
    pub pid: NamespaceMode,
    pub ipc: NamespaceMode,
    pub target_id: String,
    pub user: Option<UserNamespace>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserNamespace {
    pub mode: NamespaceMode,
    pub uids: Vec<IdMapping>,
    pub gids: Vec<IdMapping>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IdMapping {
    pub host_id: u32,
    pub container_id: u32,
    pub length: u32,
}

/// Credentials of a registry.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RegistryAuth {
    pub username: String,
    pub password: String,
    /// Base64 of `username:password`.
    pub auth: String,
    pub server_address: String,
    pub identity_token: String,
    pub registry_token: String,
}

impl std::fmt::Debug for RegistryAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegistryAuth").field("username", &self.username).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_leaves_values_that_it_does_not_name() {
        let mut resources = LinuxResources {
            cpu_shares: 2,
            memory_limit: 4096,
            cpuset_cpus: "0".into(),
            ..Default::default()
        };
        let change = LinuxResources { cpu_shares: 512, cpuset_mems: "0-1".into(), ..Default::default() };
        resources.update(&change);
        let expected = LinuxResources { cpu_shares: 512, cpuset_mems: "0-1".into(), ..resources.clone() };
        assert_eq!((resources.memory_limit, &*resources.cpuset_cpus), (4096, "0"));
        assert_eq!(resources, expected);
    }
}
