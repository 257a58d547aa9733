//! Options of the controller manager, one module per group of flags.

mod autoscaling;
mod content;
mod delegation;
mod leader_election;
mod nodes;
mod registry;
mod signing;
mod storage;

pub use autoscaling::Autoscaling;
pub use content::Content;
pub use delegation::{AuthorityFiles, ClientTrust, Delegation};
pub use leader_election::LeaderElection;
pub use nodes::Nodes;
pub use registry::Controllers;
pub use signing::Signing;
pub use storage::Storage;

use super::{ConfigErrors, Dialect, Features, MetricsOptions, Tls};
use crate::logs::Logs;
use clap::{ArgAction, Args};
use client::Rate;
use controllers::registry::Options;
use names::Names;
use outbound::Target;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Args)]
pub struct ControllerManager {
    /// The kubeconfig of the API server to call [default: the in-cluster configuration of a pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The URL of the API server, in place of the one in the kubeconfig
    #[arg(long, value_name = "URL")]
    pub master: Option<String>,

    /// The average number of requests per second of each client; less than 0 for no limit
    #[arg(long, value_name = "NUMBER", default_value_t = 20.0, allow_negative_numbers = true)]
    pub kube_api_qps: f64,

    /// The maximum burst of requests of each client
    #[arg(long, value_name = "NUMBER", default_value_t = 30)]
    pub kube_api_burst: u32,

    /// Use a separate service account, with only the permissions that it needs, for each control loop
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub use_service_account_credentials: bool,

    /// The address to listen on, for health and metrics
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    pub bind_address: IpAddr,

    /// The port to listen on; 0 for none
    #[arg(long, value_name = "PORT", default_value_t = 10257)]
    pub secure_port: u16,

    #[command(flatten)]
    pub loops: Controllers,

    /// The CIDR of service addresses, which is excluded from node CIDRs; with a comma one of each address family
    #[arg(long, value_name = "CIDRS", default_value = "", hide_default_value = true)]
    pub service_cluster_ip_range: String,

    #[command(flatten)]
    pub leader_election: LeaderElection,

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
}

impl ControllerManager {
    pub fn rate(&self) -> Rate {
        Rate { per_second: self.kube_api_qps, burst: self.kube_api_burst }
    }

    /// Applies the flags to the defaults of the control loops.
    pub fn apply_to(&self, options: &mut Options, errors: &mut ConfigErrors) {
        self.loops.apply_to(options, errors);
        let services =
            errors.take("--service-cluster-ip-range", nodes::networks(&self.service_cluster_ip_range));
        options.node_ipam.services = services.unwrap_or_default();
    }

    /// The API server to call.
    pub fn target(&self, names: &Names, errors: &mut ConfigErrors) -> Option<Target> {
        target(self.kubeconfig.as_deref(), self.master.as_deref(), names, errors)
    }
}

/// The API server that a component calls: that of the kubeconfig, at another URL if one is given, or that of the pod
/// in which the process runs.
pub fn target(
    kubeconfig: Option<&Path>,
    master: Option<&str>,
    names: &Names,
    errors: &mut ConfigErrors,
) -> Option<Target> {
    let named = kubeconfig.map(|file| errors.take("--kubeconfig", Target::from_kubeconfig(file)));
    let url = master.map(str::to_owned);
    match (named, url) {
        (Some(target), None) => target,
        (Some(target), Some(url)) => target.map(|target| Target { url, ..target }),
        (None, Some(url)) => Some(Target { url, ..Target::default() }),
        (None, None) => {
            let own = of_a_pod(names, |name| std::env::var(name).ok());
            if own.is_none() {
                errors.add("--kubeconfig", "--kubeconfig or --master is required outside of a pod");
            }
            own
        }
    }
}

/// The in-cluster API server of a pod.
fn of_a_pod(names: &Names, variable: impl Fn(&str) -> Option<String>) -> Option<Target> {
    let prefix = names.vendor.to_uppercase();
    let of = |part: &str| variable(&format!("{prefix}_SERVICE_{part}")).filter(|it| !it.is_empty());
    let (host, port) = (of("HOST")?, of("PORT")?);
    let folder = PathBuf::from("/var/run/secrets").join(&*names.well_known_domain).join("serviceaccount");
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    Some(Target {
        url: format!("https://{host}:{port}"),
        authorities: std::fs::read(folder.join("ca.crt")).ok(),
        authority_file: Some(folder.join("ca.crt")),
        credentials: outbound::Credentials::BearerFile(folder.join("token")),
        ..Target::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_resolves_to_its_address() {
        let names = Names::kubernetes();
        let message = |host: &'static str| {
            of_a_pod(&names, move |name| match name {
                "KUBERNETES_SERVICE_HOST" => Some(host.to_owned()),
                "KUBERNETES_SERVICE_PORT" => Some("443".to_owned()),
                _ => None,
            })
        };
        assert_eq!(message("10.0.0.1").unwrap().url, "https://10.0.0.1:443");
        assert_eq!(message("fd00::1").unwrap().url, "https://[fd00::1]:443");
        assert!(message("").is_none());
    }
}
