//! Usage of a cgroup, read from its files.
//!
//! A file that is absent, as under another kernel or version, is a zero.

use crate::cgroups::CgroupFiles;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Nanoseconds of a tick of `cpuacct.stat`.
const TICK: u64 = 10_000_000;
/// Version 1 says "no limit" with a number above this.
const UNLIMITED: u64 = 1 << 60;

/// Usage and limits of a cgroup and those below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CgroupUsage {
    pub cpu_nanos: u64,
    pub cpu_user_nanos: u64,
    pub cpu_system_nanos: u64,
    pub cpu_shares: u64,
    pub cpu_period_micros: u64,
    /// Absent without a limit.
    pub cpu_quota_micros: Option<u64>,
    /// Periods, periods in which the cgroup was throttled, and the time of that.
    pub cpu_periods: (u64, u64, u64),
    pub memory_usage: u64,
    pub memory_working_set: u64,
    pub memory_max_usage: u64,
    pub memory_rss: u64,
    pub memory_cache: u64,
    pub memory_mapped: u64,
    pub memory_swap: u64,
    pub memory_failures: u64,
    /// Zero without a limit.
    pub memory_limit: u64,
    pub memory_swap_limit: u64,
    pub memory_soft_limit: u64,
    /// Page faults, and those that read from a disk.
    pub page_faults: (u64, u64),
    pub oom_kills: u64,
    pub threads: u64,
    /// Zero without a limit.
    pub threads_limit: u64,
    pub processes: Vec<i32>,
    /// Reads and writes by device number: operations and bytes.
    pub io: BTreeMap<String, IoUsage>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IoUsage {
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// The files of one cgroup.
struct Files<'f> {
    files: &'f CgroupFiles,
    path: &'f str,
}

impl Files<'_> {
    fn text(&self, controller: &str, file: &str) -> String {
        let inside = self.path.trim_start_matches('/');
        let root: Option<&PathBuf> = match self.files {
            CgroupFiles::V1(hierarchies) => hierarchies.get(controller),
            CgroupFiles::V2(root) => Some(root),
        };
        root.and_then(|root| std::fs::read_to_string(root.join(inside).join(file)).ok()).unwrap_or_default()
    }

    fn number(&self, controller: &str, file: &str) -> u64 {
        self.text(controller, file).trim().parse().unwrap_or(0)
    }

    /// A limit; zero if there is none.
    fn limit(&self, controller: &str, file: &str) -> u64 {
        Some(self.number(controller, file)).filter(|it| *it < UNLIMITED).unwrap_or(0)
    }

    /// Lines of a name and a number.
    fn table(&self, controller: &str, file: &str) -> BTreeMap<String, u64> {
        let text = self.text(controller, file);
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        pairs.filter_map(|(name, number)| Some((name.to_owned(), number.trim().parse().ok()?))).collect()
    }
}

/// Reads the usage of a cgroup by its path.
pub fn read(files: &CgroupFiles, path: &str) -> CgroupUsage {
    let of = Files { files, path };
    let mut usage = if files.is_v2() { read_v2(&of) } else { read_v1(&of) };
    usage.processes = files.processes(path);
    usage
}

/// The working set of a cgroup and its limit; absent without a limit.
pub fn memory(files: &CgroupFiles, path: &str) -> Option<(u64, u64)> {
    let of = Files { files, path };
    let (usage, limit, inactive) = match files.is_v2() {
        true => ("memory.current", "memory.max", "inactive_file"),
        false => ("memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file"),
    };
    let limit = Some(of.limit("memory", limit)).filter(|it| *it > 0)?;
    let inactive = of.table("memory", "memory.stat").get(inactive).copied().unwrap_or(0);
    Some((of.number("memory", usage).saturating_sub(inactive), limit))
}

fn read_v1(of: &Files<'_>) -> CgroupUsage {
    let cpu = of.table("cpuacct", "cpuacct.stat");
    let throttled = of.table("cpu", "cpu.stat");
    let memory = of.table("memory", "memory.stat");
    let control = of.table("memory", "memory.oom_control");
    let get = |table: &BTreeMap<String, u64>, name: &str| table.get(name).copied().unwrap_or(0);
    let memory_usage = of.number("memory", "memory.usage_in_bytes");
    let inactive = get(&memory, "total_inactive_file");
    CgroupUsage {
        cpu_nanos: of.number("cpuacct", "cpuacct.usage"),
        cpu_user_nanos: get(&cpu, "user") * TICK,
        cpu_system_nanos: get(&cpu, "system") * TICK,
        cpu_shares: of.number("cpu", "cpu.shares"),
        cpu_period_micros: of.number("cpu", "cpu.cfs_period_us"),
        cpu_quota_micros: of.text("cpu", "cpu.cfs_quota_us").trim().parse().ok(),
        cpu_periods: (
            get(&throttled, "nr_periods"),
            get(&throttled, "nr_throttled"),
            get(&throttled, "throttled_time"),
        ),
        memory_usage,
        memory_working_set: memory_usage.saturating_sub(inactive),
        memory_max_usage: of.number("memory", "memory.max_usage_in_bytes"),
        memory_rss: get(&memory, "total_rss"),
        memory_cache: get(&memory, "total_cache"),
        memory_mapped: get(&memory, "total_mapped_file"),
        memory_swap: get(&memory, "total_swap"),
        memory_failures: of.number("memory", "memory.failcnt"),
        memory_limit: of.limit("memory", "memory.limit_in_bytes"),
        memory_swap_limit: of.limit("memory", "memory.memsw.limit_in_bytes"),
        memory_soft_limit: of.limit("memory", "memory.soft_limit_in_bytes"),
        page_faults: (get(&memory, "total_pgfault"), get(&memory, "total_pgmajfault")),
        oom_kills: get(&control, "oom_kill"),
        threads: of.number("pids", "pids.current"),
        threads_limit: of.limit("pids", "pids.max"),
        processes: Vec::new(),
        io: io_v1(of),
    }
}

/// Lines such as `8:0 Read 12`.
fn io_v1(of: &Files<'_>) -> BTreeMap<String, IoUsage> {
    let mut all: BTreeMap<String, IoUsage> = BTreeMap::new();
    for (file, is_bytes) in [("blkio.throttle.io_serviced", false), ("blkio.throttle.io_service_bytes", true)]
    {
        for line in of.text("blkio", file).lines() {
            let mut words = line.split_whitespace();
            let (Some(device), Some(kind), Some(number)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else { continue };
            let usage = all.entry(device.to_owned()).or_default();
            match (kind, is_bytes) {
                ("Read", false) => usage.reads = number,
                ("Write", false) => usage.writes = number,
                ("Read", true) => usage.read_bytes = number,
                ("Write", true) => usage.written_bytes = number,
                _ => {}
            }
        }
    }
    all
}

fn read_v2(of: &Files<'_>) -> CgroupUsage {
    let cpu = of.table("cpu", "cpu.stat");
    let memory = of.table("memory", "memory.stat");
    let events = of.table("memory", "memory.events");
    let get = |table: &BTreeMap<String, u64>, name: &str| table.get(name).copied().unwrap_or(0);
    let max = of.text("cpu", "cpu.max");
    let mut max = max.split_whitespace();
    let quota = max.next().and_then(|it| it.parse().ok());
    let memory_usage = of.number("memory", "memory.current");
    let weight = of.number("cpu", "cpu.weight");
    CgroupUsage {
        cpu_nanos: get(&cpu, "usage_usec") * 1000,
        cpu_user_nanos: get(&cpu, "user_usec") * 1000,
        cpu_system_nanos: get(&cpu, "system_usec") * 1000,
        // shares of version 1, of which the weight was computed
        cpu_shares: if weight == 0 { 0 } else { 2 + (weight - 1) * 262_142 / 9999 },
        cpu_period_micros: max.next().and_then(|it| it.parse().ok()).unwrap_or(0),
        cpu_quota_micros: quota,
        cpu_periods: (
            get(&cpu, "nr_periods"),
            get(&cpu, "nr_throttled"),
            get(&cpu, "throttled_usec").saturating_mul(1000),
        ),
        memory_usage,
        memory_working_set: memory_usage.saturating_sub(get(&memory, "inactive_file")),
        memory_max_usage: of.number("memory", "memory.peak"),
        memory_rss: get(&memory, "anon"),
        memory_cache: get(&memory, "file"),
        memory_mapped: get(&memory, "file_mapped"),
        memory_swap: of.number("memory", "memory.swap.current"),
        memory_failures: get(&events, "max"),
        memory_limit: of.limit("memory", "memory.max"),
        memory_swap_limit: of.limit("memory", "memory.swap.max"),
        memory_soft_limit: of.limit("memory", "memory.high"),
        page_faults: (get(&memory, "pgfault"), get(&memory, "pgmajfault")),
        oom_kills: get(&events, "oom_kill"),
        threads: of.number("pids", "pids.current"),
        threads_limit: of.limit("pids", "pids.max"),
        processes: Vec::new(),
        io: io_v2(of),
    }
}

/// Lines such as `8:0 rbytes=1 wbytes=2 rios=3 wios=4`.
fn io_v2(of: &Files<'_>) -> BTreeMap<String, IoUsage> {
    let text = of.text("io", "io.stat");
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let parse = |fields: &str| {
        let number = |name: &str| {
            let mut pairs = fields.split_whitespace().filter_map(|it| it.split_once('='));
            pairs.find(|(key, _)| *key == name).and_then(|(_, it)| it.parse().ok()).unwrap_or(0)
        };
        IoUsage {
            reads: number("rios"),
            writes: number("wios"),
            read_bytes: number("rbytes"),
            written_bytes: number("wbytes"),
        }
    };
    lines.map(|(device, fields)| (device.to_owned(), parse(fields))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &std::path::Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn version_1_is_read() {
        let folder = tempfile::tempdir().unwrap();
        write(
            folder.path(),
            &[
                ("cpu/a/cpu.shares", "102\n"),
                ("cpu/a/cpu.cfs_period_us", "100000\n"),
                ("cpu/a/cpu.cfs_quota_us", "-1\n"),
                ("cpuacct/a/cpuacct.usage", "77\n"),
                ("cpuacct/a/cpuacct.stat", "user 3\nsystem 2\n"),
                ("memory/a/memory.usage_in_bytes", "1000\n"),
                ("memory/a/memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory/a/memory.stat", "cache 1\ntotal_inactive_file 300\ntotal_rss 5\n"),
                ("pids/a/pids.current", "4\n"),
                ("pids/a/pids.max", "max\n"),
                ("blkio/a/blkio.throttle.io_serviced", "8:0 Read 3\n8:0 Write 4\nTotal 7\n"),
            ],
        );
        let names = ["cpu", "cpuacct", "memory", "pids", "blkio"];
        let files =
            CgroupFiles::V1(names.iter().map(|it| ((*it).to_owned(), folder.path().join(it))).collect());
        let usage = read(&files, "/a");
        assert_eq!((usage.cpu_nanos, usage.cpu_user_nanos, usage.cpu_shares), (77, 30_000_000, 102));
        assert_eq!((usage.cpu_quota_micros, usage.memory_limit, usage.threads_limit), (None, 0, 0));
        assert_eq!((usage.memory_usage, usage.memory_working_set, usage.memory_rss), (1000, 700, 5));
        assert_eq!((usage.threads, usage.io["8:0"].reads, usage.io["8:0"].writes), (4, 3, 4));
        assert_eq!(read(&files, "/none"), CgroupUsage::default());
        assert_eq!(memory(&files, "/a"), None);
        write(folder.path(), &[("memory/a/memory.limit_in_bytes", "2000\n")]);
        assert_eq!(memory(&files, "/a"), Some((700, 2000)));
    }

    #[test]
    fn version_2_is_read() {
        let folder = tempfile::tempdir().unwrap();
        write(
            folder.path(),
            &[
                ("a/cpu.stat", "usage_usec 9\nuser_usec 5\nsystem_usec 4\nnr_throttled 1\n"),
                ("a/cpu.max", "50000 100000\n"),
                ("a/cpu.weight", "100\n"),
                ("a/memory.current", "1000\n"),
                ("a/memory.max", "max\n"),
                ("a/memory.stat", "anon 5\ninactive_file 400\npgfault 6\n"),
                ("a/io.stat", "8:0 rbytes=1 wbytes=2 rios=3 wios=4\n"),
                ("a/cgroup.procs", "12\n13\n"),
            ],
        );
        let usage = read(&CgroupFiles::V2(folder.path().to_owned()), "a");
        assert_eq!((usage.cpu_nanos, usage.cpu_quota_micros, usage.cpu_shares), (9000, Some(50_000), 2597));
        assert_eq!((usage.memory_working_set, usage.memory_limit, usage.page_faults), (600, 0, (6, 0)));
        let io = IoUsage { reads: 3, writes: 4, read_bytes: 1, written_bytes: 2 };
        assert_eq!((usage.io["8:0"], usage.processes), (io, vec![12, 13]));
    }
}
