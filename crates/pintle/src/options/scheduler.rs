//! Options of the scheduler.
//!
//! With a configuration file only the flags of leader election change the configuration; without one, the deprecated
//! flags do too. So it matters which flags are given.

use super::features::FeatureGates;
use super::{ConfigErrors, Delegation, Dialect, Features, LeaderElection, MetricsOptions, Tls, controllers};
use crate::flags::any_duration;
use crate::logs::Logs;
use clap::{ArgAction, ArgMatches, Args};
use names::Names;
use outbound::Target;
use scheduler::config;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The feature gates of a scheduler.
#[derive(Debug, Clone, Copy, Default)]
pub struct SchedulerGates {
    pub features: scheduler::framework::Features,
    pub config: config::Gates,
}

impl SchedulerGates {
    pub fn new(gates: &FeatureGates) -> Self {
        SchedulerGates { features: gates.scheduler_features(), config: gates.scheduler_config_gates() }
    }
}

#[derive(Debug, Clone, Args)]
pub struct Scheduler {
    /// The KubeSchedulerConfiguration file: profiles, plugins, extenders, connection and leader election. Deprecated
    /// flags have no effect beside it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Write the whole configuration, with its defaults, to a file and quit
    #[arg(long, value_name = "FILE")]
    pub write_config_to: Option<PathBuf>,

    /// The URL of the API server, in place of the one in the kubeconfig
    #[arg(long, value_name = "URL")]
    pub master: Option<String>,

    /// The address to listen on, for health and metrics
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    pub bind_address: IpAddr,

    /// The port to listen on; 0 for none
    #[arg(long, value_name = "PORT", default_value_t = 10259)]
    pub secure_port: u16,

    #[command(flatten)]
    pub leader_election: LeaderElection,

    #[command(flatten)]
    pub deprecated: DeprecatedFlags,

    #[command(flatten)]
    pub tls: Tls,

    #[command(flatten)]
    pub delegation: Delegation,

    #[command(flatten)]
    pub metrics: MetricsOptions,

    #[command(flatten)]
    pub logs: Logs,

    #[command(flatten)]
    pub features: Features,

    #[command(flatten)]
    pub dialect: Dialect,

    /// The flags on the command line, by the names of their fields.
    #[arg(skip)]
    pub given: BTreeSet<String>,
}

/// The flags that upstream has deprecated in favour of the configuration file, besides `--profiling`.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Deprecated, ignored beside --config")]
pub struct DeprecatedFlags {
    /// Deprecated: set clientConnection.kubeconfig in the file of --config. The kubeconfig of the API server to call
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<String>,

    /// Deprecated: set clientConnection.contentType in the file of --config. Requests to the API server use JSON
    #[arg(long, value_name = "TYPE", default_value = "application/vnd.kubernetes.protobuf")]
    pub kube_api_content_type: String,

    /// Deprecated: set clientConnection.qps in the file of --config. The average number of requests per second; less
    /// than 0 for no limit
    #[arg(long, value_name = "NUMBER", default_value_t = 50.0, allow_negative_numbers = true)]
    pub kube_api_qps: f64,

    /// Deprecated: set clientConnection.burst in the file of --config. The maximum burst of requests
    #[arg(long, value_name = "NUMBER", default_value_t = 100, allow_negative_numbers = true)]
    pub kube_api_burst: i32,

    /// Deprecated: use --leader-elect-resource-namespace
    #[arg(long, value_name = "NAME", default_value = "kube-system")]
    pub lock_object_namespace: String,

    /// Deprecated: use --leader-elect-resource-name
    #[arg(long, value_name = "NAME", default_value = "kube-scheduler")]
    pub lock_object_name: String,

    /// Deprecated: set enableContentionProfiling in the file of --config. There is no lock contention profile
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub contention_profiling: bool,

    /// Deprecated: upstream will remove it. How long a pod stays unschedulable before it is tried again without an
    /// event; it counts beside --config, too
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "5m0s")]
    pub pod_max_in_unschedulable_pods_duration: Duration,
}

impl Scheduler {
    /// Notes which flags the command line has.
    pub fn note_given(&mut self, matches: &ArgMatches) {
        let is_given = |id: &&clap::Id| {
            matches.value_source(id.as_str()) == Some(clap::parser::ValueSource::CommandLine)
        };
        self.given = matches.ids().filter(is_given).map(|id| id.as_str().to_owned()).collect();
    }

    fn given<T: Clone>(&self, field: &str, value: &T) -> Option<T> {
        self.given.contains(field).then(|| value.clone())
    }

    /// The options that the configuration is made of. The defaults of leader election follow the dialect.
    pub fn config_options(&self, errors: &mut ConfigErrors) -> config::Options {
        let election = &self.leader_election;
        let nanos = |value: &Duration| i64::try_from(value.as_nanos()).unwrap_or(i64::MAX);
        let duration = |field: &str, value: &Duration| self.given(field, value).map(|it| nanos(&it));
        let flags = &self.deprecated;
        config::Options {
            config: self.config.as_deref().and_then(|file| read_config("--config", file, errors)),
            leader_election: config::LeaderElectionOptions {
                leader_elect: self.given("leader_elect", &election.leader_elect),
                lease_duration_nanos: duration(
                    "leader_elect_lease_duration",
                    &election.leader_elect_lease_duration,
                ),
                renew_deadline_nanos: duration(
                    "leader_elect_renew_deadline",
                    &election.leader_elect_renew_deadline,
                ),
                retry_period_nanos: duration(
                    "leader_elect_retry_period",
                    &election.leader_elect_retry_period,
                ),
                resource_lock: self.given("leader_elect_resource_lock", &election.leader_elect_resource_lock),
                resource_name: self.given("leader_elect_resource_name", &election.leader_elect_resource_name),
                resource_namespace: self
                    .given("leader_elect_resource_namespace", &election.leader_elect_resource_namespace),
            },
            deprecated: config::DeprecatedOptions {
                profiling: self.given("profiling", &self.metrics.profiling),
                contention_profiling: self.given("contention_profiling", &flags.contention_profiling),
                kubeconfig: flags.kubeconfig.clone(),
                kube_api_content_type: self.given("kube_api_content_type", &flags.kube_api_content_type),
                kube_api_qps: self.given("kube_api_qps", &flags.kube_api_qps),
                kube_api_burst: self.given("kube_api_burst", &flags.kube_api_burst),
                lock_object_namespace: self.given("lock_object_namespace", &flags.lock_object_namespace),
                lock_object_name: self.given("lock_object_name", &flags.lock_object_name),
                pod_max_in_unschedulable_pods_duration: Some(flags.pod_max_in_unschedulable_pods_duration),
            },
        }
    }

    /// The API server of a configuration.
    pub fn target(
        &self,
        connection: &config::ClientConnection,
        names: &Names,
        errors: &mut ConfigErrors,
    ) -> Option<Target> {
        let file = Some(Path::new(&connection.kubeconfig)).filter(|file| !file.as_os_str().is_empty());
        controllers::target(file, self.master.as_deref(), names, errors)
    }
}

/// The content of a configuration file.
pub fn read_config(option: &str, file: &Path, errors: &mut ConfigErrors) -> Option<Vec<u8>> {
    let text = std::fs::read(file).map_err(|why| format!("cannot read {}: {why}", file.display()));
    errors.take(option, text)
}
