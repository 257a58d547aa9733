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
//! | `cluster.token` | the token under which servers on one etcd share authorities and keys | |
//! | `node`, `node-client` | the HTTP API of this machine's node and its requests, where one runs | `ca` |
//!
//! Invariants: the first start makes all of them or none. Later starts keep what is there; they only
//! issue a certificate anew, for the same key, when it is about to expire or does not cover a name it must.
//! A file that is damaged or does not fit the others is never replaced silently: the error names it.

mod certified_key;
mod hosts;
mod issue;
mod shared;
mod store;

#[cfg(test)]
mod tests;

use std::path::Path;

use env::World;

pub use certified_key::CertifiedKey;
pub use hosts::Hosts;
use issue::{Authority, Purpose};
pub use shared::shared;
use store::CertificateStore;

/// The administrator's user name.
pub const ADMIN: &str = "pintle-admin";

/// The group of all nodes.
pub const NODES: &str = "system:nodes";

/// The common name of this server's front proxy certificate.
pub const FRONT_PROXY: &str = "front-proxy-client";

/// Issues the certificates of a node where the directory has none: `node` for its HTTP API, and `node-client`, which it
/// returns, for its requests.
pub fn issue_node_certificates(
    directory: &Path,
    user: &str,
    hosts: &Hosts,
    world: &World,
) -> anyhow::Result<CertifiedKey> {
    let mut store = CertificateStore::in_directory(directory)?;
    let cluster = Authority::obtain(&mut store, "ca", "pintle-ca", world)?;
    cluster.leaf(&mut store, "node", &Purpose::Server { name: user, hosts })?;
    let client = Purpose::Client { name: user, group: Some(NODES) };
    let client = cluster.leaf(&mut store, "node-client", &client)?;
    store.commit()?;
    Ok(client)
}

/// The certificates, keys and tokens of the control plane.
pub struct Pki {
    pub ca: CertifiedKey,
    pub apiserver: CertifiedKey,
    pub admin: CertifiedKey,
    /// The token that stands for the same user.
    pub admin_token: String,
    pub front_proxy_ca: CertifiedKey,
    pub front_proxy_client: CertifiedKey,
    /// The private key that signs tokens.
    pub service_account_key: String,
    /// All of these as files, by name.
    pub files: Vec<(String, String)>,
}

impl Pki {
    /// One that lives as long as the process, with these files; missing files are generated.
    pub fn in_memory(files: Vec<(String, String)>, hosts: &Hosts, world: &World) -> anyhow::Result<Self> {
        Self::assemble(&mut CertificateStore::in_memory(files), hosts, world)
    }

    /// The one in `directory`, made there if there is none.
    pub fn in_directory(directory: &Path, hosts: &Hosts, world: &World) -> anyhow::Result<Self> {
        let mut store = CertificateStore::in_directory(directory)?;
        let pki = Self::assemble(&mut store, hosts, world)?;
        store.commit()?;
        Ok(pki)
    }

    fn assemble(store: &mut CertificateStore, hosts: &Hosts, world: &World) -> anyhow::Result<Self> {
        let cluster = Authority::obtain(store, "ca", "pintle-ca", world)?;
        let apiserver =
            cluster.leaf(store, "apiserver", &Purpose::Server { name: "pintle-apiserver", hosts })?;
        let admin =
            cluster.leaf(store, "admin", &Purpose::Client { name: ADMIN, group: Some(auth::MASTERS) })?;
        let admin_token = issue::token(store, "admin", world)?;
        let proxies = Authority::obtain(store, "front-proxy-ca", "pintle-front-proxy-ca", world)?;
        let proxy = Purpose::Client { name: FRONT_PROXY, group: None };
        let front_proxy_client = proxies.leaf(store, "front-proxy-client", &proxy)?;
        let service_account_key = issue::signing_key(store, "sa")?;
        Ok(Self {
            ca: cluster.into_pair(),
            apiserver,
            admin,
            admin_token,
            front_proxy_ca: proxies.into_pair(),
            front_proxy_client,
            service_account_key,
            files: store.files(),
        })
    }
}
