//! Command-line options that the configuration is made of.
//!
//! With a file, only the options of leader election change it. Without one, the deprecated options change the default
//! configuration, too.

use super::error::ConfigError;
use super::gates::Gates;
use super::types::Configuration;
use names::Names;
use std::time::Duration;

/// Options as given on the command line; `None` where a flag is absent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Options {
    /// The content of the file of `--config`.
    pub config: Option<Vec<u8>>,
    pub leader_election: LeaderElectionOptions,
    pub deprecated: DeprecatedOptions,
}

/// `--leader-elect` and the flags that begin with it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaderElectionOptions {
    pub leader_elect: Option<bool>,
    pub lease_duration_nanos: Option<i64>,
    pub renew_deadline_nanos: Option<i64>,
    pub retry_period_nanos: Option<i64>,
    pub resource_lock: Option<String>,
    pub resource_name: Option<String>,
    pub resource_namespace: Option<String>,
}

/// Flags that upstream has deprecated in favour of the file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeprecatedOptions {
    /// `--profiling`
    pub profiling: Option<bool>,
    /// `--contention-profiling`
    pub contention_profiling: Option<bool>,
    /// `--kubeconfig`
    pub kubeconfig: Option<String>,
    /// `--kube-api-content-type`
    pub kube_api_content_type: Option<String>,
    /// `--kube-api-qps`
    pub kube_api_qps: Option<f64>,
    /// `--kube-api-burst`
    pub kube_api_burst: Option<i32>,
    /// `--lock-object-namespace`
    pub lock_object_namespace: Option<String>,
    /// `--lock-object-name`
    pub lock_object_name: Option<String>,
    /// `--pod-max-in-unschedulable-pods-duration`; it counts with a file, too.
    pub pod_max_in_unschedulable_pods_duration: Option<Duration>,
}

impl Options {
    /// The validated configuration.
    pub fn configuration(&self, names: &Names, gates: Gates) -> Result<Configuration, ConfigError> {
        let mut configuration = match &self.config {
            Some(text) => Configuration::read(text, names, gates)?,
            None => {
                let mut configuration = Configuration::with_defaults(names, gates);
                self.deprecated.apply(&mut configuration);
                configuration
            }
        };
        self.leader_election.apply(&mut configuration);
        configuration.validate(names, gates)?;
        Ok(configuration)
    }

    /// The longest time that a pod stays unschedulable without an event.
    pub fn max_in_unschedulable(&self) -> Duration {
        self.deprecated.pod_max_in_unschedulable_pods_duration.unwrap_or(Duration::from_secs(300))
    }
}

/// Replaces a value by that of a flag.
fn set<T: Clone>(value: &mut T, flag: &Option<T>) {
    if let Some(flag) = flag {
        value.clone_from(flag);
    }
}

impl LeaderElectionOptions {
    fn apply(&self, configuration: &mut Configuration) {
        let election = &mut configuration.leader_election;
        set(&mut election.leader_elect, &self.leader_elect);
        set(&mut election.lease_duration_nanos, &self.lease_duration_nanos);
        set(&mut election.renew_deadline_nanos, &self.renew_deadline_nanos);
        set(&mut election.retry_period_nanos, &self.retry_period_nanos);
        set(&mut election.resource_lock, &self.resource_lock);
        set(&mut election.resource_name, &self.resource_name);
        set(&mut election.resource_namespace, &self.resource_namespace);
    }
}

impl DeprecatedOptions {
    fn apply(&self, configuration: &mut Configuration) {
        set(&mut configuration.enable_profiling, &self.profiling);
        set(&mut configuration.enable_contention_profiling, &self.contention_profiling);
        let connection = &mut configuration.client_connection;
        set(&mut connection.kubeconfig, &self.kubeconfig);
        set(&mut connection.content_type, &self.kube_api_content_type);
        set(&mut connection.qps, &self.kube_api_qps);
        set(&mut connection.burst, &self.kube_api_burst);
        let election = &mut configuration.leader_election;
        set(&mut election.resource_namespace, &self.lock_object_namespace);
        set(&mut election.resource_name, &self.lock_object_name);
    }
}
