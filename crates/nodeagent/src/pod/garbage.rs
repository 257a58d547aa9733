//! The collector of the remains of pods that are gone: sandboxes, containers, directories, logs.

use super::dead_containers::DeadContainerPolicy;
use super::setup::PodSetup;
use super::workers::PodWorkers;
use crate::runtime::{RuntimeError, SharedRuntime, labels};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The time between collections.
const INTERVAL: Duration = Duration::from_secs(60);

/// See the module.
pub struct Collector {
    pub runtime: SharedRuntime,
    pub workers: Arc<PodWorkers>,
    pub world: env::World,
    pub setup: Arc<dyn PodSetup>,
    pub dead_containers: DeadContainerPolicy,
}

impl Collector {
    pub async fn run(self) {
        loop {
            env::sleep(&self.world, INTERVAL).await;
            if let Err(why) = self.collect().await {
                tracing::warn!(%why, "sandboxes of pods that are gone could not be removed");
            }
        }
    }

    /// Removes all sandboxes of pods without a worker, and all but the newest of the others; then what they
    /// have left on the machine.
    pub async fn collect(&self) -> Result<(), RuntimeError> {
        let mut sandboxes: HashMap<String, Vec<_>> = HashMap::new();
        for info in self.runtime.sandboxes(None).await?.into_iter().filter(labels::is_pod_sandbox) {
            sandboxes
                .entry(labels::pod_uid(&info.labels).unwrap_or_default().to_owned())
                .or_default()
                .push(info);
        }
        for (uid, mut of_pod) in sandboxes {
            of_pod.sort_by_key(|it| std::cmp::Reverse(it.created_at));
            let kept = usize::from(self.is_known(&uid));
            for info in of_pod.iter().skip(kept).filter(|it| !it.is_ready) {
                self.runtime.remove_sandbox(&info.id).await?;
            }
        }
        if self.dead_containers.total.is_some() {
            let now = self.world.now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            let now = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
            let containers = self.runtime.containers(None).await?;
            for id in self.dead_containers.beyond_total(containers, now) {
                self.runtime.remove_container(&id).await?;
            }
        }
        for uid in self.setup.leftovers() {
            if !self.is_known(&uid)
                && let Err(why) = self.setup.remove(&uid).await
            {
                tracing::warn!(uid, %why, "the remains of a pod could not be removed");
            }
        }
        self.setup.remove_unused_volumes().await;
        if let Err(why) = self.setup.remove_dead_links() {
            tracing::warn!(%why, "links to logs that are gone could not be removed");
        }
        Ok(())
    }

    fn is_known(&self, uid: &str) -> bool {
        self.workers.contains(uid) || self.workers.was_running(uid)
    }
}
