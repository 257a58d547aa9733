//! Processes, interfaces, disks and processors, read from `/proc`.

use std::collections::BTreeSet;
use std::path::Path;

/// The most processes of a cgroup whose files are counted.
const PROCESS_LIMIT: usize = 1000;

/// Open files of processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileCounts {
    pub open: u64,
    pub sockets: u64,
    /// The soft limit of the first process.
    pub limit: Option<u64>,
}

pub fn files(proc: &Path, pids: &[i32]) -> FileCounts {
    let mut counts = FileCounts::default();
    for pid in pids.iter().take(PROCESS_LIMIT) {
        let directory = proc.join(pid.to_string());
        if counts.limit.is_none() {
            let limits = std::fs::read_to_string(directory.join("limits")).unwrap_or_default();
            counts.limit = open_files_limit(&limits);
        }
        for entry in std::fs::read_dir(directory.join("fd")).into_iter().flatten().flatten() {
            counts.open += 1;
            let target = std::fs::read_link(entry.path()).unwrap_or_default();
            counts.sockets += u64::from(target.to_string_lossy().starts_with("socket:"));
        }
    }
    counts
}

fn open_files_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Counters of a network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    /// Bytes, packets, errors, dropped packets.
    pub received: [u64; 4],
    pub sent: [u64; 4],
}

impl Interface {
    /// The values by family.
    pub fn values(&self) -> [(&'static str, u64); 8] {
        [
            ("container_network_receive_bytes_total", self.received[0]),
            ("container_network_receive_packets_total", self.received[1]),
            ("container_network_receive_errors_total", self.received[2]),
            ("container_network_receive_packets_dropped_total", self.received[3]),
            ("container_network_transmit_bytes_total", self.sent[0]),
            ("container_network_transmit_packets_total", self.sent[1]),
            ("container_network_transmit_errors_total", self.sent[2]),
            ("container_network_transmit_packets_dropped_total", self.sent[3]),
        ]
    }
}

/// The interfaces in the network of a process, or of this one; without the loopback.
pub fn interfaces(proc: &Path, pid: Option<i32>) -> Vec<Interface> {
    let process = pid.map_or("self".to_owned(), |pid| pid.to_string());
    parse_interfaces(&std::fs::read_to_string(proc.join(process).join("net/dev")).unwrap_or_default())
}

fn parse_interfaces(text: &str) -> Vec<Interface> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let each = lines.map(|(name, numbers)| {
        let numbers: Vec<u64> = numbers.split_whitespace().map(|it| it.parse().unwrap_or(0)).collect();
        let four = |from: usize| std::array::from_fn(|at| numbers.get(from + at).copied().unwrap_or(0));
        Interface { name: name.trim().to_owned(), received: four(0), sent: four(8) }
    });
    each.filter(|it| it.name != "lo").collect()
}

/// A filesystem on a device, and the device's counters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Disk {
    pub device: String,
    pub capacity: u64,
    pub available: u64,
    pub inodes: u64,
    pub inodes_free: u64,
    /// As in `/proc/diskstats` after the name.
    pub counters: [u64; 11],
}

impl Disk {
    /// The values by family.
    pub fn values(&self) -> [(&'static str, f64); 15] {
        let [
            reads,
            merged_reads,
            read_sectors,
            read_millis,
            writes,
            merged_writes,
            written_sectors,
            write_millis,
            current,
            millis,
            weighted,
        ] = self.counters.map(|it| it as f64);
        [
            ("container_fs_inodes_free", self.inodes_free as f64),
            ("container_fs_inodes_total", self.inodes as f64),
            ("container_fs_limit_bytes", self.capacity as f64),
            ("container_fs_usage_bytes", self.capacity.saturating_sub(self.available) as f64),
            ("container_fs_io_current", current),
            ("container_fs_io_time_seconds_total", millis / 1e3),
            ("container_fs_io_time_weighted_seconds_total", weighted / 1e3),
            ("container_fs_read_seconds_total", read_millis / 1e3),
            ("container_fs_reads_merged_total", merged_reads),
            ("container_fs_reads_total", reads),
            ("container_fs_sector_reads_total", read_sectors),
            ("container_fs_sector_writes_total", written_sectors),
            ("container_fs_write_seconds_total", write_millis / 1e3),
            ("container_fs_writes_merged_total", merged_writes),
            ("container_fs_writes_total", writes),
        ]
    }
}

/// The filesystems of devices, each once.
pub fn disks(proc: &Path) -> Vec<Disk> {
    let mounts = std::fs::read_to_string(proc.join("self/mounts")).unwrap_or_default();
    let stats = std::fs::read_to_string(proc.join("diskstats")).unwrap_or_default();
    let mut seen = BTreeSet::new();
    let mut disks = Vec::new();
    for line in mounts.lines() {
        let mut words = line.split(' ');
        let (Some(device), Some(mount)) = (words.next(), words.next()) else { continue };
        if !device.starts_with("/dev/") || !seen.insert(device) {
            continue;
        }
        let Some(usage) = super::filesystem::filesystem(Path::new(mount)) else { continue };
        disks.push(Disk {
            device: device.to_owned(),
            capacity: usage.capacity,
            available: usage.available,
            inodes: usage.inodes,
            inodes_free: usage.inodes_free,
            counters: disk_counters(&stats, device.trim_start_matches("/dev/")),
        });
    }
    disks
}

fn disk_counters(stats: &str, name: &str) -> [u64; 11] {
    let line = stats.lines().find(|line| line.split_whitespace().nth(2) == Some(name)).unwrap_or_default();
    let numbers: Vec<u64> = line.split_whitespace().skip(3).map(|it| it.parse().unwrap_or(0)).collect();
    std::array::from_fn(|at| numbers.get(at).copied().unwrap_or(0))
}

/// Processors of the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Topology {
    pub sockets: usize,
    pub cores: usize,
}

pub fn topology(proc: &Path) -> Topology {
    parse_topology(&std::fs::read_to_string(proc.join("cpuinfo")).unwrap_or_default())
}

fn parse_topology(cpuinfo: &str) -> Topology {
    let (mut sockets, mut cores) = (BTreeSet::new(), BTreeSet::new());
    for processor in cpuinfo.split("\n\n") {
        let field = |name: &str| {
            let mut pairs = processor.lines().filter_map(|line| line.split_once(':'));
            pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
        };
        let Some(number) = field("processor") else { continue };
        let socket = field("physical id").unwrap_or_default();
        cores.insert((socket.clone(), field("core id").unwrap_or(number)));
        sockets.insert(socket);
    }
    Topology { sockets: sockets.len(), cores: cores.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_texts_are_read() {
        let dev = "Inter-|   Receive\n face |bytes\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  eth0: 10 2 3 4 0 0 0 0 20 5 6 7 0 0 0 0\n";
        let expected = Interface { name: "eth0".to_owned(), received: [10, 2, 3, 4], sent: [20, 5, 6, 7] };
        assert_eq!(parse_interfaces(dev), [expected]);
        let stats = " 254       0 vda 1 2 3 4 5 6 7 8 9 10 11 0\n 254 1 vda1 9 9\n";
        assert_eq!(disk_counters(stats, "vda"), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        let cpuinfo =
            "processor : 0\nphysical id : 0\ncore id : 0\n\nprocessor : 1\nphysical id : 0\ncore id : 0\n";
        assert_eq!(parse_topology(cpuinfo), Topology { sockets: 1, cores: 1 });
        assert_eq!(open_files_limit("Max cpu time unlimited\nMax open files 1024 4096 files\n"), Some(1024));
    }
}
