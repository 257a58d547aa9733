//! Writes the addresses of load balancers to services.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{LoadBalancerIngress, Node, Service};
use client::{Api, Client, InformerFactory, Key};
use env::World;
use tokio::sync::Notify;

use super::assign::assign;
use super::listening::ListeningPorts;

/// How often ports that were taken are tried again without a change of a service.
const PERIOD: Duration = Duration::from_secs(60);

/// Follows services and assigns the addresses of a node, until it is dropped.
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
        let addresses = nodes.all().first().map(|node| addresses(node)).unwrap_or_default();
        let all = services.all();
        let has_candidates = all.iter().any(|service| service.spec.type_ == "LoadBalancer");
        if has_candidates && !addresses.is_empty() {
            let listening = ListeningPorts::read(Path::new("/proc/net"));
            let changes = assign(&all, &addresses, |protocol, port| listening.is_free(protocol, port));
            for service in &all {
                if let Some(addresses) = changes.get(&Key::of(&**service)) {
                    write(&client, service, addresses).await;
                }
            }
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

async fn write(client: &Client, service: &Service, addresses: &[IpAddr]) {
    let mut next = service.clone();
    let ingress =
        |address: &IpAddr| LoadBalancerIngress { ip: address.to_string(), ..LoadBalancerIngress::default() };
    next.status.load_balancer.ingress = addresses.iter().map(ingress).collect();
    let key = Key::of(service);
    match Api::<Service>::beside(client, service).replace_status(&next).await {
        Ok(_) => tracing::info!(service = %key, ?addresses, "assigned the addresses of the node"),
        // a conflict is followed by a change of the service
        Err(error) => tracing::warn!(service = %key, %error, "cannot assign the addresses of the node"),
    }
}
