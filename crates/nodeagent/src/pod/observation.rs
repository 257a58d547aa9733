//! The sandboxes and containers of a pod, as the runtime has shown them last.

use crate::runtime::{ContainerState, ContainerStatus, SandboxStatus};

/// Newest first, both lists.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodObservation {
    pub sandboxes: Vec<SandboxStatus>,
    pub containers: Vec<ContainerStatus>,
}

impl PodObservation {
    /// The newest container of a name.
    pub fn container(&self, name: &str) -> Option<&ContainerStatus> {
        self.containers.iter().find(|it| it.name == name)
    }

    pub fn sandbox(&self) -> Option<&SandboxStatus> {
        self.sandboxes.first()
    }

    /// Addresses of the newest ready sandbox.
    pub fn ips(&self) -> &[String] {
        self.sandboxes.iter().find(|it| it.info.is_ready).map_or(&[], |it| &it.ips)
    }

    pub fn has_running_container(&self) -> bool {
        self.containers.iter().any(|it| it.state == ContainerState::Running)
    }

    /// Whether a sandbox or container may still have processes.
    pub fn is_active(&self) -> bool {
        self.sandboxes.iter().any(|it| it.info.is_ready)
            || self.containers.iter().any(|it| it.state != ContainerState::Exited)
    }

    /// Puts a container in, or replaces its status.
    pub fn set_container(&mut self, status: ContainerStatus) {
        match self.containers.iter_mut().find(|it| it.id == status.id) {
            Some(current) => *current = status,
            None => self.containers.push(status),
        }
        self.containers.sort_by_key(|it| std::cmp::Reverse(it.created_at));
    }

    pub fn set_sandbox(&mut self, status: SandboxStatus) {
        match self.sandboxes.iter_mut().find(|it| it.info.id == status.info.id) {
            Some(current) => *current = status,
            None => self.sandboxes.push(status),
        }
        self.sandboxes.sort_by_key(|it| std::cmp::Reverse(it.info.created_at));
    }
}
