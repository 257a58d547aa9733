//! All options of the API server.

use super::{
    Admission, Aggregation, Audit, Authentication, Authorization, Cors, Dialect, EgressOptions, Etcd,
    Features, Kubelet, Limits, Observability, Store, Tls,
};
use crate::flags::duration;
use crate::logs::Logs;
use apimachinery::net::Network;
use clap::{ArgAction, Args};
use kinds::core::service::PortRange;
use schema::table::Release;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone, Args)]
pub struct Apiserver {
    /// The address to listen on: 127.0.0.1 is reached from this machine only, 0.0.0.0 from everywhere
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub bind_address: IpAddr,

    /// The port to listen on; 0, which only `pintle up` takes, is any free one
    #[arg(long, value_name = "PORT", default_value_t = 6443)]
    pub secure_port: u16,

    /// A further name or address by which clients reach the server (may be repeated)
    #[arg(long, value_name = "NAME")]
    pub tls_san: Vec<String>,

    /// Where to write the administrator's kubeconfig [default: admin.kubeconfig in the data directory]
    #[arg(long, value_name = "FILE")]
    pub write_kubeconfig: Option<PathBuf>,

    /// Stop when standard input ends: a cluster that a test has started with a pipe goes when the test dies
    #[arg(long)]
    pub exit_on_stdin_close: bool,

    /// API versions and resources to serve or not, comma-separated: apps/v1=false, resource.k8s.io/v1alpha1,
    /// apps/v1/daemonsets=false, api/all, api/ga, api/beta, api/alpha
    #[arg(long, value_name = "KEY=BOOL", value_delimiter = ',')]
    pub runtime_config: Vec<String>,

    /// Emulate the API of a later release: versions removed by then are not served, and clients that use versions to be
    /// removed get warnings [default: 1.26]
    #[arg(long, value_name = "RELEASE", value_parser = release)]
    pub emulated_version: Option<Release>,

    /// Allow privileged containers
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub allow_privileged: bool,

    /// How long events are kept: 1h, 30m, 1h30m
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1h0m0s")]
    pub event_ttl: Duration,

    /// How many objects a request to delete a whole collection deletes at a time
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..), default_value_t = 1)]
    pub delete_collection_workers: u16,

    /// The range of addresses for services, as network/prefix; with a comma one of each address family
    #[arg(long, value_name = "CIDR", value_delimiter = ',', value_parser = network, default_value = "10.0.0.0/16")]
    pub service_cluster_ip_range: Vec<Network>,

    /// The range of node ports for services, first and last
    #[arg(long, value_name = "FROM-TO", value_parser = port_range, default_value = "30000-32767")]
    pub service_node_port_range: PortRange,

    /// The address that pods use to reach the server [default: --bind-address, or the address of the default route]
    #[arg(long, value_name = "IP")]
    pub advertise_address: Option<IpAddr>,

    /// The host name of the server for external clients, with or without a port; used in discovery and as the default
    /// token issuer [default: its address]
    #[arg(long, value_name = "NAME")]
    pub external_hostname: Option<String>,

    /// The node port of the kubernetes service; 0 for none
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub kubernetes_service_node_port: u16,

    /// How the endpoints of the kubernetes service are reconciled: lease or master-count (reconciled), none (not
    /// reconciled)
    #[arg(long, value_name = "TYPE", default_value = "lease", value_parser = ["lease", "master-count", "none"])]
    pub endpoint_reconciler_type: String,

    #[command(flatten)]
    pub store: Store,

    #[command(flatten)]
    pub etcd: Etcd,

    #[command(flatten)]
    pub tls: Tls,

    #[command(flatten)]
    pub cors: Cors,

    #[command(flatten)]
    pub authentication: Authentication,

    #[command(flatten)]
    pub authorization: Authorization,

    #[command(flatten)]
    pub admission: Admission,

    #[command(flatten)]
    pub features: Features,

    #[command(flatten)]
    pub limits: Limits,

    #[command(flatten)]
    pub observability: Observability,

    #[command(flatten)]
    pub logs: Logs,

    #[command(flatten)]
    pub egress: EgressOptions,

    #[command(flatten)]
    pub aggregation: Aggregation,

    #[command(flatten)]
    pub kubelet: Kubelet,

    #[command(flatten)]
    pub audit: Audit,

    #[command(flatten)]
    pub dialect: Dialect,
}

fn network(text: &str) -> Result<Network, String> {
    Network::parse(text).ok_or_else(|| "not a CIDR, such as 10.0.0.0/16".to_owned())
}

fn port_range(text: &str) -> Result<PortRange, String> {
    PortRange::parse(text).ok_or_else(|| "not a first and a last port, such as 30000-32767".to_owned())
}

fn release(text: &str) -> Result<Release, String> {
    let read = Release::parse(text).filter(|release| *release >= kinds::RELEASE);
    read.ok_or_else(|| format!("not a release from {} on", kinds::RELEASE))
}
