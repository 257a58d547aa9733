//! Options of cluster DNS.

use crate::host::host_name;
use crate::logs::Logs;
use crate::options::{ConfigErrors, Dialect};
use apimachinery::net::Network;
use clap::{ArgAction, Args};
use network::dns::{CLUSTER_DOMAIN, ForwardOptions, Options, PORT, StubDomain};
use nodeagent::node::addresses::{AddressOptions, MachineAddresses, node_addresses};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// The port of other DNS servers.
const UPSTREAM_PORT: u16 = 53;

/// The flags of `pintle dns` and `pintle up`.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Cluster DNS")]
pub struct DnsFlags {
    /// The addresses of cluster DNS, over UDP and TCP, comma-separated: IP or IP:PORT [default: the node's InternalIP,
    /// port 10053]
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    pub dns_bind_address: Vec<String>,

    /// The domain of the cluster's names
    #[arg(long, value_name = "DOMAIN", default_value = CLUSTER_DOMAIN)]
    pub cluster_domain: String,

    /// The DNS servers for names outside of the cluster, comma-separated: IP or IP:PORT [default: those of
    /// --dns-resolv-conf]
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    pub dns_upstream: Vec<String>,

    /// The file with the DNS servers for names outside of the cluster; it is read again when it changes
    #[arg(long, value_name = "FILE", default_value = "/etc/resolv.conf")]
    pub dns_resolv_conf: PathBuf,

    /// A DNS server for the names of one domain: DOMAIN=IP or DOMAIN=IP:PORT; several for several servers or domains
    #[arg(long, value_name = "DOMAIN=ADDRESS", value_delimiter = ',')]
    pub dns_stub_domain: Vec<String>,

    /// Networks of clients besides pods and nodes, comma-separated; queries from elsewhere are refused
    #[arg(long, value_name = "CIDRS", value_delimiter = ',')]
    pub dns_allow: Vec<String>,
}

/// Reads `IP` or `IP:PORT`.
fn address(text: &str, port: u16) -> Result<SocketAddr, String> {
    let parsed = text.parse::<SocketAddr>().ok();
    let plain = || text.trim_matches(['[', ']']).parse::<IpAddr>().ok().map(|it| SocketAddr::new(it, port));
    parsed.or_else(plain).ok_or_else(|| format!("{text:?} is neither an address nor an address with a port"))
}

/// Reads all values of a flag; errors are reported under its name.
fn read_all<T>(
    flag: &str,
    texts: &[String],
    errors: &mut ConfigErrors,
    read: impl Fn(&str) -> Result<T, String>,
) -> Vec<T> {
    texts.iter().filter_map(|it| errors.take(flag, read(it))).collect()
}

impl DnsFlags {
    /// The options for a server on this machine. `reverse_ranges` are the ranges of services and pods.
    pub fn read(&self, reverse_ranges: Vec<Network>, errors: &mut ConfigErrors) -> Options {
        let mut addresses =
            read_all("--dns-bind-address", &self.dns_bind_address, errors, |it| address(it, PORT));
        if addresses.is_empty() {
            addresses = internal_addresses().into_iter().map(|it| SocketAddr::new(it, PORT)).collect();
        }
        let network = |it: &str| Network::parse(it).ok_or_else(|| format!("{it:?} is no network"));
        let forward = ForwardOptions {
            resolv_conf: Some(self.dns_resolv_conf.clone()),
            servers: read_all("--dns-upstream", &self.dns_upstream, errors, |it| address(it, UPSTREAM_PORT)),
            stub_domains: self.stub_domains(errors),
            own_addresses: addresses
                .iter()
                .filter(|it| it.port() == UPSTREAM_PORT)
                .map(SocketAddr::ip)
                .collect(),
        };
        Options {
            domain: self.cluster_domain.trim_end_matches('.').to_owned(),
            addresses,
            reverse_ranges,
            allowed_sources: read_all("--dns-allow", &self.dns_allow, errors, network),
            forward,
            node_name: node_name(),
            node_addresses: internal_addresses(),
        }
    }

    /// Domains with their servers; the servers of one domain are in the order of the flags.
    fn stub_domains(&self, errors: &mut ConfigErrors) -> Vec<StubDomain> {
        let read = |text: &str| {
            let (domain, server) = text.split_once('=').ok_or_else(|| format!("{text:?} has no ="))?;
            StubDomain::new(domain, address(server, UPSTREAM_PORT)?)
                .ok_or_else(|| format!("{domain:?} is no domain"))
        };
        let mut domains: Vec<StubDomain> = Vec::new();
        for stub in read_all("--dns-stub-domain", &self.dns_stub_domain, errors, read) {
            match domains.iter_mut().find(|it| it.domain == stub.domain) {
                Some(known) => known.servers.extend(stub.servers),
                None => domains.push(stub),
            }
        }
        domains
    }
}

pub(super) fn node_name() -> String {
    host_name().unwrap_or_else(|| "localhost".to_owned()).to_lowercase()
}

/// The addresses of this machine as a node.
fn internal_addresses() -> Vec<IpAddr> {
    let options = AddressOptions { node_ips: Vec::new(), hostname: node_name() };
    let found = node_addresses(&options, &MachineAddresses).unwrap_or_default();
    found.into_iter().filter(|it| it.type_ == "InternalIP").filter_map(|it| it.address.parse().ok()).collect()
}

/// The flags of `pintle dns`.
#[derive(Debug, Clone, Args)]
pub struct Dns {
    /// The kubeconfig of the API server
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    #[command(flatten)]
    pub server: DnsFlags,

    /// The ranges of services and pods, comma-separated: the names of other addresses in them are not looked up elsewhere
    #[arg(long, value_name = "CIDRS", value_delimiter = ',')]
    pub reverse_ranges: Vec<String>,

    /// Whether the server keeps the DNS service of the cluster, and adds itself to it
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub announce: bool,

    /// The address of the DNS service, if it is created [default: any]
    #[arg(long, value_name = "IP")]
    pub cluster_ip: Option<IpAddr>,

    /// The name of this node, in the endpoints of the DNS service [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,

    /// The address of metrics (/metrics) and health (/health, /ready), over HTTP; 0 as the port for none
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:9153")]
    pub metrics_bind_address: SocketAddr,

    #[command(flatten)]
    pub dialect: Dialect,

    #[command(flatten)]
    pub logs: Logs,
}

impl Dns {
    pub fn options(&self, errors: &mut ConfigErrors) -> Options {
        let network = |it: &str| Network::parse(it).ok_or_else(|| format!("{it:?} is no network"));
        let ranges = read_all("--reverse-ranges", &self.reverse_ranges, errors, network);
        let options = self.server.read(ranges, errors);
        let node_name = self.node_name.clone().unwrap_or(options.node_name);
        Options { node_name, ..options }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags() -> DnsFlags {
        DnsFlags {
            dns_bind_address: vec![
                "192.0.2.1".to_owned(),
                "[2001:db8::1]:53".to_owned(),
                "2001:db8::2".to_owned(),
            ],
            cluster_domain: "example.internal.".to_owned(),
            dns_upstream: Vec::new(),
            dns_resolv_conf: "/etc/resolv.conf".into(),
            dns_stub_domain: ["corp=10.0.0.1", "lab=10.0.0.2:5353", "corp=10.0.0.3"]
                .map(str::to_owned)
                .into(),
            dns_allow: vec!["10.9.0.0/16".to_owned()],
        }
    }

    #[test]
    fn addresses_have_the_default_port_unless_they_have_one() {
        let mut errors = ConfigErrors::default();
        let options = flags().read(Vec::new(), &mut errors);
        errors.check().unwrap();
        let text: Vec<_> = options.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["192.0.2.1:10053", "[2001:db8::1]:53", "[2001:db8::2]:10053"]);
        assert_eq!(options.domain, "example.internal");
        assert_eq!(options.forward.own_addresses, ["2001:db8::1".parse::<IpAddr>().unwrap()]);
        let stubs: Vec<_> =
            options.forward.stub_domains.iter().map(|it| (it.domain.to_string(), it.servers.len())).collect();
        assert_eq!(stubs, [("corp.".to_owned(), 2), ("lab.".to_owned(), 1)]);
    }

    #[test]
    fn every_mistake_is_reported() {
        let mut errors = ConfigErrors::default();
        let wrong = vec!["nonsense".to_owned()];
        let flags = DnsFlags {
            dns_bind_address: wrong.clone(),
            dns_upstream: wrong.clone(),
            dns_stub_domain: wrong.clone(),
            dns_allow: wrong,
            ..flags()
        };
        flags.read(Vec::new(), &mut errors);
        assert_eq!(errors.check().unwrap_err().0.len(), 4);
    }
}
