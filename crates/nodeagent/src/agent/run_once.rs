//! Runs the pods of the sources once: waits until they run, and leaves them running.

use super::Agent;
use crate::pod_facts::description;
use api::core::v1::PodStatus;
use env::World;
use std::time::Duration;

/// How long pods may take to run.
const TIMEOUT: Duration = Duration::from_secs(1023);
/// The time between looks at the pods.
const PERIOD: Duration = Duration::from_secs(1);

impl Agent {
    /// Waits until all pods run or have ended. The error names the pods that do not.
    pub async fn run_once(mut self, world: &World) -> Result<(), String> {
        let end = world.elapsed() + TIMEOUT;
        // all sources have been read
        let _ = self.synced.wait_for(|it| *it).await;
        loop {
            let pods = self.workers.pods();
            let waiting: Vec<String> = pods
                .iter()
                .filter(|pod| {
                    let status = self.statuses.status(&pod.metadata.uid).unwrap_or_default();
                    !is_running(&status, pod.spec.containers.len())
                })
                .map(|pod| description(pod))
                .collect();
            if waiting.is_empty() {
                tracing::info!(pods = pods.len(), "the pods run");
                return Ok(());
            }
            if world.elapsed() >= end {
                return Err(format!("error running pods: {}", waiting.join(", ")));
            }
            env::sleep(world, PERIOD).await;
        }
    }
}

/// Whether all containers run, or the pod has succeeded.
fn is_running(status: &PodStatus, containers: usize) -> bool {
    let running = status.container_statuses.iter().filter(|it| it.state.running.is_some()).count();
    status.phase == "Succeeded" || containers > 0 && running == containers
}
