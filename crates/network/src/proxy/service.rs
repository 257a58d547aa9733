//! A service as the proxy sees it: its ports with the addresses of one family.

use std::net::IpAddr;
use std::time::Duration;

use api::core::v1;
use names::Names;

use crate::netfilter::{Family, Prefix, Protocol};

/// Services of this type are names for others.
const EXTERNAL_NAME: &str = "ExternalName";
/// The cluster IP of a headless service.
const NO_ADDRESS: &str = "None";
const LOCAL: &str = "Local";
const CLIENT_IP: &str = "ClientIP";

/// The timeout of affinity for a service without one, which the API server does not store.
const DEFAULT_AFFINITY_TIMEOUT: Duration = Duration::from_secs(10_800);

/// The addresses and ports of a service in one family.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ServiceInfo {
    pub ports: Vec<ServicePort>,
    /// The port on which nodes report their local endpoints.
    pub health_check_node_port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ServicePort {
    /// The name, by which ports of endpoint slices refer to it.
    pub name: String,
    pub protocol: Protocol,
    pub port: u16,
    pub node_port: Option<u16>,
    pub cluster_ip: IpAddr,
    pub external_ips: Vec<IpAddr>,
    pub load_balancer_ips: Vec<IpAddr>,
    /// Networks that may use the load balancer's addresses; all if empty.
    pub source_ranges: Vec<Prefix>,
    /// How long a client stays with its endpoint.
    pub affinity: Option<Duration>,
    pub is_internal_local: bool,
    pub is_external_local: bool,
    /// The service asks for endpoints of the same zone.
    pub has_topology_hints: bool,
}

impl ServicePort {
    pub fn is_externally_accessible(&self) -> bool {
        self.node_port.is_some() || !self.load_balancer_ips.is_empty() || !self.external_ips.is_empty()
    }

    /// Even with the policy Local, clients on this node reach external addresses through all endpoints.
    pub fn uses_cluster_endpoints(&self) -> bool {
        !self.is_internal_local || self.is_externally_accessible()
    }

    pub fn uses_local_endpoints(&self) -> bool {
        self.is_internal_local || self.is_external_local && self.is_externally_accessible()
    }
}

/// Whether a label of a service or endpoint slice says that others handle it: another proxy, or none if it is headless.
pub fn is_handled_by_others(labels: &std::collections::BTreeMap<String, String>, names: &Names) -> bool {
    labels.keys().any(|label| {
        names.is_well_known_under(label, "service", "service-proxy-name")
            || names.is_well_known_under(label, "service", "headless")
    })
}

/// The ports of a service in one family, unless it has no address there.
pub fn service_info(service: &v1::Service, family: Family, names: &Names) -> Option<ServiceInfo> {
    let spec = &service.spec;
    if is_handled_by_others(&service.metadata.labels, names)
        || spec.type_ == EXTERNAL_NAME
        || spec.cluster_ip.is_empty()
        || spec.cluster_ip == NO_ADDRESS
    {
        return None;
    }
    let cluster_ip = cluster_ip(spec, family)?;
    let has_external_policy = matches!(spec.type_.as_str(), "NodePort" | "LoadBalancer");
    let is_external_local = has_external_policy && spec.external_traffic_policy == LOCAL;
    let hints_name = names.well_known_under("service", "topology-aware-hints");
    let hints = service.metadata.annotations.get(&hints_name).map(String::as_str);
    let ingress = &service.status.load_balancer.ingress;
    let port = |port: &v1::ServicePort| {
        Some(ServicePort {
            name: port.name.clone(),
            protocol: protocol(&port.protocol)?,
            port: u16::try_from(port.port).ok().filter(|port| *port != 0)?,
            node_port: u16::try_from(port.node_port).ok().filter(|port| *port != 0),
            cluster_ip,
            external_ips: addresses(spec.external_ips.iter().map(String::as_str), family),
            load_balancer_ips: addresses(ingress.iter().map(|ingress| ingress.ip.as_str()), family),
            source_ranges: networks(&spec.load_balancer_source_ranges, family),
            affinity: affinity(spec),
            is_internal_local: spec.internal_traffic_policy.as_deref() == Some(LOCAL),
            is_external_local,
            has_topology_hints: matches!(hints, Some("Auto" | "auto")),
        })
    };
    let needs_health_check = spec.type_ == "LoadBalancer" && is_external_local;
    let health_check = u16::try_from(spec.health_check_node_port).ok().filter(|port| *port != 0);
    Some(ServiceInfo {
        ports: spec.ports.iter().filter_map(port).collect(),
        health_check_node_port: health_check.filter(|_| needs_health_check),
    })
}

/// The protocol of a port; the default is TCP.
pub(super) fn protocol(name: &str) -> Option<Protocol> {
    if name.is_empty() { Some(Protocol::TCP) } else { Protocol::from_name(name) }
}

fn cluster_ip(spec: &v1::ServiceSpec, family: Family) -> Option<IpAddr> {
    let of_spec = addresses(spec.cluster_ips.iter().map(String::as_str), family);
    // objects from before there were two families have the one address only
    let legacy = || addresses([spec.cluster_ip.as_str()], family);
    of_spec.into_iter().next().or_else(|| legacy().into_iter().next())
}

fn addresses<'a>(texts: impl IntoIterator<Item = &'a str>, family: Family) -> Vec<IpAddr> {
    let parsed = texts.into_iter().filter_map(|text| text.parse().ok());
    let mut addresses: Vec<IpAddr> = parsed.filter(|address| Family::of(*address) == family).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

fn networks(texts: &[String], family: Family) -> Vec<Prefix> {
    let parsed = texts.iter().filter_map(|text| text.parse::<Prefix>().ok());
    parsed.filter(|prefix| Family::of(prefix.first()) == family).collect()
}

fn affinity(spec: &v1::ServiceSpec) -> Option<Duration> {
    if spec.session_affinity != CLIENT_IP {
        return None;
    }
    let client_ip = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    let seconds = client_ip.and_then(|config| config.timeout_seconds);
    let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
    Some(seconds.map_or(DEFAULT_AFFINITY_TIMEOUT, Duration::from_secs))
}
