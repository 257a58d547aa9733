//! Services and endpoint slices for tests.

use std::collections::BTreeMap;

use api::core::v1::{
    ClientIPConfig, LoadBalancerIngress, Service, ServicePort, ServiceSpec, SessionAffinityConfig,
};
use api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use names::Names;

pub(super) const NODE: &str = "node-1";

/// A service with one address and one port.
pub(super) fn service(name: &str, cluster_ip: &str, port: i32, protocol: &str) -> Service {
    let mut service = Service::default();
    service.metadata.namespace = "default".to_owned();
    service.metadata.name = name.to_owned();
    service.spec = ServiceSpec {
        type_: "ClusterIP".to_owned(),
        cluster_ip: cluster_ip.to_owned(),
        cluster_ips: vec![cluster_ip.to_owned()],
        ports: vec![ServicePort { port, protocol: protocol.to_owned(), ..ServicePort::default() }],
        ..ServiceSpec::default()
    };
    service
}

pub(super) trait ServiceBuilder {
    fn node_port(self, port: i32) -> Self;
    fn external_ip(self, address: &str) -> Self;
    fn load_balancer(self, address: &str, ranges: &[&str]) -> Self;
    fn external_local(self) -> Self;
    fn internal_local(self) -> Self;
    fn affinity(self, seconds: i32) -> Self;
}

impl ServiceBuilder for Service {
    fn node_port(mut self, port: i32) -> Self {
        self.spec.type_ = "NodePort".to_owned();
        self.spec.ports[0].node_port = port;
        self
    }

    fn external_ip(mut self, address: &str) -> Self {
        self.spec.external_ips.push(address.to_owned());
        self
    }

    fn load_balancer(mut self, address: &str, ranges: &[&str]) -> Self {
        self.spec.type_ = "LoadBalancer".to_owned();
        let ingress = LoadBalancerIngress { ip: address.to_owned(), ..LoadBalancerIngress::default() };
        self.status.load_balancer.ingress.push(ingress);
        self.spec.load_balancer_source_ranges = ranges.iter().map(|range| (*range).to_owned()).collect();
        self
    }

    fn external_local(mut self) -> Self {
        self.spec.external_traffic_policy = "Local".to_owned();
        self
    }

    fn internal_local(mut self) -> Self {
        self.spec.internal_traffic_policy = Some("Local".to_owned());
        self
    }

    fn affinity(mut self, seconds: i32) -> Self {
        self.spec.session_affinity = "ClientIP".to_owned();
        let client_ip = ClientIPConfig { timeout_seconds: Some(seconds), ..ClientIPConfig::default() };
        self.spec.session_affinity_config = Some(Box::new(SessionAffinityConfig {
            client_ip: Some(Box::new(client_ip)),
            ..SessionAffinityConfig::default()
        }));
        self
    }
}

/// An endpoint: an address, the node that has it, whether it is ready, whether it terminates.
pub(super) fn endpoint(address: &str, node: &str, is_ready: bool, is_terminating: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.to_owned()],
        node_name: Some(node.to_owned()),
        conditions: EndpointConditions {
            ready: Some(is_ready && !is_terminating),
            serving: Some(is_ready),
            terminating: Some(is_terminating),
            ..EndpointConditions::default()
        },
        ..Endpoint::default()
    }
}

/// A slice of a service made by [`service`].
pub(super) fn slice(service: &str, port: i32, protocol: &str, endpoints: Vec<Endpoint>) -> EndpointSlice {
    let mut slice = EndpointSlice::default();
    slice.metadata.namespace = "default".to_owned();
    slice.metadata.name = format!("{service}-1");
    let label = Names::kubernetes().well_known("service-name");
    slice.metadata.labels = BTreeMap::from([(label, service.to_owned())]);
    let is_ipv6 = endpoints.first().is_some_and(|endpoint| endpoint.addresses[0].contains(':'));
    slice.address_type = if is_ipv6 { "IPv6" } else { "IPv4" }.to_owned();
    slice.endpoints = endpoints;
    slice.ports = vec![EndpointPort {
        name: Some(String::new()),
        protocol: Some(protocol.to_owned()),
        port: Some(port),
        ..EndpointPort::default()
    }];
    slice
}
