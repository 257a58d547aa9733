//! The cgroups of the configuration: those of pods, and of what the node holds back for the system.

use super::node::Amounts;
use super::parts::Parts;
use super::start_error::failed;
use crate::cgroups::processes::{SystemProcesses, move_agent};
use crate::cgroups::slices::SliceClient;
use crate::cgroups::systemd::SystemdSlices;
use crate::cgroups::{CgroupDriver, CgroupFiles, CgroupManager, CgroupOptions, LimitOptions, MemoryReserve};
use crate::configuration::{Configuration, Gates, StartError};
use crate::dbus::SYSTEM_BUS;
use crate::filesystem::LinuxFilesystem;
use crate::node::capacity::Reservations;
use crate::node::reporter::NodeEvents;
use crate::pod_facts::{MEMORY, ResourceList, hugepage_size};
use api::Quantity;
use client::Note;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The cgroup of processes that a container has in its root.
const CONTAINER: &str = "/init";
/// The mounts of this process.
const MOUNT_TABLE: &str = "/proc/self/mountinfo";

/// The cgroups of pods.
pub fn cgroups(parts: &Parts, amounts: &Amounts) -> Result<CgroupManager, StartError> {
    let Parts { configuration, gates, .. } = parts;
    let driver = match configuration.text(&["cgroupDriver"]) {
        "systemd" => CgroupDriver::Systemd,
        _ => CgroupDriver::Cgroupfs,
    };
    let mounts =
        std::fs::read_to_string(MOUNT_TABLE).map_err(|why| failed(format!("{MOUNT_TABLE}: {why}")))?;
    let files =
        CgroupFiles::from_mount_table(&mounts).ok_or_else(|| failed("no cgroup filesystem is mounted"))?;
    let own = SystemProcesses { files: &files, proc: Path::new("/proc") };
    own.empty_container_root(CONTAINER)
        .map_err(|why| failed(format!("processes cannot be moved to the cgroup {CONTAINER:?}: {why}")))?;
    let limits = LimitOptions {
        has_cpu_quota: configuration.flag(&["cpuCFSQuota"]),
        cpu_quota_period: configuration.duration(&["cpuCFSQuotaPeriod"]),
        pod_pids_limit: configuration.int("podPidsLimit"),
        has_memory_quality: gates.is_open("MemoryQoS") && files.is_v2(),
    };
    let options = CgroupOptions {
        driver,
        root: configuration.text(&["cgroupRoot"]).to_owned(),
        is_per_qos: configuration.flag(&["cgroupsPerQOS"]),
        limits,
        reserve: reserve(configuration, gates, amounts),
        hugepage_sizes: hugepage_sizes(&amounts.allocatable),
    };
    let slices: Option<Box<dyn SliceClient>> = match driver {
        CgroupDriver::Systemd => Some(Box::new(SystemdSlices::new(SYSTEM_BUS))),
        CgroupDriver::Cgroupfs => None,
    };
    CgroupManager::new(files, options, slices, Arc::new(LinuxFilesystem)).map_err(failed)
}

fn hugepage_sizes(amounts: &ResourceList) -> Vec<u64> {
    amounts.keys().filter_map(|it| u64::try_from(hugepage_size(it)?).ok()).collect()
}

/// The share of memory that classes of pods leave to the more important ones.
fn reserve(configuration: &Configuration, gates: &Gates, amounts: &Amounts) -> Option<MemoryReserve> {
    let percent = configuration.map("qosReserved").get(MEMORY)?.strip_suffix('%')?.parse().ok()?;
    let allocatable = amounts.allocatable.get(MEMORY).map(Quantity::whole).filter(|it| *it > 0)?;
    gates.is_open("QOSReserved").then_some(MemoryReserve { percent, allocatable })
}

/// The cgroup whose use of memory the kernel watches, if `kernelMemcgNotification` is set. With cgroups v2 there is none, as
/// upstream.
pub fn notifying_cgroup(configuration: &Configuration, cgroups: &CgroupManager) -> Option<PathBuf> {
    match cgroups.files() {
        CgroupFiles::V1(directories) if configuration.flag(&["kernelMemcgNotification"]) => {
            directories.get("memory").cloned()
        }
        _ => None,
    }
}

/// Limits the cgroups of the system and of the agent to what is held back for them, and moves processes there.
pub fn enforce(
    configuration: &Configuration,
    cgroups: &CgroupManager,
    reservations: &Reservations,
    events: &NodeEvents,
) -> Result<(), StartError> {
    let enforced = configuration.texts("enforceNodeAllocatable");
    let is_enforced = |names: &[&str]| enforced.iter().any(|it| names.contains(&it.as_str()));
    for (names, field, title, amounts) in [
        (&["system-reserved"][..], "systemReservedCgroup", "System", &reservations.system),
        (&["kube-reserved", "cluster-reserved"][..], "kubeReservedCgroup", "Kube", &reservations.agent),
    ] {
        if !is_enforced(names) {
            continue;
        }
        let path = configuration.text(&[field]);
        match cgroups.enforce(path, amounts) {
            Ok(()) => {
                let message = format!("Updated limits on {} reserved cgroup {path}", title.to_lowercase());
                events(Note::normal("NodeAllocatableEnforced", message));
            }
            Err(why) => {
                let message = format!("Failed to enforce {title} Reserved Cgroup Limits on {path:?}: {why}");
                events(Note::warning("FailedNodeAllocatableEnforcement", &*message));
                return Err(failed(message));
            }
        }
    }
    let agent = configuration.text(&["kubeletCgroups"]);
    if !agent.is_empty() {
        move_agent(cgroups.files(), agent)
            .map_err(|why| failed(format!("the agent cannot be moved to the cgroup {agent:?}: {why}")))?;
    }
    let system = configuration.text(&["systemCgroups"]);
    if !system.is_empty() && system != "/" {
        if configuration.text(&["cgroupRoot"]).is_empty() {
            return Err(failed("system container was specified and cgroup root was not specified"));
        }
        let processes = SystemProcesses { files: cgroups.files(), proc: Path::new("/proc") };
        processes
            .collect(system)
            .map_err(|why| failed(format!("processes cannot be moved to the cgroup {system:?}: {why}")))?;
    }
    Ok(())
}
