//! Which services get the addresses of the node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::core::v1::Service;
use client::Key;

use crate::netfilter::Protocol;

/// The addresses of services whose status is to be changed.
pub type Assignments = BTreeMap<Key, Vec<IpAddr>>;

/// Assigns the node's addresses to services. Those that have them keep them; the others follow in the order of their
/// creation.
pub fn assign(
    services: &[Arc<Service>],
    node_addresses: &[IpAddr],
    is_free: impl Fn(Protocol, u16) -> bool,
) -> Assignments {
    let mut taken: BTreeSet<(Protocol, u16)> = services
        .iter()
        .flat_map(|service| &service.spec.ports)
        .filter_map(|port| Some((protocol(&port.protocol)?, number(port.node_port)?)))
        .collect();
    for service in services {
        let at_node = |text: &String| text.parse().is_ok_and(|address| node_addresses.contains(&address));
        if service.spec.external_ips.iter().any(at_node) {
            taken.extend(ports(service));
        }
    }
    let mut candidates: Vec<&Arc<Service>> =
        services.iter().filter(|service| is_candidate(service, node_addresses)).collect();
    candidates.sort_by_key(|service| {
        let metadata = &service.metadata;
        let created = metadata.creation_timestamp;
        (current(service).is_empty(), created, metadata.namespace.clone(), metadata.name.clone())
    });
    let mut changes = Assignments::new();
    for service in candidates {
        let current = current(service);
        let ports: BTreeSet<_> = ports(service).collect();
        let is_new = current.is_empty();
        let fits = ports.iter().all(|(protocol, port)| {
            !taken.contains(&(*protocol, *port)) && (!is_new || is_free(*protocol, *port))
        });
        let desired = if fits { addresses(service, node_addresses) } else { Vec::new() };
        if !desired.is_empty() {
            taken.extend(ports);
        }
        if desired != current {
            changes.insert(Key::of(&**service), desired);
        }
    }
    changes
}

/// A service that no other load balancer serves.
fn is_candidate(service: &Service, node_addresses: &[IpAddr]) -> bool {
    let ingress = &service.status.load_balancer.ingress;
    let is_own = ingress
        .iter()
        .all(|ingress| ingress.ip.parse().is_ok_and(|address| node_addresses.contains(&address)));
    service.spec.type_ == "LoadBalancer"
        && service.spec.load_balancer_class.is_none()
        && service.metadata.deletion_timestamp.is_none()
        && is_own
}

fn current(service: &Service) -> Vec<IpAddr> {
    service.status.load_balancer.ingress.iter().filter_map(|ingress| ingress.ip.parse().ok()).collect()
}

/// One address of each family of the service; the one that the service asks for, if it does.
fn addresses(service: &Service, node_addresses: &[IpAddr]) -> Vec<IpAddr> {
    if let Ok(address) = service.spec.load_balancer_ip.parse::<IpAddr>() {
        return node_addresses.iter().copied().filter(|own| *own == address).collect();
    }
    let of_family = |family: &String| {
        let is_ipv4 = family == "IPv4";
        node_addresses.iter().copied().find(|address| address.is_ipv4() == is_ipv4)
    };
    service.spec.ip_families.iter().filter_map(of_family).collect()
}

fn ports(service: &Service) -> impl Iterator<Item = (Protocol, u16)> {
    let ports = service.spec.ports.iter();
    ports.filter_map(|port| Some((protocol(&port.protocol)?, number(port.port)?)))
}

fn number(port: i32) -> Option<u16> {
    u16::try_from(port).ok().filter(|port| *port != 0)
}

fn protocol(name: &str) -> Option<Protocol> {
    if name.is_empty() { Some(Protocol::TCP) } else { Protocol::from_name(name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::core::v1::{LoadBalancerIngress, ServicePort};

    const NODE: [IpAddr; 2] = [
        IpAddr::V4(std::net::Ipv4Addr::new(192, 168, 1, 1)),
        IpAddr::V6(std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)),
    ];

    fn service(name: &str, port: i32, ip: &str) -> Service {
        let mut service = Service::default();
        service.metadata.name = name.to_owned();
        service.spec.type_ = "LoadBalancer".to_owned();
        service.spec.ip_families = vec!["IPv4".to_owned()];
        service.spec.ports = vec![ServicePort { port, ..ServicePort::default() }];
        if !ip.is_empty() {
            let ingress = LoadBalancerIngress { ip: ip.to_owned(), ..LoadBalancerIngress::default() };
            service.status.load_balancer.ingress = vec![ingress];
        }
        service
    }

    fn check(services: Vec<Service>, expected: &[(&str, &str)]) {
        let services: Vec<_> = services.into_iter().map(Arc::new).collect();
        let changes = assign(&services, &NODE, |_, port| port != 22);
        let found: Vec<_> = changes
            .iter()
            .map(|(key, addresses)| {
                let texts: Vec<_> = addresses.iter().map(IpAddr::to_string).collect();
                (key.name.clone(), texts.join(","))
            })
            .collect();
        let expected: Vec<_> =
            expected.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn services_get_the_node_address_if_their_ports_are_free() {
        check(
            vec![service("a", 80, ""), service("b", 80, ""), service("c", 81, "")],
            &[("a", "192.168.1.1"), ("c", "192.168.1.1")],
        );
        // the one that has the port keeps it
        check(vec![service("a", 80, ""), service("b", 80, "192.168.1.1")], &[]);
        // a process listens; another service has the node port
        check(vec![service("a", 22, "")], &[]);
        let mut node_port = service("b", 90, "");
        node_port.spec.type_ = "NodePort".to_owned();
        node_port.spec.ports[0].node_port = 80;
        check(vec![service("a", 80, ""), node_port], &[]);
    }

    #[test]
    fn services_of_others_are_left_alone() {
        let mut classed = service("a", 80, "");
        classed.spec.load_balancer_class = Some("other".to_owned());
        check(vec![classed, service("b", 81, "1.2.3.4")], &[]);
        let mut dual = service("c", 80, "");
        dual.spec.ip_families.push("IPv6".to_owned());
        let mut requested = service("d", 82, "");
        requested.spec.load_balancer_ip = "1.2.3.4".to_owned();
        check(vec![dual, requested], &[("c", "192.168.1.1,fd00::1")]);
    }
}
