//! Reads what the node has left: memory, space and inodes of its filesystems, process ids.

use super::thresholds::{Observation, Observations, Signal};
use crate::cgroups::CgroupFiles;
use crate::stats::{cgroup_memory, filesystem};
use std::path::{Path, PathBuf};

/// Where the node is observed.
#[derive(Debug, Clone)]
pub struct MachineObserver {
    /// `/proc`
    pub proc: PathBuf,
    /// The directory whose filesystem is the node's.
    pub root_dir: PathBuf,
    /// The cgroup of all pods, if there is one.
    pub pods: Option<(CgroupFiles, String)>,
}

impl MachineObserver {
    /// Observes the node; `image_fs` is a path on the filesystem of images. What cannot be read is left out.
    pub fn observe(&self, image_fs: Option<&Path>) -> Observations {
        let read = |name: &str| std::fs::read_to_string(self.proc.join(name)).unwrap_or_default();
        let mut all = Observations::new();
        all.extend(memory(&read("meminfo")).map(|it| (Signal::Memory, it)));
        let of_pods = self.pods.as_ref().and_then(|(files, path)| cgroup_memory(files, path));
        all.extend(of_pods.map(|(used, limit)| {
            let available = limit.saturating_sub(used);
            (Signal::AllocatableMemory, Observation { available, capacity: limit })
        }));
        let processes =
            processes(&read("sys/kernel/pid_max"), &read("sys/kernel/threads-max"), &read("loadavg"));
        all.extend(processes.map(|it| (Signal::Processes, it)));
        let disks = [
            (Some(&*self.root_dir), Signal::NodeDisk, Signal::NodeInodes),
            (image_fs, Signal::ImageDisk, Signal::ImageInodes),
        ];
        for (path, space, inodes) in disks {
            let Some(usage) = path.and_then(filesystem) else { continue };
            all.insert(space, Observation { available: usage.available, capacity: usage.capacity });
            // a filesystem that makes inodes as they are needed has no number of them
            if usage.inodes > 0 {
                all.insert(inodes, Observation { available: usage.inodes_free, capacity: usage.inodes });
            }
        }
        all
    }
}

/// Memory that processes may take: all but the working set.
fn memory(meminfo: &str) -> Option<Observation> {
    let bytes = |name: &str| {
        let line = meminfo.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    let capacity = bytes("MemTotal")?;
    let available = bytes("MemFree")?.saturating_add(bytes("Inactive(file)").unwrap_or(0));
    Some(Observation { available: available.min(capacity), capacity })
}

/// Process ids: the fourth field of `loadavg` is `running/all`.
fn processes(pid_max: &str, threads_max: &str, loadavg: &str) -> Option<Observation> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let limits = [number(pid_max), number(threads_max)];
    let capacity = limits.into_iter().flatten().min()?;
    let used = number(loadavg.split_whitespace().nth(3)?.split_once('/')?.1)?;
    Some(Observation { available: capacity.saturating_sub(used), capacity })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("sys/kernel")).unwrap();
        for (file, text) in [
            ("meminfo", "MemTotal: 1000 kB\nMemFree: 300 kB\nInactive(file): 200 kB\n"),
            ("sys/kernel/pid_max", "4194304\n"),
            ("sys/kernel/threads-max", "1000\n"),
            ("loadavg", "0.1 0.2 0.3 2/250 4711\n"),
        ] {
            std::fs::write(dir.path().join(file), text).unwrap();
        }
        let path = || dir.path().to_owned();
        let observer = MachineObserver { proc: path(), root_dir: path(), pods: None };
        let all = observer.observe(None);
        let expected = Observation { available: 500 * 1024, capacity: 1000 * 1024 };
        assert_eq!(all[&Signal::Memory], expected);
        assert_eq!(all[&Signal::Processes], Observation { available: 750, capacity: 1000 });
        assert!(all[&Signal::NodeDisk].capacity > 0 && !all.contains_key(&Signal::ImageDisk));
        assert!(!all.contains_key(&Signal::AllocatableMemory));
        for (file, text) in [
            ("memory.current", "700\n"),
            ("memory.max", "max\n"),
            ("memory.stat", "anon 5\ninactive_file 100\n"),
        ] {
            std::fs::create_dir_all(dir.path().join("kubepods")).unwrap();
            std::fs::write(dir.path().join("kubepods").join(file), text).unwrap();
        }
        let pods = Some((CgroupFiles::V2(path()), "/kubepods".to_owned()));
        let observer = MachineObserver { pods, ..observer };
        assert!(!observer.observe(None).contains_key(&Signal::AllocatableMemory));
        std::fs::write(dir.path().join("kubepods/memory.max"), "1000\n").unwrap();
        let expected = Observation { available: 400, capacity: 1000 };
        assert_eq!(observer.observe(None)[&Signal::AllocatableMemory], expected);
    }
}
