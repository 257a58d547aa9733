//! Which of several managers works.

use super::super::ConfigErrors;
use crate::flags::any_duration;
use clap::{ArgAction, Args};
use client::leader;
use names::Names;
use std::time::Duration;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Which of several works")]
pub struct Leadership {
    /// Work only while holding a lease, so that of several managers one works
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub leader_elect: bool,

    /// How long others wait after the lease was last renewed
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "15s")]
    pub leader_elect_lease_duration: Duration,

    /// How long a manager tries to renew the lease before it ends; shorter than the lease
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "10s")]
    pub leader_elect_renew_deadline: Duration,

    /// How long is waited between tries
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "2s")]
    pub leader_elect_retry_period: Duration,

    /// What is held: leases
    #[arg(long, value_name = "KIND", default_value = "leases")]
    pub leader_elect_resource_lock: String,

    /// The name of the lease
    #[arg(long, value_name = "NAME", default_value = "kube-controller-manager")]
    pub leader_elect_resource_name: String,

    /// The namespace of the lease
    #[arg(long, value_name = "NAME", default_value = "kube-system")]
    pub leader_elect_resource_namespace: String,
}

impl Leadership {
    /// How the lease is held, if it is to be held at all.
    pub fn read(&self, identity: String, names: &Names, wrong: &mut ConfigErrors) -> Option<leader::Options> {
        if !self.leader_elect {
            return None;
        }
        if self.leader_elect_resource_lock != "leases" {
            let why = format!("{:?} cannot be held; there are leases", self.leader_elect_resource_lock);
            wrong.add("--leader-elect-resource-lock", why);
        }
        // in another dialect the usual names are others
        let usual = Names::kubernetes();
        let spelled =
            |text: &str, usual: String, own: String| if text == usual { own } else { text.to_owned() };
        let namespace = &self.leader_elect_resource_namespace;
        let namespace = spelled(namespace, usual.system_namespace(), names.system_namespace());
        let name = &self.leader_elect_resource_name;
        let of = |names: &Names| format!("{}-controller-manager", names.prefix);
        let name = spelled(name, of(&usual), of(names));
        let options = leader::Options {
            lasts: self.leader_elect_lease_duration,
            renew_within: self.leader_elect_renew_deadline,
            retry: self.leader_elect_retry_period,
            ..leader::Options::new(namespace, name, identity)
        };
        if let Some(problem) = options.problem() {
            wrong.add("--leader-elect-lease-duration", problem);
        }
        Some(options)
    }
}
