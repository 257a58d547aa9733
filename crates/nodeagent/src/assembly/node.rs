//! Options of the node object, and facts that pods see.

use crate::configuration::{Configuration, Flags, Gates};
use crate::container::NodeFacts;
use crate::container::dns::DnsOptions;
use crate::container::node_facts::SwapBehavior;
use crate::container::selinux;
use crate::eviction::thresholds::{Threshold, ThresholdConfig};
use crate::node::capacity::{PodLimits, Reservations, allocatable, capacity, cgroup_allocatable, reserved};
use crate::node::reporter::NodeEvents;
use crate::node::{AddressOptions, Machine, NodeOptions};
use crate::pod_facts::{CPU, ResourceList};
use crate::stats::filesystem;
use api::Quantity;
use api::core::v1::{ObjectReference, Taint};
use client::Recorder;
use schema::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The name of the node: the flag, or the host name, in lower case.
pub fn name(flags: &Flags, hostname: &str) -> String {
    flags.given("hostname-override").unwrap_or(hostname).trim().to_lowercase()
}

pub fn options(
    configuration: &Configuration,
    flags: &Flags,
    name: &str,
    hostname: &str,
    root_dir: &Path,
) -> NodeOptions {
    let shown = flags.given("hostname-override").unwrap_or(hostname).trim().to_lowercase();
    let seconds = u64::try_from(configuration.int("nodeLeaseDurationSeconds")).unwrap_or(40);
    NodeOptions {
        name: name.to_owned(),
        addresses: AddressOptions { node_ips: flags.node_ips(), hostname: shown },
        is_registered: configuration.flag(&["registerNode"]),
        labels: flags.node_labels(),
        taints: taints(configuration),
        is_schedulable: flags.text("register-schedulable") != "false",
        provider_id: configuration.text(&["providerID"]).to_owned(),
        has_external_cloud: flags.text("cloud-provider") == "external",
        has_controlled_attach: configuration.flag(&["enableControllerAttachDetach"]),
        port: i32::try_from(configuration.int("port")).unwrap_or(10250),
        pods: PodLimits {
            max_pods: configuration.int("maxPods"),
            pods_per_core: configuration.int("podsPerCore"),
        },
        reservations: reservations(configuration, flags),
        is_allocatable_enforced: is_allocatable_enforced(configuration),
        max_images: i32::try_from(configuration.int("nodeStatusMaxImages")).unwrap_or(50),
        update_frequency: configuration.duration(&["nodeStatusUpdateFrequency"]),
        report_frequency: configuration.duration(&["nodeStatusReportFrequency"]),
        lease_duration: Duration::from_secs(seconds),
        root_dir: root_dir.to_owned(),
        has_storage_isolation: configuration.flag(&["localStorageCapacityIsolation"]),
        ..NodeOptions::default()
    }
}

fn is_allocatable_enforced(configuration: &Configuration) -> bool {
    configuration.texts("enforceNodeAllocatable").iter().any(|it| it == "pods")
}

/// The thresholds of eviction.
pub fn thresholds(configuration: &Configuration) -> Vec<Threshold> {
    let config = ThresholdConfig {
        hard: configuration.map("evictionHard"),
        soft: configuration.map("evictionSoft"),
        soft_grace: configuration.map("evictionSoftGracePeriod"),
        minimum_reclaim: configuration.map("evictionMinimumReclaim"),
        limits_pods: configuration.flag(&["cgroupsPerQOS"]) && is_allocatable_enforced(configuration),
    };
    config.thresholds()
}

/// What is held back for the system. CPUs that are reserved by number take the place of amounts.
fn reservations(configuration: &Configuration, flags: &Flags) -> Reservations {
    let mut system = resources(configuration, "systemReserved");
    let mut agent = resources(configuration, "kubeReserved");
    if let Some(cpus) = configuration.reserved_cpus() {
        agent.remove(CPU);
        system.insert(CPU.to_owned(), Quantity::new(cpus));
    }
    let is_ignored = flags.text("experimental-allocatable-ignore-eviction") == "true";
    let eviction = if is_ignored { BTreeMap::new() } else { configuration.map("evictionHard") };
    Reservations { system, agent, eviction }
}

fn resources(configuration: &Configuration, field: &str) -> ResourceList {
    let pairs = configuration.map(field).into_iter();
    pairs.filter_map(|(name, text)| Some((name, text.parse().ok()?))).collect()
}

fn taints(configuration: &Configuration) -> Vec<Taint> {
    let items = configuration.at(&["registerWithTaints"]).and_then(Value::as_list).unwrap_or(&[]);
    items
        .iter()
        .map(|item| Taint {
            key: item.text(&["key"]).to_owned(),
            value: item.text(&["value"]).to_owned(),
            effect: item.text(&["effect"]).to_owned(),
            ..Taint::default()
        })
        .collect()
}

/// What the node has for pods.
pub struct Amounts {
    pub allocatable: ResourceList,
    /// The limits of the cgroup of all pods.
    pub pods: ResourceList,
    /// What is held back from pods.
    pub reserved: ResourceList,
}

pub fn amounts(machine: &Machine, options: &NodeOptions) -> Amounts {
    let storage = filesystem(&options.root_dir).filter(|_| options.has_storage_isolation);
    let storage = storage.and_then(|it| i64::try_from(it.capacity).ok());
    let whole = capacity(machine, storage, options.pods);
    let held = options.is_allocatable_enforced.then_some(&options.reservations);
    let pods = cgroup_allocatable(&whole, machine, held);
    Amounts {
        allocatable: allocatable(&whole, &options.reservations),
        pods,
        reserved: reserved(&whole, &options.reservations),
    }
}

pub fn facts(
    configuration: &Configuration,
    root_dir: &Path,
    machine: &Machine,
    allocatable: ResourceList,
    master_namespace: &str,
    log_dir: &Path,
) -> NodeFacts {
    let file = configuration.text(&["resolvConf"]);
    let dns = DnsOptions {
        cluster_dns: configuration.texts("clusterDNS"),
        cluster_domain: configuration.text(&["clusterDomain"]).to_owned(),
        resolv_conf: (!file.is_empty()).then(|| PathBuf::from(file)),
        node_ips: Vec::new(),
    };
    NodeFacts {
        root_dir: root_dir.to_owned(),
        log_dir: log_dir.to_owned(),
        hosts_file: PathBuf::from("/etc/hosts"),
        dns,
        allocatable,
        memory_capacity: machine.memory,
        hugepage_sizes: machine.hugepages.iter().map(|(size, _)| *size).collect(),
        has_cpu_quota: configuration.flag(&["cpuCFSQuota"]),
        cpu_quota_period: configuration.duration(&["cpuCFSQuotaPeriod"]),
        master_namespace: master_namespace.to_owned(),
        has_seccomp_default: configuration.flag(&["seccompDefault"]),
        has_selinux: selinux::is_enabled(Path::new("/")),
        ..NodeFacts::default()
    }
}

/// Sets what gates say about the memory of containers.
pub fn set_memory_behavior(
    facts: &mut NodeFacts,
    configuration: &Configuration,
    gates: &Gates,
    is_cgroup_v2: bool,
) {
    if gates.is_open("MemoryQoS") && is_cgroup_v2 {
        facts.memory_throttling = Some(configuration.float("memoryThrottlingFactor"));
    }
    if gates.is_open("NodeSwap") {
        facts.swap = match configuration.text(&["memorySwap", "swapBehavior"]) {
            "UnlimitedSwap" => SwapBehavior::Unlimited,
            _ => SwapBehavior::Limited,
        };
    }
}

/// Events about the node refer to it by name.
pub fn events(recorder: Arc<Recorder>, name: String) -> NodeEvents {
    Arc::new(move |note| {
        let about = ObjectReference {
            kind: "Node".to_owned(),
            name: name.clone(),
            uid: name.clone(),
            ..ObjectReference::default()
        };
        recorder.record_about(about, note.event_type, note.reason, &note.message);
    })
}
