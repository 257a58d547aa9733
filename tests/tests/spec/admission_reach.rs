//! Services of webhooks: resolution to cluster IPs or endpoints, and the server's own service.

use super::admission_webhooks::{MUTATING, VALIDATING, allow, configure, hook, map, message};
use super::custom_conversion::{converter_at, second, serve_with};
use super::custom_resources::{THINGS, thing};
use super::*;
use apiserver::aggregation;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use tests::{Cluster, HttpsServer, Options, authority};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";

/// A server that goes to the addresses behind services.
async fn routing() -> Cluster {
    let aggregation = aggregation::Options { to_endpoints: true, ..aggregation::Options::default() };
    Cluster::with(Options { aggregation, ..Options::default() }).await
}

/// Why a test cannot run on a machine without a network.
const NO_ADDRESS: &str = "this machine has only loopback addresses, which cannot be behind a service";

/// An address of this machine that may stand behind a service, if it has any: the loopback may not.
fn address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // finds the way, and sends nothing
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|it| it.ip()).filter(|it| !it.is_loopback())
}

/// A webhook that is the service `hook`.
fn served(certificate: &str) -> Value {
    json!({"name": "a.example.com", "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"],
        "resources": ["configmaps"]}], "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"service": {"namespace": "default", "name": "hook", "path": "/p"},
        "caBundle": STANDARD.encode(certificate)}})
}

fn service(name: &str, kind: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"type": kind, "externalName": "localhost",
        "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}]}})
}

fn endpoints(name: &str, ip: IpAddr, port: u16) -> Value {
    json!({"metadata": {"name": name}, "subsets": [{"addresses": [{"ip": ip.to_string()}],
        "ports": [{"name": "http", "port": 9}, {"name": "https", "port": port}]}]})
}

#[tokio::test]
async fn services_can_be_resolved_to_endpoints() {
    let cluster = routing().await;
    let ip = address();
    let ip_or_loopback = ip.unwrap_or(IpAddr::from([127, 0, 0, 1]));
    let first = HttpsServer::at(ip_or_loopback, "hook.default.svc", allow).await;
    configure(&cluster, MUTATING, "service", vec![served(&first.certificate)]).await;
    let refused = async |why: &str| {
        let refused = cluster.post(CONFIGMAPS, map("a")).await.refused(500, "InternalError");
        let expected = format!("Post \"https://hook.default.svc:443/p?timeout=10s\": {why}");
        assert!(message(&refused).ends_with(&expected), "{refused}");
    };
    refused("service \"hook\" not found").await;
    cluster.create(SERVICES, service("hook", "ExternalName")).await;
    refused("unsupported service type \"ExternalName\"").await;
    cluster.delete(&format!("{SERVICES}/hook")).await.code(200);
    cluster.create(SERVICES, service("hook", "ClusterIP")).await;
    refused("endpoints \"hook\" not found").await;
    cluster.named(ENDPOINTS, "hook").await;
    refused("no endpoints available for service \"hook\"").await;
    let Some(ip) = ip else { return testdata::skip(NO_ADDRESS) };
    cluster.put(&format!("{ENDPOINTS}/hook"), endpoints("hook", ip, first.port())).await.code(200);
    cluster.create(CONFIGMAPS, map("a")).await;
    cluster.create(CONFIGMAPS, map("b")).await;
    assert_eq!(first.count(), 2);
    assert_eq!(first.requests()[0].path, "/p?timeout=10s");
    // one that moves is found
    let second = HttpsServer::at(ip, "hook.default.svc", allow).await;
    let only = json!({"webhooks": [served(&second.certificate)]});
    cluster.patch(&format!("{MUTATING}/service"), only).await.code(200);
    cluster.put(&format!("{ENDPOINTS}/hook"), endpoints("hook", ip, second.port())).await.code(200);
    cluster.create(CONFIGMAPS, map("c")).await;
    assert_eq!((first.count(), second.count()), (2, 1));
    // of two, one of which is not there, the other is found before long
    let mut both = endpoints("hook", ip, second.port());
    let unready = endpoints("hook", ip, first.port())["subsets"][0].clone();
    drop(first);
    both["subsets"].as_array_mut().unwrap().push(unready);
    cluster.put(&format!("{ENDPOINTS}/hook"), both).await.code(200);
    cluster.delete(&format!("{MUTATING}/service")).await.code(200);
    configure(&cluster, MUTATING, "service", vec![served(&second.certificate)]).await;
    while cluster.post(CONFIGMAPS, map("d")).await.status != 201 {}
    for nth in 0..8 {
        cluster.create(CONFIGMAPS, map(&format!("e{nth}"))).await;
    }
}

#[tokio::test]
async fn an_external_name_service_is_called_by_that_name() {
    let cluster = Cluster::start().await;
    let server = HttpsServer::named("hook.default.svc", allow).await;
    let mut outside = served(&server.certificate);
    outside["clientConfig"]["service"]["port"] = server.port().into();
    configure(&cluster, VALIDATING, "service", vec![outside]).await;
    cluster.create(SERVICES, service("hook", "ClusterIP")).await;
    let refused = cluster.post(CONFIGMAPS, map("a")).await.refused(500, "InternalError");
    let expected = format!("no service port {} found for service \"hook\"", server.port());
    assert!(message(&refused).ends_with(&expected), "{refused}");
    let mut headless = service("hook", "ClusterIP");
    headless["spec"]["clusterIP"] = "None".into();
    cluster.delete(&format!("{SERVICES}/hook")).await.code(200);
    cluster.create(SERVICES, headless).await;
    let refused = cluster.post(CONFIGMAPS, map("a")).await.refused(500, "InternalError");
    assert!(message(&refused).ends_with("cannot route to service with ClusterIP \"None\""), "{refused}");
    cluster.delete(&format!("{SERVICES}/hook")).await.code(200);
    cluster.create(SERVICES, service("hook", "ExternalName")).await;
    cluster.create(CONFIGMAPS, map("a")).await;
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn the_kubernetes_service_is_the_server_itself() {
    for cluster in [Cluster::start().await, routing().await] {
        let server = HttpsServer::start(allow).await;
        let mut own = hook(&server, "a", "/");
        let service = json!({"namespace": "default", "name": "kubernetes", "path": "/apis/judge"});
        own["clientConfig"] = json!({"service": service, "caBundle": STANDARD.encode(authority().pem())});
        configure(&cluster, VALIDATING, "own", vec![own]).await;
        let refused = cluster.post(CONFIGMAPS, map("a")).await.refused(500, "InternalError");
        // the server itself was called, and rejects anonymous requests
        let expected = "User \"system:anonymous\" cannot post path \"/apis/judge\"";
        assert!(message(&refused).contains(expected), "{refused}");
    }
}

#[tokio::test]
async fn conversion_webhooks_are_resolved_by_service() {
    let Some(ip) = address() else { return testdata::skip(NO_ADDRESS) };
    let cluster = routing().await;
    let elsewhere = converter_at(ip, "converter.default.svc", Arc::default()).await;
    let reached = json!({"service": {"namespace": "default", "name": "converter", "path": "/convert"}});
    serve_with(&cluster, &elsewhere, reached).await;
    cluster.create(THINGS, thing("a", json!({"size": "2x3"}))).await;
    cluster.create(SERVICES, service("converter", "ClusterIP")).await;
    let path = format!("{}/a", second());
    let expected = cluster.get(&path).await.code(500).json();
    assert!(message(&expected).ends_with("endpoints \"converter\" not found"), "{expected}");
    cluster.create(ENDPOINTS, endpoints("converter", ip, elsewhere.port())).await;
    assert_eq!(cluster.read(&path).await["spec"], json!({"width": "2", "height": "3"}));
    assert_eq!(elsewhere.requests()[0].path, "/convert");
}
