//! The ports on which load balancers look whether a node has local endpoints of a service.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::StatusCode;
use tokio::task::JoinSet;

use super::state::{HealthCheck, ServiceKey};
use crate::http_server::{Answer, Respond, listen, serve};
use crate::netfilter::Prefix;

/// The open ports, by service.
#[derive(Default)]
pub struct HealthCheckServers {
    servers: BTreeMap<ServiceKey, HealthCheckServer>,
    /// Networks of the addresses to listen on; all if empty.
    networks: Vec<Prefix>,
}

struct HealthCheckServer {
    port: u16,
    local_endpoints: Arc<AtomicUsize>,
    /// Ends with the server.
    _tasks: JoinSet<()>,
}

impl HealthCheckServers {
    pub fn new(networks: Vec<Prefix>) -> Self {
        Self { servers: BTreeMap::new(), networks }
    }

    /// Opens and closes ports, and updates the numbers of local endpoints. Returns the ports that could not be opened.
    pub async fn sync(
        &mut self,
        desired: &BTreeMap<ServiceKey, HealthCheck>,
        node_addresses: &[IpAddr],
    ) -> Vec<(ServiceKey, std::io::Error)> {
        self.servers.retain(|key, server| desired.get(key).is_some_and(|check| check.port == server.port));
        let mut failures = Vec::new();
        for (key, check) in desired {
            if !self.servers.contains_key(key) {
                match self.open(key, check, node_addresses).await {
                    Ok(server) => _ = self.servers.insert(key.clone(), server),
                    Err(error) => failures.push((key.clone(), error)),
                }
            }
            if let Some(server) = self.servers.get(key) {
                server.local_endpoints.store(check.local_endpoints, Ordering::Release);
            }
        }
        failures
    }

    async fn open(
        &self,
        key: &ServiceKey,
        check: &HealthCheck,
        node_addresses: &[IpAddr],
    ) -> std::io::Result<HealthCheckServer> {
        let local_endpoints = Arc::new(AtomicUsize::new(check.local_endpoints));
        let (count, service) = (local_endpoints.clone(), key.clone());
        let respond: Respond = Arc::new(move |_| answer(&service, count.load(Ordering::Acquire)));
        let mut tasks = JoinSet::new();
        for listener in self.listeners(check.port, node_addresses).await? {
            tasks.spawn(serve(listener, respond.clone()));
        }
        Ok(HealthCheckServer { port: check.port, local_endpoints, _tasks: tasks })
    }

    async fn listeners(
        &self,
        port: u16,
        node_addresses: &[IpAddr],
    ) -> std::io::Result<Vec<tokio::net::TcpListener>> {
        if self.networks.is_empty() {
            let both = listen(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)).await;
            let listener = match both {
                Ok(listener) => listener,
                // a machine without IPv6
                Err(_) => listen(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)).await?,
            };
            return Ok(vec![listener]);
        }
        let is_chosen = |address: &&IpAddr| self.networks.iter().any(|network| network.contains(**address));
        let mut listeners = Vec::new();
        for address in node_addresses.iter().filter(is_chosen) {
            listeners.push(listen(SocketAddr::new(*address, port)).await?);
        }
        Ok(listeners)
    }
}

fn answer(service: &str, local_endpoints: usize) -> Answer {
    let (namespace, name) = service.split_once('/').unwrap_or_default();
    let status = if local_endpoints == 0 { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let body = format!(
        "{{\n\t\"service\": {{\n\t\t\"namespace\": {namespace:?},\n\t\t\"name\": {name:?}\n\t}},\n\t\
         \"localEndpoints\": {local_endpoints}\n}}"
    );
    Answer::json(status, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    async fn get(port: u16) -> String {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn ports_follow_the_services() {
        // a port that is free now
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut servers = HealthCheckServers::new(Vec::new());
        let check = |local_endpoints| {
            BTreeMap::from([(ServiceKey::from("default/web"), HealthCheck { port, local_endpoints })])
        };
        assert!(servers.sync(&check(0), &[]).await.is_empty());
        assert!(get(port).await.starts_with("HTTP/1.1 503 "));
        servers.sync(&check(2), &[]).await;
        let text = get(port).await;
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        let value: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(value["service"]["name"], "web");
        assert_eq!(value["localEndpoints"], 2);
        // another service cannot have the port, which is reported and tried again
        let both = BTreeMap::from([
            (ServiceKey::from("default/web"), HealthCheck { port, local_endpoints: 1 }),
            (ServiceKey::from("default/x"), HealthCheck { port, local_endpoints: 1 }),
        ]);
        assert_eq!(servers.sync(&both, &[]).await.len(), 1);
        servers.sync(&BTreeMap::new(), &[]).await;
        assert!(servers.servers.is_empty());
    }
}
