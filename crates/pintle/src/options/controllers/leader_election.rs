//! Leader election options.

use super::super::ConfigErrors;
use crate::flags::any_duration;
use clap::{ArgAction, Args};
use client::leader;
use names::Names;
use std::time::Duration;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Leader election")]
pub struct LeaderElection {
    /// Elect a leader by a lease: of several processes only the leader works
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub leader_elect: bool,

    /// How long candidates wait after the last renewal of the lease
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "15s")]
    pub leader_elect_lease_duration: Duration,

    /// How long the leader retries a renewal before it gives up; must be shorter than the lease
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "10s")]
    pub leader_elect_renew_deadline: Duration,

    /// How long candidates wait between attempts
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "2s")]
    pub leader_elect_retry_period: Duration,

    /// The kind of the lock: leases
    #[arg(long, value_name = "KIND", default_value = "leases")]
    pub leader_elect_resource_lock: String,

    /// The name of the lease
    #[arg(long, value_name = "NAME", default_value = "kube-controller-manager")]
    pub leader_elect_resource_name: String,

    /// The namespace of the lease
    #[arg(long, value_name = "NAME", default_value = "kube-system")]
    pub leader_elect_resource_namespace: String,
}

impl LeaderElection {
    /// The leader election configuration, if enabled.
    pub fn read(
        &self,
        identity: String,
        names: &Names,
        errors: &mut ConfigErrors,
    ) -> Option<leader::Options> {
        if !self.leader_elect {
            return None;
        }
        if self.leader_elect_resource_lock != "leases" {
            let why = format!("{:?} is not supported; use leases", self.leader_elect_resource_lock);
            errors.add("--leader-elect-resource-lock", why);
        }
        // the default names depend on the dialect
        let usual = Names::kubernetes();
        let spelled =
            |text: &str, usual: String, own: String| if text == usual { own } else { text.to_owned() };
        let namespace = &self.leader_elect_resource_namespace;
        let namespace = spelled(namespace, usual.system_namespace(), names.system_namespace());
        let name = &self.leader_elect_resource_name;
        let of = |names: &Names| format!("{}-controller-manager", names.prefix);
        let name = spelled(name, of(&usual), of(names));
        let options = leader::Options {
            lease_duration: self.leader_elect_lease_duration,
            renew_deadline: self.leader_elect_renew_deadline,
            retry_period: self.leader_elect_retry_period,
            ..leader::Options::new(namespace, name, identity)
        };
        if let Some(problem) = options.problem() {
            errors.add("--leader-elect-lease-duration", problem);
        }
        Some(options)
    }
}
