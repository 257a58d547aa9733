//! Options of the controller manager, by what they are about.

mod autoscaling;
mod content;
mod delegation;
mod leadership;
mod nodes;
mod registry;
mod signing;
mod storage;

pub use autoscaling::Autoscaling;
pub use content::Content;
pub use delegation::{AuthorityFiles, Delegation, FoundOut};
pub use leadership::Leadership;
pub use nodes::Nodes;
pub use registry::Loops;
pub use signing::Signing;
pub use storage::Storage;

use super::{ConfigErrors, Dialect, Features, Numbers, Tls};
use crate::logs::Logs;
use clap::{ArgAction, Args};
use client::transport::Rate;
use controllers::registry::Options;
use names::Names;
use outbound::Target;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

#[derive(Debug, Clone, Args)]
pub struct ControllerManager {
    /// The file that says which API server to call, and how to show who calls [default: what a pod is told by its
    /// cluster]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The URL of the API server, in place of the one in the kubeconfig
    #[arg(long, value_name = "URL")]
    pub master: Option<String>,

    /// How many requests a second each client makes in the long run; less than 0 for no limit
    #[arg(long, value_name = "NUMBER", default_value_t = 20.0, allow_negative_numbers = true)]
    pub kube_api_qps: f64,

    /// How many more it makes at once
    #[arg(long, value_name = "NUMBER", default_value_t = 30)]
    pub kube_api_burst: u32,

    /// Let each loop call in the name of a service account of its own, which may do what that loop needs and no more
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub use_service_account_credentials: bool,

    /// The address to listen on, for health and metrics
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    pub bind_address: IpAddr,

    /// The port to listen on; 0 for none
    #[arg(long, value_name = "PORT", default_value_t = 10257)]
    pub secure_port: u16,

    #[command(flatten)]
    pub loops: Loops,

    /// The addresses of services, which no node gets: one network, or with a comma one of each address family
    #[arg(long, value_name = "CIDRS", default_value = "", hide_default_value = true)]
    pub service_cluster_ip_range: String,

    #[command(flatten)]
    pub leadership: Leadership,

    #[command(flatten)]
    pub tls: Tls,

    #[command(flatten)]
    pub delegation: Delegation,

    #[command(flatten)]
    pub numbers: Numbers,

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

    /// Puts what was said about the loops in the place of what is usual.
    pub fn onto(&self, options: &mut Options, wrong: &mut ConfigErrors) {
        self.loops.onto(options, wrong);
        let services =
            wrong.take("--service-cluster-ip-range", nodes::networks(&self.service_cluster_ip_range));
        options.node_ipam.services = services.unwrap_or_default();
    }

    /// The API server to call.
    pub fn target(&self, names: &Names, wrong: &mut ConfigErrors) -> Option<Target> {
        let named =
            self.kubeconfig.as_deref().map(|file| wrong.take("--kubeconfig", Target::from_kubeconfig(file)));
        match (named, &self.master) {
            (Some(target), None) => target,
            (Some(target), Some(url)) => target.map(|target| Target { url: url.clone(), ..target }),
            (None, Some(url)) => Some(Target { url: url.clone(), ..Target::default() }),
            (None, None) => {
                let own = of_a_pod(names, |name| std::env::var(name).ok());
                if own.is_none() {
                    wrong.add("--kubeconfig", "needed, or --master, since this is no pod of a cluster");
                }
                own
            }
        }
    }
}

/// The API server that a pod is told of.
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
    fn a_pod_is_told_whom_to_call() {
        let names = Names::kubernetes();
        let told = |host: &'static str| {
            of_a_pod(&names, move |name| match name {
                "KUBERNETES_SERVICE_HOST" => Some(host.to_owned()),
                "KUBERNETES_SERVICE_PORT" => Some("443".to_owned()),
                _ => None,
            })
        };
        assert_eq!(told("10.0.0.1").unwrap().url, "https://10.0.0.1:443");
        assert_eq!(told("fd00::1").unwrap().url, "https://[fd00::1]:443");
        assert!(told("").is_none());
    }
}
