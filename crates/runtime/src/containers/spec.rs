//! The specification of a container's process, in the form that the agent hands to the monitor of a pod and the monitor to
//! the new process.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::process::Command;

/// A process: the first one of a container, or one that is executed in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessSpec {
    pub args: Vec<String>,
    /// `NAME=VALUE`.
    pub env: Vec<String>,
    pub cwd: String,
    pub user: UserSpec,
    /// Bits of the capabilities that the process may have.
    pub capabilities: u64,
    pub no_new_privs: bool,
    pub seccomp: Seccomp,
    /// The name of an AppArmor profile.
    pub apparmor: Option<String>,
    pub oom_score_adj: Option<i64>,
    /// The limit of open files, where it is another one than that of the monitor.
    pub open_files: Option<u64>,
    /// Files `cgroup.procs` of the groups that the process joins.
    pub cgroups: Vec<PathBuf>,
    pub tty: bool,
    /// The filesystem of a new container; a process that is executed in one has none.
    pub root: Option<RootSpec>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserSpec {
    /// A number or a name, with a group after a colon; empty is root.
    pub user: String,
    pub group: Option<u32>,
    pub supplemental: Vec<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seccomp {
    #[default]
    Unconfined,
    Default,
    /// The text of a profile in the form of the OCI.
    Profile(String),
}

/// The filesystem of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RootSpec {
    /// The mount point, or with a copied filesystem the filesystem itself.
    pub directory: PathBuf,
    /// Directories for overlayfs; without them the filesystem is a copy.
    pub overlay: Option<Overlay>,
    pub is_readonly: bool,
    pub is_privileged: bool,
    /// The control group allows the container's devices only.
    pub has_restricted_devices: bool,
    pub mounts: Vec<MountSpec>,
    pub devices: Vec<DeviceSpec>,
    pub masked_paths: Vec<String>,
    pub readonly_paths: Vec<String>,
    /// Controllers of cgroup v1 that are mounted, or none with cgroup v2.
    pub cgroup_controllers: Vec<String>,
    /// The folder for `/dev/shm`; without it there is one for this container only.
    pub shm: Option<PathBuf>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overlay {
    /// The topmost first.
    pub layers: Vec<PathBuf>,
    pub upper: PathBuf,
    pub work: PathBuf,
}

/// A path of the machine that the container sees.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MountSpec {
    pub source: PathBuf,
    pub target: String,
    pub is_readonly: bool,
    pub propagation: MountPropagation,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountPropagation {
    #[default]
    Private,
    HostToContainer,
    Bidirectional,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceSpec {
    pub path: String,
    pub is_block: bool,
    pub major: u32,
    pub minor: u32,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// A subset of `rwm`.
    pub permissions: String,
}

/// An external OCI runtime that makes the containers of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OciRuntime {
    pub program: PathBuf,
    /// The folder of its state; sockets of terminals are there, too.
    pub root: PathBuf,
}

impl OciRuntime {
    /// A call of the runtime.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--root").arg(&self.root);
        command
    }

    /// The call that removes a container, and ends it if it runs.
    pub fn delete(&self, id: &str) -> Command {
        let mut command = self.command();
        command.args(["delete", "--force", id]);
        command
    }
}

/// A container that an external runtime makes or executes a process in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OciContainer {
    pub runtime: OciRuntime,
    pub id: String,
    /// The folder of `config.json`.
    pub bundle: PathBuf,
    /// The control group, below the root of each controller.
    pub cgroup: String,
    /// Namespaces to join: the kind as of the OCI, and a path.
    pub namespaces: Vec<(String, PathBuf)>,
    /// It has a process namespace of its own.
    pub has_own_pids: bool,
    /// The root of the running container, for a process that is executed in it.
    pub running_root: Option<PathBuf>,
}

/// The process namespace of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PidMode {
    #[default]
    Private,
    /// That of the pod.
    Pod,
    Host,
    /// That of another container of the pod.
    Target(String),
}
