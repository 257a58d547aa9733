//! The machine: CPUs, memory, huge pages, identity, operating system.
//!
//! Everything is read from files below a root, which is `/` but for tests.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    pub cpus: u32,
    /// Bytes.
    pub memory: i64,
    /// Page sizes in bytes, and the number of pages of each.
    pub hugepages: Vec<(u64, u64)>,
    /// The most threads that there may be, if the kernel says it.
    pub max_threads: Option<i64>,
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
    pub kernel_version: String,
    pub os_image: String,
}

/// The files that identify the machine and its start; the first one that is not empty counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineFiles {
    pub machine_ids: Vec<PathBuf>,
    pub boot_ids: Vec<PathBuf>,
}

impl Default for MachineFiles {
    fn default() -> Self {
        let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect();
        MachineFiles {
            machine_ids: paths(&["/etc/machine-id", "/var/lib/dbus/machine-id"]),
            boot_ids: paths(&["/proc/sys/kernel/random/boot_id"]),
        }
    }
}

impl Machine {
    /// Reads the machine below a root.
    pub fn read(root: &Path, files: &MachineFiles) -> Self {
        let text = |path: &str| read_to_string(root.join(path)).unwrap_or_default().trim().to_owned();
        let first = |paths: &[PathBuf]| {
            // a path of a flag is absolute
            let mut texts = paths.iter().map(|it| text(it.to_string_lossy().trim_start_matches('/')));
            texts.find(|it| !it.is_empty()).unwrap_or_default()
        };
        let machine_id = first(&files.machine_ids);
        let uuid =
            ["sys/class/dmi/id/product_uuid", "proc/device-tree/system-id", "proc/device-tree/vm,uuid"];
        let uuid = uuid.iter().map(|path| text(path)).find(|uuid| !uuid.is_empty());
        Machine {
            cpus: count_cpus(&text("sys/devices/system/cpu/online"), &text("proc/cpuinfo")),
            memory: total_memory(&text("proc/meminfo")),
            hugepages: hugepages(&root.join("sys/kernel/mm/hugepages")),
            max_threads: ["proc/sys/kernel/pid_max", "proc/sys/kernel/threads-max"]
                .iter()
                .filter_map(|path| text(path).parse().ok())
                .min(),
            system_uuid: uuid.unwrap_or_else(|| machine_id.clone()),
            machine_id,
            boot_id: first(&files.boot_ids),
            kernel_version: text("proc/sys/kernel/osrelease"),
            os_image: os_image(&match text("etc/os-release") {
                release if release.is_empty() => text("usr/lib/os-release"),
                release => release,
            }),
        }
    }
}

/// The architecture in the words of Go.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

/// Counts a list such as `0-3,6`; without one, the processors of `/proc/cpuinfo`.
fn count_cpus(online: &str, cpuinfo: &str) -> u32 {
    let count = |range: &str| -> Option<u32> {
        match range.split_once('-') {
            Some((first, last)) => last.parse::<u32>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1),
            None => range.parse::<u32>().ok().map(|_| 1),
        }
    };
    let listed: u32 = online.split(',').filter_map(count).fold(0, u32::saturating_add);
    let processors = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    if listed > 0 { listed } else { u32::try_from(processors).unwrap_or(1).max(1) }
}

fn total_memory(meminfo: &str) -> i64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<i64>().ok());
    kilobytes.unwrap_or(0).saturating_mul(1024)
}

fn hugepages(directory: &Path) -> Vec<(u64, u64)> {
    let mut sizes = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let size = name.strip_prefix("hugepages-").and_then(|it| it.strip_suffix("kB"));
        let Some(size) = size.and_then(|size| size.parse::<u64>().ok()) else { continue };
        let number = read_to_string(entry.path().join("nr_hugepages")).unwrap_or_default();
        sizes.push((size.saturating_mul(1024), number.trim().parse().unwrap_or(0)));
    }
    sizes.sort_unstable();
    sizes
}

fn os_image(release: &str) -> String {
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| "Linux".to_owned(), |name| name.trim().trim_matches(['"', '\'']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_read_from_files() {
        let dir = tempfile::tempdir().unwrap();
        let files = [
            ("sys/devices/system/cpu/online", "0-1\n"),
            ("proc/meminfo", "MemTotal:       24682740 kB\nMemFree: 1 kB\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "3\n"),
            ("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n"),
            ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
            ("proc/sys/kernel/random/boot_id", "b-1\n"),
            ("proc/sys/kernel/osrelease", "6.1.0\n"),
            ("proc/sys/kernel/pid_max", "4194304\n"),
            ("proc/sys/kernel/threads-max", "30000\n"),
            ("etc/os-release", "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
        ];
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let id = "0123456789abcdef0123456789abcdef".to_owned();
        let expected = Machine {
            cpus: 2,
            memory: 24_682_740 * 1024,
            hugepages: vec![(2 << 20, 3), (1 << 30, 0)],
            max_threads: Some(30_000),
            machine_id: id.clone(),
            system_uuid: id,
            boot_id: "b-1".to_owned(),
            kernel_version: "6.1.0".to_owned(),
            os_image: "Debian GNU/Linux 12 (bookworm)".to_owned(),
        };
        assert_eq!(Machine::read(dir.path(), &MachineFiles::default()), expected);
        assert_eq!(count_cpus("0-3,6", ""), 5);
        assert_eq!(count_cpus("", "processor : 0\nprocessor : 1\nprocessor : 2\n"), 3);
        assert_eq!(count_cpus("", ""), 1);
    }
}
