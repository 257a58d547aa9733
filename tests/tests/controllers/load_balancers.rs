//! Services of type LoadBalancer, with the addresses of nodes that offer their ports.

use k8s_openapi::api::core::v1::{Event, Service};
use kube::Api;
use names::load_balancers::{NODES as MARK, PORTS};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tests::{ManagedCluster, until};

const NODES: &str = "/api/v1/nodes";
const SERVICES: &str = "/api/v1/namespaces/default/services";

async fn add_node(managed: &ManagedCluster, name: &str, address: &str, ports: &str) {
    let node = json!({"metadata": {"name": name, "annotations": {PORTS: ports}}});
    managed.cluster.create(NODES, node).await;
    set_ready(managed, name, address, "True").await;
}

async fn set_ready(managed: &ManagedCluster, name: &str, address: &str, ready: &str) {
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": address}],
        "conditions": [{"type": "Ready", "status": ready}],
    }});
    managed.cluster.patch(&format!("{NODES}/{name}/status"), status).await.code(200);
}

fn service(name: &str, port: u16) -> Value {
    json!({"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": [{"port": port}]}})
}

fn addresses(service: &Service) -> Vec<String> {
    let status = service.status.clone().unwrap_or_default().load_balancer.unwrap_or_default();
    status.ingress.unwrap_or_default().into_iter().filter_map(|it| it.ip).collect()
}

async fn has_addresses(managed: &ManagedCluster, name: &str, expected: &[&str]) {
    let services: Api<Service> = Api::namespaced(managed.client(), "default");
    until(&format!("addresses {expected:?} of {name}"), &services, |all| addresses(&all[name]) == expected)
        .await;
}

#[tokio::test]
async fn load_balancers_have_the_addresses_of_nodes_that_offer_their_ports() {
    let managed = ManagedCluster::start(&["service"]).await;
    add_node(&managed, "a", "10.9.0.1", "80/TCP").await;
    add_node(&managed, "b", "10.9.0.2", "80/TCP,443/TCP").await;
    managed.cluster.create(SERVICES, service("web", 80)).await;
    managed.cluster.create(SERVICES, service("tls", 443)).await;
    managed.cluster.create(SERVICES, service("ssh", 22)).await;
    has_addresses(&managed, "web", &["10.9.0.1", "10.9.0.2"]).await;
    has_addresses(&managed, "tls", &["10.9.0.2"]).await;
    let events: Api<Event> = Api::namespaced(managed.client(), "default");
    let is_explained = |all: &BTreeMap<String, Event>| {
        all.values().any(|it| {
            it.reason.as_deref() == Some("SyncLoadBalancerFailed")
                && it.involved_object.name.as_deref() == Some("ssh")
                && it.message.as_deref().is_some_and(|text| text.contains("22/TCP"))
        })
    };
    until("the event of the service without address", &events, is_explained).await;
    // a node that is not ready, and one that is deleted with all that is known of its address
    set_ready(&managed, "a", "10.9.0.1", "Unknown").await;
    has_addresses(&managed, "web", &["10.9.0.2"]).await;
    set_ready(&managed, "a", "10.9.0.1", "True").await;
    has_addresses(&managed, "web", &["10.9.0.1", "10.9.0.2"]).await;
    managed.cluster.delete(&format!("{NODES}/b")).await.code(200);
    has_addresses(&managed, "web", &["10.9.0.1"]).await;
    has_addresses(&managed, "tls", &[]).await;
    // no load balancer any more: neither addresses nor the mark of the loop stay
    let plain = json!({"spec": {"type": "ClusterIP"}});
    managed.cluster.patch(&format!("{SERVICES}/web"), plain).await.code(200);
    let services: Api<Service> = Api::namespaced(managed.client(), "default");
    let is_released = |all: &BTreeMap<String, Service>| {
        let annotations = all["web"].metadata.annotations.clone().unwrap_or_default();
        addresses(&all["web"]).is_empty() && !annotations.contains_key(MARK)
    };
    until("the end of the load balancer", &services, is_released).await;
}
