//! The configuration of a scheduler, with all defaults filled in.

use super::args::Args;
use super::extender::Extender;
use super::plugins::PluginSelections;
use super::version::Version;
use std::time::Duration;

/// See [the module](super).
#[derive(Debug, Clone, PartialEq)]
pub struct Configuration {
    /// The version of its text, in which it is written again.
    pub version: Version,
    /// Concurrent searches in one scheduling cycle.
    pub parallelism: i32,
    pub leader_election: LeaderElection,
    pub client_connection: ClientConnection,
    /// Empty, or an address with port 0: upstream no longer serves it.
    pub healthz_bind_address: String,
    /// Like `healthz_bind_address`.
    pub metrics_bind_address: String,
    pub enable_profiling: bool,
    pub enable_contention_profiling: bool,
    /// Percentage of nodes to find feasible before scoring; 0 is adaptive.
    pub percentage_of_nodes_to_score: Option<i32>,
    pub pod_initial_backoff_seconds: i64,
    pub pod_max_backoff_seconds: i64,
    pub profiles: Vec<ProfileConfig>,
    pub extenders: Vec<Extender>,
}

impl Configuration {
    /// The backoff of pods after failed attempts.
    pub fn backoff(&self) -> crate::queue::Backoff {
        let seconds = |value: i64| Duration::from_secs(u64::try_from(value).unwrap_or(0));
        crate::queue::Backoff {
            initial: seconds(self.pod_initial_backoff_seconds),
            max: seconds(self.pod_max_backoff_seconds),
        }
    }
}

/// Leader election between schedulers. Durations are nanoseconds and may be negative before validation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaderElection {
    pub leader_elect: bool,
    pub lease_duration_nanos: i64,
    pub renew_deadline_nanos: i64,
    pub retry_period_nanos: i64,
    pub resource_lock: String,
    pub resource_name: String,
    pub resource_namespace: String,
}

/// The connection to the API server.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClientConnection {
    pub kubeconfig: String,
    pub accept_content_types: String,
    pub content_type: String,
    pub qps: f64,
    pub burst: i32,
}

/// One profile, before its plugins are put in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProfileConfig {
    pub scheduler_name: String,
    pub percentage_of_nodes_to_score: Option<i32>,
    pub plugins: PluginSelections,
    pub plugin_config: Vec<PluginConfig>,
}

/// The arguments of a plugin.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginConfig {
    pub name: String,
    pub args: Args,
}
