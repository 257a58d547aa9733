//! Watches over the container runtime: its health, its version, its images.
//!
//! A call that hangs holds up this task alone; the node's status goes on, and says so.

use super::runtime_state::{CHECK_PERIOD, RuntimeState};
use crate::runtime::{ImageInfo, RuntimeVersion, SharedRuntime};
use env::World;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often images are listed.
const IMAGE_PERIOD: Duration = Duration::from_secs(30);

/// What the runtime said last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeReport {
    pub version: RuntimeVersion,
    pub images: Vec<ImageInfo>,
}

/// See the module.
pub struct RuntimeMonitor {
    runtime: SharedRuntime,
    world: World,
    state: watch::Sender<RuntimeState>,
    report: Arc<Mutex<RuntimeReport>>,
    /// When images were listed last.
    listed: Option<Duration>,
}

impl RuntimeMonitor {
    pub fn new(
        runtime: SharedRuntime,
        world: World,
    ) -> (Self, watch::Receiver<RuntimeState>, Arc<Mutex<RuntimeReport>>) {
        let (state, receiver) = watch::channel(RuntimeState::default());
        let report: Arc<Mutex<RuntimeReport>> = Arc::default();
        (RuntimeMonitor { runtime, world, state, report: report.clone(), listed: None }, receiver, report)
    }

    /// Checks until the task is dropped.
    pub async fn run(mut self) {
        loop {
            self.check().await;
            env::sleep(&self.world, CHECK_PERIOD).await;
        }
    }

    /// Checks once. Receivers wake only if the runtime's health changed.
    pub async fn check(&mut self) {
        let status = match self.runtime.status().await {
            Ok(status) => status,
            Err(error) => {
                tracing::warn!(%error, "the container runtime does not answer");
                return;
            }
        };
        self.list_images().await;
        if self.report.lock().version.name.is_empty()
            && let Ok(version) = self.runtime.version().await
        {
            self.report.lock().version = version;
        }
        let now = self.world.elapsed();
        self.state.send_if_modified(|state| {
            let old = state.errors(now);
            state.note_status(&status, now);
            old != state.errors(now)
        });
    }

    async fn list_images(&mut self) {
        let now = self.world.elapsed();
        if self.listed.is_some_and(|at| now.saturating_sub(at) < IMAGE_PERIOD) {
            return;
        }
        match self.runtime.images().await {
            Ok(images) => {
                self.report.lock().images = images;
                self.listed = Some(now);
            }
            Err(error) => tracing::warn!(%error, "the images of the runtime are unknown"),
        }
    }
}
