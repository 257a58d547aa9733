//! Options of the loop.

use std::time::Duration;

#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    pub workers: usize,
    /// How often each autoscaler is looked at.
    pub sync_period: Duration,
    /// For how long the highest recommendation counts, where an autoscaler does not say.
    pub downscale_stabilization: Duration,
    /// How far from one a ratio must be to count.
    pub tolerance: f64,
    /// How long after its start what a pod uses of the processor may say little.
    pub cpu_initialization_period: Duration,
    /// How long after its start a pod that is not ready is one that never was.
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
