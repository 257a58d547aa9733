//! Sandboxes and containers as they are kept on disk.
//!
//! ```text
//! sandboxes/ID/sandbox.json
//! sandboxes/ID/containers/ID/container.json
//! sandboxes/ID/containers/ID/exit.json        written by the monitor
//! sandboxes/ID/containers/ID/{upper,work,root}
//! sandboxes/ID/containers/ID/volumes/N        of the image
//! ```

use super::cni::NetworkRecord;
use super::protocol::ExitRecord;
use super::spec::{OciRuntime, PidMode, ProcessSpec};
use crate::images::Digest;
use crate::steps::step;
use crate::{ContainerConfig, SandboxConfig};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxRecord {
    pub id: String,
    pub config: SandboxConfig,
    pub created_at: i64,
    pub handler: String,
    /// The external runtime of the handler.
    pub oci: Option<OciRuntime>,
    pub is_ready: bool,
    pub monitor: Option<MonitorProcess>,
    /// Identifies the run of the machine that the monitor belongs to.
    pub boot_id: String,
    pub ips: Vec<String>,
    pub network: Option<NetworkRecord>,
}

/// A monitor as a process of the machine. Numbers of processes are used again, so its start is part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitorProcess {
    pid: i32,
    /// In clock ticks since the start of the machine.
    started_at: u64,
}

impl MonitorProcess {
    /// None if there is no such process.
    pub fn find(pid: i32) -> Option<Self> {
        Some(MonitorProcess { pid, started_at: start_ticks(pid)? })
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// A descriptor that can be read once it has ended; none if it has.
    pub fn open(&self) -> Option<OwnedFd> {
        let opened = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::NONBLOCK).ok()?;
        // the number still was its own
        self.directory().map(|_| opened)
    }

    /// Its directory below `/proc`, while it runs.
    pub fn directory(&self) -> Option<PathBuf> {
        let is_same = start_ticks(self.pid) == Some(self.started_at);
        is_same.then(|| PathBuf::from(format!("/proc/{}", self.pid)))
    }
}

/// The start of a process that runs.
fn start_ticks(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // the name of the program before may have spaces and parentheses
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    // one that has ended and waits for its parent is gone
    fields.next().filter(|it| !matches!(*it, "Z" | "X"))?;
    fields.nth(18)?.parse().ok()
}

impl SandboxRecord {
    /// The directory of the monitor below `/proc`, while it runs.
    pub fn monitor_directory(&self) -> Option<PathBuf> {
        self.monitor.and_then(|it| it.directory())
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerRecord {
    pub id: String,
    pub sandbox_id: String,
    pub config: ContainerConfig,
    pub image_id: String,
    /// A name of the image, or its id if it has none.
    pub image_name: String,
    pub image_ref: String,
    /// The layers in use, the topmost first.
    pub layers: Vec<Digest>,
    pub process: ProcessSpec,
    pub pid: PidMode,
    pub cgroup: String,
    pub stop_signal: i32,
    pub log: PathBuf,
    pub created_at: i64,
    pub started_at: i64,
    /// The number of its first process on this machine; zero before the start.
    pub process_id: i32,
    /// Why it could not be started.
    pub start_error: String,
    pub exit: Option<ExitRecord>,
    /// It ended without its monitor.
    pub is_lost: bool,
}

/// Reads a record; `None` if there is none.
pub fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match std::fs::read(path) {
        // written without a sync, and the machine has crashed
        Ok(text) if text.iter().all(|it| *it == 0) => Ok(None),
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(why),
    }
}

/// Whether a file is on the disk before it counts as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It survives a crash of the machine.
    Synced,
    /// It survives the end of this process; a crash of the machine may leave the former content or none. For records of
    /// things that do not survive such a crash, or only make them known.
    Unsynced,
}

pub fn write(path: &Path, record: &impl Serialize, durability: Durability) -> io::Result<()> {
    step("write a record", path);
    let text = serde_json::to_vec(record)?;
    match durability {
        Durability::Synced => durable_file::replace(path, text, durable_file::PRIVATE),
        Durability::Unsynced => replace_unsynced(path, &text),
    }
}

/// Replaces a file at once, without a sync. A path has one writer at a time.
fn replace_unsynced(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut options = OpenOptions::new();
    // a killed process may have left one
    let mut file = options.write(true).create(true).truncate(true).mode(durable_file::PRIVATE).open(&new)?;
    file.write_all(content)?;
    std::fs::rename(&new, path)
}

/// The layers that the containers below a folder of the runtime use, also while no agent runs.
pub fn used_layers(root: &Path) -> io::Result<BTreeSet<Digest>> {
    let containers =
        folders(&root.join("sandboxes")).into_iter().flat_map(|it| folders(&it.join("containers")));
    let mut used = BTreeSet::new();
    for container in containers {
        let record = read::<ContainerRecord>(&container.join("container.json"))?;
        used.extend(record.into_iter().flat_map(|it| it.layers));
    }
    Ok(used)
}

/// The folders in a folder.
pub fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|it| it.path()).filter(|it| it.is_dir()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_replaced_and_a_lost_one_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sandbox.json");
        assert_eq!(read::<String>(&path).unwrap(), None);
        for (text, durability) in [("one", Durability::Unsynced), ("two", Durability::Synced)] {
            // a process was killed while it wrote
            std::fs::write(path.with_extension("new"), "a longer text than the record").unwrap();
            write(&path, &text, durability).unwrap();
            assert_eq!(read::<String>(&path).unwrap().as_deref(), Some(text));
        }
        write(&path, &"three", Durability::Unsynced).unwrap();
        assert_eq!(read::<String>(&path).unwrap().as_deref(), Some("three"));
        // a filesystem after a crash of the machine: the name without the content
        for lost in [&b""[..], &[0; 100]] {
            std::fs::write(&path, lost).unwrap();
            assert_eq!(read::<String>(&path).unwrap(), None);
        }
        std::fs::write(&path, "{").unwrap();
        assert!(read::<String>(&path).is_err());
    }

    #[test]
    fn a_process_is_known_by_its_number_and_its_start() {
        let own = MonitorProcess::find(std::process::id() as i32).unwrap();
        assert_eq!(own.directory(), Some(PathBuf::from(format!("/proc/{}", own.pid))));
        let other = MonitorProcess { started_at: own.started_at + 1, ..own };
        assert_eq!((other.directory(), MonitorProcess::find(i32::MAX)), (None, None));
    }
}
