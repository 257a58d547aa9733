//! Horizontal pod autoscaler options.

use crate::flags::any_duration;
use clap::Args;
use controllers::horizontalpodautoscaling::Options;
use std::time::Duration;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Horizontal pod autoscaling")]
pub struct Autoscaling {
    /// How many autoscalers are synced at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub concurrent_horizontal_pod_autoscaler_syncs: u16,

    /// How often each autoscaler is synced
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "15s")]
    pub horizontal_pod_autoscaler_sync_period: Duration,

    /// The default downscale stabilization window: the highest recommendation in it counts
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "5m0s")]
    pub horizontal_pod_autoscaler_downscale_stabilization: Duration,

    /// The minimum deviation of the usage ratio from 1.0 that triggers scaling
    #[arg(long, value_name = "NUMBER", default_value_t = 0.1)]
    pub horizontal_pod_autoscaler_tolerance: f64,

    /// How long after a pod's start its CPU samples may be ignored
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "5m0s")]
    pub horizontal_pod_autoscaler_cpu_initialization_period: Duration,

    /// How long after a pod's start readiness changes count as initial readiness
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
