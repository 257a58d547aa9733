//! Options of the components, one module per group of flags.
//!
//! Each module declares flags and converts their values to configuration. Errors are collected, so that one run reports
//! all of them.

mod admission;
mod aggregation;
mod apiserver;
mod audit;
mod authentication;
mod authorization;
mod check;
mod clock;
mod controllers;
mod cors;
mod dialect;
mod egress;
mod etcd;
mod faults;
pub mod features;
pub mod gates;
mod join;
mod kubelet;
mod limits;
mod manifest;
mod manual;
mod network;
mod observability;
mod oidc;
mod request_headers;
mod scheduler;
mod service_accounts;
mod serving;
mod store;
mod token_webhook;

pub use self::scheduler::{Scheduler, SchedulerGates, read_config};
pub use admission::Admission;
pub use aggregation::Aggregation;
pub use apiserver::Apiserver;
pub use audit::Audit;
pub use authentication::{Authentication, Authorities};
pub use authorization::Authorization;
pub use check::{CHECK_EXAMPLES, CheckArgs, CheckOutput, Role};
pub use clock::{CLOCK_EXAMPLES, ClockAction, ClockArgs, ClockFlags, ClockMode, Pace};
pub use controllers::{
    AuthorityFiles, ClientTrust, ControllerManager, Controllers, Delegation, LeaderElection, target,
};
pub use cors::Cors;
pub use dialect::Dialect;
pub use egress::EgressOptions;
pub use etcd::Etcd;
pub use faults::{FAULTS_EXAMPLES, FaultFlags, FaultsAction, FaultsArgs};
pub use features::{FeatureGates, Features};
pub use join::{AdminAccess, Join, Leave, Token, TokenAction, TokenCreate};
pub use kubelet::Kubelet;
pub use limits::Limits;
pub use manual::{COMPLETION_EXAMPLES, CompletionArgs, ManArgs};
pub use network::Network;
pub use observability::{MetricsOptions, Observability};
pub use oidc::Oidc;
pub use request_headers::RequestHeaders;
pub use service_accounts::ServiceAccounts;
pub use serving::{ServingCertificates, Tls};
pub use store::Store;
pub use token_webhook::TokenWebhook;

use crate::flags::parse_bool;
use std::fmt::{self, Display};
use std::path::Path;

/// Collects configuration errors, each with the name of its option.
#[derive(Debug, Default)]
pub struct ConfigErrors(Vec<String>);

impl ConfigErrors {
    pub fn add(&mut self, option: &str, why: impl Display) {
        self.0.push(format!("{option}: {why}"));
    }

    /// Returns the value, or records its error.
    pub fn take<T, E: Display>(&mut self, option: &str, value: Result<T, E>) -> Option<T> {
        value.map_err(|why| self.add(option, why)).ok()
    }

    /// Reads the file that an option names.
    pub fn text(&mut self, option: &str, file: Option<&Path>) -> Option<String> {
        let path = file?;
        let read = std::fs::read_to_string(path);
        self.take(option, read.map_err(|why| format!("cannot read {}: {why}", path.display())))
    }

    /// Returns an error with all recorded ones, if any.
    pub fn check(self) -> Result<(), InvalidConfig> {
        if self.0.is_empty() { Ok(()) } else { Err(InvalidConfig(self.0)) }
    }
}

/// The error of an invalid configuration, one line per problem.
#[derive(Debug)]
pub struct InvalidConfig(pub Vec<String>);

impl Display for InvalidConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for InvalidConfig {}
