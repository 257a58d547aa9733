//! The cluster's DNS, as pods use it.

use client::{Api, Client};
use names::Names;
use network::dns::{Announcer, CLUSTER_DOMAIN};
use std::net::IpAddr;

/// See the module.
pub struct DnsService {
    pub addresses: Vec<IpAddr>,
    pub domain: String,
}

impl DnsService {
    /// The DNS of the cluster that this machine has joined, if it has one.
    pub async fn find(client: &Client, names: &Names) -> Result<Option<Self>, client::Error> {
        let key = Announcer::service_key(names);
        let services: Api<api::core::v1::Service> = Api::namespaced(client, &key.namespace);
        let service = services.get_opt(&key.name).await?;
        let addresses: Vec<_> = service
            .iter()
            .flat_map(|it| &it.spec.cluster_ips)
            .filter_map(|address| address.parse().ok())
            .collect();
        let domain = CLUSTER_DOMAIN.to_owned();
        Ok((!addresses.is_empty()).then_some(DnsService { addresses, domain }))
    }
}
