//! The names and addresses that the server's certificate covers.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use names::Names;

/// The first address of the default range of service addresses: the API server's own service.
const SERVICE_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// The names and addresses by which clients reach the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts(pub(super) BTreeSet<String>);

impl Hosts {
    /// Those that every server has, with the address it listens on, the machine's name and `others`.
    pub fn new(
        bind: IpAddr,
        machine: Option<&str>,
        others: &[String],
        names: &Names,
    ) -> anyhow::Result<Self> {
        let service = &names.vendor;
        let mut hosts = BTreeSet::from([
            "localhost".to_owned(),
            service.to_string(),
            format!("{service}.default"),
            format!("{service}.default.svc"),
            format!("{service}.default.svc.cluster.local"),
            Ipv4Addr::LOCALHOST.to_string(),
            Ipv6Addr::LOCALHOST.to_string(),
            SERVICE_ADDRESS.to_string(),
        ]);
        if !bind.is_unspecified() {
            hosts.insert(bind.to_string());
        }
        // a machine may be called something that a certificate cannot say
        hosts.extend(machine.map(str::to_lowercase).filter(|name| is_host(name)));
        for other in others {
            let other = other.to_lowercase();
            anyhow::ensure!(
                is_host(&other),
                "{other:?} is neither a host name nor an address: correct --tls-san"
            );
            // addresses have one spelling in certificates
            hosts.insert(other.parse::<IpAddr>().map_or(other, |ip| ip.to_string()));
        }
        Ok(Self(hosts))
    }

    /// Those of a node: names and addresses that a certificate can say.
    pub fn of_node(addresses: &[String]) -> Self {
        let fixed = ["localhost".to_owned(), Ipv4Addr::LOCALHOST.to_string()];
        let named = addresses.iter().map(|it| it.to_lowercase()).filter(|it| is_host(it));
        Self(fixed.into_iter().chain(named).collect())
    }
}

fn is_host(text: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_')
    };
    let name = text.strip_prefix("*.").unwrap_or(text);
    text.parse::<IpAddr>().is_ok() || (text.len() <= 253 && name.split('.').all(label))
}
