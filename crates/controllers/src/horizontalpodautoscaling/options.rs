//! Options of the horizontal pod autoscaler controller.

use std::time::Duration;

#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    pub workers: usize,
    /// How often each autoscaler is synced.
    pub sync_period: Duration,
    /// The window whose highest recommendation counts, for autoscalers without one of their own.
    pub downscale_stabilization: Duration,
    /// How far from one a ratio must be to cause a change.
    pub tolerance: f64,
    /// The time after the start of a pod in which its CPU usage may be misleading.
    pub cpu_initialization_period: Duration,
    /// The time after the start of a pod in which an unready pod counts as never ready.
    pub initial_readiness_delay: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            workers: 5,
            sync_period: Duration::from_secs(15),
            downscale_stabilization: Duration::from_secs(300),
            tolerance: 0.1,
            cpu_initialization_period: Duration::from_secs(300),
            initial_readiness_delay: Duration::from_secs(30),
        }
    }
}
