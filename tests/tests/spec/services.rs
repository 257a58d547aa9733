//! Addresses and ports of services: things that no two objects may have, given out while writers race, tried
//! in dry runs, and found again after a restart.

use super::*;
use apimachinery::net::Network;
use apiserver::StoreChoice;
use kinds::ServiceOptions;
use kinds::core::service::PortRange;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use tests::{Cluster, Options};

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, kind: &str) -> Value {
    json!({"metadata": {"name": name},
        "spec": {"type": kind, "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}})
}

fn address(service: &Value) -> String {
    service["spec"]["clusterIP"].as_str().unwrap_or_else(|| panic!("no address: {service}")).to_owned()
}

fn node_ports(service: &Value) -> Vec<i64> {
    let ports = service["spec"]["ports"].as_array().unwrap();
    ports.iter().map(|port| port["nodePort"].as_i64().unwrap_or_else(|| panic!("none: {service}"))).collect()
}

/// A server with few addresses and ports to give, on a directory or in memory.
async fn scarce(range: &str, ports: &str, directory: Option<&Path>) -> Cluster {
    let store = directory.map_or(StoreChoice::Memory, |at| StoreChoice::Directory(at.to_owned()));
    let services = ServiceOptions {
        network: Network::parse(range).unwrap(),
        node_ports: PortRange::parse(ports).unwrap(),
        ..ServiceOptions::default()
    };
    let kinds = kinds::Options { services, ..kinds::Options::default() };
    Cluster::with(Options { store, kinds, ..Options::default() }).await
}

#[tokio::test]
async fn racing_creations_get_different_addresses() {
    let cluster = Cluster::start().await;
    let racing = (0..40).map(|n| {
        let cluster = &cluster;
        async move { cluster.create(SERVICES, service(&format!("s{n}"), "NodePort")).await }
    });
    let created = futures_util::future::join_all(racing).await;
    let addresses: BTreeSet<_> = created.iter().map(address).collect();
    let ports: BTreeSet<_> = created.iter().flat_map(node_ports).collect();
    assert_eq!((addresses.len(), ports.len()), (40, 80));
    // one address, wanted by many
    let racing = (0..10).map(|n| {
        let mut wanted = service(&format!("w{n}"), "ClusterIP");
        wanted["spec"]["clusterIP"] = "10.0.77.77".into();
        let cluster = &cluster;
        async move { cluster.post(SERVICES, wanted).await }
    });
    let answers = futures_util::future::join_all(racing).await;
    let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(|it| it.status == 201);
    assert_eq!((won.len(), lost.len()), (1, 9));
    for one in lost {
        assert_eq!(fields(&one.refused(422, "Invalid")), ["spec.clusterIPs"]);
    }
}

#[tokio::test]
async fn a_dry_run_takes_nothing() {
    let cluster = scarce("10.9.0.0/29", "30000-30001", None).await;
    let (dry, at) = (format!("{SERVICES}?dryRun=All"), version(&cluster.read(SERVICES).await));
    // more often than there is anything to give
    for round in 0..20 {
        let shown = cluster.create(&dry, service(&format!("s{round}"), "NodePort")).await;
        assert_eq!(shown["metadata"].get("resourceVersion"), None);
    }
    assert_eq!(version(&cluster.read(SERVICES).await), at, "nothing was written");
    let mut watch = cluster.get(&format!("{SERVICES}?watch=1&resourceVersion={at}")).watch().await;
    let created = cluster.create(SERVICES, service("real", "NodePort")).await;
    assert_eq!(BTreeSet::from_iter(node_ports(&created)), BTreeSet::from([30000, 30001]));
    watch.expect("ADDED", "real").await;
    // neither is anything given back
    let path = format!("{SERVICES}/real?dryRun=All");
    cluster.delete(&path).await.code(200);
    cluster.patch(&path, json!({"spec": {"type": "ClusterIP"}})).await.code(200);
    cluster.post(SERVICES, service("more", "NodePort")).await.refused(500, "InternalError");
    assert_eq!(cluster.read(&format!("{SERVICES}/real")).await, created);
}

#[tokio::test]
async fn rejected_and_deleted_services_free_their_addresses() {
    let cluster = scarce("10.9.0.0/29", "30000-30001", None).await;
    for _ in 0..5 {
        // refused after its address was taken
        let mut wrong = service("wrong", "NodePort");
        wrong["spec"]["sessionAffinity"] = "Sideways".into();
        cluster.post(SERVICES, wrong).await.refused(422, "Invalid");
        cluster.create(SERVICES, service("s", "NodePort")).await;
        cluster.post(SERVICES, service("s", "ClusterIP")).await.refused(409, "AlreadyExists");
        // another type needs no ports; released ports are free
        let path = format!("{SERVICES}/s");
        let less = cluster.patch(&path, json!({"spec": {"type": "ClusterIP"}})).await.code(200).json();
        assert_eq!(less["spec"]["ports"][0].get("nodePort"), None, "{less}");
        cluster.create(SERVICES, service("other", "NodePort")).await;
        cluster.delete(&path).await.code(200);
        cluster.delete(&format!("{SERVICES}/other")).await.code(200);
    }
}

#[tokio::test]
async fn addresses_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = scarce("10.9.0.0/28", "30000-30005", Some(directory.path())).await;
    let first = cluster.create(SERVICES, service("first", "NodePort")).await;
    let second = cluster.create(SERVICES, service("second", "NodePort")).await;
    cluster.create(SERVICES, service("gone", "NodePort")).await;
    cluster.delete(&format!("{SERVICES}/gone")).await.code(200);
    cluster.stop().await;
    let cluster = scarce("10.9.0.0/28", "30000-30005", Some(directory.path())).await;
    assert_eq!(cluster.read(&format!("{SERVICES}/first")).await, first);
    let third = cluster.create(SERVICES, service("third", "NodePort")).await;
    let all = [&first, &second, &third];
    assert_eq!(all.map(address).into_iter().collect::<BTreeSet<_>>().len(), 3);
    assert_eq!(all.into_iter().flat_map(node_ports).collect::<BTreeSet<_>>().len(), 6);
    cluster.post(SERVICES, service("fourth", "NodePort")).await.refused(500, "InternalError");
    cluster.stop().await;
}

#[tokio::test]
async fn an_address_stays_with_its_service() {
    let cluster = Cluster::start().await;
    let created = cluster.create(SERVICES, service("s", "NodePort")).await;
    let path = format!("{SERVICES}/s");
    // a client that leaves them out does not lose them
    let mut next = service("s", "NodePort");
    next["metadata"]["resourceVersion"] = version(&created).into();
    let put = cluster.put(&path, next).await.code(200).json();
    assert_eq!((address(&put), node_ports(&put)), (address(&created), node_ports(&created)));
    let refused = cluster.patch(&path, json!({"spec": {"clusterIP": "10.0.5.5"}})).await;
    assert!(fields(&refused.refused(422, "Invalid")).iter().all(|it| it.starts_with("spec.clusterIPs")));
}

#[tokio::test]
async fn the_kubernetes_service_leads_to_the_server() {
    let advertise_address = Some(IpAddr::from([192, 0, 2, 7]));
    let cluster = Cluster::with(Options { advertise_address, ..Options::default() }).await;
    let own = cluster.read(&format!("{SERVICES}/kubernetes")).await;
    assert_eq!(address(&own), "10.0.0.1");
    let behind = cluster.read("/api/v1/namespaces/default/endpoints/kubernetes").await["subsets"][0].clone();
    assert_eq!(
        (&behind["addresses"][0]["ip"], &behind["ports"][0]["port"]),
        (&json!("192.0.2.7"), &json!(cluster.address.port()))
    );
    let mut taken = service("s", "ClusterIP");
    taken["spec"]["clusterIP"] = "10.0.0.1".into();
    cluster.post(SERVICES, taken).await.refused(422, "Invalid");
}

#[tokio::test]
async fn the_kubernetes_service_follows_the_options() {
    let advertise = apiserver::AdvertiseOptions {
        name: Some("api.example".to_owned()),
        node_port: 30123,
        reconcile_endpoints: false,
        hostname: None,
    };
    let advertise_address = Some(IpAddr::from([192, 0, 2, 7]));
    let cluster = Cluster::with(Options { advertise_address, advertise, ..Options::default() }).await;
    let own = cluster.read(&format!("{SERVICES}/kubernetes")).await;
    assert_eq!((&own["spec"]["type"], node_ports(&own)), (&json!("NodePort"), vec![30123]));
    cluster.get("/api/v1/namespaces/default/endpoints/kubernetes").await.code(404);
    let named = cluster.read("/api").await["serverAddressByClientCIDRs"][0]["serverAddress"].clone();
    assert_eq!(named, format!("api.example:{}", cluster.address.port()));
}
