//! Usage of containers and of the node.

use super::counters::AgentMetrics;
use super::rates::Rates;
use super::system_containers::SystemCgroups;
use super::volume_usage::VolumeUsage;
use crate::cgroups::CgroupManager;
use crate::node::Machine;
use crate::runtime::{ContainerStats, FilesystemStats, SharedRuntime};
use crate::server::PodView;
use env::World;
use names::node;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

/// Where usage is read.
pub struct StatsSources {
    pub runtime: SharedRuntime,
    pub pods: Arc<dyn PodView>,
    pub node_name: String,
    pub world: World,
    /// `/proc`
    pub proc: PathBuf,
    /// The directory whose filesystem is the node's.
    pub root_dir: PathBuf,
    /// The directory of the logs of pods.
    pub log_dir: PathBuf,
    pub machine: Machine,
    pub cgroups: Option<Arc<CgroupManager>>,
    pub system_cgroups: SystemCgroups,
    pub metrics: AgentMetrics,
    pub volumes: VolumeUsage,
    /// When the runtime's containers were last listed, in seconds since the epoch.
    pub last_listed: Box<dyn Fn() -> f64 + Send + Sync>,
}

/// See the module of the folder.
pub struct Usage {
    pub(super) sources: StatsSources,
    pub(super) rates: Rates,
    /// When the process began, in seconds since the epoch.
    pub(super) start_time: f64,
}

/// Usage of one container, with the names of its pod.
pub struct ContainerUsage {
    pub namespace: String,
    pub pod: String,
    pub uid: String,
    pub container: String,
    pub stats: ContainerStats,
}

/// Usage of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeUsage {
    pub cpu_nanos: u64,
    pub memory_total: u64,
    pub memory_available: u64,
    pub memory_usage: u64,
    pub memory_working_set: u64,
    pub memory_anonymous: u64,
    /// Page faults, and those that read from a disk.
    pub page_faults: (u64, u64),
    /// Seconds since the epoch.
    pub boot_time: i64,
    /// Threads, and the most that there may be.
    pub processes: u64,
    pub process_limit: u64,
}

impl Usage {
    pub fn new(sources: StatsSources) -> Self {
        let since = sources.world.now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Usage { sources, rates: Rates::default(), start_time: since.as_secs_f64() }
    }

    /// The page of probes.
    pub(super) fn probe_metrics(&self) -> String {
        let uids: HashSet<String> =
            self.sources.pods.pods().iter().map(|pod| pod.metadata.uid.clone()).collect();
        self.sources.metrics.probes().page(self.start_time, |uid| uids.contains(uid))
    }

    /// Now, in nanoseconds since the epoch.
    pub(super) fn now(&self) -> i64 {
        let since = self.sources.world.now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    }

    /// Usage of all containers of pods, the newest of each.
    pub(super) async fn containers(&self) -> Result<Vec<ContainerUsage>, String> {
        let all = self.sources.runtime.container_stats().await.map_err(|why| why.to_string())?;
        let mut found: Vec<ContainerUsage> = Vec::new();
        for stats in all {
            let label = |key: &str| stats.labels.get(key).cloned().unwrap_or_default();
            let (uid, container) = (label(node::POD_UID), label(node::CONTAINER_NAME));
            if uid.is_empty() || container.is_empty() {
                continue;
            }
            let usage = ContainerUsage {
                namespace: label(node::POD_NAMESPACE),
                pod: label(node::POD_NAME),
                uid,
                container,
                stats,
            };
            match found.iter_mut().find(|it| it.uid == usage.uid && it.container == usage.container) {
                Some(before) if before.stats.attempt < usage.stats.attempt => *before = usage,
                Some(_) => {}
                None => found.push(usage),
            }
        }
        found.sort_by(|a, b| (&a.namespace, &a.pod, &a.container).cmp(&(&b.namespace, &b.pod, &b.container)));
        Ok(found)
    }

    pub(super) fn node(&self) -> NodeUsage {
        let read = |name: &str| std::fs::read_to_string(self.sources.proc.join(name)).unwrap_or_default();
        let mut usage = node_usage(&read("stat"), &read("meminfo"));
        let faults = read("vmstat");
        let fault = |name: &str| {
            let line = faults.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|it| it.trim().parse().ok()).unwrap_or(0)
        };
        usage.page_faults = (fault("pgfault"), fault("pgmajfault"));
        // the fourth word is `running/all`
        let load = read("loadavg");
        let threads = load.split_whitespace().nth(3).and_then(|it| it.split_once('/'));
        usage.processes = threads.and_then(|(_, all)| all.parse().ok()).unwrap_or(0);
        usage.process_limit = read("sys/kernel/pid_max").trim().parse().unwrap_or(0);
        usage
    }

    pub(super) async fn image_fs(&self) -> Option<FilesystemStats> {
        self.sources.runtime.image_fs().await.ok()?.into_iter().next()
    }
}

/// Usage of the node from the kernel's texts.
fn node_usage(stat: &str, meminfo: &str) -> NodeUsage {
    /// Nanoseconds of a tick of `/proc/stat`.
    const TICK: u64 = 10_000_000;
    let line = |name: &str| stat.lines().find(|it| it.split_whitespace().next() == Some(name)).unwrap_or("");
    let numbers: Vec<u64> = line("cpu").split_whitespace().skip(1).filter_map(|it| it.parse().ok()).collect();
    let number = |name: &str| line(name).split_whitespace().nth(1).and_then(|it| it.parse::<u64>().ok());
    // user, nice, system, irq, softirq, steal; idle and iowait are no work
    let busy: u64 =
        numbers.iter().enumerate().filter(|(at, _)| !matches!(at, 3 | 4) && *at < 8).map(|(_, it)| it).sum();
    let memory = |name: &str| {
        let line = meminfo.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix(':'));
        let kilobytes =
            line.and_then(|it| it.split_whitespace().next()).and_then(|it| it.parse::<u64>().ok());
        kilobytes.unwrap_or(0) * 1024
    };
    let (total, free) = (memory("MemTotal"), memory("MemFree"));
    let usage = total.saturating_sub(free);
    let working_set = usage.saturating_sub(memory("Inactive(file)"));
    NodeUsage {
        cpu_nanos: busy * TICK,
        memory_total: total,
        memory_available: total.saturating_sub(working_set),
        memory_usage: usage,
        memory_working_set: working_set,
        boot_time: number("btime").and_then(|it| i64::try_from(it).ok()).unwrap_or(0),
        memory_anonymous: memory("AnonPages"),
        ..NodeUsage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_texts_are_read() {
        let stat = "cpu  100 0 50 1000 20 0 5 0 0 0\ncpu0 1 1 1 1\nbtime 1700000000\nprocs_running 3\n";
        let meminfo = "MemTotal:       1000 kB\nMemFree:         300 kB\nInactive(file):  200 kB\n";
        let usage = node_usage(stat, meminfo);
        assert_eq!(usage.cpu_nanos, 155 * 10_000_000);
        assert_eq!((usage.memory_usage, usage.memory_working_set), (700 * 1024, 500 * 1024));
        assert_eq!((usage.memory_available, usage.boot_time), (500 * 1024, 1_700_000_000));
    }
}
