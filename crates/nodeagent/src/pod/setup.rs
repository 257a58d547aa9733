//! The surroundings of a pod's containers: directories, volumes, cgroup, configurations.

use super::spec::ContainerSpec;
use crate::runtime::{ContainerConfig, ContainerStatus, ImageInfo, SandboxConfig};
use api::core::v1::{Pod, Secret};
use client::Note;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;

/// Why a pod's surroundings are not there.
#[derive(Debug, Clone, PartialEq)]
pub struct SetupError {
    /// Events about the pod.
    pub notes: Vec<Note>,
    pub retry_after: Duration,
}

/// Why a container has no configuration: the reason of its status, and a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    pub reason: &'static str,
    pub message: String,
}

/// Why the node cannot run a pod now: the reason and the message of its status. The pod stays pending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub reason: &'static str,
    pub message: String,
}

/// The container to make a configuration for.
pub struct ContainerInput<'a> {
    pub pod: &'a Arc<Pod>,
    pub spec: &'a ContainerSpec<'a>,
    /// Counts the restarts.
    pub attempt: u32,
    /// The hash of the definition, for the annotation of the container.
    pub hash: &'a str,
    pub image: &'a ImageInfo,
    /// Addresses of the pod.
    pub ips: &'a [String],
    /// The container whose processes an ephemeral container sees.
    pub target_id: Option<&'a str>,
}

/// Makes and removes the surroundings. A test hands in an empty one.
pub trait PodSetup: Send + Sync + 'static {
    /// Why a pending pod cannot run on this node.
    fn refusal(&self, _: &Pod) -> Option<Refusal> {
        None
    }
    /// Makes directories, cgroup and volumes of a pod; repeated before each start of containers.
    fn prepare<'a>(&'a self, pod: &'a Arc<Pod>) -> BoxFuture<'a, Result<(), SetupError>>;
    /// When the volumes of a pod are to be brought up to date, by the monotonic clock.
    fn next_refresh(&self, pod: &Pod) -> Option<Duration>;
    /// The configuration of a sandbox.
    fn sandbox<'a>(&'a self, pod: &'a Arc<Pod>, attempt: u32)
    -> BoxFuture<'a, Result<SandboxConfig, String>>;
    /// The handler of a pod's RuntimeClass, for a new sandbox; empty for the usual one.
    fn runtime_handler<'a>(&'a self, _: &'a Pod) -> BoxFuture<'a, Result<String, String>> {
        Box::pin(async { Ok(String::new()) })
    }
    fn container<'a>(
        &'a self,
        input: ContainerInput<'a>,
    ) -> BoxFuture<'a, Result<ContainerConfig, ConfigError>>;
    /// Pull secrets that exist.
    fn pull_secrets<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, Vec<Arc<Secret>>>;
    /// The restart count that the log files of a container show, if the runtime knows no run of it.
    fn logged_attempts(&self, pod: &Pod, container: &str) -> u32;
    /// A container has started: its log gets a link in the flat directory of logs.
    fn container_started(&self, pod: &Pod, container: &str, id: &str, attempt: u32);
    /// The runtime has removed an ended container: its log goes, too.
    fn container_removed(&self, pod: &Pod, container: &ContainerStatus);
    /// Removes volumes and cgroup of a pod without processes.
    fn clean<'a>(&'a self, pod: &'a Arc<Pod>) -> BoxFuture<'a, Result<(), String>>;
    /// Uids of pods that have something left on the machine.
    fn leftovers(&self) -> Vec<String>;
    /// Takes the volumes from the node that no pod uses.
    fn remove_unused_volumes(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
    /// Removes links to logs that are gone.
    fn remove_dead_links(&self) -> std::io::Result<()> {
        Ok(())
    }
    /// Removes all that is left of a pod that is gone.
    fn remove<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<(), String>>;
}
