//! How simulated containers behave.

use crate::runtime::config::{ContainerConfig, SandboxConfig};
use std::time::Duration;

/// The life of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// The time that the start takes.
    pub start_delay: Duration,
    /// Why the container cannot be started.
    pub start_error: Option<String>,
    /// The time until the container ends by itself.
    pub runs_for: Option<Duration>,
    pub exit_code: i32,
    /// Whether it ends by itself for lack of memory.
    pub is_out_of_memory: bool,
    /// Whether the stop signal is ignored.
    pub ignores_stop: bool,
    pub probes: SimulatedProbes,
    pub log: SimulatedLog,
    pub exec: SimulatedExec,
}

/// Results of the probes of a container, by its age.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SimulatedProbes {
    /// The age from which on the startup probe succeeds.
    pub started_after: Duration,
    /// The ages from which on the readiness probe succeeds, and fails again.
    pub ready_after: Duration,
    pub unready_after: Option<Duration>,
    /// The age from which on the liveness probe fails.
    pub unhealthy_after: Option<Duration>,
}

/// What a container writes to its log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SimulatedLog {
    /// Lines that are written at the start.
    pub text: String,
    /// After how long they are written again.
    pub every: Option<Duration>,
}

/// What commands in a container do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SimulatedExec {
    /// Their output, in place of the command itself.
    pub output: Option<String>,
    pub exit_code: i32,
}

/// The pull of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pull {
    pub delay: Duration,
    pub error: Option<String>,
}

/// The node of a runtime: knows how its pods behave, and learns what happens to them.
pub trait Simulation: Send + Sync + 'static {
    /// Begins the ids of the runtime.
    fn id_prefix(&self) -> &str;
    fn container(&self, pod: &SandboxConfig, container: &ContainerConfig) -> Behaviour;
    /// Whether an image is there without a pull.
    fn has_image(&self, image: &str) -> bool;
    fn pull(&self, image: &str, pod: &SandboxConfig) -> Pull;
    /// Addresses of a new sandbox.
    fn allocate(&self, pod: &SandboxConfig) -> Vec<String>;
    /// Takes back the addresses of a sandbox.
    fn release(&self, ips: &[String]);
    /// A container of the pod has ended.
    fn container_ended(&self, pod_uid: &str, container_id: &str);
}
