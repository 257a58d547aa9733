//! Control groups of containers, in version 1 (a tree for each controller) and version 2 (one tree).

use super::devices::{DeviceRule, program};
use crate::stats::{CpuStats, MemoryStats};
use crate::steps::step;
use crate::{LinuxResources, RuntimeError};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Controllers of version 1 that containers are put into.
const CONTROLLERS: [&str; 13] = [
    "cpu",
    "cpuacct",
    "cpuset",
    "memory",
    "devices",
    "freezer",
    "blkio",
    "pids",
    "hugetlb",
    "net_cls",
    "net_prio",
    "perf_event",
    "systemd",
];
const PROCESSES: &str = "cgroup.procs";

/// See the module.
#[derive(Debug)]
pub struct Cgroups {
    root: PathBuf,
    /// Controllers of version 1; none with version 2.
    pub controllers: Vec<String>,
    /// The last program for devices, with its instructions: most containers have the same one.
    device_program: Mutex<Option<(Vec<u64>, OwnedFd)>>,
}

impl Cgroups {
    pub fn detect(root: &Path) -> Self {
        let is_unified = root.join("cgroup.controllers").exists();
        let is_mounted = |it: &&&str| !is_unified && root.join(it).join(PROCESSES).exists();
        let controllers = CONTROLLERS.iter().filter(is_mounted).map(|it| (*it).to_owned()).collect();
        Cgroups { root: root.to_owned(), controllers, device_program: Mutex::default() }
    }

    fn directories(&self, path: &str) -> Vec<(String, PathBuf)> {
        let path = path.trim_start_matches('/');
        match self.controllers.is_empty() {
            true => vec![(String::new(), self.root.join(path))],
            false => {
                let directory = |it: &String| (it.clone(), self.root.join(it).join(path));
                self.controllers.iter().map(directory).collect()
            }
        }
    }

    /// The directory of a controller.
    fn directory(&self, path: &str, controller: &str) -> PathBuf {
        let path = path.trim_start_matches('/');
        match self.controllers.is_empty() {
            true => self.root.join(path),
            false => self.root.join(controller).join(path),
        }
    }

    /// Makes a group. Returns the files by which processes join it.
    pub fn create(&self, path: &str) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for (controller, directory) in self.directories(path) {
            if self.controllers.is_empty() {
                enable_controllers(&self.root, &directory)?;
            }
            step("make a control group", &directory);
            fs::create_dir_all(&directory)?;
            if controller == "cpuset" {
                let base = self.root.join("cpuset");
                inherit_cpuset(&base, &directory)?;
            }
            files.push(directory.join(PROCESSES));
        }
        Ok(files)
    }

    /// Removes a group, with those that its container has made; its processes have ended, or are about to.
    pub fn remove(&self, path: &str) -> io::Result<()> {
        for (_, directory) in self.directories(path) {
            // few containers make groups below their own, and a list of the directory costs more than its removal
            if remove_group(&directory).is_err() {
                tree(&directory).iter().rev().try_for_each(|it| remove_group(it))?;
            }
        }
        Ok(())
    }

    /// Sets limits; zero and empty leave a value as it is.
    pub fn apply(&self, path: &str, resources: &LinuxResources) -> Result<(), RuntimeError> {
        let files = match self.controllers.is_empty() {
            true => unified_values(resources),
            false => legacy_values(resources),
        };
        let write = |(controller, file, value): &FileValue| {
            let path = self.directory(path, controller).join(file);
            // limits of swap and huge pages are options of the kernel
            let is_optional = file.contains("memsw") || file.contains("swap") || file.starts_with("hugetlb");
            match fs::write(&path, value) {
                Err(why) if !(is_optional && why.kind() == io::ErrorKind::NotFound) => {
                    let message = format!("failed to write {value:?} to {}: {why}", path.display());
                    Err(RuntimeError::new(crate::RuntimeCode::Unknown, message))
                }
                _ => Ok(()),
            }
        };
        // limits bound each other, so one that is refused may be right after the others
        let refused: Vec<_> = files.iter().filter(|it| write(it).is_err()).collect();
        refused.into_iter().try_for_each(write)
    }

    /// Restricts a new group to these devices. Returns whether this machine can do so.
    pub fn restrict_devices(&self, path: &str, rules: &[DeviceRule]) -> io::Result<bool> {
        let directory = self.directory(path, "devices");
        if self.controllers.is_empty() {
            return match self.attach_device_program(&directory, program(rules)) {
                Ok(()) => Ok(true),
                Err(why) => {
                    tracing::warn!(%why, "the kernel takes no programs for devices, so containers make no device nodes");
                    Ok(false)
                }
            };
        }
        if !self.controllers.iter().any(|it| it == "devices") {
            return Ok(false);
        }
        fs::write(directory.join("devices.deny"), "a")?;
        let mut allowed = fs::OpenOptions::new().write(true).open(directory.join("devices.allow"))?;
        // the kernel takes one rule at a time
        rules.iter().try_for_each(|rule| allowed.write_all(rule.to_string().as_bytes()))?;
        Ok(true)
    }

    fn attach_device_program(&self, directory: &Path, instructions: Vec<u64>) -> io::Result<()> {
        let directory = fs::File::open(directory)?;
        let mut last = self.device_program.lock();
        let loaded = match last.take().filter(|(loaded, _)| *loaded == instructions) {
            Some((_, loaded)) => loaded,
            None => kernel_programs::load_device_program(&instructions)?,
        };
        let (_, loaded) = last.insert((instructions, loaded));
        kernel_programs::attach_device_program(&directory, &*loaded)
    }

    /// Use of CPU and memory.
    pub fn usage(&self, path: &str, timestamp: i64) -> (CpuStats, MemoryStats) {
        let number = |controller: &str, file: &str| {
            fs::read_to_string(self.directory(path, controller).join(file)).ok()?.trim().parse::<u64>().ok()
        };
        let table = |controller: &str, file: &str| -> BTreeMap<String, u64> {
            let text = fs::read_to_string(self.directory(path, controller).join(file)).unwrap_or_default();
            let pair = |line: &str| {
                let (name, value) = line.split_once(' ')?;
                Some((name.to_owned(), value.parse().ok()?))
            };
            text.lines().filter_map(pair).collect()
        };
        let is_unified = self.controllers.is_empty();
        let cpu = match is_unified {
            true => table("", "cpu.stat").get("usage_usec").map(|it| it * 1000),
            false => number("cpuacct", "cpuacct.usage"),
        };
        let stat = table("memory", "memory.stat");
        let (usage, limit, names) = match is_unified {
            true => (
                number("", "memory.current"),
                number("", "memory.max"),
                ["inactive_file", "anon", "pgfault", "pgmajfault"],
            ),
            false => (
                number("memory", "memory.usage_in_bytes"),
                number("memory", "memory.limit_in_bytes"),
                ["total_inactive_file", "total_rss", "total_pgfault", "total_pgmajfault"],
            ),
        };
        let value = |index: usize| stat.get(names[index]).copied();
        let working_set = usage.map(|it| it.saturating_sub(value(0).unwrap_or(0)));
        // without a limit version 1 has the largest number of pages
        let limit = limit.filter(|it| *it < 1 << 60);
        let memory = MemoryStats {
            timestamp,
            working_set_bytes: working_set,
            available_bytes: limit.zip(working_set).map(|(limit, used)| limit.saturating_sub(used)),
            usage_bytes: usage,
            rss_bytes: value(1),
            page_faults: value(2),
            major_page_faults: value(3),
        };
        (CpuStats { timestamp, usage_core_nano_seconds: cpu, usage_nano_cores: None }, memory)
    }
}

fn enable_controllers(root: &Path, directory: &Path) -> io::Result<()> {
    let inside = directory.strip_prefix(root).map_err(io::Error::other)?;
    let mut current = root.to_owned();
    for component in inside.components() {
        let file = current.join("cgroup.subtree_control");
        // each write waits until groups that were removed are gone, so none is made in vain
        let enabled = fs::read_to_string(&file).unwrap_or_default();
        let is_enabled = |it: &str| enabled.split_whitespace().any(|name| name == it);
        for controller in ["cpu", "memory", "cpuset", "io", "pids", "hugetlb"] {
            if !is_enabled(controller) {
                // the kernel may lack it
                let _ = fs::write(&file, format!("+{controller}"));
            }
        }
        current.push(component);
        if current != directory {
            fs::create_dir_all(&current)?;
        }
    }
    Ok(())
}

/// Removes a group without others below it; one that is not there is no error.
fn remove_group(directory: &Path) -> io::Result<()> {
    step("remove a control group", directory);
    match fs::remove_dir(directory) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}

/// A group of version 1 takes no process before it has CPUs and memory nodes.
fn inherit_cpuset(base: &Path, directory: &Path) -> io::Result<()> {
    ["cpuset.cpus", "cpuset.mems"].iter().try_for_each(|file| inherited(base, directory, file).map(drop))
}

/// The value of a group, which gets that of the next group above it that has one. Above a group with a value all have one.
fn inherited(base: &Path, directory: &Path, file: &str) -> io::Result<String> {
    let path = directory.join(file);
    let own = fs::read_to_string(&path)?;
    let parent = directory.parent().filter(|_| directory != base && own.trim().is_empty());
    let Some(parent) = parent else { return Ok(own) };
    let value = inherited(base, parent, file)?;
    fs::write(&path, value.trim())?;
    Ok(value)
}

type FileValue = (&'static str, String, String);

fn legacy_values(resources: &LinuxResources) -> Vec<FileValue> {
    let mut values = Vec::new();
    let mut add = |controller, file: &str, value: String| values.push((controller, file.to_owned(), value));
    let LinuxResources { cpu_period, cpu_quota, cpu_shares, memory_limit, memory_swap_limit, .. } =
        *resources;
    if cpu_shares > 0 {
        add("cpu", "cpu.shares", cpu_shares.to_string());
    }
    if cpu_period > 0 {
        add("cpu", "cpu.cfs_period_us", cpu_period.to_string());
    }
    if cpu_quota != 0 {
        add("cpu", "cpu.cfs_quota_us", cpu_quota.to_string());
    }
    if memory_limit > 0 {
        add("memory", "memory.limit_in_bytes", memory_limit.to_string());
    }
    // without a limit of its own, swap does not add to the memory; -1 is no limit
    if memory_swap_limit != 0 || memory_limit > 0 {
        let limit = if memory_swap_limit != 0 { memory_swap_limit } else { memory_limit };
        add("memory", "memory.memsw.limit_in_bytes", limit.to_string());
    }
    if !resources.cpuset_cpus.is_empty() {
        add("cpuset", "cpuset.cpus", resources.cpuset_cpus.clone());
    }
    if !resources.cpuset_mems.is_empty() {
        add("cpuset", "cpuset.mems", resources.cpuset_mems.clone());
    }
    for (size, limit) in &resources.hugepages {
        add("hugetlb", &format!("hugetlb.{size}.limit_in_bytes"), limit.to_string());
    }
    values
}

fn unified_values(resources: &LinuxResources) -> Vec<FileValue> {
    let mut values: Vec<FileValue> = Vec::new();
    let mut add = |file: &str, value: String| values.push(("", file.to_owned(), value));
    let LinuxResources { cpu_period, cpu_quota, cpu_shares, memory_limit, memory_swap_limit, .. } =
        *resources;
    if cpu_shares > 0 {
        add("cpu.weight", (1 + (cpu_shares.clamp(2, 262_144) - 2) * 9999 / 262_142).to_string());
    }
    if cpu_quota != 0 || cpu_period > 0 {
        let quota = if cpu_quota > 0 { cpu_quota.to_string() } else { "max".to_owned() };
        add("cpu.max", format!("{quota} {}", if cpu_period > 0 { cpu_period } else { 100_000 }));
    }
    if memory_limit > 0 {
        add("memory.max", memory_limit.to_string());
    }
    // the limit of swap alone, and not together with the memory as in version 1
    match memory_swap_limit {
        ..0 => add("memory.swap.max", "max".to_owned()),
        both if memory_limit > 0 => {
            add("memory.swap.max", both.saturating_sub(memory_limit).max(0).to_string());
        }
        _ => {}
    }
    if !resources.cpuset_cpus.is_empty() {
        add("cpuset.cpus", resources.cpuset_cpus.clone());
    }
    if !resources.cpuset_mems.is_empty() {
        add("cpuset.mems", resources.cpuset_mems.clone());
    }
    for (size, limit) in &resources.hugepages {
        add(&format!("hugetlb.{size}.max"), limit.to_string());
    }
    for (file, value) in resources.unified.iter().filter(|(file, _)| !file.contains('/')) {
        add(file, value.clone());
    }
    values
}

/// Whether the kernel killed a process of a group for lack of memory. The group is named by its files `cgroup.procs`.
pub fn has_oom_kill(files: &[PathBuf]) -> bool {
    let read = |directory: &Path| {
        ["memory.oom_control", "memory.events"]
            .iter()
            .find_map(|file| fs::read_to_string(directory.join(file)).ok())
    };
    // one of the groups is that of the memory controller
    let text = files.iter().filter_map(|it| it.parent()).find_map(read).unwrap_or_default();
    text.lines().any(|line| line.strip_prefix("oom_kill ").is_some_and(|it| it.trim() != "0"))
}

/// The processes of a group that is named by its files `cgroup.procs`, and of those below it.
pub fn processes(files: &[PathBuf]) -> Vec<i32> {
    let Some(directory) = files.first().and_then(|it| it.parent()) else { return Vec::new() };
    let text = |it: &PathBuf| fs::read_to_string(it.join(PROCESSES)).unwrap_or_default();
    let texts: Vec<_> = tree(directory).iter().map(text).collect();
    texts.iter().flat_map(|it| it.lines()).filter_map(|it| it.parse().ok()).collect()
}

/// The file by which a process joins the group below a container's own that a process of the container is in: version 2
/// puts none into a group that divides its memory among others. `own` is the container's file, `table` the text of
/// `/proc/PID/cgroup`.
pub fn group_below(own: &Path, table: &str) -> Option<PathBuf> {
    let directory = own.parent()?;
    let name = directory.file_name()?.to_str()?;
    let path = table.lines().find_map(|line| line.strip_prefix("0::"))?;
    let (_, below) = path.split_once(&format!("/{name}/"))?;
    Some(directory.join(below).join(PROCESSES))
}

/// A group and those below it, each after its parent.
fn tree(directory: &Path) -> Vec<PathBuf> {
    let mut found = vec![directory.to_owned()];
    let mut next = 0;
    while next < found.len() {
        let entries = fs::read_dir(&found[next]).into_iter().flatten().flatten();
        found.extend(entries.filter(|it| it.file_type().is_ok_and(|it| it.is_dir())).map(|it| it.path()));
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources() -> LinuxResources {
        LinuxResources {
            cpu_period: 100_000,
            cpu_quota: 50_000,
            cpu_shares: 1024,
            memory_limit: 1 << 20,
            memory_swap_limit: 1 << 20,
            ..LinuxResources::default()
        }
    }

    #[test]
    fn limits_become_files_of_either_version() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::write(root.join("cgroup.controllers"), "cpu memory").unwrap();
        let unified = Cgroups::detect(root);
        assert!(unified.controllers.is_empty());
        assert_eq!(unified.create("/pods/a").unwrap(), [root.join("pods/a/cgroup.procs")]);
        unified.apply("/pods/a", &resources()).unwrap();
        let read = |file: &str| fs::read_to_string(root.join("pods/a").join(file)).unwrap();
        assert_eq!((&*read("cpu.weight"), &*read("cpu.max")), ("39", "50000 100000"));
        assert_eq!((&*read("memory.max"), &*read("memory.swap.max")), ("1048576", "0"));
        fs::write(root.join("pods/a/cpu.stat"), "usage_usec 7\nuser_usec 1\n").unwrap();
        fs::write(root.join("pods/a/memory.current"), "100\n").unwrap();
        fs::write(root.join("pods/a/memory.stat"), "anon 40\ninactive_file 30\n").unwrap();
        let (cpu, memory) = unified.usage("/pods/a", 1);
        assert_eq!(cpu.usage_core_nano_seconds, Some(7000));
        assert_eq!((memory.working_set_bytes, memory.rss_bytes), (Some(70), Some(40)));
        fs::write(root.join("pods/a/memory.events"), "oom 1\noom_kill 0\n").unwrap();
        let files = [root.join("pods/a/cgroup.procs")];
        assert!(!has_oom_kill(&files));
        fs::write(root.join("pods/a/memory.events"), "oom 1\noom_kill 2\n").unwrap();
        assert!(has_oom_kill(&files));
    }

    #[test]
    fn swap_without_a_limit_is_a_limit_of_neither_version() {
        let limits = |memory_limit, memory_swap_limit| {
            let resources = LinuxResources { memory_limit, memory_swap_limit, ..LinuxResources::default() };
            let swap = |all: Vec<FileValue>| {
                all.into_iter().find(|it| it.1.contains("sw")).map(|(_, _, value)| value)
            };
            (swap(legacy_values(&resources)), swap(unified_values(&resources)))
        };
        let both = |v1: &str, v2: &str| (Some(v1.to_owned()), Some(v2.to_owned()));
        assert_eq!(limits(0, 0), (None, None));
        assert_eq!(limits(100, 0), both("100", "0"));
        assert_eq!(limits(100, 100), both("100", "0"));
        assert_eq!(limits(100, 150), both("150", "50"));
        assert_eq!(limits(100, -1), both("-1", "max"));
        assert_eq!(limits(0, -1), both("-1", "max"));
    }

    #[test]
    fn groups_that_a_container_has_made_are_found() {
        let own = Path::new("/sys/fs/cgroup/kubepods/podu/c1/cgroup.procs");
        let below = |table: &str| group_below(own, table).map(|it| it.display().to_string());
        assert_eq!(
            below("0::/kubepods/podu/c1/init/deep\n").as_deref(),
            Some("/sys/fs/cgroup/kubepods/podu/c1/init/deep/cgroup.procs")
        );
        // it is in the container's own, in another, or in none of version 2
        assert_eq!(below("0::/kubepods/podu/c1\n"), None);
        assert_eq!(below("0::/other/init\n"), None);
        assert_eq!(below("4:memory:/kubepods/podu/c1/init\n"), None);

        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cgroup.controllers"), "memory").unwrap();
        let unified = Cgroups::detect(folder.path());
        let files = unified.create("/pods/a").unwrap();
        for (group, pids) in [("pods/a", "1\n"), ("pods/a/b", "2\n3\n"), ("pods/a/b/c", "4\n")] {
            fs::create_dir_all(folder.path().join(group)).unwrap();
            fs::write(folder.path().join(group).join(PROCESSES), pids).unwrap();
        }
        assert_eq!(processes(&files), [1, 2, 3, 4]);
        // files of control groups do not hinder their removal, those of this folder do
        for group in ["pods/a", "pods/a/b", "pods/a/b/c"] {
            fs::remove_file(folder.path().join(group).join(PROCESSES)).unwrap();
        }
        unified.remove("/pods/a").unwrap();
        assert!(!folder.path().join("pods/a").exists() && folder.path().join("pods").exists());
    }

    #[test]
    fn version_one_has_a_tree_for_each_controller() {
        let folder = tempfile::tempdir().unwrap();
        for controller in ["cpu", "cpuset", "memory"] {
            fs::create_dir(folder.path().join(controller)).unwrap();
            fs::write(folder.path().join(controller).join(PROCESSES), "").unwrap();
        }
        let legacy = Cgroups::detect(folder.path());
        assert_eq!(legacy.controllers, ["cpu", "cpuset", "memory"]);
        fs::write(folder.path().join("cpuset/cpuset.cpus"), "0-1\n").unwrap();
        fs::write(folder.path().join("cpuset/cpuset.mems"), "0\n").unwrap();
        // the group of a pod has its nodes, and none of the groups has CPUs
        fs::create_dir_all(folder.path().join("cpuset/pod/a")).unwrap();
        for (file, value) in [
            ("pod/cpuset.cpus", "\n"),
            ("pod/cpuset.mems", "1\n"),
            ("pod/a/cpuset.cpus", "\n"),
            ("pod/a/cpuset.mems", "\n"),
        ] {
            fs::write(folder.path().join("cpuset").join(file), value).unwrap();
        }
        assert_eq!(legacy.create("/pod/a").unwrap().len(), 3);
        let value = |file: &str| fs::read_to_string(folder.path().join("cpuset/pod").join(file)).unwrap();
        assert_eq!((&*value("a/cpuset.cpus"), &*value("a/cpuset.mems")), ("0-1", "1"));
        assert_eq!((&*value("cpuset.cpus"), &*value("cpuset.mems")), ("0-1", "1\n"));
        legacy.apply("/pod/a", &resources()).unwrap();
        let read = |file: &str| fs::read_to_string(folder.path().join(file)).unwrap();
        assert_eq!(
            (&*read("cpu/pod/a/cpu.shares"), &*read("memory/pod/a/memory.limit_in_bytes")),
            ("1024", "1048576")
        );
    }
}
