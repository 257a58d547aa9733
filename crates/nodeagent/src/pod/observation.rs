//! The sandboxes and containers of a pod, as the runtime has shown them last.

use crate::runtime::{ContainerState, ContainerStatus, SandboxInfo, SandboxStatus};

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

    /// The state of a sandbox or container by its id.
    pub fn state(&self, id: &str) -> Option<ContainerState> {
        let sandbox = self.sandboxes.iter().find(|it| it.info.id == id).map(|it| sandbox_state(&it.info));
        sandbox.or_else(|| self.containers.iter().find(|it| it.id == id).map(|it| it.state))
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

/// The state of a sandbox, in the words of containers.
pub fn sandbox_state(sandbox: &SandboxInfo) -> ContainerState {
    if sandbox.is_ready { ContainerState::Running } else { ContainerState::Exited }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_those_of_sandboxes_and_containers() {
        let mut observed = PodObservation::default();
        let info = SandboxInfo { id: "s".into(), is_ready: true, ..SandboxInfo::default() };
        observed.set_sandbox(SandboxStatus { info, ..SandboxStatus::default() });
        let state = ContainerState::Created;
        observed.set_container(ContainerStatus { id: "c".into(), state, ..ContainerStatus::default() });
        assert_eq!(observed.state("s"), Some(ContainerState::Running));
        assert_eq!((observed.state("c"), observed.state("x")), (Some(state), None));
        observed.sandboxes[0].info.is_ready = false;
        assert_eq!(observed.state("s"), Some(ContainerState::Exited));
    }
}
