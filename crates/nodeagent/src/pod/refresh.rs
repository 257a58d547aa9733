//! What a worker reads of its pod from the runtime.

use super::observation::PodObservation;
use super::plan::superseded;
use super::worker::Worker;
use crate::runtime::{ContainerState, ContainerStatus, RuntimeError, SandboxStatus, labels};
use crate::status::termination_message;
use client::Backoff;
use std::time::Duration;

/// How often the status of a container is read again whose end was announced and that the runtime still shows as
/// running, and the waits before.
const EXIT_READS: u32 = 9;
const EXIT_RETRIES: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(1280));

impl Worker {
    /// Reads the states that may have changed.
    pub(super) async fn refresh(&mut self) -> Result<(), RuntimeError> {
        let runtime = self.context.runtime.clone();
        if self.is_stale {
            self.relist().await?;
            self.is_stale = false;
        }
        for index in (0..self.observed.sandboxes.len()).rev() {
            let current = &self.observed.sandboxes[index];
            if !current.info.is_ready || !self.may_have_changed(&current.info.id) {
                continue;
            }
            match self.sandbox_status(&current.info.id).await {
                Ok(status) => self.observed.sandboxes[index] = status,
                Err(why) if why.is_not_found() => drop(self.observed.sandboxes.remove(index)),
                Err(why) => return Err(why),
            }
        }
        for index in (0..self.observed.containers.len()).rev() {
            let current = &self.observed.containers[index];
            if current.state == ContainerState::Exited || !self.may_have_changed(&current.id) {
                continue;
            }
            match self.container_status(current).await {
                Ok(status) => self.observed.containers[index] = status,
                Err(why) if why.is_not_found() => drop(self.observed.containers.remove(index)),
                Err(why) => return Err(why),
            }
        }
        self.exits.clear();
        self.touched.clear();
        let (policy, now) = (self.context.dead_containers, self.unix_nanos());
        for id in superseded(&self.pod, &self.observed, &policy, now) {
            let Some(index) = self.observed.containers.iter().position(|it| it.id == id) else { continue };
            if runtime.remove_container(&id).await.is_ok() {
                let removed = self.observed.containers.remove(index);
                self.context.setup.container_removed(&self.pod, &removed);
            }
        }
        let ip = self.observed.ips().first().or(self.context.host_ips.borrow().first()).cloned();
        let now = self.unix_nanos();
        self.probing.follow(&self.pod, &self.observed, &mut self.verdicts, ip, now);
        Ok(())
    }

    fn may_have_changed(&self, id: &str) -> bool {
        self.exits.contains(id) || self.touched.contains(id)
    }

    async fn sandbox_status(&self, id: &str) -> Result<SandboxStatus, RuntimeError> {
        let mut reads_left = if self.exits.contains(id) { EXIT_READS } else { 0 };
        let mut backoff = EXIT_RETRIES;
        let mut status = self.context.runtime.sandbox_status(id).await?;
        while status.info.is_ready && reads_left > 0 {
            env::sleep(&self.context.world, backoff.pause()).await;
            reads_left -= 1;
            status = self.context.runtime.sandbox_status(id).await?;
        }
        Ok(status)
    }

    async fn container_status(&self, current: &ContainerStatus) -> Result<ContainerStatus, RuntimeError> {
        let mut reads_left = if self.exits.contains(&current.id) { EXIT_READS } else { 0 };
        let mut backoff = EXIT_RETRIES;
        let mut status = self.context.runtime.container_status(&current.id).await?;
        while status.state == ContainerState::Running && reads_left > 0 {
            env::sleep(&self.context.world, backoff.pause()).await;
            reads_left -= 1;
            status = self.context.runtime.container_status(&current.id).await?;
        }
        if status.state == ContainerState::Exited {
            let message = termination_message::read(&status);
            if !status.message.is_empty() && !message.is_empty() {
                status.message.push_str(": ");
            }
            status.message.push_str(&message);
        }
        Ok(status)
    }

    /// Reads all sandboxes and containers of the pod.
    pub(super) async fn relist(&mut self) -> Result<(), RuntimeError> {
        let runtime = self.context.runtime.clone();
        let uid = Some(&*self.pod.metadata.uid);
        let (sandboxes, containers) = (runtime.sandboxes(uid).await?, runtime.containers(uid).await?);
        let mut observed = PodObservation::default();
        for info in sandboxes.into_iter().filter(|it| labels::pod_uid(&it.labels) == uid) {
            match runtime.sandbox_status(&info.id).await {
                Ok(status) => observed.set_sandbox(status),
                Err(why) if why.is_not_found() => {}
                Err(why) => return Err(why),
            }
        }
        for info in containers.into_iter().filter(|it| labels::pod_uid(&it.labels) == uid) {
            match self
                .observed
                .containers
                .iter()
                .find(|it| it.id == info.id && it.state == ContainerState::Exited)
            {
                Some(ended) => observed.set_container(ended.clone()),
                None => {
                    let current = ContainerStatus { id: info.id, ..ContainerStatus::default() };
                    match self.container_status(&current).await {
                        Ok(status) => observed.set_container(status),
                        Err(why) if why.is_not_found() => {}
                        Err(why) => return Err(why),
                    }
                }
            }
        }
        self.observed = observed;
        Ok(())
    }
}
