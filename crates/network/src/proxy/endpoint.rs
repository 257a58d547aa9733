//! Endpoints of a service, and the choice of those that a node sends traffic to.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::discovery::v1::EndpointSlice;

use super::service::{ServicePort, protocol};
use crate::dns;
use crate::netfilter::{Family, Protocol};

/// An address and port that traffic is sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    pub address: IpAddr,
    pub port: u16,
}

/// The state of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub is_local: bool,
    pub is_ready: bool,
    pub is_serving: bool,
    pub is_terminating: bool,
    /// Zones that should use it.
    pub zones: Vec<String>,
}

/// The endpoints of a service port by target. Slices may repeat a target.
pub type Endpoints = BTreeMap<Target, Endpoint>;

/// An endpoint slice as the proxy needs it.
#[derive(Debug, Clone, PartialEq)]
pub struct SliceInfo {
    pub family: Family,
    pub ports: Vec<SlicePort>,
    pub endpoints: Vec<(IpAddr, Endpoint)>,
    /// Whether it has the cluster's DNS server on this node, which is used only where there is no other. In `pintle up`
    /// it ends with the process of the proxy, and after that no one would take it out of the rules.
    pub is_last_resort: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SlicePort {
    pub name: String,
    pub protocol: Protocol,
    pub port: u16,
}

/// The node of the proxy.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Topology {
    pub node_name: String,
    pub zone: Option<String>,
}

/// The endpoints that traffic is sent to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UsableEndpoints {
    /// For the policy Cluster.
    pub cluster: Vec<Target>,
    /// For the policy Local.
    pub local: Vec<Target>,
    /// Some node of the cluster has a usable endpoint.
    pub has_any: bool,
}

impl SliceInfo {
    /// The endpoints of a slice; none if its addresses are host names.
    pub fn read(slice: &EndpointSlice, node_name: &str) -> Option<Self> {
        let family = match slice.address_type.as_str() {
            "IPv4" => Family::Ipv4,
            "IPv6" => Family::Ipv6,
            _ => return None,
        };
        let ports = slice.ports.iter().filter_map(|port| {
            Some(SlicePort {
                name: port.name.clone()?,
                protocol: protocol(port.protocol.as_deref().unwrap_or_default())?,
                port: u16::try_from(port.port?).ok().filter(|port| *port != 0)?,
            })
        });
        let endpoints = slice.endpoints.iter().filter_map(|endpoint| {
            let address: IpAddr = endpoint.addresses.first()?.parse().ok()?;
            let conditions = &endpoint.conditions;
            let hints = endpoint.hints.as_ref();
            let zones = hints.map(|hints| hints.for_zones.iter().map(|zone| zone.name.clone()).collect());
            let state = Endpoint {
                is_local: !node_name.is_empty() && endpoint.node_name.as_deref() == Some(node_name),
                is_ready: conditions.ready.unwrap_or(true),
                is_serving: conditions.serving.unwrap_or(true),
                is_terminating: conditions.terminating.unwrap_or(false),
                zones: zones.unwrap_or_default(),
            };
            (Family::of(address) == family).then_some((address, state))
        });
        let endpoints: Vec<(IpAddr, Endpoint)> = endpoints.collect();
        let is_dns = slice.metadata.labels.values().any(|label| label == dns::SLICE_MANAGER);
        let is_last_resort = is_dns && endpoints.iter().all(|(_, endpoint)| endpoint.is_local);
        Some(Self { family, ports: ports.collect(), endpoints, is_last_resort })
    }
}

/// The endpoints of a service port in the slices of its service.
pub fn endpoints_of<'a>(
    port: &ServicePort,
    family: Family,
    slices: impl IntoIterator<Item = &'a SliceInfo>,
) -> Endpoints {
    let mut endpoints = Endpoints::new();
    let mut slices: Vec<&SliceInfo> = slices.into_iter().filter(|slice| slice.family == family).collect();
    let is_ready = |slice: &&SliceInfo| slice.endpoints.iter().any(|(_, endpoint)| endpoint.is_ready);
    if slices.iter().filter(|slice| !slice.is_last_resort).any(is_ready) {
        slices.retain(|slice| !slice.is_last_resort);
    }
    for slice in slices {
        let is_same =
            |candidate: &&SlicePort| candidate.name == port.name && candidate.protocol == port.protocol;
        for number in slice.ports.iter().filter(is_same).map(|port| port.port) {
            for (address, endpoint) in &slice.endpoints {
                let target = Target { address: *address, port: number };
                // a target that two slices have is local if one of them says so
                if endpoint.is_local || !endpoints.contains_key(&target) {
                    endpoints.insert(target, endpoint.clone());
                }
            }
        }
    }
    endpoints
}

/// Chooses endpoints as upstream does: those that are ready, in the zone if the service asks for it and all endpoints
/// have hints, and else those that still serve while they terminate.
pub fn usable_endpoints(
    endpoints: &Endpoints,
    port: &ServicePort,
    zone: Option<&str>,
    has_terminating_fallback: bool,
) -> UsableEndpoints {
    let mut usable = UsableEndpoints::default();
    let select = |is_selected: &dyn Fn(&Endpoint) -> bool| -> Vec<Target> {
        endpoints.iter().filter(|(_, endpoint)| is_selected(endpoint)).map(|(target, _)| *target).collect()
    };
    let is_draining = |endpoint: &Endpoint| {
        has_terminating_fallback && endpoint.is_serving && endpoint.is_terminating && !endpoint.is_ready
    };
    if port.uses_cluster_endpoints() {
        let zone = zone.filter(|zone| has_hints_for(endpoints, port, zone));
        let in_zone =
            |endpoint: &Endpoint| zone.is_none_or(|zone| endpoint.zones.iter().any(|it| it == zone));
        usable.cluster = select(&|endpoint| endpoint.is_ready && in_zone(endpoint));
        if usable.cluster.is_empty() {
            usable.cluster = select(&is_draining);
        }
        usable.has_any = !usable.cluster.is_empty();
    }
    if port.uses_local_endpoints() {
        usable.has_any |= endpoints.values().any(|endpoint| endpoint.is_ready || is_draining(endpoint));
        usable.local = select(&|endpoint| endpoint.is_local && endpoint.is_ready);
        if usable.local.is_empty() {
            usable.local = select(&|endpoint| endpoint.is_local && is_draining(endpoint));
        }
    }
    usable
}

/// Whether every ready endpoint has hints, and one of them is for this zone.
fn has_hints_for(endpoints: &Endpoints, port: &ServicePort, zone: &str) -> bool {
    let ready = || endpoints.values().filter(|endpoint| endpoint.is_ready);
    port.has_topology_hints
        && ready().all(|endpoint| !endpoint.zones.is_empty())
        && ready().any(|endpoint| endpoint.zones.iter().any(|it| it == zone))
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: Endpoint = Endpoint {
        is_local: false,
        is_ready: true,
        is_serving: true,
        is_terminating: false,
        zones: Vec::new(),
    };
    const DRAINING: Endpoint = Endpoint {
        is_local: false,
        is_ready: false,
        is_serving: true,
        is_terminating: true,
        zones: Vec::new(),
    };

    fn port() -> ServicePort {
        ServicePort {
            name: String::new(),
            protocol: Protocol::TCP,
            port: 80,
            node_port: None,
            cluster_ip: [10, 96, 0, 1].into(),
            external_ips: Vec::new(),
            load_balancer_ips: Vec::new(),
            source_ranges: Vec::new(),
            affinity: None,
            is_internal_local: false,
            is_external_local: false,
            has_topology_hints: false,
        }
    }

    /// The last bytes of the addresses that are chosen, for all and for local traffic.
    fn choose(endpoints: &[Endpoint], port: &ServicePort, zone: Option<&str>) -> (Vec<u8>, Vec<u8>, bool) {
        let target = |at: usize| Target { address: [10, 1, 0, at as u8].into(), port: 80 };
        let all =
            endpoints.iter().cloned().enumerate().map(|(at, endpoint)| (target(at), endpoint)).collect();
        let usable = usable_endpoints(&all, port, zone, true);
        let last = |targets: &[Target]| {
            let octet = |target: &Target| match target.address {
                IpAddr::V4(address) => address.octets()[3],
                IpAddr::V6(_) => panic!("IPv4 expected"),
            };
            targets.iter().map(octet).collect()
        };
        (last(&usable.cluster), last(&usable.local), usable.has_any)
    }

    #[test]
    fn ready_endpoints_are_used_and_draining_ones_if_there_are_none() {
        let not_ready = Endpoint { is_ready: false, is_serving: false, ..READY };
        assert_eq!(choose(&[READY, not_ready.clone(), DRAINING], &port(), None), (vec![0], vec![], true));
        assert_eq!(choose(&[not_ready.clone(), DRAINING], &port(), None), (vec![1], vec![], true));
        assert_eq!(choose(&[not_ready], &port(), None), (vec![], vec![], false));
        let slow = Endpoint { is_serving: false, ..DRAINING };
        assert_eq!(choose(&[slow], &port(), None), (vec![], vec![], false));
    }

    #[test]
    fn the_dns_server_of_the_own_node_is_used_if_there_is_no_other() {
        let slice = |node: &str, address: &str, manager: &str| {
            let json = format!(
                r#"{{"metadata":{{"labels":{{"managed-by":"{manager}"}}}},"addressType":"IPv4","ports":[{{"name":"",
                "port":53,"protocol":"TCP"}}],"endpoints":[{{"addresses":["{address}"],"nodeName":"{node}"}}]}}"#
            );
            SliceInfo::read(&api::from_json(json.as_bytes()).unwrap(), "own").unwrap()
        };
        let used = |slices: &[&SliceInfo]| -> Vec<String> {
            let endpoints = endpoints_of(&port(), Family::Ipv4, slices.iter().copied());
            endpoints.keys().map(|target| target.address.to_string()).collect()
        };
        let (own, other) =
            (slice("own", "10.0.0.1", dns::SLICE_MANAGER), slice("b", "10.0.0.2", dns::SLICE_MANAGER));
        assert_eq!(used(&[&own, &other]), ["10.0.0.2"]);
        assert_eq!(used(&[&own]), ["10.0.0.1"]);
        let of_a_service = slice("own", "10.0.0.1", "x");
        assert_eq!(used(&[&of_a_service, &other]), ["10.0.0.1", "10.0.0.2"]);
    }

    #[test]
    fn local_policies_use_endpoints_of_the_node() {
        let internal = ServicePort { is_internal_local: true, ..port() };
        let local = Endpoint { is_local: true, ..READY };
        // without external addresses there is no use for the others
        assert_eq!(choose(&[READY, local.clone()], &internal, None), (vec![], vec![1], true));
        assert_eq!(choose(&[READY], &internal, None), (vec![], vec![], true));
        let local_draining = Endpoint { is_local: true, ..DRAINING };
        assert_eq!(choose(&[READY, local_draining.clone()], &internal, None), (vec![], vec![1], true));
        let external = ServicePort { is_external_local: true, node_port: Some(30000), ..port() };
        assert_eq!(choose(&[READY, local, local_draining], &external, None), (vec![0, 1], vec![1], true));
    }

    #[test]
    fn hints_are_followed_if_all_ready_endpoints_have_them() {
        let hinted = ServicePort { has_topology_hints: true, ..port() };
        let of = |zone: &str| Endpoint { zones: vec![zone.to_owned()], ..READY };
        assert_eq!(choose(&[of("a"), of("b")], &hinted, Some("a")).0, [0]);
        assert_eq!(choose(&[of("a"), of("b")], &hinted, None).0, [0, 1]);
        assert_eq!(choose(&[of("a"), of("b")], &hinted, Some("c")).0, [0, 1]);
        assert_eq!(choose(&[of("a"), of("b"), READY], &hinted, Some("a")).0, [0, 1, 2]);
        assert_eq!(choose(&[of("a"), of("b")], &port(), Some("a")).0, [0, 1]);
        // the policy Local takes no hints
        let local = Endpoint { is_local: true, ..of("b") };
        let both = ServicePort { is_external_local: true, node_port: Some(30000), ..hinted };
        assert_eq!(choose(&[of("a"), local], &both, Some("a")), (vec![0], vec![1], true));
    }
}
