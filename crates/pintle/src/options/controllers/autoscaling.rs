//! How workloads follow their load.

use crate::flags::any_duration;
use clap::Args;
use controllers::horizontalpodautoscaling::Options;
use std::time::Duration;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "How workloads follow their load")]
pub struct Autoscaling {
    /// How many autoscalers are worked on at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub concurrent_horizontal_pod_autoscaler_syncs: u16,

    /// How often each autoscaler is looked at
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "15s")]
    pub horizontal_pod_autoscaler_sync_period: Duration,

    /// For how long the highest recommendation counts, where an autoscaler does not say
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "5m0s")]
    pub horizontal_pod_autoscaler_downscale_stabilization: Duration,

    /// How far from one the ratio of what is used and what should be must be, to count
    #[arg(long, value_name = "NUMBER", default_value_t = 0.1)]
    pub horizontal_pod_autoscaler_tolerance: f64,

    /// How long after its start what a pod uses of the processor may say little
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "5m0s")]
    pub horizontal_pod_autoscaler_cpu_initialization_period: Duration,

    /// How long after its start a pod that is not ready is one that never was
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "30s")]
    pub horizontal_pod_autoscaler_initial_readiness_delay: Duration,
}

impl Autoscaling {
    pub fn read(&self) -> Options {
        Options {
            workers: self.concurrent_horizontal_pod_autoscaler_syncs.into(),
            sync_period: self.horizontal_pod_autoscaler_sync_period,
            downscale_stabilization: self.horizontal_pod_autoscaler_downscale_stabilization,
            tolerance: self.horizontal_pod_autoscaler_tolerance,
            cpu_initialization_period: self.horizontal_pod_autoscaler_cpu_initialization_period,
            initial_readiness_delay: self.horizontal_pod_autoscaler_initial_readiness_delay,
        }
    }
}
