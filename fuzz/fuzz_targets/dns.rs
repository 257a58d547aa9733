//! DNS: packets of pods and answers of other servers. An answer is one of its query, no longer than a client takes.

#![no_main]

use api::core::v1::{Service, ServicePort};
use api::discovery::v1::{Endpoint, EndpointSlice};
use apimachinery::net::Network;
use client::Key;
use env::{Simulated, World};
use fuzz::duplex::run;
use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RecordType};
use libfuzzer_sys::fuzz_target;
use metrics::Registry;
use network::dns::{
    AllowedSources, Authority, ForwardOptions, Forwarder, Handler, Metrics, Records, Reply, ServiceSource,
    SliceSource, Transport,
};
use std::mem::ManuallyDrop;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

const POD: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 244, 0, 99));
/// The longest answer over UDP that is read.
const MAX_DATAGRAM: usize = 4096;
/// The answer of the other server, over either transport.
static ANSWER: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static WORLD: LazyLock<World> = LazyLock::new(|| Simulated::new(1_700_000_000, 7));

thread_local! {
    static DNS: ManuallyDrop<Handler> = ManuallyDrop::new(run(async { handler(other_server().await, &WORLD) }));
}

fuzz_target!(|data: &[u8]| {
    let Some((choice, rest)) = fuzz::choice(data) else { return };
    DNS.with(|handler| match choice % 4 {
        0 => run(query(handler, rest, Transport::Udp)),
        1 => run(query(handler, rest, Transport::Tcp)),
        _ => run(forward(handler, rest)),
    });
});

/// A packet of a pod.
async fn query(handler: &Handler, packet: &[u8], transport: Transport) {
    let mut out = Vec::new();
    match handler.handle(packet, POD, transport, &mut out) {
        Reply::None => return,
        Reply::Ready => {}
        Reply::Pending(pending) => handler.fail(&pending, &mut out),
    }
    check(packet, &out, transport);
}

fn check(packet: &[u8], answer: &[u8], transport: Transport) {
    let limit = if transport == Transport::Udp { 1232 } else { usize::from(u16::MAX) };
    assert!(answer.len() <= limit, "{} bytes", answer.len());
    assert_eq!(answer[..2], packet[..2], "the id");
    let message = Message::from_vec(answer).expect("an answer that can be read");
    assert_eq!(message.metadata.message_type, MessageType::Response);
}

/// An answer of another server. The first part is the name that is asked for, which no answer before was kept for.
async fn forward(handler: &Handler, data: &[u8]) {
    let (name, mut answer) = data.split_at(data.len().min(4));
    let label: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    let Ok(name) = Name::from_ascii(format!("{label}.example.org.")) else { return };
    let mut message = Message::new(1, MessageType::Query, OpCode::Query);
    message.add_query(Query::query(name.clone(), RecordType::A));
    let packet = message.to_vec().expect("a query");
    // an answer that is not one to the query is waited for until it is too late
    let mut whole = packet.clone();
    whole[2] |= 0x80;
    if let [flags, code, counts @ ..] = answer {
        whole[2] |= flags;
        whole[3] = *code;
        let count = counts.len().min(6);
        whole[6..6 + count].copy_from_slice(&counts[..count]);
        answer = &counts[count..];
        whole.extend_from_slice(answer);
    }
    let is_answer = |it: Message| it.queries.first().map_or(it.answers.is_empty(), |it| it.name == name);
    if whole.len() > MAX_DATAGRAM || !Message::from_vec(&whole).is_ok_and(is_answer) {
        // after a truncated one the query is sent again
        whole[2] |= 2;
    }
    *ANSWER.lock().expect("no panic") = whole;
    let mut out = Vec::new();
    if let Reply::Pending(pending) = handler.handle(&packet, POD, Transport::Udp, &mut out) {
        handler.finish(*pending, &mut out).await;
    }
    check(&packet, &out, Transport::Udp);
}

/// A server that answers everything with that.
async fn other_server() -> SocketAddr {
    let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = tcp.local_addr().expect("an address");
    let udp = UdpSocket::bind(address).await.expect("the same port");
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((length, from)) = udp.recv_from(&mut buffer).await {
            let _ = udp.send_to(&answer_to(&buffer[..length]), from).await;
        }
    });
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = tcp.accept().await {
            let mut query = [0; 14];
            if stream.read_exact(&mut query).await.is_ok() {
                let answer = answer_to(&query[2..]);
                let _ = stream.write_all(&(answer.len() as u16).to_be_bytes()).await;
                let _ = stream.write_all(&answer).await;
            }
        }
    });
    address
}

fn answer_to(query: &[u8]) -> Vec<u8> {
    let mut answer = ANSWER.lock().expect("no panic").clone();
    if let (Some(id), Some(place)) = (query.get(..2), answer.get_mut(..2)) {
        place.copy_from_slice(id);
    }
    answer
}

fn handler(other: SocketAddr, world: &World) -> Handler {
    let mut zone = Name::from_ascii("cluster.local").expect("a name");
    zone.set_fqdn(true);
    let records = Arc::new(Records::new(&zone, 1));
    let ranges: Vec<_> = ["10.96.0.0/12", "10.244.0.0/16"].into_iter().filter_map(Network::parse).collect();
    records.set_namespace("n", true);
    for (name, address, alias) in
        [("web", "10.96.0.20", ""), ("db", "None", ""), ("out", "", "web.n.svc.cluster.local")]
    {
        let mut service = Service::default();
        (service.metadata.namespace, service.metadata.name) = ("n".to_owned(), name.to_owned());
        service.spec.type_ = if alias.is_empty() { "ClusterIP" } else { "ExternalName" }.to_owned();
        (service.spec.cluster_ip, service.spec.external_name) = (address.to_owned(), alias.to_owned());
        let (protocol, name) = ("TCP".to_owned(), "http".to_owned());
        service.spec.ports = vec![ServicePort { name, protocol, port: 80, ..ServicePort::default() }];
        records.set_service(&Key::of(&service), Some(ServiceSource::new(&service)));
    }
    let endpoints = (0..40).map(|n| Endpoint {
        addresses: vec![format!("10.244.0.{n}")],
        hostname: Some(format!("db-{n}")),
        ..Endpoint::default()
    });
    let slice = EndpointSlice { endpoints: endpoints.collect(), ..EndpointSlice::default() };
    records.set_slice(&Key::new("n", "db"), "a", Some(SliceSource::new(&slice)));
    let authority = Authority::new(zone, ranges.clone(), &Key::new("kube-system", "kube-dns"));
    let metrics = Metrics::new(&Registry::default(), "cluster.local", 10053);
    let options = ForwardOptions { servers: vec![other], ..ForwardOptions::default() };
    let forwarder = Arc::new(Forwarder::new(options, metrics.clone(), world));
    let sources = Arc::new(AllowedSources::new(ranges));
    Handler::new(authority.expect("an authority"), records, sources, forwarder, metrics)
}
