//! Requests to the monitor of a pod, and its answers.

use super::spec::{OciContainer, PidMode, ProcessSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The configuration of a monitor, which it reads from its standard input.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MonitorConfig {
    pub socket: PathBuf,
    pub hostname: String,
    pub has_own_network: bool,
    pub has_own_ipc: bool,
    pub has_own_uts: bool,
    /// Containers share the processes of the pod.
    pub shares_pids: bool,
    pub sysctls: BTreeMap<String, String>,
    /// Containers are made by an external runtime, whose children become those of the monitor.
    pub adopts_processes: bool,
}

/// The first line of a monitor on its standard output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MonitorStart {
    Ready { pid: i32 },
    Failed { message: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Starts the process of a container. Answered with `Started` or `Failed`.
    Start(Box<StartRequest>),
    /// Executes a process in a container, with the descriptors as its standard streams. Answered with `Started` (with a
    /// terminal, and its descriptor) or `Failed`, and at its end with `Ended`.
    Exec {
        container: String,
        process: Box<ProcessSpec>,
        streams: Streams,
        is_killed_on_close: bool,
    },
    /// Copies the output of a container to the descriptors. Answered with `Attached` and the descriptor of its input, and
    /// at the end of the container with `Ended`.
    Attach {
        container: String,
        streams: Streams,
    },
    Signal {
        container: String,
        signal: i32,
    },
    ReopenLog {
        container: String,
    },
    /// Reports the end of containers on this connection, by `Exited`.
    Watch,
    /// Ends the monitor, with the processes that it has left.
    Shutdown,
}

/// The descriptors that come with a request, in this order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Streams {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StartRequest {
    pub container: String,
    pub process: ProcessSpec,
    pub pid: PidMode,
    /// The log file; empty is none.
    pub log: PathBuf,
    /// The file for the exit of the container.
    pub exit_file: PathBuf,
    pub has_stdin: bool,
    /// The input is for the first client, and ends with it.
    pub has_stdin_once: bool,
    /// The external runtime that makes the container, if it is one.
    pub oci: Option<OciContainer>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    Done,
    Started { pid: i32, started_at: i64 },
    Attached { has_stdin: bool, is_terminal: bool },
    Failed { message: String },
    Ended { code: i32 },
    Exited { container: String },
}

/// The start of a container, as its monitor writes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StartRecord {
    pub pid: i32,
    pub started_at: i64,
}

/// The file of the start of a container, beside that of its exit.
pub fn start_file(exit_file: &Path) -> PathBuf {
    exit_file.with_file_name("start.json")
}

/// The end of a container, as its monitor writes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExitRecord {
    pub code: i32,
    pub finished_at: i64,
    pub is_oom: bool,
}

/// A message of a new process to its monitor, before it becomes the container's program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum InitReply {
    /// The terminal, as a descriptor.
    Terminal,
    /// The process of the container, which an external runtime has made.
    Process {
        pid: i32,
    },
    /// Everything is prepared; the end of the socket says that the program runs.
    Ready,
    Failed {
        message: String,
    },
}

/// The first message of a monitor to a new process: its specification, and the descriptors that come with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InitRequest {
    pub process: ProcessSpec,
    pub streams: Streams,
    /// The process of the container to join: the last descriptors are its namespaces of mounts and of control groups.
    pub joined: Option<i32>,
    /// Waits and reaps processes, instead of a program.
    pub is_pause: bool,
    /// Calls an external runtime, instead of becoming the program.
    pub oci: Option<OciContainer>,
}
