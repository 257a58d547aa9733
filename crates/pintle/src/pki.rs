//! The cluster's certificates and keys.
//!
//! | file | what | signed by |
//! |---|---|---|
//! | `ca` | the authority for the server and for clients | itself |
//! | `apiserver` | the server's certificate | `ca` |
//! | `admin` | the administrator, in the group that may do everything | `ca` |
//! | `admin.token` | the administrator's token | |
//! | `front-proxy-ca` | the authority for proxies that vouch for users | itself |
//! | `front-proxy-client` | the server as such a proxy, towards aggregated APIs | `front-proxy-ca` |
//! | `sa` | the key that signs service accounts' tokens | |
//!
//! What always holds: the first start makes all of them or none. Later starts keep what is there; they only
//! issue a certificate anew, for the same key, when it is about to expire or does not cover a name it must.
//! A file that is damaged or does not fit the others is never replaced silently: the error names it.

mod issue;
mod shelf;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use env::World;
use names::Names;

use issue::{Authority, Purpose};
use shelf::Shelf;

/// The administrator's user name.
pub const ADMIN: &str = "pintle-admin";

/// The name of this server as a proxy that says who is calling.
pub const FRONT_PROXY: &str = "front-proxy-client";

/// The first address of the default range of service addresses: the API server's own service.
const SERVICE_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// A certificate and its key as PEM text.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

/// Everything that the control plane proves itself with, and checks others by.
pub struct Pki {
    pub ca: Pair,
    pub apiserver: Pair,
    pub admin: Pair,
    /// The token that stands for the same user.
    pub admin_token: String,
    pub front_proxy_ca: Pair,
    pub front_proxy_client: Pair,
    /// The private key that signs tokens.
    pub service_account_key: String,
}

impl Pki {
    /// A new one that lives as long as the process.
    pub fn in_memory(hosts: &Hosts, world: &World) -> anyhow::Result<Self> {
        Self::assemble(&mut Shelf::in_memory(), hosts, world)
    }

    /// The one in `directory`, made there if there is none.
    pub fn in_directory(directory: &Path, hosts: &Hosts, world: &World) -> anyhow::Result<Self> {
        let mut shelf = Shelf::in_directory(directory)?;
        let pki = Self::assemble(&mut shelf, hosts, world)?;
        shelf.put_away()?;
        Ok(pki)
    }

    fn assemble(shelf: &mut Shelf, hosts: &Hosts, world: &World) -> anyhow::Result<Self> {
        let cluster = Authority::obtain(shelf, "ca", "pintle-ca", world)?;
        let apiserver =
            cluster.leaf(shelf, "apiserver", &Purpose::Server { name: "pintle-apiserver", hosts })?;
        let admin =
            cluster.leaf(shelf, "admin", &Purpose::Client { name: ADMIN, group: Some(auth::MASTERS) })?;
        let admin_token = issue::token(shelf, "admin", world)?;
        let proxies = Authority::obtain(shelf, "front-proxy-ca", "pintle-front-proxy-ca", world)?;
        let proxy = Purpose::Client { name: FRONT_PROXY, group: None };
        let front_proxy_client = proxies.leaf(shelf, "front-proxy-client", &proxy)?;
        let service_account_key = issue::signing_key(shelf, "sa")?;
        Ok(Self {
            ca: cluster.into_pair(),
            apiserver,
            admin,
            admin_token,
            front_proxy_ca: proxies.into_pair(),
            front_proxy_client,
            service_account_key,
        })
    }
}

/// The names and addresses by which clients reach the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts(BTreeSet<String>);

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
