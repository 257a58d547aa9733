//! Writes the ports that this node offers to its Node object.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{Node, Service};
use client::{Api, Client, InformerFactory, Patch};
use env::World;
use names::load_balancers::PORTS;
use serde_json::json;
use tokio::sync::Notify;

use super::listening::ListeningPorts;
use super::offer::offer;

/// How often the ports of processes are read again without a change of a service.
const PERIOD: Duration = Duration::from_secs(60);

/// Follows services, and offers the ports of a node, until it is dropped. The client needs to list and watch Services and
/// the Node, and to patch that.
pub async fn run(client: Client, world: World, node_name: String) {
    let factory = InformerFactory::new(client.clone());
    let services = factory.informer::<Service>();
    let nodes = factory.informer_of::<Node>("", &format!("metadata.name={node_name}"));
    let changed = Arc::new(Notify::new());
    let (of_service, of_node) = (changed.clone(), changed.clone());
    services.listen(move |_| of_service.notify_one());
    nodes.listen(move |_| of_node.notify_one());
    tokio::join!(services.synced(), nodes.synced());
    loop {
        if let Some(node) = nodes.all().first() {
            let listening = ListeningPorts::read(Path::new("/proc/net"));
            let offered =
                offer(&services.all(), &addresses(node), |protocol, port| listening.is_free(protocol, port));
            write(&client, node, offered.text()).await;
        }
        tokio::select! {
            () = changed.notified() => (),
            () = env::sleep(&world, PERIOD) => (),
        }
    }
}

/// The addresses of a node at which others reach it.
fn addresses(node: &Node) -> Vec<IpAddr> {
    let internal = node.status.addresses.iter().filter(|address| address.type_ == "InternalIP");
    internal.filter_map(|address| address.address.parse().ok()).collect()
}

async fn write(client: &Client, node: &Node, ports: Option<String>) {
    if node.metadata.annotations.get(PORTS) == ports.as_ref() {
        return;
    }
    let patch = Patch::merge(json!({"metadata": {"annotations": {PORTS: &ports}}}));
    match Api::<Node>::all(client).patch(&node.metadata.name, &patch).await {
        Ok(_) => tracing::info!(ports, "offered these ports to load balancers"),
        // it is tried again after the period
        Err(error) => tracing::warn!(%error, "cannot offer ports to load balancers"),
    }
}
