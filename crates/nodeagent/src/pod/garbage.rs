//! The collector of the remains of pods that are gone: sandboxes, containers, directories, logs.

use super::setup::PodSetup;
use super::workers::PodWorkers;
use crate::runtime::{RuntimeError, SharedRuntime, labels};
use std::collections::HashMap;
use std::path::PathBuf;
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
    /// The directory of pods' log directories.
    pub log_dir: PathBuf,
    /// The directory of links to log files.
    pub link_dir: PathBuf,
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

    /// Removes all sandboxes of pods without a worker, and all but the newest of the others; then logs.
    pub async fn collect(&self) -> Result<(), RuntimeError> {
        let mut sandboxes: HashMap<String, Vec<_>> = HashMap::new();
        for info in self.runtime.sandboxes().await?.into_iter().filter(labels::is_pod_sandbox) {
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
        for uid in self.setup.leftovers() {
            if !self.is_known(&uid)
                && let Err(why) = self.setup.remove(&uid).await
            {
                tracing::warn!(uid, %why, "the remains of a pod could not be removed");
            }
        }
        self.collect_logs();
        Ok(())
    }

    fn is_known(&self, uid: &str) -> bool {
        self.workers.contains(uid) || self.workers.was_running(uid)
    }

    fn collect_logs(&self) {
        for entry in std::fs::read_dir(&self.log_dir).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some((_, uid)) = name.rsplit_once('_') else { continue };
            if !self.is_known(uid) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        for entry in std::fs::read_dir(&self.link_dir).into_iter().flatten().flatten() {
            let is_link = entry.file_type().is_ok_and(|it| it.is_symlink());
            if is_link && !entry.path().exists() {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}
