//! Announces this server: the DNS service of the cluster, and a slice with the address of this server.
//!
//! The service has no selector; several servers are several slices. A service that has a selector belongs to a DNS server
//! that the user installed: then this one is not announced. Invariants: a slice names one node, and is removed when its
//! server ends, or by another server when its node is gone or it does not answer.

use super::access::AllowedSources;
use super::peers::{self, PeerChecks};
use api::Resource;
use api::core::v1::{Service, ServicePort};
use api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use api::meta::v1::ObjectMeta;
use apimachinery::net::Family;
use client::{Api, Client, Error, Key, ListParams, Patch, json_value, unless};
use env::{Interval, World};
use names::Names;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Checks of other servers between two looks at the service and the own slices.
const CHECKS: u32 = 6;
/// The age from which on a slice without a node is stale: a node may be registered after its server began.
const STALE_AGE: Duration = Duration::from_secs(300);
/// The manager of the slices, in their label.
pub const SLICE_MANAGER: &str = "pintle-dns";
const SERVICE_PORT: i32 = 53;

/// The DNS service of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceState {
    /// It leads to the servers that announce themselves.
    Own { addresses: Vec<IpAddr> },
    /// It leads to pods that the user runs.
    Foreign { addresses: Vec<IpAddr> },
}

impl ServiceState {
    /// The addresses at which the cluster's DNS is.
    pub fn addresses(&self) -> &[IpAddr] {
        match self {
            ServiceState::Own { addresses } | ServiceState::Foreign { addresses } => addresses,
        }
    }
}

/// See the module.
pub struct Announcer {
    services: Api<Service>,
    slices: Api<EndpointSlice>,
    names: Names,
    key: Key,
    /// The address that the service gets if it is created; any if there is none.
    cluster_ip: Option<IpAddr>,
    world: World,
}

/// The key of the DNS service: `kube-system/kube-dns`.
fn service_key(names: &Names) -> Key {
    Key::new(names.system_namespace(), format!("{}-dns", names.prefix))
}

impl Announcer {
    pub fn new(client: &Client, names: &Names, cluster_ip: Option<IpAddr>, world: &World) -> Self {
        let key = service_key(names);
        Announcer {
            services: Api::namespaced(client, &key.namespace),
            slices: Api::namespaced(client, &key.namespace),
            names: names.clone(),
            key,
            cluster_ip,
            world: world.clone(),
        }
    }

    /// The key of the DNS service in a dialect.
    pub fn service_key(names: &Names) -> Key {
        service_key(names)
    }

    /// Creates the service if there is none.
    pub async fn ensure_service(&self) -> Result<ServiceState, Error> {
        if let Some(service) = self.services.get_opt(&self.key.name).await? {
            return self.adopt(service).await;
        }
        match self.services.create(&self.service()).await {
            Ok(service) => Ok(state(&service)),
            // another server was faster
            Err(why) if why.is_already_exists() => Ok(state(&self.services.get(&self.key.name).await?)),
            Err(why) => Err(why),
        }
    }

    /// An existing service; one without a selector gets the ports that it lacks.
    async fn adopt(&self, service: Service) -> Result<ServiceState, Error> {
        let has = |port: &ServicePort| {
            service
                .spec
                .ports
                .iter()
                .any(|it| (&it.name, &it.protocol, it.port) == (&port.name, &port.protocol, port.port))
        };
        let is_complete = self.ports().iter().all(has);
        match state(&service) {
            ServiceState::Own { .. } if !is_complete => {
                let ports: Vec<_> = self.ports().iter().map(json_value).collect();
                let patch = serde_json::json!({"spec": {"ports": ports}});
                Ok(state(&self.services.patch(&self.key.name, &Patch::merge(patch)).await?))
            }
            state => Ok(state),
        }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let app = format!("{}-app", self.names.api_domain.split('.').next().unwrap_or_default());
        BTreeMap::from([
            (app, self.key.name.clone()),
            (self.names.well_known("cluster-service"), "true".to_owned()),
            (self.names.well_known("name"), "PintleDNS".to_owned()),
        ])
    }

    fn ports(&self) -> [ServicePort; 2] {
        [("dns", "UDP"), ("dns-tcp", "TCP")].map(|(name, protocol)| ServicePort {
            name: name.to_owned(),
            protocol: protocol.to_owned(),
            port: SERVICE_PORT,
            ..ServicePort::default()
        })
    }

    fn service(&self) -> Service {
        let mut service = Service {
            metadata: ObjectMeta {
                name: self.key.name.clone(),
                namespace: self.key.namespace.clone(),
                labels: self.labels(),
                ..ObjectMeta::default()
            },
            ..Service::default()
        };
        service.spec.cluster_ip = self.cluster_ip.map(|it| it.to_string()).unwrap_or_default();
        service.spec.ports = self.ports().into();
        service
    }

    fn manager_label(&self) -> String {
        self.names.well_known_under("endpointslice", "managed-by")
    }

    /// The slices of a server: one for each family of its addresses.
    fn slices_of(&self, node: &str, addresses: &[SocketAddr]) -> Vec<EndpointSlice> {
        let families = [(Family::V4, ""), (Family::V6, "-v6")];
        let slice = |(family, suffix): (Family, &str)| {
            let reachable = addresses.iter().filter(|it| is_reachable(it.ip()));
            let mut found = reachable.filter(|it| Family::of(&it.ip()) == family).peekable();
            // the endpoints of a slice have the same ports
            let port = found.peek()?.port();
            let found = found.filter(|it| it.port() == port);
            let endpoint = |it: &SocketAddr| Endpoint {
                addresses: vec![it.ip().to_string()],
                conditions: EndpointConditions { ready: Some(true), ..EndpointConditions::default() },
                node_name: Some(node.to_owned()),
                ..Endpoint::default()
            };
            let ports = self.ports().map(|it| EndpointPort {
                name: Some(it.name),
                protocol: Some(it.protocol),
                port: Some(i32::from(port)),
                ..EndpointPort::default()
            });
            Some(EndpointSlice {
                metadata: ObjectMeta {
                    name: format!("{}-{node}{suffix}", self.key.name),
                    namespace: self.key.namespace.clone(),
                    labels: BTreeMap::from([
                        (self.names.well_known("service-name"), self.key.name.clone()),
                        (self.manager_label(), SLICE_MANAGER.to_owned()),
                    ]),
                    ..ObjectMeta::default()
                },
                address_type: family.name().to_owned(),
                endpoints: found.map(endpoint).collect(),
                ports: ports.into(),
                ..EndpointSlice::default()
            })
        };
        families.into_iter().filter_map(slice).collect()
    }

    /// Keeps the service, and the slices of this server at these addresses, for ever.
    pub async fn run(
        &self,
        node: &str,
        addresses: &[SocketAddr],
        nodes: &AllowedSources,
        mut peers: PeerChecks,
    ) {
        let mut interval = Interval::new(&self.world, peers::PERIOD);
        for round in (0..CHECKS).cycle() {
            interval.tick().await;
            if round == 0
                && let Err(why) = self.announce(node, addresses, nodes).await
            {
                tracing::warn!(%why, service = %self.key, "the DNS server is not announced; the next attempt follows");
            }
            if let Err(why) = self.remove_gone(node, &mut peers).await {
                tracing::warn!(%why, service = %self.key, "the other DNS servers are not checked; the next attempt follows");
            }
        }
    }

    async fn announce(
        &self,
        node: &str,
        addresses: &[SocketAddr],
        nodes: &AllowedSources,
    ) -> Result<(), Error> {
        if let ServiceState::Foreign { .. } = self.ensure_service().await? {
            return self.withdraw(node, addresses).await;
        }
        for slice in self.slices_of(node, addresses) {
            self.keep(&slice).await?;
        }
        self.remove_stale(node, nodes).await
    }

    async fn keep(&self, slice: &EndpointSlice) -> Result<(), Error> {
        let Some(current) = self.slices.get_opt(slice.name()).await? else {
            return self.slices.submit(slice).await;
        };
        let is_same = current.endpoints == slice.endpoints
            && current.ports == slice.ports
            && slice
                .metadata
                .labels
                .iter()
                .all(|(label, value)| current.metadata.labels.get(label) == Some(value));
        if is_same {
            return Ok(());
        }
        let mut next = slice.clone();
        next.metadata.resource_version = current.metadata.resource_version;
        self.slices.replace(&next).await.map(drop)
    }

    /// Removes the slices of this server.
    pub async fn withdraw(&self, node: &str, addresses: &[SocketAddr]) -> Result<(), Error> {
        for slice in self.slices_of(node, addresses) {
            unless(404, self.slices.delete(slice.name(), &Default::default()).await)?;
        }
        Ok(())
    }

    /// The slices of all servers but this one.
    async fn other_slices(&self, own_node: &str) -> Result<Vec<EndpointSlice>, Error> {
        let params = ListParams::default().labels(format!("{}={SLICE_MANAGER}", self.manager_label()));
        let mut slices = self.slices.list(&params).await?.items;
        slices.retain(|slice| node_of(slice) != own_node);
        Ok(slices)
    }

    /// Removes slices of servers whose node is gone.
    async fn remove_stale(&self, own_node: &str, nodes: &AllowedSources) -> Result<(), Error> {
        let now = env::unix_seconds(&self.world);
        for slice in self.other_slices(own_node).await? {
            let created = slice.metadata.creation_timestamp.as_ref().map_or(now, |it| it.0);
            let is_old = now.saturating_sub(created) > STALE_AGE.as_secs() as i64;
            if is_old && !nodes.has_node(node_of(&slice)) {
                tracing::info!(slice = slice.name(), "removing the DNS server of a node that is gone");
                unless(404, self.slices.delete(slice.name(), &Default::default()).await)?;
            }
        }
        Ok(())
    }

    /// Removes slices of servers that do not answer.
    async fn remove_gone(&self, own_node: &str, peers: &mut PeerChecks) -> Result<(), Error> {
        for name in peers.gone(&self.other_slices(own_node).await?).await {
            tracing::warn!(slice = name, "removing a DNS server that does not answer");
            unless(404, self.slices.delete(&name, &Default::default()).await)?;
        }
        Ok(())
    }
}

/// The node of a slice's server.
fn node_of(slice: &EndpointSlice) -> &str {
    slice.endpoints.first().and_then(|it| it.node_name.as_deref()).unwrap_or_default()
}

/// Whether other machines reach an address; the API refuses the others as endpoints.
fn is_reachable(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(it) => it.is_link_local(),
        IpAddr::V6(it) => it.is_unicast_link_local(),
    };
    !(address.is_loopback() || address.is_unspecified() || address.is_multicast() || is_link_local)
}

fn state(service: &Service) -> ServiceState {
    let spec = &service.spec;
    let texts = [&spec.cluster_ip].into_iter().chain(&spec.cluster_ips);
    let mut addresses: Vec<IpAddr> = texts.filter_map(|it| it.parse().ok()).collect();
    addresses.dedup();
    let has_endpoints_elsewhere = !spec.selector.is_empty() || spec.type_ == "ExternalName";
    match has_endpoints_elsewhere {
        true => ServiceState::Foreign { addresses },
        false => ServiceState::Own { addresses },
    }
}
