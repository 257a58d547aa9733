//! Usage of containers and of the node.

use super::rates::Rates;
use crate::runtime::{ContainerStats, FilesystemStats, SharedRuntime};
use crate::server::PodView;
use env::World;
use names::node;
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
}

/// See the module of the folder.
pub struct Usage {
    pub(super) sources: StatsSources,
    pub(super) rates: Rates,
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
    /// Seconds since the epoch.
    pub boot_time: i64,
    pub processes: u64,
}

/// Space and inodes of a filesystem.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilesystemUsage {
    pub available: u64,
    pub capacity: u64,
    pub inodes: u64,
    pub inodes_free: u64,
}

impl Usage {
    pub fn new(sources: StatsSources) -> Self {
        Usage { sources, rates: Rates::default() }
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
        node_usage(&read("stat"), &read("meminfo"))
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
        processes: number("procs_running").unwrap_or(0),
    }
}

/// Space and inodes of the filesystem of a path.
pub fn filesystem(path: &std::path::Path) -> Option<FilesystemUsage> {
    let data = rustix::fs::statvfs(path).ok()?;
    Some(FilesystemUsage {
        available: data.f_bavail * data.f_frsize,
        capacity: data.f_blocks * data.f_frsize,
        inodes: data.f_files,
        inodes_free: data.f_ffree,
    })
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
