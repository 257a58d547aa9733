//! The events that the proxy writes, with upstream's reasons.

use api::core::v1::ObjectReference;
use client::Client;
use client::events::{EventType, Recorder};
use env::World;
use names::Names;

use super::state::ServiceKey;

/// Writes the events of one proxy.
pub struct ProxyEvents {
    recorder: Recorder,
    node: ObjectReference,
}

impl ProxyEvents {
    pub fn new(client: Client, world: World, names: &Names, node_name: &str) -> Self {
        let recorder = Recorder::of_host(client, world, &format!("{}-proxy", names.prefix), node_name);
        // as upstream does: events of a node have its name in place of its UID
        let node = ObjectReference {
            kind: "Node".to_owned(),
            name: node_name.to_owned(),
            uid: node_name.to_owned(),
            ..ObjectReference::default()
        };
        Self { recorder, node }
    }

    /// The proxy starts.
    pub fn record_start(&self) {
        self.recorder.record_about(self.node.clone(), EventType::Normal, "Starting", "");
    }

    /// The port of the proxy's own health cannot be opened.
    pub fn record_health_failure(&self, why: &str) {
        let reason = "FailedToStartProxierHealthcheck";
        self.recorder.record_about(self.node.clone(), EventType::Warning, reason, why);
    }

    /// The port on which a service reports its local endpoints cannot be opened.
    pub fn record_health_check_failure(&self, service: &ServiceKey, port: u16, why: &str) {
        let (namespace, name) = service.split_once('/').unwrap_or_default();
        let about = ObjectReference {
            kind: "Service".to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: service.to_string(),
            ..ObjectReference::default()
        };
        let node = &self.node.name;
        let message = format!("node {node} failed to start healthcheck {service:?} on port {port}: {why}");
        self.recorder.record_about(about, EventType::Warning, "FailedToStartServiceHealthcheck", message);
    }
}
