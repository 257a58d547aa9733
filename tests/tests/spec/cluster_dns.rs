//! Cluster DNS against a real server: names follow the objects of the API, and the DNS service leads to the server.

use super::*;
use ::metrics::Registry;
use client::Client;
use env::World;
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use names::Names;
use network::dns::{
    AllowedSources, Announcer, ClusterDns, ForwardOptions, Options, PeerChecks, ServiceState,
};
use std::net::SocketAddr;
use std::sync::Arc;
use tests::{Cluster, soon};
use tokio::net::UdpSocket;

const SERVICES_OF_DEFAULT: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const DNS_SERVICE: &str = "/api/v1/namespaces/kube-system/services/kube-dns";
const DNS_SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices";

fn world() -> World {
    env::Seeded::new(1_700_000_000, 7)
}

/// A DNS server of a node, on a port of this machine.
async fn server(client: &Client, node: &str) -> ClusterDns {
    let options = Options {
        domain: "cluster.local".to_owned(),
        addresses: vec!["127.0.0.1:0".parse().unwrap()],
        reverse_ranges: Vec::new(),
        allowed_sources: Vec::new(),
        forward: ForwardOptions::default(),
        node_name: node.to_owned(),
        node_addresses: Vec::new(),
    };
    ClusterDns::bind(options, client, &Names::kubernetes(), &Registry::default(), &world()).await.unwrap()
}

/// The response code and the addresses of a name.
async fn ask(server: SocketAddr, name: &str) -> (ResponseCode, Vec<String>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    socket.send_to(&message.to_vec().unwrap(), server).await.unwrap();
    let mut buffer = [0; 1500];
    let length = soon("the answer", socket.recv(&mut buffer)).await.unwrap();
    let answer = Message::from_vec(&buffer[..length]).unwrap();
    let mut addresses: Vec<_> = answer.answers.iter().map(|it| it.data.to_string()).collect();
    addresses.sort();
    (answer.metadata.response_code, addresses)
}

/// Waits until a name has these addresses.
async fn resolves(server: SocketAddr, name: &str, expected: &[&str]) {
    soon(name, async { while ask(server, name).await.1 != expected {} }).await;
}

fn slice(addresses: &[&str]) -> Value {
    let endpoints: Vec<_> =
        addresses.iter().map(|it| json!({"addresses": [it], "conditions": {"ready": true}})).collect();
    json!({
        "metadata": {"name": "db-a", "labels": {"kubernetes.io/service-name": "db"}},
        "addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "sql", "port": 5432}],
    })
}

#[tokio::test]
async fn names_follow_services_slices_and_namespaces() {
    let cluster = Cluster::start().await;
    let ports = json!([{"name": "sql", "port": 5432}]);
    let headless = json!({"metadata": {"name": "db"}, "spec": {"clusterIP": "None", "ports": ports}});
    cluster.create(SERVICES_OF_DEFAULT, headless).await;
    cluster.create(SLICES, slice(&["10.1.0.1", "10.1.0.2"])).await;
    let dns = server(&cluster.loop_client().await, "n").await;
    let address = dns.addresses()[0];
    let running = tokio::spawn(async move { dns.run(None).await });
    // a query before the first lists are complete waits for them
    let db = "db.default.svc.cluster.local.";
    assert_eq!(ask(address, db).await, (ResponseCode::NoError, vec!["10.1.0.1".into(), "10.1.0.2".into()]));
    cluster.put(&format!("{SLICES}/db-a"), slice(&["10.1.0.3"])).await.code(200);
    resolves(address, db, &["10.1.0.3"]).await;
    let plain = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
    let web = cluster.create(SERVICES_OF_DEFAULT, plain).await;
    let cluster_ip = web["spec"]["clusterIP"].as_str().unwrap();
    resolves(address, "web.default.svc.cluster.local.", &[cluster_ip]).await;
    cluster.delete(&format!("{SERVICES_OF_DEFAULT}/web")).await.code(200);
    resolves(address, "web.default.svc.cluster.local.", &[]).await;
    cluster.delete(&format!("{SLICES}/db-a")).await.code(200);
    resolves(address, db, &[]).await;
    assert_eq!(ask(address, db).await.0, ResponseCode::NoError);
    assert_eq!(ask(address, "10-1-0-9.late.pod.cluster.local.").await.0, ResponseCode::NXDomain);
    cluster.named(NAMESPACES, "late").await;
    resolves(address, "10-1-0-9.late.pod.cluster.local.", &["10.1.0.9"]).await;
    running.abort();
}

/// The addresses in the slices of the DNS service.
async fn announced(cluster: &Cluster) -> Vec<String> {
    let slices =
        cluster.read(&format!("{DNS_SLICES}?labelSelector=kubernetes.io/service-name=kube-dns")).await;
    let slices = slices["items"].as_array().unwrap().clone();
    let text = |it: &Value| {
        let endpoint = &it["endpoints"][0];
        format!("{} {}", endpoint["nodeName"].as_str().unwrap(), endpoint["addresses"][0].as_str().unwrap())
    };
    slices.iter().map(text).collect()
}

async fn is_announced(cluster: &Cluster, expected: &[&str]) {
    soon("the endpoints of the DNS service", async { while announced(cluster).await != expected {} }).await;
}

#[tokio::test]
async fn the_dns_service_leads_to_all_servers() {
    let cluster = Cluster::start().await;
    let client = cluster.loop_client().await;
    let address = "10.0.0.10".parse().unwrap();
    let announcer = || Announcer::new(&client, &Names::kubernetes(), Some(address), &world());
    let own = ServiceState::Own { addresses: vec![address] };
    assert_eq!(announcer().ensure_service().await.unwrap(), own);
    // a second time nothing changes
    assert_eq!(announcer().ensure_service().await.unwrap(), own);
    let service = cluster.read(DNS_SERVICE).await;
    assert_eq!(service["metadata"]["labels"]["k8s-app"], "kube-dns");
    assert_eq!(service["spec"]["ports"][0]["protocol"], "UDP");
    assert_eq!(service["spec"]["ports"][1]["name"], "dns-tcp");
    let running = ["192.0.2.1:10053", "192.0.2.2:10053"].map(|address| {
        let (announcer, sources) = (announcer(), Arc::new(AllowedSources::new(Vec::new())));
        // other machines do not reach a loopback address
        let addresses = ["127.0.0.1:10053", address].map(|it| it.parse::<SocketAddr>().unwrap());
        let node = if address.contains(".1:") { "a" } else { "b" };
        let peers = PeerChecks::new(&"cluster.local.".parse().unwrap(), &world());
        tokio::spawn(async move { announcer.run(node, &addresses, &sources, peers).await })
    });
    is_announced(&cluster, &["a 192.0.2.1", "b 192.0.2.2"]).await;
    running[0].abort();
    announcer().withdraw("a", &["192.0.2.1:10053".parse().unwrap()]).await.unwrap();
    is_announced(&cluster, &["b 192.0.2.2"]).await;
    running[1].abort();
}

#[tokio::test]
async fn the_dns_of_the_user_is_left_alone() {
    let cluster = Cluster::start().await;
    let client = cluster.loop_client().await;
    let ports = json!([{"name": "dns", "protocol": "UDP", "port": 53}]);
    let spec = json!({"clusterIP": "10.0.0.53", "selector": {"k8s-app": "kube-dns"}, "ports": ports});
    let collection = DNS_SERVICE.strip_suffix("/kube-dns").unwrap();
    let before = cluster.create(collection, json!({"metadata": {"name": "kube-dns"}, "spec": spec})).await;
    let announcer =
        Announcer::new(&client, &Names::kubernetes(), Some("10.0.0.10".parse().unwrap()), &world());
    let foreign = ServiceState::Foreign { addresses: vec!["10.0.0.53".parse().unwrap()] };
    assert_eq!(announcer.ensure_service().await.unwrap(), foreign);
    let dns = server(&client, "a").await;
    let (address, is_ready) = (dns.addresses()[0], dns.readiness());
    assert!(!is_ready());
    let running = tokio::spawn(async move { dns.run(Some(&announcer)).await });
    // it answers those who know it
    resolves(address, "kube-dns.kube-system.svc.cluster.local.", &["10.0.0.53"]).await;
    assert!(is_ready());
    assert_eq!(announced(&cluster).await, Vec::<String>::new());
    assert_eq!(cluster.read(DNS_SERVICE).await, before);
    running.abort();
}
