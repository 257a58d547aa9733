//! Usage of cgroups that are no pods: the agent, the runtime, other processes of the system, and all pods together.

use super::cgroup_usage::{self, CgroupUsage};
use crate::cgroups::CgroupFiles;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// The cgroups that the configuration names; empty if it does not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SystemCgroups {
    pub agent: String,
    pub runtime: String,
    pub system: String,
}

/// Start times that are known better than from the age of a cgroup, in seconds since the epoch.
#[derive(Debug, Clone, Copy, Default)]
pub struct StartTimes {
    pub agent: i64,
    pub pods: i64,
}

/// Usage of one cgroup.
#[derive(Debug, PartialEq, Eq)]
pub struct SystemContainer {
    /// The name in the summary.
    pub name: &'static str,
    /// Seconds since the epoch.
    pub start_time: i64,
    pub usage: CgroupUsage,
}

impl SystemCgroups {
    /// Reads the usage of each cgroup that is there. The agent is in some cgroup also if none is configured.
    pub fn read(
        &self,
        files: &CgroupFiles,
        proc: &Path,
        pods: &str,
        start_times: StartTimes,
    ) -> Vec<SystemContainer> {
        let agent = match &*self.agent {
            "" => {
                let text = std::fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
                own_cgroup(&text, files.is_v2()).unwrap_or_default()
            }
            given => given.to_owned(),
        };
        let all = [
            ("kubelet", &*agent, Some(start_times.agent)),
            ("runtime", &*self.runtime, None),
            ("misc", &*self.system, None),
            ("pods", pods, Some(start_times.pods)),
        ];
        let containers = all.into_iter().filter(|(_, path, _)| !path.is_empty());
        let containers = containers.filter_map(|(name, path, known_start)| {
            let modified = files.modified(path)?.duration_since(UNIX_EPOCH).unwrap_or_default();
            let modified = || i64::try_from(modified.as_secs()).unwrap_or(i64::MAX);
            let start_time = known_start.unwrap_or_else(modified);
            Some(SystemContainer { name, start_time, usage: cgroup_usage::read(files, path) })
        });
        containers.collect()
    }
}

/// The cgroup of a process by its file. With version 1 its CPU time and its memory must be counted in the same place.
fn own_cgroup(text: &str, is_v2: bool) -> Option<String> {
    let lines = || text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let find = |controller: &str| {
        let mut found = lines().filter(|(names, _)| names.split(',').any(|name| name == controller));
        found.next().map(|(_, path)| path)
    };
    if is_v2 {
        return find("").map(str::to_owned);
    }
    let cpu = find("cpu").filter(|cpu| find("memory") == Some(cpu))?;
    Some(find("name=systemd").unwrap_or(cpu).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_is_found_by_its_process() {
        let v1 = "5:cpu,cpuacct:/a\n4:memory:/a\n1:name=systemd:/a/b\n0::/c\n";
        assert_eq!(own_cgroup(v1, false).as_deref(), Some("/a/b"));
        assert_eq!(own_cgroup(v1, true).as_deref(), Some("/c"));
        assert_eq!(own_cgroup("5:cpu,cpuacct:/a\n4:memory:/b\n", false), None);
        assert_eq!(own_cgroup("5:cpu:/a\n4:memory:/a\n", false).as_deref(), Some("/a"));
    }

    #[test]
    fn cgroups_of_the_configuration_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/self/cgroup", "0::/system.slice/agent\n");
        write("cgroup/system.slice/agent/memory.current", "10\n");
        write("cgroup/system.slice/runtime/memory.current", "20\n");
        write("cgroup/pods/memory.current", "30\n");
        let files = CgroupFiles::V2(folder.path().join("cgroup"));
        let found = |cgroups: &SystemCgroups| -> Vec<_> {
            let all = cgroups.read(&files, &folder.path().join("proc"), "/pods", StartTimes::default());
            all.iter().map(|it| (it.name, it.usage.memory_usage)).collect()
        };
        assert_eq!(found(&SystemCgroups::default()), [("kubelet", 10), ("pods", 30)]);
        let named = SystemCgroups {
            agent: "/system.slice/runtime".to_owned(),
            runtime: "/system.slice/runtime".to_owned(),
            system: "/absent".to_owned(),
        };
        assert_eq!(found(&named), [("kubelet", 20), ("runtime", 20), ("pods", 30)]);
    }
}
