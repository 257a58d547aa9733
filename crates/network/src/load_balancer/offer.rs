//! Which ports a node offers.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use api::core::v1::Service;

use crate::netfilter::Protocol;

/// Ports with their protocols, as services name them, in the text of the annotation: `443/TCP,80/TCP`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Offer(BTreeSet<String>);

impl Offer {
    /// The text of the annotation; `None` if no port is offered.
    pub fn text(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.iter().cloned().collect::<Vec<_>>().join(","))
    }
}

/// The ports that services want and that are free. A port that the node serves already stays offered: a process that
/// listens on it later takes no address away.
pub fn offer(
    services: &[Arc<Service>],
    node_addresses: &[IpAddr],
    is_free: impl Fn(Protocol, u16) -> bool,
) -> Offer {
    let mut offer = Offer::default();
    for service in services.iter().filter(|service| is_candidate(service)) {
        let ingress = &service.status.load_balancer.ingress;
        let is_served = ingress
            .iter()
            .any(|it| it.ip.parse().is_ok_and(|address: IpAddr| node_addresses.contains(&address)));
        for port in &service.spec.ports {
            let name = if port.protocol.is_empty() { "TCP" } else { &port.protocol };
            let number = u16::try_from(port.port).ok().filter(|number| *number != 0);
            let (Some(protocol), Some(number)) = (Protocol::from_name(name), number) else { continue };
            if is_served || is_free(protocol, number) {
                offer.0.insert(format!("{number}/{name}"));
            }
        }
    }
    offer
}

fn is_candidate(service: &Service) -> bool {
    service.spec.type_ == "LoadBalancer"
        && service.spec.load_balancer_class.is_none()
        && service.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::core::v1::{LoadBalancerIngress, ServicePort};

    fn service(port: i32, protocol: &str, ip: &str) -> Service {
        let mut service = Service::default();
        service.spec.type_ = "LoadBalancer".to_owned();
        service.spec.ports =
            vec![ServicePort { port, protocol: protocol.to_owned(), ..ServicePort::default() }];
        if !ip.is_empty() {
            let ingress = LoadBalancerIngress { ip: ip.to_owned(), ..LoadBalancerIngress::default() };
            service.status.load_balancer.ingress = vec![ingress];
        }
        service
    }

    fn check(services: Vec<Service>, expected: Option<&str>) {
        let services: Vec<_> = services.into_iter().map(Arc::new).collect();
        let node = ["192.168.1.1".parse().unwrap()];
        let offered = offer(&services, &node, |protocol, port| (protocol, port) != (Protocol::TCP, 22));
        assert_eq!(offered.text().as_deref(), expected);
    }

    #[test]
    fn free_ports_that_services_want_are_offered() {
        check(vec![], None);
        check(
            vec![service(80, "TCP", ""), service(80, "", ""), service(53, "UDP", "")],
            Some("53/UDP,80/TCP"),
        );
        check(vec![service(22, "TCP", "")], None);
        check(vec![service(22, "UDP", "")], Some("22/UDP"));
        // this node serves it, another one does
        check(vec![service(22, "TCP", "192.168.1.1")], Some("22/TCP"));
        check(vec![service(22, "TCP", "192.168.1.2")], None);
    }

    #[test]
    fn services_of_other_load_balancers_want_nothing() {
        let mut classed = service(80, "TCP", "");
        classed.spec.load_balancer_class = Some("other".to_owned());
        let mut node_port = service(80, "TCP", "");
        node_port.spec.type_ = "NodePort".to_owned();
        check(vec![classed, node_port], None);
    }
}
