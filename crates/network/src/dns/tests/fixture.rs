//! A server with a small cluster: services of every kind, in two namespaces.

use crate::dns::records::{Records, ServiceSource, SliceSource};
use crate::dns::{
    AllowedSources, Authority, ForwardOptions, Forwarder, Handler, Metrics, Reply, Transport, records,
};
use api::core::v1::{Service, ServicePort};
use api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use apimachinery::net::Network;
use client::Key;
use env::World;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use metrics::Registry;
use std::net::IpAddr;
use std::sync::Arc;

pub const POD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 244, 0, 99));

/// The objects of the server.
pub struct Cluster {
    pub records: Arc<Records>,
    pub sources: Arc<AllowedSources>,
    pub registry: Registry,
    pub handler: Arc<Handler>,
    pub forwarder: Arc<Forwarder>,
}

pub fn world() -> World {
    env::Seeded::new(1_700_000_000, 7)
}

pub fn name(text: &str) -> Name {
    let mut name = Name::from_ascii(text).unwrap();
    name.set_fqdn(true);
    name
}

pub fn service(namespace: &str, name: &str, addresses: &[&str], ports: &[(&str, &str, i32)]) -> Service {
    let mut service = Service::default();
    (service.metadata.namespace, service.metadata.name) = (namespace.to_owned(), name.to_owned());
    service.spec.type_ = "ClusterIP".to_owned();
    service.spec.cluster_ip = addresses.first().unwrap_or(&"None").to_string();
    service.spec.cluster_ips = match addresses.is_empty() {
        true => vec!["None".to_owned()],
        false => addresses.iter().map(ToString::to_string).collect(),
    };
    let port = |(name, protocol, port): &(&str, &str, i32)| ServicePort {
        name: name.to_string(),
        protocol: protocol.to_string(),
        port: *port,
        ..ServicePort::default()
    };
    service.spec.ports = ports.iter().map(port).collect();
    service
}

pub fn alias(namespace: &str, name: &str, target: &str) -> Service {
    let mut service = service(namespace, name, &[], &[]);
    service.spec.type_ = "ExternalName".to_owned();
    service.spec.external_name = target.to_owned();
    (service.spec.cluster_ip, service.spec.cluster_ips) = (String::new(), Vec::new());
    service
}

/// A slice; an endpoint is its address, host name (or none), and whether it is ready.
pub fn slice(endpoints: &[(&str, &str, Option<bool>)], ports: &[(&str, &str, i32)]) -> EndpointSlice {
    let endpoint = |(address, hostname, ready): &(&str, &str, Option<bool>)| {
        let mut endpoint = Endpoint { addresses: vec![address.to_string()], ..Endpoint::default() };
        endpoint.hostname = Some(hostname.to_string()).filter(|it| !it.is_empty());
        endpoint.conditions.ready = *ready;
        endpoint
    };
    let port = |(name, protocol, port): &(&str, &str, i32)| EndpointPort {
        name: Some(name.to_string()),
        protocol: Some(protocol.to_string()),
        port: Some(*port),
        ..EndpointPort::default()
    };
    EndpointSlice {
        endpoints: endpoints.iter().map(endpoint).collect(),
        ports: ports.iter().map(port).collect(),
        ..EndpointSlice::default()
    }
}

pub fn put(records: &Records, service: &Service) {
    records.set_service(&Key::of(service), Some(ServiceSource::new(service)));
}

pub fn put_slice(records: &Records, service: (&str, &str), name: &str, slice: &EndpointSlice) {
    records.set_slice(&Key::new(service.0, service.1), name, Some(SliceSource::new(slice)));
}

/// A server without services, which forwards as the options say.
pub fn empty(options: ForwardOptions) -> Cluster {
    let zone = name("cluster.local");
    let records = Arc::new(records::Records::new(&zone, 1));
    let ranges = ["10.96.0.0/12", "10.244.0.0/16", "fd00:96::/112"];
    let ranges: Vec<_> = ranges.into_iter().map(|it| Network::parse(it).unwrap()).collect();
    let authority = Authority::new(zone, ranges.clone(), &Key::new("kube-system", "kube-dns")).unwrap();
    let sources = Arc::new(AllowedSources::new(ranges));
    let registry = Registry::default();
    let metrics = Metrics::new(&registry, "cluster.local", 10053);
    let forwarder = Arc::new(Forwarder::new(options, metrics.clone(), &world()));
    let handler = Handler::new(authority, records.clone(), sources.clone(), forwarder.clone(), metrics);
    Cluster { records, sources, registry, handler: Arc::new(handler), forwarder }
}

/// A server with services of every kind.
pub fn cluster() -> Cluster {
    let cluster = empty(ForwardOptions::default());
    let records = &cluster.records;
    for namespace in ["default", "shop", "kube-system"] {
        records.set_namespace(namespace, true);
    }
    put(
        records,
        &service("kube-system", "kube-dns", &["10.96.0.10"], &[("dns", "UDP", 53), ("dns-tcp", "TCP", 53)]),
    );
    let ports = [("http", "TCP", 80), ("https", "TCP", 443), ("quic", "UDP", 443), ("", "TCP", 9)];
    put(records, &service("shop", "web", &["10.96.0.20", "fd00:96::20"], &ports));
    put(records, &service("shop", "db", &[], &[("sql", "TCP", 5432)]));
    let endpoints =
        [("10.244.0.7", "db-0", Some(true)), ("10.244.0.8", "", None), ("10.244.0.9", "db-2", Some(false))];
    put_slice(records, ("shop", "db"), "db-a", &slice(&endpoints, &[("sql", "TCP", 5432)]));
    let endpoints = [("fd00:244::7", "db-0", Some(true)), ("fd00:244::8", "", Some(true))];
    put_slice(records, ("shop", "db"), "db-b", &slice(&endpoints, &[("sql", "TCP", 5433)]));
    let mut early = service("shop", "early", &[], &[]);
    early.spec.publish_not_ready_addresses = true;
    put(records, &early);
    put_slice(records, ("shop", "early"), "a", &slice(&[("10.244.1.1", "", Some(false))], &[]));
    put(records, &service("shop", "idle", &[], &[]));
    put(records, &alias("shop", "in", "web.shop.svc.cluster.local"));
    put(records, &alias("shop", "twice", "in.shop.svc.Cluster.Local."));
    put(records, &alias("shop", "lost", "nowhere.shop.svc.cluster.local"));
    put(records, &alias("shop", "round", "again.shop.svc.cluster.local"));
    put(records, &alias("shop", "again", "round.shop.svc.cluster.local"));
    put(records, &alias("shop", "out", "example.org"));
    put(records, &alias("shop", "address", "192.0.2.9"));
    cluster
}

/// A query as bytes; `payload` is that of an OPT record.
pub fn query(text: &str, kind: RecordType, payload: Option<u16>) -> Vec<u8> {
    let mut message = Message::new(4711, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name(text), kind));
    if let Some(payload) = payload {
        let mut edns = Edns::new();
        edns.set_max_payload(payload);
        message.set_edns(edns);
    }
    message.to_vec().unwrap()
}

/// The bytes of the answer; `None` if there is none.
pub async fn respond(
    handler: &Handler,
    packet: &[u8],
    source: IpAddr,
    transport: Transport,
) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match handler.handle(packet, source, transport, &mut out) {
        Reply::None => return None,
        Reply::Ready => {}
        Reply::Pending(pending) => handler.finish(*pending, &mut out).await,
    }
    Some(out)
}

/// The answer to a question of a pod.
pub async fn ask(handler: &Handler, text: &str, kind: RecordType) -> Message {
    let answer = respond(handler, &query(text, kind, None), POD, Transport::Tcp).await.unwrap();
    let message = Message::from_vec(&answer).unwrap();
    assert_eq!((message.metadata.id, message.metadata.message_type), (4711, MessageType::Response));
    message
}

/// The data of a record, as text.
pub fn data(record: &Record) -> String {
    match &record.data {
        RData::TXT(txt) => String::from_utf8_lossy(&txt.txt_data[0]).into_owned(),
        other => other.to_string(),
    }
}
